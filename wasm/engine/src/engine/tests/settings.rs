//! Settings of engines under test.

use core::time::Duration;

use tollgate_core::client::{Mode, Policy};
use tollgate_core::units::Capacity;

use crate::config::{EngineConfig, HostFailure, Overflow, RuleConfig, Shape};

/// One rule called "tenant", whose requests are held for their first lease.
pub(super) fn one_rule() -> EngineConfig {
    rules([rule("tenant")])
}

pub(super) fn rules<const N: usize>(rules: [RuleConfig; N]) -> EngineConfig {
    EngineConfig {
        coordinator: "c".to_owned(),
        shards: Vec::new(),
        enabled: true,
        rules: rules.to_vec(),
        max_scopes: 10_000,
        max_pending: 1000,
        max_waiting: 4000,
        tick: Duration::from_millis(20),
        call_timeout: Duration::from_secs(1),
        host_failure: HostFailure::Open,
        reports_limits: false,
    }
}

pub(super) fn rule(name: &str) -> RuleConfig {
    RuleConfig {
        name: name.to_owned(),
        policy: Policy::default(),
        enforced: 100,
        on_overflow: Overflow::Share,
        final_cost: None,
        shape: None,
        marks: false,
    }
}

/// A rule whose scopes have `safe` tokens per second without a lease, and hold no request for one.
pub(super) fn safe_rule(name: &str, safe: u64) -> RuleConfig {
    let policy = Policy {
        safe: Capacity::from_whole(safe),
        first_lease_wait: Duration::ZERO,
        ..Policy::default()
    };
    RuleConfig {
        policy,
        ..rule(name)
    }
}

/// The same rule, whose requests wait for their turn.
pub(super) fn shaped(rule: RuleConfig) -> RuleConfig {
    let shape = Some(Shape {
        max_wait: Duration::from_secs(1),
        max_waiting: 1000,
    });
    RuleConfig { shape, ..rule }
}

/// The same rule, whose scopes have nothing without a lease.
pub(super) fn pessimistic(rule: RuleConfig) -> RuleConfig {
    let policy = Policy {
        no_lease: Mode::Pessimistic,
        ..rule.policy
    };
    RuleConfig { policy, ..rule }
}
