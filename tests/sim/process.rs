//! A simulated Envoy process: the real holder, with workers that draw slabs from it.

use std::time::Duration;

use tollgate_core::client::{Draw, Holder, Policy, State, Todo};
use tollgate_core::lease::ClientId;
use tollgate_core::slab::Slab;
use tollgate_core::units::{Capacity, Instant, Tokens};

use crate::random::Random;

/// One process. Its clock has an epoch of its own, like that of every machine.
pub(crate) struct Process {
    pub(crate) id: ClientId,
    pub(crate) holder: Holder,
    pub(crate) policy: Policy,
    pub(crate) demand: u64,
    /// Counts the processes that were started, to tell messages for a dead one.
    pub(crate) incarnation: u64,
    pub(crate) deaf_until: Instant,
    pub(crate) mute_until: Instant,
    /// Requests that passed since the last look of a law.
    pub(crate) admitted: u64,
    pub(crate) admitted_total: u64,
    /// The safe capacity of the last answer that was applied.
    pub(crate) safe_sent: Option<Capacity>,
    clock_offset: Duration,
    slabs: Vec<Slab>,
    attempts_due: u64,
}

impl Process {
    pub(crate) fn new(
        now: Instant,
        random: &mut Random,
        incarnation: u64,
        policy: &Policy,
        workers: u32,
        demand: u64,
    ) -> Self {
        let clock_offset = Duration::from_nanos(random.next() >> 8);
        let started_at = now.saturating_add(clock_offset);
        Self {
            id: ClientId::new(&format!("envoy/{incarnation}")).expect("a valid id"),
            holder: Holder::new(started_at, policy),
            policy: policy.clone(),
            demand,
            incarnation,
            deaf_until: now,
            mute_until: now,
            admitted: 0,
            admitted_total: 0,
            safe_sent: None,
            clock_offset,
            slabs: vec![Slab::default(); workers as usize],
            attempts_due: 0,
        }
    }

    /// What this process's clock shows when the world's shows `now`.
    pub(crate) fn clock(&self, now: Instant) -> Instant {
        now.saturating_add(self.clock_offset)
    }

    /// The requests of one tick, then what there is to say to the coordinator.
    pub(crate) fn tick(&mut self, now: Instant, random: &mut Random, tick: Duration) -> Todo {
        let now = self.clock(now);
        // Micro-attempts, so that slow demand arrives too.
        self.attempts_due += self.demand * tick.as_micros() as u64;
        let attempts = self.attempts_due / 1_000_000;
        self.attempts_due %= 1_000_000;
        for _ in 0..attempts {
            self.attempt(now, random);
        }
        if random.chance(20) {
            self.give_back(now);
        }
        self.holder.ask(now, &self.policy)
    }

    /// The safe capacity in force: the one last sent to this process, else its own.
    pub(crate) fn safe(&self) -> Capacity {
        self.safe_sent.unwrap_or(self.policy.safe)
    }

    /// What it wants, unless it has only just begun to ask.
    pub(crate) fn wants(&self, now: Instant) -> f64 {
        match self.holder.state(self.clock(now)) {
            State::Idle | State::Cold => 0.0,
            State::Leased | State::NoLease => self.holder.wants().as_f64(),
        }
    }

    pub(crate) fn workers(&self) -> u64 {
        self.slabs.len() as u64
    }

    fn attempt(&mut self, now: Instant, random: &mut Random) {
        self.holder.count(now, 1);
        let workers = self.slabs.len() as u64;
        let slab = &mut self.slabs[random.between(0, workers - 1) as usize];
        if !slab.take(Tokens::ONE) {
            let draw = self
                .holder
                .draw(now, &self.policy, Tokens::ONE, workers as u32);
            let Draw::Slab(tokens) = draw else { return };
            slab.add(tokens);
            assert!(slab.take(Tokens::ONE), "a draw gives what was needed");
        }
        self.admitted += 1;
        self.admitted_total += 1;
    }

    /// Workers return stale slabs, as the filter does on its tick.
    fn give_back(&mut self, now: Instant) {
        for slab in &mut self.slabs {
            self.holder.give_back(now, &self.policy, slab.drain());
        }
    }
}
