//! Outcomes of requests, counted over the whole fleet.

use std::time::Duration;

use crate::ideal::IdealBuckets;
use crate::observer::{ObserverSlot, RequestEvent, RequestOutcome};

/// Requests that went on and that were refused, of each scope, since the last sample. One that takes
/// several tokens counts as so many.
#[derive(Debug)]
pub(crate) struct Tally {
    scopes: Vec<[u64; 2]>,
    /// Buckets that the same requests come to.
    pub(crate) ideal: IdealBuckets,
}

/// Place where a process counts the outcomes of its requests.
#[derive(Debug)]
pub(crate) struct Outcomes<'a> {
    pub(crate) tally: &'a mut Tally,
    pub(crate) observer: &'a mut ObserverSlot,
    /// Time since the start.
    pub(crate) at: Duration,
    /// Place of the process.
    pub(crate) envoy: u32,
}

// === impl Tally ===

impl Tally {
    pub(crate) fn new(scopes: usize, ideal: IdealBuckets) -> Self {
        Self {
            scopes: vec![[0; 2]; scopes],
            ideal,
        }
    }

    /// Returns the requests of `scope` that went on, and those that were refused.
    pub(crate) fn of(&self, scope: usize) -> [u64; 2] {
        self.scopes[scope]
    }

    /// Returns the same for all scopes.
    pub(crate) fn sum(&self) -> [u64; 2] {
        let mut sum = [0; 2];
        for [admitted, refused] in &self.scopes {
            sum[0] += admitted;
            sum[1] += refused;
        }
        sum
    }

    pub(crate) fn clear(&mut self) {
        self.scopes.fill([0; 2]);
        self.ideal.clear_samples();
    }
}

// === impl Outcomes ===

impl Outcomes<'_> {
    /// Notes that a request for `cost` tokens of `scope` comes.
    pub(crate) fn arrive(&mut self, scope: u32, cost: u32) {
        self.tally.ideal.request(self.at, scope as usize, cost);
    }

    /// Counts what became of a worker's request for `cost` tokens of `scope`.
    pub(crate) fn count(
        &mut self,
        worker: u32,
        (scope, cost): (u32, u32),
        outcome: RequestOutcome,
        waited: Option<Duration>,
    ) {
        let counts = &mut self.tally.scopes[scope as usize];
        match outcome {
            RequestOutcome::Admitted => {
                counts[0] += u64::from(cost);
                self.tally.ideal.admit(self.at, scope as usize, cost);
            }
            RequestOutcome::Refused => counts[1] += u64::from(cost),
            RequestOutcome::Waits => {}
        }
        let (at, envoy) = (self.at, self.envoy);
        self.observer.request(|| RequestEvent {
            at,
            envoy,
            worker,
            scope,
            cost,
            outcome,
            waited,
        });
    }
}
