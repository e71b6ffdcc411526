//! Coordinator in this process that lends the same to all.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;
use tollgate_client::{ClientRun, Refresh, Refreshed, Release, ResourceId, Transport};
use tollgate_core::lease::{Answer, Epoch, LeaseTerms, Origin, Unit, UnitAnswer};
use tollgate_core::message::{ScopeAnswer, ScopeRefresh};
use tollgate_core::units::{Capacity, Tokens};

/// Lends `rate` requests per second to each scope, and as much at once; clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Lender(Arc<State>);

#[derive(Debug)]
struct State {
    rate: AtomicU64,
    /// Requests in flight, where there is such a limit.
    in_flight: Option<u64>,
    is_away: AtomicBool,
    refreshes: AtomicU64,
    releases: AtomicU64,
    watches: Mutex<Vec<mpsc::Sender<Vec<ResourceId>>>>,
}

// === impl Lender ===

impl Lender {
    pub(crate) fn new(rate: u64, in_flight: Option<u64>) -> Self {
        Self(Arc::new(State {
            rate: AtomicU64::new(rate),
            in_flight,
            is_away: AtomicBool::new(false),
            refreshes: AtomicU64::new(0),
            releases: AtomicU64::new(0),
            watches: Mutex::default(),
        }))
    }

    /// Changes what it lends.
    pub(crate) fn set_rate(&self, rate: u64) {
        self.0.rate.store(rate, Ordering::Relaxed);
    }

    /// Answers no more calls, or again.
    pub(crate) fn set_away(&self, is_away: bool) {
        self.0.is_away.store(is_away, Ordering::Relaxed);
    }

    /// Number of refreshes so far.
    pub(crate) fn refreshes(&self) -> u64 {
        self.0.refreshes.load(Ordering::Relaxed)
    }

    /// Number of releases so far.
    pub(crate) fn releases(&self) -> u64 {
        self.0.releases.load(Ordering::Relaxed)
    }

    /// Names a scope's requests to all that watch.
    pub(crate) async fn nudge(&self, scope: &str) {
        let watches = self.0.watches.lock().unwrap().clone();
        assert!(!watches.is_empty());
        for watch in watches {
            let resource = ResourceId {
                scope: scope.into(),
                unit: Unit::Requests,
            };
            watch.send(vec![resource]).await.unwrap();
        }
    }

    fn answer(&self, scope: &ScopeRefresh) -> ScopeAnswer {
        let units = scope.asks.iter().filter_map(|(unit, request)| {
            let capacity = match unit {
                Unit::Requests => self.0.rate.load(Ordering::Relaxed),
                _ => self.0.in_flight?,
            };
            let answer = Answer {
                lease: Some(LeaseTerms {
                    capacity: Capacity::from_whole(capacity),
                    burst: Tokens::from_whole(capacity),
                    duration: Duration::from_secs(30),
                    fingerprint: 1,
                }),
                refresh_interval: Duration::from_secs(10),
                safe: None,
                capacity: Capacity::from_whole(capacity),
                period: None,
                burst: None,
                draw: None,
            };
            Some(UnitAnswer {
                unit: *unit,
                sequence: request.sequence,
                answer,
            })
        });
        let more = self.0.in_flight.map(|_| Unit::Concurrency);
        ScopeAnswer {
            scope: scope.scope.clone(),
            canonical: scope.scope.clone(),
            limited: [Unit::Requests].into_iter().chain(more).collect(),
            usual: None,
            origin: Origin {
                shard: None,
                epoch: Epoch(1),
            },
            outcome: Ok(units.collect()),
        }
    }
}

impl Transport for Lender {
    async fn refresh(&self, refresh: Refresh) -> Result<Refreshed, String> {
        if self.0.is_away.load(Ordering::Relaxed) {
            return Err("away".to_owned());
        }
        self.0.refreshes.fetch_add(1, Ordering::Relaxed);
        let scopes = refresh.scopes.iter();
        Ok(Refreshed {
            scopes: scopes.map(|scope| Ok(self.answer(scope))).collect(),
        })
    }

    async fn release(&self, _: Release) {
        self.0.releases.fetch_add(1, Ordering::Relaxed);
    }

    async fn watch(&self, _: ClientRun, nudges: mpsc::Sender<Vec<ResourceId>>) -> u32 {
        self.0.watches.lock().unwrap().push(nudges.clone());
        nudges.closed().await;
        0
    }
}
