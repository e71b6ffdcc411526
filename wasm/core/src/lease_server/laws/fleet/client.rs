//! A client of the fleet, and what is random about it.

use super::*;

/// One process that asks, uses what it has, and forgets it at its expiry.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) run: ClientRun,
    /// The index of its resource.
    pub(super) member: usize,
    pub(super) priority: Priority,
    pub(super) subclients: NonZeroU32,
    pub(super) wants: Capacity,
    /// What it may use, until when by its own count, and on what that rests.
    pub(super) lease: Option<(Capacity, u64, u64)>,
    /// The sequence of the latest request, and when it was sent.
    pub(super) latest: (u64, u64),
    pub(super) epoch: Epoch,
    pub(super) ask_at: u64,
    /// How soon it was last told to come back.
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
            lease: None,
            latest: (0, now_ms),
            epoch: Epoch(0),
            ask_at: now_ms,
            refresh_interval: Duration::ZERO,
        }
    }

    /// What it may use now.
    pub(super) fn has(&self, now_ms: u64) -> Capacity {
        let valid = self.lease.filter(|(_, expiry, _)| *expiry > now_ms);
        valid.map_or(Capacity::ZERO, |(capacity, ..)| capacity)
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
        self.latest = (self.latest.0 + 1, now_ms);
        self.ask_at = now_ms + CALL_TIMEOUT_MS + random.below(100);
        if self.wants == Capacity::ZERO && random.percent(50) {
            self.lease = None;
            return Mail::Release(self.run.clone(), self.member, self.latest.0);
        }
        let remaining = |(_, expiry, _): (_, u64, _)| expiry.saturating_sub(now_ms);
        let request = LeaseRequest {
            sequence: self.latest.0,
            has: self.has(now_ms),
            remaining: self.lease.map(remaining).map(Duration::from_millis),
            fingerprint: self.lease.map_or(0, |(_, _, fingerprint)| fingerprint),
            claim: crate::lease::Claim::Lease,
            demand: self.demand(),
        };
        Mail::Refresh(self.run.clone(), self.member, request)
    }

    pub(super) fn handle_answer(
        &mut self,
        now_ms: u64,
        sequence: u64,
        epoch: Epoch,
        answer: &Answer,
    ) {
        let (latest, sent_at) = self.latest;
        if sequence != latest || epoch < self.epoch {
            return;
        }
        self.epoch = epoch;
        self.lease = answer.lease.map(|lease| {
            let expiry = sent_at + lease.duration.as_millis() as u64;
            (lease.capacity, expiry, lease.fingerprint)
        });
        self.refresh_interval = answer.refresh_interval;
        self.ask_at = now_ms + answer.refresh_interval.as_millis() as u64;
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
