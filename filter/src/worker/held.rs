//! Requests that are held for the first answer of their scope, and the scopes that wait for it.
//!
//! The request to the coordinator cannot be sent from the held stream's callback: the SDK drops an
//! answer whose stream has gone. So a cold scope is noted here and the tick, made short, asks for
//! all that turned up meanwhile in one call. The held are looked at on every tick and answer, in the order
//! of their arrival.

use core::time::Duration;
use std::collections::VecDeque;

use tollgate_core::client::State;
use tollgate_core::units::Instant;

use super::calls::Reason;
use super::pen::asked;
use super::{Target, Targets, Verdict, Worker, entry};
use crate::host::Host;
use crate::patience::patience;
use crate::refusal::is_grpc;

/// The tick while a first request waits to be sent, or streams wait to be released.
const TICK_AT_ONCE: Duration = Duration::from_millis(1);
/// The tick while requests are held.
const TICK_WHILE_HELD: Duration = Duration::from_millis(5);

/// Streams that go on or are answered in one callback. Envoy carries these out when the callback
/// has returned, each from within the one before: the end of a stream enters the VM again, and
/// leaving the VM carries out what is left. Some 300 of them overflow the stack, and the VM is lost.
const RELEASES_MAX: usize = 32;

/// What waits in one worker.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    held: VecDeque<Held>,
    cold: Vec<Cold>,
    /// There were more streams to release than one callback may.
    backlog: bool,
}

/// A request that is held.
#[derive(Debug)]
struct Held {
    context: u32,
    targets: Targets,
    grpc: bool,
    since: Instant,
    /// However many of its scopes are cold, it is not held beyond this.
    deadline: Instant,
}

/// A scope whose first answer is awaited.
#[derive(Debug)]
struct Cold {
    target: Target,
    slot: u32,
    until: Instant,
    /// Looked at once: asked for, by this worker or another.
    asked: bool,
}

// === impl Waiting ===

impl Waiting {
    pub(super) fn is_full(&self, max: usize) -> bool {
        self.held.len() >= max
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn ask_soon(&mut self, target: Target, slot: u32, until: Instant) {
        self.cold.push(Cold {
            target,
            slot,
            until,
            asked: false,
        });
    }
}

// === impl Worker ===

impl<H: Host> Worker<H> {
    /// How often the worker needs a tick now.
    #[inline]
    pub(crate) fn tick_period(&self) -> Duration {
        if self.waiting.cold.is_empty() && self.waiting.held.is_empty() {
            return self.config.tick;
        }
        let to_ask = |cold: &Cold| !cold.asked && self.calls.has_room(Reason::Cold);
        match self.waiting.backlog || self.waiting.cold.iter().any(to_ask) {
            true => TICK_AT_ONCE,
            false => TICK_WHILE_HELD.min(self.config.tick),
        }
    }

    /// Whether ticks are needed more often than usual.
    #[inline]
    pub(crate) fn is_hurried(&self) -> bool {
        !self.waiting.cold.is_empty() || !self.waiting.held.is_empty()
    }

    /// Holds the request at hand, unless its client would rather not wait.
    #[cold]
    pub(super) fn hold(&mut self, context: u32, mut targets: Targets) -> Verdict {
        let grpc = is_grpc(&self.host);
        let patience = patience(&self.host).unwrap_or(Duration::MAX);
        let waits = targets.as_slice().iter().filter_map(|target| {
            let table = self.tables.get(usize::from(target.table))?;
            Some(table.policy.cold_start_wait)
        });
        let wait = waits.max().unwrap_or_default().min(patience);
        if wait.is_zero() {
            let verdict = match self.decide(&mut targets, false) {
                Ok(verdict) => verdict,
                Err(error) => return self.complain(&error),
            };
            self.begin(context, &targets, verdict);
            return verdict;
        }
        self.stats.held.add_one();
        let since = self.host.now();
        self.waiting.held.push_back(Held {
            context,
            targets,
            grpc,
            since,
            deadline: since.saturating_add(wait),
        });
        Verdict::Hold
    }

    /// Forgets a stream that has ended.
    pub(crate) fn forget(&mut self, context: u32) {
        self.waiting.held.retain(|held| held.context != context);
        self.end_stream(context);
    }

    /// Asks for the scopes that turned up since the last tick, in as few calls as it takes, and sees
    /// whether other workers got answers for the rest.
    pub(super) fn ask_for_cold(&mut self, now: Instant) {
        let mut asks = Vec::new();
        let mut releases = Vec::new();
        let may_ask = self.calls.has_room(Reason::Cold);
        let mut cold = core::mem::take(&mut self.waiting.cold);
        for scope in &mut cold {
            // What turns up while no more calls may be made goes into the next one together.
            if scope.asked || !may_ask {
                self.look_again(scope, now);
                continue;
            }
            scope.asked = true;
            let me = self.id;
            let usage = self.permits(scope.target).map(|permits| permits.usage(me));
            let todo = self.with_holding(scope.target, now, |holding, policy| {
                if let (Some(gauge), Some(usage)) = (&mut holding.concurrency, &usage) {
                    gauge.report(now, usage);
                }
                (holding.ask(now, policy), holding.due())
            });
            if let Some(permits) = self.permits(scope.target).filter(|_| todo.is_ok()) {
                permits.settled(permits.in_use);
            }
            match todo {
                Ok(((todos, due), slot)) if !todos.is_empty() => {
                    scope.slot = slot;
                    self.reschedule(slot, due, State::Cold);
                    let id = self.scope_of(scope.target);
                    asks.extend(id.and_then(|id| asked(slot, &id, todos, &mut releases)));
                }
                Ok(_) => {}
                Err(error) => {
                    self.complain(&error);
                }
            }
        }
        cold.retain(|scope| self.is_cold(scope, now));
        self.waiting.cold.append(&mut cold);
        self.refresh(now, Reason::Cold, asks);
        self.release(&releases);
    }

    /// The scopes in `slots` have got their first answer, or none will come.
    pub(super) fn warm(&mut self, slots: &[u32]) {
        for scope in self
            .waiting
            .cold
            .iter_mut()
            .filter(|cold| slots.contains(&cold.slot))
        {
            if let Some(entry) = entry(&mut self.tables, scope.target) {
                entry.cold_until = None;
                // What those that could not be held were told was said without the lease.
                entry.denial = None;
            }
        }
        self.waiting.cold.retain(|cold| !slots.contains(&cold.slot));
    }

    /// Decides on the held requests that need not wait any more, the oldest first.
    pub(super) fn release_held(&mut self, now: Instant) {
        let mut released: usize = 0;
        for _ in 0..self.waiting.held.len() {
            let Some(mut held) = self.waiting.held.pop_front() else {
                return;
            };
            // The rest keeps its order.
            if released >= RELEASES_MAX {
                self.waiting.held.push_back(held);
                continue;
            }
            if now < held.deadline && self.must_wait(&held.targets, now) {
                self.waiting.held.push_back(held);
                continue;
            }
            let verdict = match self.decide(&mut held.targets, now < held.deadline) {
                Ok(verdict) => verdict,
                Err(error) => self.complain(&error),
            };
            match verdict {
                Verdict::Hold => self.waiting.held.push_back(held),
                verdict => {
                    released = released.saturating_add(1);
                    self.carry_out(now, &held, verdict);
                }
            }
        }
        self.waiting.backlog = released >= RELEASES_MAX;
    }

    fn must_wait(&mut self, targets: &Targets, now: Instant) -> bool {
        targets.as_slice().iter().any(|target| {
            let entry = entry(&mut self.tables, *target);
            entry
                .and_then(|entry| entry.cold_until)
                .is_some_and(|until| now < until)
        })
    }

    fn carry_out(&mut self, now: Instant, held: &Held, verdict: Verdict) {
        let waited = now.saturating_since(held.since).as_millis().to_string();
        let done = self.host.select(held.context).and_then(|()| {
            self.tell_pretended(verdict);
            self.host.note("tollgate.waited_ms", &waited);
            match verdict {
                Verdict::Refuse(refusal) => {
                    refusal.send(&self.host, now, self.refuser(refusal), held.grpc)
                }
                _ => self.host.resume_request(),
            }
        });
        match done {
            Ok(()) => self.begin(held.context, &held.targets, verdict),
            Err(error) => {
                self.put_permits_back(&held.targets, verdict);
                self.complain(&error.into());
            }
        }
    }

    /// Another worker may have got the answer for a scope.
    fn look_again(&mut self, cold: &Cold, now: Instant) {
        let Some(ledger) = &self.ledger else { return };
        let state = match ledger.look(&self.host, cold.slot) {
            Ok(Some((_, holding))) => match &holding.concurrency {
                Some(gauge) if gauge.state(now) == State::Cold => State::Cold,
                _ => holding.requests.state(now),
            },
            _ => State::NoLease,
        };
        if state != State::Cold
            && let Some(entry) = entry(&mut self.tables, cold.target)
        {
            entry.cold_until = None;
        }
    }

    fn is_cold(&mut self, cold: &Cold, now: Instant) -> bool {
        let Some(entry) = entry(&mut self.tables, cold.target) else {
            return false;
        };
        if now >= cold.until {
            entry.cold_until = None;
        }
        entry.cold_until.is_some()
    }
}
