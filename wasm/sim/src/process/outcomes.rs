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

/// Outcomes of one process's requests that are still to be counted, in their order: workers that
/// interleave cannot share the place where they are counted.
#[derive(Debug, Default)]
pub(crate) struct OutcomeLog(Vec<LoggedOutcome>);

#[derive(Clone, Copy, Debug)]
struct LoggedOutcome {
    scope: u32,
    cost: u32,
    /// Worker, decision and time waited; none of a request that comes.
    decided: Option<(u32, RequestOutcome, Option<Duration>)>,
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

// === impl OutcomeLog ===

impl OutcomeLog {
    /// Notes that a request for `cost` tokens of `scope` comes.
    pub(super) fn arrive(&mut self, scope: u32, cost: u32) {
        self.0.push(LoggedOutcome {
            scope,
            cost,
            decided: None,
        });
    }

    /// Notes what became of a worker's request.
    pub(super) fn decide(
        &mut self,
        worker: u32,
        (scope, cost): (u32, u32),
        outcome: RequestOutcome,
        waited: Option<Duration>,
    ) {
        self.0.push(LoggedOutcome {
            scope,
            cost,
            decided: Some((worker, outcome, waited)),
        });
    }
}

// === impl Outcomes ===

impl Outcomes<'_> {
    /// Counts what is in `log`, and empties it.
    pub(super) fn count_all(&mut self, log: &mut OutcomeLog) {
        for LoggedOutcome {
            scope,
            cost,
            decided,
        } in log.0.drain(..)
        {
            match decided {
                None => self.arrive(scope, cost),
                Some((worker, outcome, waited)) => {
                    self.count(worker, (scope, cost), outcome, waited);
                }
            }
        }
    }

    /// Notes that a request for `cost` tokens of `scope` comes.
    fn arrive(&mut self, scope: u32, cost: u32) {
        self.tally.ideal.request(self.at, scope as usize, cost);
    }

    /// Counts what became of a worker's request for `cost` tokens of `scope`.
    fn count(
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
