//! Requests that are held for the first lease of a scope. They are re-evaluated on every tick and answer,
//! in the order of their arrival.

use core::time::Duration;

use tollgate_core::units::{Instant, Tokens};

use super::Engine;
use crate::admission::{Request, Stage};
use crate::config::RuleId;
use crate::decision::{BucketId, Decision, Target};
use crate::effect::{Effect, Waited};
use crate::host::Host;
use crate::shared_table::TableError;
use crate::wait_queues::{PendingRequest, WaitingRequest};

/// Streams that go on or are answered in one callback. A proxy carries these out when the callback
/// has returned, each from within the one before: the end of a stream enters the VM again, and
/// leaving the VM carries out what is left. Some 300 of them overflow the stack, and the VM is lost.
pub(super) const RELEASES_MAX: usize = 32;

// === impl Engine ===

impl<H: Host> Engine<H> {
    /// Returns whether a request goes in order with others that came before it and are still held, at a
    /// scope whose first lease they were held for: these go on on the next tick only, and in parts. A
    /// request that is held for another scope keeps no other waiting.
    #[inline]
    pub(super) fn is_behind_pending(&self, request: &Request) -> bool {
        let pending = &self.queues.pending;
        !pending.is_empty()
            && pending.len() < request.root.max_pending
            && request.cost > Tokens::ZERO
            && !request.is_prepaid()
            && self.in_order(request).any(|target| {
                let mut buckets = self.admission.buckets(&self.process.rules, target);
                buckets.any(|bucket| pending.is_ordered_at(bucket))
            })
    }

    /// Returns the targets at which a request goes in the order of arrival: those of rules that let
    /// requests wait and whose refusals have an effect on it.
    fn in_order<'a>(&'a self, request: &'a Request) -> impl Iterator<Item = Target> + 'a {
        let rules = &self.process.rules;
        let all = request.targets().iter().copied();
        all.filter(move |target| {
            let is_shadowed = || {
                let rule = RuleId(target.rule);
                self.admission.is_shadowed(rules, rule, request.stream)
            };
            rules.shape(target.rule).is_some() && !is_shadowed()
        })
    }

    /// Returns the buckets where a request goes before those that come after it, if it is held now: at
    /// scopes whose first lease it awaits; else behind others that are held there.
    fn first_at(&self, now: Instant, request: &Request) -> Vec<BucketId> {
        let rules = &self.process.rules;
        let buckets_of = |target| self.admission.buckets(rules, target);
        let buckets = || self.in_order(request).flat_map(buckets_of);
        let awaited = |bucket: &BucketId| self.admission.awaits(*bucket, now);
        let first: Vec<BucketId> = buckets().filter(awaited).collect();
        if !first.is_empty() {
            return first;
        }
        let is_ordered = |bucket: &BucketId| self.queues.pending.is_ordered_at(*bucket);
        buckets().filter(is_ordered).collect()
    }

    /// Adds the buckets whose first lease a held request has come to await: another request may have
    /// been led to the canonical scope of its own.
    fn extend_first_at(&self, now: Instant, pending: &mut PendingRequest) {
        let rules = &self.process.rules;
        let request = &pending.waiting.request;
        let buckets = self.in_order(request);
        let buckets = buckets.flat_map(|target| self.admission.buckets(rules, target));
        for bucket in buckets.filter(|bucket| self.admission.awaits(*bucket, now)) {
            if !pending.first_at.contains(&bucket) {
                pending.first_at.push(bucket);
            }
        }
    }

    /// Holds a request, unless its client would rather not wait.
    #[cold]
    pub(super) fn hold(&mut self, request: &mut Request, max_wait: Option<Duration>) -> Decision {
        let mut waiting = self.waiting_request(request, max_wait);
        let rules = &self.process.rules;
        let waits = request.targets().iter();
        let waits =
            waits.filter_map(|target| Some(rules.get(target.table)?.policy.first_lease_wait));
        let wait = waits.max().unwrap_or_default().min(waiting.max_wait);
        if wait.is_zero() {
            let decision = self.decide_finally(&mut waiting);
            *request = waiting.request;
            return decision;
        }
        self.process.stats.pending.add_one();
        let pending = PendingRequest {
            first_at: self.first_at(waiting.since, request),
            deadline: waiting.since.saturating_add(wait),
            waiting,
        };
        self.queues.pending.hold(pending);
        self.process.switches.turn_on(request.root);
        Decision::Hold
    }

    /// Returns a request that has come now and is to wait.
    pub(super) fn waiting_request(
        &self,
        request: &Request,
        max_wait: Option<Duration>,
    ) -> WaitingRequest {
        WaitingRequest {
            request: request.clone(),
            since: self.process.host.now(),
            max_wait: max_wait.unwrap_or(Duration::MAX),
        }
    }

    /// Decides on a request that is not held any more, though it may wait for its turn.
    fn decide_finally(&mut self, waiting: &mut WaitingRequest) -> Decision {
        match self.decide(&mut waiting.request, Stage::Unheld) {
            Ok(Decision::Queue(shortfall)) => self.queue(waiting, shortfall),
            Ok(Decision::Deny(refusal)) => Decision::Deny(refusal),
            Ok(Decision::Admit | Decision::Hold) => {
                self.open_stream(&waiting.request);
                Decision::Admit
            }
            Err(error) => self.decide_without_host(waiting.request.root, &error),
        }
    }

    pub(super) fn decide(
        &mut self,
        request: &mut Request,
        stage: Stage,
    ) -> Result<Decision, TableError> {
        self.admission
            .decide(&mut self.process, &self.queues, request, stage)
    }

    /// Decides on a request that has waited. One whose configuration is switched off now goes on.
    pub(super) fn decide_again(
        &mut self,
        request: &mut Request,
        stage: Stage,
    ) -> Result<Decision, TableError> {
        if self.process.switches.is_on(request.root) {
            return self.decide(request, stage);
        }
        request.restart(stage);
        request.count_nowhere();
        Ok(Decision::Admit)
    }

    /// Releases requests that need not wait any more, for a first lease or for their turn.
    pub(super) fn release(&mut self, now: Instant) {
        let released = self.release_pending(now);
        self.release_queued(now, RELEASES_MAX.saturating_sub(released));
    }

    /// Decides on the held requests that need not wait any more, the oldest first, and returns how many
    /// went on or were answered.
    fn release_pending(&mut self, now: Instant) -> usize {
        let mut released: usize = 0;
        for _ in 0..self.queues.pending.len() {
            let Some(mut pending) = self.queues.pending.pop() else {
                break;
            };
            let request = &pending.waiting.request;
            let in_time = now < pending.deadline && self.process.switches.is_on(request.root);
            let rules = &self.process.rules;
            let must_wait = in_time && self.admission.must_wait(rules, request, now);
            // The others keep their order.
            if released >= RELEASES_MAX || must_wait {
                self.extend_first_at(now, &mut pending);
                self.queues.pending.put_back(pending);
                continue;
            }
            if self.release_one(now, pending) {
                released = released.saturating_add(1);
            }
        }
        self.queues.pending.has_backlog = released >= RELEASES_MAX;
        let (admission, rules) = (&self.admission, &self.process.rules);
        let must_wait = |request: &Request| admission.must_wait(rules, request, now);
        let awaits = |bucket| admission.awaits(bucket, now);
        self.queues.pending.reorder(must_wait, awaits);
        released
    }

    /// Decides on a held request. False if it goes on waiting.
    fn release_one(&mut self, now: Instant, mut pending: PendingRequest) -> bool {
        let stage = if now < pending.deadline {
            Stage::New
        } else {
            Stage::Unheld
        };
        let decision = match self.decide_again(&mut pending.waiting.request, stage) {
            Ok(Decision::Hold) => {
                // It may await the first lease of a scope now that it was led to.
                pending.first_at = self.first_at(now, &pending.waiting.request);
                self.queues.pending.put_back(pending);
                return false;
            }
            Ok(Decision::Queue(shortfall)) => self.queue(&pending.waiting, shortfall),
            Ok(decision) => decision,
            Err(error) => {
                pending.waiting.request.count_nowhere();
                self.decide_without_host(pending.waiting.request.root, &error)
            }
        };
        let is_released = matches!(decision, Decision::Admit | Decision::Deny(_));
        if is_released {
            let PendingRequest { waiting, .. } = pending;
            self.end_wait(waiting.waited(now, false), &waiting.request, decision);
        }
        is_released
    }

    /// Lets a request go on that has waited, or answers it.
    pub(super) fn end_wait(&mut self, waited: Waited, request: &Request, decision: Decision) {
        let stream = request.stream;
        let effect = match decision {
            Decision::Deny(refusal) => Effect::Deny {
                stream,
                waited,
                refusal,
            },
            Decision::Admit | Decision::Hold | Decision::Queue(_) => {
                self.open_stream(request);
                Effect::Resume {
                    stream,
                    waited,
                    report: self.report_on(request),
                }
            }
        };
        self.effects.push_back(effect);
    }
}
