//! Rules that clients ask for, and limits that match none of them.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_config::{Config, KnownRules};
use tollgate_core::units::Instant;
use tollgate_leases::rules::RuleNames;
use utoipa::ToSchema;

use super::Status;
use crate::App;
use crate::lease_view::ms;

/// The most unmatched limits in an answer.
const UNMATCHED_MAX: usize = 100;

/// Rules that clients ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
pub struct RuleStatus {
    /// The names of the rules whose scopes clients have asked for, over all APIs.
    pub names: BTreeSet<String>,
    /// The time in which each client that is there has asked: since the first request, or since a node got a shard.
    pub known_for_ms: u64,
}

// === impl RuleStatus ===

impl RuleStatus {
    /// Returns the names that a node knows; `None` if it does not know all.
    pub(super) fn of(names: &RuleNames, now: Instant) -> Option<Self> {
        let (names, known_for) = names.all(now)?;
        Some(Self {
            names,
            known_for_ms: ms(known_for),
        })
    }

    /// Returns what is known of the rules with those that `config` names; `None` if that is too little
    /// to say that there are no others.
    pub fn known<'a>(&'a self, config: &'a Config) -> Option<KnownRules<'a>> {
        KnownRules::new(
            config,
            &self.names,
            Duration::from_millis(self.known_for_ms),
        )
    }

    /// Adds what another node of the cluster knows.
    pub(super) fn joined(mut self, other: Self) -> Self {
        if !other.names.is_empty() {
            self.known_for_ms = if self.names.is_empty() {
                other.known_for_ms
            } else {
                self.known_for_ms.min(other.known_for_ms)
            };
        }
        self.names.extend(other.names);
        self
    }
}

// === impl Status ===

impl Status {
    /// Adds the limits that match no rule, if all rules are known.
    pub(super) fn find_unmatched(&mut self, app: &App) {
        if !self.unanswered.is_empty() {
            self.rules = None;
        }
        let config = app.parts.config.borrow().clone();
        let catalog = app.parts.writer.catalog();
        let known = self.rules.as_ref().and_then(|rules| rules.known(&config));
        if let Some(known) = known {
            let unmatched: Vec<_> = known.unmatched(&catalog).collect();
            self.unmatched_limit_count = unmatched.len();
            let first = unmatched.into_iter().take(UNMATCHED_MAX);
            let first = first.map(|(pattern, source)| known.explained(pattern, source));
            self.unmatched_limits = first.collect();
        }
    }
}
