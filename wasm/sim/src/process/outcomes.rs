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
pub(super) type OutcomeLog = Vec<LoggedOutcome>;

/// Entry of an [`OutcomeLog`].
#[derive(Debug)]
pub(super) enum LoggedOutcome {
    /// A request comes.
    Arrived(IncomingRequest),
    /// A worker has decided on one.
    Decided(Decided),
}

/// Decision on the request of a scope for so many tokens.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) worker: u32,
    pub(super) scope: u32,
    pub(super) cost: u32,
    pub(super) outcome: RequestOutcome,
    pub(super) waited: Option<Duration>,
    /// Its use of limits, if it goes on.
    pub(super) admission: Option<FleetAdmission>,
    /// Time after which it would pass, if it is refused: it comes again then, by the number of its demand,
    /// so many times.
    pub(super) pause: Option<(Duration, (u32, u32))>,
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

// === impl Outcomes ===

impl Outcomes<'_> {
    /// Counts what is in `log`, and empties it.
    pub(super) fn count_all(&mut self, log: &mut OutcomeLog) {
        for entry in log.drain(..) {
            match entry {
                LoggedOutcome::Arrived(request) => self.tally.ideal.request(self.at, &request),
                LoggedOutcome::Decided(decided) => self.count(&decided),
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
                final_cost: None,
            });
        }
    }

    fn count(&mut self, decided: &Decided) {
        let Decided {
            scope,
            cost,
            outcome,
            ..
        } = *decided;
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
            worker: decided.worker,
            scope,
            cost,
            outcome,
            waited: decided.waited,
        });
        if let Some(admission) = decided.admission {
            self.tally.ideal.admit(at, admission);
        }
        if let Some((pause, again)) = decided.pause {
            self.refuse(scope, pause, again);
        }
    }
}
