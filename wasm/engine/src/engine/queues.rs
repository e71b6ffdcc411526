//! Requests beyond the limit that wait for their turn (`on_limit: shape`).

use tollgate_core::units::Instant;

use super::Engine;
use crate::admission::{Request, Stage};
use crate::decision::{BucketId, Decision, Shortfall};
use crate::host::Host;
use crate::shared_table::TableError;
use crate::wait_queues::{QueuedRequest, WaitError, WaitLimits, WaitingRequest};

/// Decisions about requests that wait in one callback. Each may cost a change in shared data.
const LOOKS_MAX: usize = 128;

/// Work that may still be done in one callback.
#[derive(Debug)]
struct WorkBudget {
    releases: usize,
    looks: usize,
}

// === impl WorkBudget ===

impl WorkBudget {
    fn is_spent(&self) -> bool {
        self.releases == 0 || self.looks == 0
    }

    fn count_release(&mut self) {
        self.releases = self.releases.saturating_sub(1);
    }
}

// === impl Engine ===

impl<H: Host> Engine<H> {
    /// Lets a request wait for its turn, unless it would be longer than it may or its client likes, or
    /// too many wait already.
    pub(super) fn queue(&mut self, waiting: &WaitingRequest, shortfall: Shortfall) -> Decision {
        let now = self.process.host.now();
        let limits = self.wait_limits(&waiting.request, shortfall);
        let joined = self.queues.join(now, waiting, shortfall, limits);
        let stats = &mut self.process.stats;
        match joined {
            Ok(()) => {
                self.admission.set_has_queue(shortfall.target, true);
                self.process.switches.turn_on(waiting.request.root);
                return Decision::Queue(shortfall);
            }
            Err(WaitError::NotAllowed) => {}
            Err(WaitError::TooLong) => stats.wait_too_long.add_one(),
            Err(WaitError::Full) => stats.wait_full.add_one(),
        }
        self.turn_away(&waiting.request, shortfall)
    }

    fn wait_limits(&self, request: &Request, shortfall: Shortfall) -> WaitLimits {
        WaitLimits {
            shape: self.process.rules.shape(shortfall.target.rule),
            max_waiting: request.root.max_waiting,
            tick: self.process.config.tick,
        }
    }

    fn turn_away(&mut self, request: &Request, shortfall: Shortfall) -> Decision {
        let rules = &mut self.process.rules;
        self.admission.turn_away(rules, request, shortfall)
    }

    /// Takes a request out of its queue, for its stream has ended.
    pub(super) fn leave_queue(&mut self, stream: u32) {
        if self.queues.is_empty() {
            return;
        }
        let now = self.process.host.now();
        if let Some(queued) = self.queues.take(now, stream, false) {
            self.close_queue(queued.target.bucket());
        }
    }

    /// Releases requests whose turn has come, and answers those whose time is over: `releases` at most.
    pub(super) fn release_queued(&mut self, now: Instant, releases: usize) {
        if self.queues.is_empty() {
            // The requests that were left over may all have gone by themselves.
            self.queues.has_backlog = false;
            return;
        }
        if self.admission.take_has_left() {
            self.decide_strays(now);
        }
        let looks = LOOKS_MAX;
        let mut budget = WorkBudget { releases, looks };
        while !budget.is_spent()
            && let Some(bucket) = self.queues.due(now)
        {
            self.run_queue(now, bucket, &mut budget);
        }
        while budget.releases > 0
            && let Some(stream) = self.queues.overdue(now)
        {
            self.time_out(now, stream);
            budget.count_release();
        }
        self.queues.has_backlog = budget.is_spent() && !self.queues.is_empty();
    }

    /// Has the buckets asked at once whose slots have got an answer, which may be a higher limit.
    pub(super) fn hurry_queues(&mut self, now: Instant, slots: &[u32]) {
        if self.queues.is_empty() || slots.is_empty() {
            return;
        }
        let mut slots = slots.to_vec();
        slots.sort_unstable();
        let is_answered = |slot: u32| slots.binary_search(&slot).is_ok();
        let admission = &mut self.admission;
        self.queues
            .hurry(now, |target| admission.forget_denials(target, is_answered));
    }

    /// Counts the requests that wait as wanted.
    pub(super) fn count_waiting(&mut self, now: Instant) {
        let workers = self.process.table.worker_count();
        for (target, attempts) in self.queues.attempts(now, workers) {
            self.admission.count_again(target, attempts);
        }
    }

    /// Decides again on requests that wait for a bucket that their scopes have left, or others of these would overtake
    /// them.
    fn decide_strays(&mut self, now: Instant) {
        let (admission, rules) = (&self.admission, &self.process.rules);
        let strays = self.queues.take_strays(now, |queued| {
            let own = queued.waiting.request.own_targets().iter();
            let mut buckets = own.flat_map(|target| admission.buckets(rules, *target));
            buckets.all(|bucket| bucket != queued.target.bucket())
        });
        for mut stray in strays {
            let decision = match self.decide_again(&mut stray.waiting.request, Stage::Turn) {
                Ok(Decision::Queue(shortfall)) => self.queue(&stray.waiting, shortfall),
                Ok(decision) => decision,
                Err(error) => {
                    stray.waiting.request.count_nowhere();
                    self.decide_without_host(stray.waiting.request.root, &error)
                }
            };
            if !matches!(decision, Decision::Queue(_)) {
                if decision == Decision::Admit {
                    self.process.stats.waited.add_one();
                }
                let QueuedRequest { waiting, .. } = &stray;
                self.end_wait(waiting.waited(now, true), &waiting.request, decision);
            }
            self.close_queue(stray.target.bucket());
        }
    }

    /// Releases the first requests of a queue until the bucket is short.
    fn run_queue(&mut self, now: Instant, bucket: BucketId, budget: &mut WorkBudget) {
        let mut gone: usize = 0;
        while !budget.is_spent()
            && let Some(mut queued) = self.queues.first(bucket)
        {
            budget.looks = budget.looks.saturating_sub(1);
            let decision = match self.decide_again(&mut queued.waiting.request, Stage::Turn) {
                Ok(Decision::Queue(shortfall)) if shortfall.target.bucket() != bucket => {
                    if let Some(decision) = self.move_on(now, &queued, shortfall) {
                        self.leave_turn(now, &queued, decision);
                        budget.count_release();
                    }
                    continue;
                }
                Ok(Decision::Queue(shortfall)) => {
                    self.queues.keep(&queued.waiting.request);
                    let workers = self.process.table.worker_count();
                    self.queues.fall_short(now, shortfall, gone, workers);
                    break;
                }
                Ok(Decision::Hold) => break,
                Ok(decision) => decision,
                Err(error) => {
                    queued.waiting.request.count_nowhere();
                    self.decide_without_host(queued.waiting.request.root, &error)
                }
            };
            gone = gone.saturating_add(1);
            self.leave_turn(now, &queued, decision);
            budget.count_release();
        }
        self.queues.look_soon(now, bucket, self.process.config.tick);
        self.close_queue(bucket);
    }

    /// Moves a request that is short elsewhere at its turn to the queue there; refuses it if it may not
    /// wait there.
    fn move_on(
        &mut self,
        now: Instant,
        queued: &QueuedRequest,
        shortfall: Shortfall,
    ) -> Option<Decision> {
        let limits = self.wait_limits(&queued.waiting.request, shortfall);
        match self.queues.transfer(now, queued.clone(), shortfall, limits) {
            Ok(()) => {
                self.admission.set_has_queue(shortfall.target, true);
                None
            }
            Err(_) => Some(self.turn_away(&queued.waiting.request, shortfall)),
        }
    }

    /// Answers a request whose time is over, with what it waited for as the reason.
    fn time_out(&mut self, now: Instant, stream: u32) {
        let Some((queued, shortfall)) = self.queues.time_out(now, stream) else {
            return;
        };
        self.process.stats.wait_timeouts.add_one();
        let decision = match shortfall {
            Some(shortfall) => self.turn_away(&queued.waiting.request, shortfall),
            None => self.decide_without_host(queued.waiting.request.root, &TableError::Gone),
        };
        let QueuedRequest { waiting, .. } = queued;
        self.end_wait(waiting.waited(now, true), &waiting.request, decision);
        self.close_queue(queued.target.bucket());
    }

    /// Takes the first request out of its queue, as decided.
    fn leave_turn(&mut self, now: Instant, queued: &QueuedRequest, decision: Decision) {
        let goes = decision == Decision::Admit;
        if goes {
            self.process.stats.waited.add_one();
        }
        self.queues.take(now, queued.waiting.request.stream, goes);
        let QueuedRequest { waiting, .. } = queued;
        self.end_wait(waiting.waited(now, true), &waiting.request, decision);
    }

    fn close_queue(&mut self, bucket: BucketId) {
        if let Some(target) = self.queues.close(bucket) {
            self.admission.set_has_queue(target, false);
        }
    }
}
