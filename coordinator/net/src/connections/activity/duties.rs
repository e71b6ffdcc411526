//! The steps that a client has to take, each within a time: to send a body, or to read an answer.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::connections::metrics::DropReason;

/// Number of a step, among those of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::connections) struct DutyId(u64);

/// Steps that the client of a connection has not taken yet.
#[derive(Debug, Default)]
pub(super) struct Duties {
    open: BTreeMap<DutyId, Duty>,
    last: u64,
}

#[derive(Clone, Copy, Debug)]
struct Duty {
    since: Instant,
    deadline: Instant,
    reason: DropReason,
}

// === impl Duties ===

impl Duties {
    /// Adds a step that is to be taken within `time`.
    pub(super) fn begin(&mut self, reason: DropReason, time: Duration, now: Instant) -> DutyId {
        self.last += 1;
        let id = DutyId(self.last);
        let duty = Duty {
            since: now,
            deadline: now + time,
            reason,
        };
        self.open.insert(id, duty);
        id
    }

    /// Removes a step, which is taken or not needed any more.
    pub(super) fn end(&mut self, id: DutyId) {
        self.open.remove(&id);
    }

    /// The reason to cut a client off that has not taken a step in time.
    pub(super) fn overdue(&self, now: Instant) -> Option<DropReason> {
        let mut duties = self.open.values();
        let late = duties.find(|duty| duty.deadline <= now);
        late.map(|duty| duty.reason)
    }

    /// Since when there has been a step to take; none if there is none.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.open.values().map(|duty| duty.since).min()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}
