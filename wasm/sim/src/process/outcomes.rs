//! Outcomes of requests, counted over the whole fleet.

use std::time::Duration;

use crate::demand::{IncomingRequest, Retry};
use crate::ideal::{FleetAdmission, IdealLimits};
use crate::observer::{ObserverSlot, RequestEvent, RequestOutcome};

/// Requests that went on and that were refused, of each scope, since the last sample. One that takes
/// several tokens counts as so many.
#[derive(Debug)]
pub(crate) struct Tally {
    scopes: Vec<[u64; 2]>,
    /// Limits that the same requests come to.
    pub(crate) ideal: IdealLimits,
    /// Requests that come again.
    retries: Vec<Retry>,
}

/// Outcomes of one process's requests that are still to be counted, in their order: workers that
/// interleave cannot share the place where they are counted.
#[derive(Debug, Default)]
pub(crate) struct OutcomeLog(Vec<LoggedOutcome>);

#[derive(Debug)]
pub(super) enum LoggedOutcome {
    /// A request comes.
    Arrived(IncomingRequest),
    /// One goes on.
    Admitted(FleetAdmission),
    /// One would pass after a pause, and comes again by the number of its demand so many times.
    Refused {
        scope: u32,
        pause: Duration,
        again: (u32, u32),
    },
    /// A worker has decided on the request of a scope for so many tokens.
    Decided {
        worker: u32,
        request: (u32, u32),
        outcome: RequestOutcome,
        waited: Option<Duration>,
    },
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
    pub(crate) fn new(scopes: usize, ideal: IdealLimits) -> Self {
        Self {
            scopes: vec![[0; 2]; scopes],
            ideal,
            retries: Vec::new(),
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

    /// Returns the requests that come again.
    pub(crate) fn take_retries(&mut self) -> Vec<Retry> {
        std::mem::take(&mut self.retries)
    }

    pub(crate) fn clear(&mut self, at: Duration) {
        self.scopes.fill([0; 2]);
        self.ideal.clear_samples(at);
    }
}

// === impl OutcomeLog ===

impl OutcomeLog {
    pub(super) fn push(&mut self, outcome: LoggedOutcome) {
        self.0.push(outcome);
    }
}

// === impl Outcomes ===

impl Outcomes<'_> {
    /// Counts what is in `log`, and empties it.
    pub(super) fn count_all(&mut self, log: &mut OutcomeLog) {
        for entry in log.0.drain(..) {
            match entry {
                LoggedOutcome::Arrived(request) => self.tally.ideal.request(self.at, &request),
                LoggedOutcome::Admitted(admission) => self.tally.ideal.admit(self.at, admission),
                LoggedOutcome::Refused {
                    scope,
                    pause,
                    again,
                } => self.refuse(scope, pause, again),
                LoggedOutcome::Decided {
                    worker,
                    request,
                    outcome,
                    waited,
                } => self.count(worker, request, outcome, waited),
            }
        }
    }

    /// Notes the time after which a refused request for `scope` would pass, and lets it come again then,
    /// by the number of its demand and the times that it comes again.
    fn refuse(&mut self, scope: u32, pause: Duration, (demand, left): (u32, u32)) {
        self.tally.ideal.note_pause(scope as usize, pause);
        if let Some(left) = left.checked_sub(1) {
            self.tally.retries.push(Retry {
                at: self.at.saturating_add(pause),
                demand,
                scope,
                left,
            });
        }
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
            RequestOutcome::Admitted => counts[0] += u64::from(cost),
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
