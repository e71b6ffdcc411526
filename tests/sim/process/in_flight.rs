//! A worker that counts requests in flight.

use std::collections::BTreeSet;
use std::time::Duration;

use tollgate_core::client::{PermitResult as Drawn, WorkerUsage};
use tollgate_core::units::Instant;

use super::work::{Desk, Worker};
use crate::random::Random;

/// The permits of one worker, and the requests that use them.
pub(super) struct Permits {
    id: u64,
    takes: Duration,
    held: u32,
    /// How many unused ones it may keep.
    spare: u32,
    peak: u32,
    admitted: u32,
    refused: u32,
    /// When each request ends, and a number of its own.
    streams: BTreeSet<(Instant, u64)>,
    begun: u64,
}

// === impl Permits ===

impl Permits {
    pub(super) fn new(id: u64, takes: Duration) -> Self {
        Self {
            id,
            takes,
            held: 0,
            spare: 0,
            peak: 0,
            admitted: 0,
            refused: 0,
            streams: BTreeSet::new(),
            begun: 0,
        }
    }

    fn in_use(&self) -> u32 {
        self.streams.len() as u32
    }

    fn usage(&self) -> WorkerUsage {
        WorkerUsage {
            worker: self.id,
            in_use: self.in_use(),
            peak: self.peak,
            admitted: self.admitted,
            refused: self.refused,
        }
    }

    /// The process knows of all use, and of `held` permits.
    fn settled(&mut self, held: u32) {
        self.held = held;
        self.peak = self.in_use();
        (self.admitted, self.refused) = (0, 0);
    }

    fn report(&mut self, desk: &mut Desk<'_>) {
        let now = desk.now;
        let usage = self.usage();
        desk.limiter().report(now, &usage);
        self.settled(self.in_use());
    }

    fn draw(&mut self, desk: &mut Desk<'_>) {
        let (now, policy, workers) = (desk.now, desk.policy, desk.workers);
        let usage = self.usage();
        let limiter = desk.limiter();
        let drawn = limiter.draw(now, policy, &usage, workers, true);
        let (held, limit) = (limiter.held(), limiter.limit(now, policy));
        match drawn {
            Drawn::Held { held: mine, spare } => {
                self.settled(mine);
                self.spare = spare;
                desk.ensure(held <= limit, || {
                    format!("{held} permits are held of {limit}")
                });
            }
            Drawn::Pending { .. } | Drawn::Denied => self.settled(self.in_use()),
        }
    }
}

impl Worker for Permits {
    fn attempt(&mut self, desk: &mut Desk<'_>, _random: &mut Random) -> u64 {
        if self.held <= self.in_use() {
            self.draw(desk);
        }
        if self.held <= self.in_use() {
            self.refused += 1;
            return 0;
        }
        self.begun += 1;
        let ends = desk.now.saturating_add(self.takes);
        self.streams.insert((ends, self.begun));
        self.admitted += 1;
        self.peak = self.peak.max(self.in_use());
        1
    }

    fn tick(&mut self, desk: &mut Desk<'_>, _random: &mut Random, tidy: bool) -> u64 {
        let now = desk.now;
        while self.streams.first().is_some_and(|(ends, _)| *ends <= now) {
            self.streams.pop_first();
            if self.held - self.in_use() > self.spare {
                self.report(desk);
            }
        }
        if tidy {
            self.report(desk);
        }
        0
    }

    fn permits(&self) -> Option<(u64, u32)> {
        Some((self.id, self.held))
    }

    fn check(&self, _now: Instant) -> Result<(), String> {
        match self.held >= self.in_use() {
            true => Ok(()),
            false => Err(format!("{} of {} permits in use", self.in_use(), self.held)),
        }
    }
}
