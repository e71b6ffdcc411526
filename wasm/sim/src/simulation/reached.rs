//! Cases that a run has reached, so that seeds that try too little are noticed.

use tollgate_core::message::{Refresh, Refreshed};
use tollgate_core::units::Capacity;

use super::Simulation;

/// Expands to the cases, and to all of them in their order.
macro_rules! cases {
    ($($(#[$doc:meta])+ $case:ident,)+) => {
        /// Case that the seeds of a law are to reach.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Case {
            $($(#[$doc])+ $case,)+
        }

        impl Case {
            /// All cases, in their order.
            pub const ALL: &[Self] = &[$(Self::$case,)+];
        }
    };
}

cases! {
    /// A request for a lease was answered.
    Answered,
    /// One with less than the client had.
    Shrunk,
    /// One without a lease: the master learned.
    WithoutLease,
    /// A request came after a later one of its client.
    Stale,
    /// A lease was given back.
    Released,
    /// A message was lost.
    Lost,
    /// A master ended without a word.
    MasterCrashed,
    /// A master left its leases to the next one.
    HandedOver,
    /// A master was cut off from the election.
    TermLost,
    /// A call came to a master whose term had ended.
    NotMaster,
    /// A call waited in the socket of a master that stood still.
    WaitedInSocket,
    /// A request of a dead process came when another had its id.
    OfDeadRun,
    /// A process heard that it should ask for a resource.
    Nudged,
    /// A coordinator heard that it should.
    CoordinatorNudged,
    /// A process's stream of nudges ended.
    WatchEnded,
    /// A coordinator took a lease of its parent.
    Borrowed,
    /// A coordinator was cut off.
    CoordinatorCut,
    /// A capacity was lowered.
    CapacityLowered,
    /// A request was made to wait, for a first lease or in a wait queue.
    Joined,
    /// A request went on after it had waited.
    WentOn,
    /// A request was refused after it had waited.
    TimedOut,
    /// The stream of a waiting request was closed.
    Left,
    /// A debt was larger than may be owed.
    DebtCut,
    /// A worker was lost.
    Trapped,
    /// One was in the middle of a callback.
    TrappedWithin,
    /// A callback ran between two steps of another worker's.
    Interleaved,
    /// A write to shared data lost against another worker's.
    WriteLost,
    /// An answer changed a lease.
    Applied,
}

/// Number of times that each case was reached: by a simulation, or by the workers of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached([u64; Case::ALL.len()]);

// === impl Reached ===

impl Reached {
    /// Counts a case.
    pub(crate) fn count(&mut self, case: Case) {
        self.add(case, 1);
    }

    /// Counts a case so many times.
    pub(crate) fn add(&mut self, case: Case, times: u64) {
        self.0[case as usize] += times;
    }

    /// Returns how often a case was reached.
    pub fn of(&self, case: Case) -> u64 {
        self.0[case as usize]
    }
}

impl Default for Reached {
    fn default() -> Self {
        Self([0; Case::ALL.len()])
    }
}

impl std::ops::AddAssign<&Self> for Reached {
    fn add_assign(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
    }
}

// === impl Simulation ===

impl Simulation {
    /// Returns the cases that it has reached so far.
    pub fn reached(&self) -> &Reached {
        &self.reached
    }

    /// Counts what a coordinator answers.
    pub(super) fn note_answer(&mut self, refresh: &Refresh, answer: &Result<Refreshed, String>) {
        let Ok(answer) = answer else { return };
        for (asked, answered) in refresh.scopes.iter().zip(&answer.scopes) {
            let Ok(answered) = answered else { continue };
            let units = match &answered.outcome {
                Ok(units) => units,
                Err(error) if error.code == crate::coordinator::ABORTED => {
                    self.reached.count(Case::Stale);
                    continue;
                }
                Err(_) => {
                    self.reached.count(Case::NotMaster);
                    continue;
                }
            };
            for ((_, ask), unit) in asked.asks.iter().zip(units) {
                let lease = unit.answer.lease;
                let gets = lease.map_or(Capacity::ZERO, |lease| lease.capacity);
                self.reached.count(Case::Answered);
                if gets < ask.has {
                    self.reached.count(Case::Shrunk);
                }
                if lease.is_none() {
                    self.reached.count(Case::WithoutLease);
                }
            }
        }
    }
}
