//! A client of the fleet, and what is random about it.

use super::*;
use crate::lease::Origin;
use crate::lease_client::LeaseClient;

/// One process that asks, uses what it has, and forgets it at its expiry.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) run: ClientRun,
    /// The index of its resource.
    pub(super) member: usize,
    pub(super) priority: Priority,
    pub(super) subclients: NonZeroU32,
    pub(super) wants: Capacity,
    lease: LeaseClient,
    sequence: u64,
    pub(super) ask_at: u64,
    /// Refresh interval of the last answer.
    pub(super) refresh_interval: Duration,
}

/// A sequence that looks random (xorshift).
#[derive(Debug)]
pub(in super::super) struct Random(pub(super) u64);

// === impl Client ===

impl Client {
    pub(super) fn new(id: &str, started: u64, member: usize, now_ms: u64) -> Self {
        Self {
            run: ClientRun {
                id: ClientId::new(id).unwrap(),
                run: Run::Incarnation(NonZeroU64::MIN.saturating_add(started)),
            },
            member,
            priority: Priority::LOWEST,
            subclients: NonZeroU32::MIN,
            wants: Capacity::ZERO,
            lease: LeaseClient::new(None),
            sequence: 0,
            ask_at: now_ms,
            refresh_interval: Duration::ZERO,
        }
    }

    /// Capacity that it may use now.
    pub(super) fn has(&self, now_ms: u64) -> Capacity {
        let lease = self.lease.valid_lease(at(now_ms));
        lease.map_or(Capacity::ZERO, |lease| lease.capacity)
    }

    pub(super) fn demand(&self) -> Demand {
        Demand::one(Band {
            priority: self.priority,
            wants: self.wants,
            subclients: self.subclients,
        })
    }

    /// A refresh; or, if it wants nothing, a release in every second such case.
    pub(super) fn ask(&mut self, now_ms: u64, random: &mut Random) -> Mail {
        self.sequence += 1;
        let timeout_ms = CALL_TIMEOUT_MS + random.below(100);
        self.ask_at = now_ms + timeout_ms;
        if self.wants == Capacity::ZERO && random.percent(50) {
            self.lease.release(self.sequence);
            return Mail::Release(self.run.clone(), self.member, self.sequence);
        }
        let timeout = Duration::from_millis(timeout_ms);
        let demand = self.demand();
        let request = self
            .lease
            .request(at(now_ms), self.sequence, timeout, demand);
        Mail::Refresh(self.run.clone(), self.member, request)
    }

    pub(super) fn handle_answer(
        &mut self,
        now_ms: u64,
        sequence: u64,
        epoch: Epoch,
        answer: &Answer,
    ) {
        let origin = Origin::alone(epoch);
        if self
            .lease
            .handle_answer(at(now_ms), sequence, origin, answer)
            == Ok(true)
        {
            self.refresh_interval = answer.refresh_interval;
            self.ask_at = now_ms + answer.refresh_interval.as_millis() as u64;
        }
    }
}

// === impl Random ===

impl Random {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound.max(1)
    }

    pub(super) fn weight(&mut self) -> NonZeroU32 {
        NonZeroU32::MIN.saturating_add(self.below(4) as u32)
    }

    pub(super) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
