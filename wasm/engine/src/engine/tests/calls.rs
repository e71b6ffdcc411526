//! Calls of engines under test, and a coordinator's answers to them.

use core::time::Duration;
use std::sync::Arc;

use tollgate_core::cluster::ShardId;
use tollgate_core::lease::{Answer, Epoch, LeaseRequest, LeaseTerms, Origin, Unit, UnitAnswer};
use tollgate_core::message::{Refresh, Refreshed, Release, ScopeAnswer, ScopeError, ScopeRefresh};
use tollgate_core::units::{Capacity, Tokens};

use crate::host::Call;
use crate::testing::FakeProcess;

/// A call that has no answer yet.
#[derive(Clone, Debug)]
pub(super) struct OpenCall {
    /// The cluster that it goes to.
    pub(super) to: String,
    call: Call,
}

/// Terms of a scope at the coordinator.
pub(super) struct Terms {
    /// The scopes, by the beginning of their ids.
    pub(super) scopes: &'static str,
    pub(super) limits: &'static [(Unit, f64)],
    pub(super) canonical: Option<&'static str>,
}

// === impl FakeProcess ===

impl FakeProcess {
    /// Takes the oldest call that is not answered.
    pub(super) fn take_call(&self) -> Option<(u32, OpenCall)> {
        let (token, (to, call)) = self.calls.borrow_mut().pop_first()?;
        Some((token, OpenCall { to, call }))
    }
}

// === impl OpenCall ===

impl OpenCall {
    pub(super) fn is_refresh(&self) -> bool {
        matches!(self.call, Call::Refresh(_))
    }

    pub(super) fn refresh(&self) -> &Refresh {
        match &self.call {
            Call::Refresh(refresh) => refresh,
            Call::Release(release) => panic!("{release:?}"),
        }
    }

    pub(super) fn release(&self) -> &Release {
        match &self.call {
            Call::Release(release) => release,
            Call::Refresh(refresh) => panic!("{refresh:?}"),
        }
    }

    /// The ids of the scopes that it asks for.
    pub(super) fn scopes(&self) -> Vec<Arc<str>> {
        let scopes = self.refresh().scopes.iter();
        scopes.map(|scope| scope.scope.clone()).collect()
    }

    /// The wants of the first scope's first unit.
    pub(super) fn wants(&self) -> f64 {
        wants(&self.refresh().scopes[0].asks[0].1)
    }

    /// The wants of the first scope in `unit`, if it asks for that.
    pub(super) fn wants_of(&self, unit: Unit) -> Option<f64> {
        let mut asks = self.refresh().scopes[0].asks.iter();
        asks.find(|ask| ask.0 == unit).map(|ask| wants(&ask.1))
    }

    /// An answer that has nothing but the error `code` for each scope asked for.
    pub(super) fn refuse(&self, code: u32) -> Refreshed {
        self.answer(|scope| ScopeAnswer {
            limited: Vec::new(),
            origin: Origin::alone(Epoch(0)),
            outcome: Err(ScopeError {
                code,
                message: "nobody answered".to_owned(),
            }),
            ..lent(scope, 0.0)
        })
    }

    /// An answer that lends `capacity` of each scope asked for, for ten seconds.
    pub(super) fn lend(&self, capacity: f64) -> Refreshed {
        self.answer(|scope| lent(scope, capacity))
    }

    /// The same from a coordinator without shards, in its term `epoch`.
    pub(super) fn lend_in(&self, capacity: f64, epoch: u64) -> Refreshed {
        self.answer(|scope| ScopeAnswer {
            origin: Origin::alone(Epoch(epoch)),
            ..lent(scope, capacity)
        })
    }

    /// The same, where each scope may belong to a shard.
    pub(super) fn lend_from(
        &self,
        capacity: f64,
        shard: impl Fn(&str) -> Option<ShardId>,
    ) -> Refreshed {
        self.answer(|scope| ScopeAnswer {
            origin: Origin {
                shard: shard(&scope.scope),
                epoch: Epoch(1),
            },
            ..lent(scope, capacity)
        })
    }

    /// Lends to each scope by the first of `all` that fits it.
    pub(super) fn lend_by(&self, all: &[Terms]) -> Refreshed {
        self.answer(|scope| {
            let fits = |terms: &&Terms| scope.scope.starts_with(terms.scopes);
            let terms = all.iter().find(fits).expect("terms for every scope");
            let canonical = terms
                .canonical
                .map_or_else(|| scope.scope.clone(), Arc::from);
            let capacity = |unit| {
                let limit = terms.limits.iter().find(|(limited, _)| *limited == unit);
                limit.map_or(1e9, |(_, capacity)| *capacity)
            };
            let units = scope.asks.iter();
            let units = units.map(|ask| unit_lent(ask, capacity(ask.0)));
            ScopeAnswer {
                canonical,
                limited: terms.limits.iter().map(|(unit, _)| *unit).collect(),
                outcome: Ok(units.collect()),
                ..lent(scope, 0.0)
            }
        })
    }

    /// Answers each scope by itself.
    pub(super) fn answer(&self, answer: impl FnMut(&ScopeRefresh) -> ScopeAnswer) -> Refreshed {
        let scopes = self.refresh().scopes.iter();
        Refreshed {
            scopes: scopes.map(answer).map(Ok).collect(),
        }
    }
}

// === free functions ===

pub(super) const fn terms(scopes: &'static str, limits: &'static [(Unit, f64)]) -> Terms {
    Terms {
        scopes,
        limits,
        canonical: None,
    }
}

/// A lease of `capacity` in each unit asked for.
pub(super) fn lent(asked: &ScopeRefresh, capacity: f64) -> ScopeAnswer {
    let units = asked.asks.iter();
    ScopeAnswer {
        scope: asked.scope.clone(),
        canonical: asked.scope.clone(),
        limited: units.clone().map(|(unit, _)| *unit).collect(),
        usual: None,
        origin: Origin::alone(Epoch(1)),
        outcome: Ok(units.map(|ask| unit_lent(ask, capacity)).collect()),
    }
}

pub(super) fn unit_lent((unit, ask): &(Unit, LeaseRequest), capacity: f64) -> UnitAnswer {
    let capacity = Capacity::try_from_f64(capacity).unwrap();
    let lease = LeaseTerms {
        capacity,
        burst: Tokens::from_micros(capacity.as_micros()),
        duration: Duration::from_secs(10),
        fingerprint: 1,
    };
    UnitAnswer {
        unit: *unit,
        sequence: ask.sequence,
        answer: Answer {
            lease: Some(lease),
            refresh_interval: Duration::from_secs(1),
            safe: None,
            capacity,
            period: None,
            burst: None,
            draw: None,
        },
    }
}

fn wants(ask: &LeaseRequest) -> f64 {
    let bands = ask.demand.bands().iter();
    bands.map(|band| band.wants.as_f64()).sum()
}
