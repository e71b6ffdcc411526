//! A client of the table: it keeps a lease, and forgets it at its expiry.

use core::num::NonZeroU64;
use core::time::Duration;
use std::format;

use crate::client::LeaseMessage;
use crate::lease::{Answer, Band, ClientId, ClientRun, Demand, Epoch, Origin, Run};
use crate::lease_client::LeaseClient;
use crate::units::{Capacity, Instant};

/// Time after which a request counts as lost.
const CALL_TIMEOUT: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub(super) struct Client {
    pub(super) run: ClientRun,
    /// The index of its resource.
    pub(super) member: usize,
    /// Its wants.
    pub(super) band: Band,
    /// Refresh interval of the last answer.
    pub(super) interval: Duration,
    lease: LeaseClient,
    sequence: u64,
}

// === impl Client ===

impl Client {
    /// A run that knows of no lease.
    pub(super) fn new(id: usize, run: NonZeroU64, member: usize, band: Band) -> Self {
        Self {
            run: ClientRun {
                id: ClientId::new(&format!("envoy-{id}/0")).unwrap(),
                run: Run::Incarnation(run),
            },
            member,
            band,
            interval: Duration::ZERO,
            lease: LeaseClient::new(None),
            sequence: 0,
        }
    }

    /// Capacity that it may use now.
    pub(super) fn has(&self, now_ms: u64) -> Capacity {
        let lease = self.lease.valid_lease(at(now_ms));
        lease.map_or(Capacity::ZERO, |lease| lease.capacity)
    }

    /// Time of its next request; now if it has none to come.
    pub(super) fn due_ms(&self, now_ms: u64) -> u64 {
        let due = self.lease.due().map(|due| due.as_nanos() / 1_000_000);
        due.map_or(now_ms, |due_ms| due_ms.max(now_ms))
    }

    pub(super) fn ask(&mut self, now_ms: u64) -> LeaseMessage {
        self.sequence += 1;
        let demand = Demand::one(self.band);
        let (lease, now) = (&mut self.lease, at(now_ms));
        LeaseMessage::Refresh(lease.request(now, self.sequence, CALL_TIMEOUT, demand))
    }

    /// Gives its lease back.
    pub(super) fn release(&mut self) -> Option<LeaseMessage> {
        self.sequence += 1;
        self.lease.release(self.sequence)
    }

    pub(super) fn handle_answer(
        &mut self,
        now_ms: u64,
        sequence: u64,
        epoch: Epoch,
        answer: &Answer,
    ) {
        let origin = Origin::alone(epoch);
        // An earlier term's answer counts as a failure.
        let counts = self
            .lease
            .handle_answer(at(now_ms), sequence, origin, answer);
        if counts == Ok(true) {
            self.interval = answer.refresh_interval;
        }
    }
}

// === free functions ===

pub(super) fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}
