//! Requests that are held for the first answer of their scope, and the scopes that wait for it.
//!
//! The request to the coordinator cannot be sent from the held stream's callback: the SDK drops an
//! answer whose stream has gone. So a cold scope is noted here and the tick, made short, asks for
//! all that turned up meanwhile in one call. The held are looked at on every tick and answer, in the order
//! of their arrival.

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use tollgate_core::client::{State, Todo};
use tollgate_core::lease::Unit;
use tollgate_core::units::Instant;

use super::calls::{Reason, Releases};
use super::lines::Place;
use super::pen::asked;
use super::room::Room;
use super::{Attempt, Decision, Target, Targets, Verdict, Worker, entry};
use crate::host::Host;
use crate::patience::patience;
use crate::refusal::is_grpc;
use crate::upstreams::Upstream;

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

/// What is remembered of a request from when it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) context: u32,
    pub(super) grpc: bool,
    pub(super) since: Instant,
    /// How long its client would wait.
    pub(super) patience: Duration,
}

/// A request that is held.
#[derive(Debug)]
struct Held {
    arrival: Arrival,
    targets: Targets,
    /// However many of its scopes are cold, it is not held beyond this.
    deadline: Instant,
}

/// A scope whose first answer is awaited.
#[derive(Debug)]
struct Cold {
    target: Target,
    slot: u32,
    /// Whom it is to be asked of, as far as that is known.
    to: Upstream,
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

    /// Forgets whom scopes are to be asked of, which others may be now.
    pub(super) fn forget_ways(&mut self) {
        for cold in &mut self.cold {
            cold.to = Upstream::ANY;
        }
    }

    pub(super) fn ask_soon(&mut self, target: Target, slot: u32, until: Instant) {
        self.cold.push(Cold {
            target,
            slot,
            to: Upstream::ANY,
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
        let period = match self.lines.next_wake() {
            None => self.config.tick,
            Some(at) => self.time_until(at).min(self.config.tick),
        };
        if self.waiting.cold.is_empty() && self.waiting.held.is_empty() {
            return period;
        }
        let has_room = |cold: &Cold| self.calls.has_room(Reason::Cold, cold.to);
        let to_ask = |cold: &Cold| !cold.asked && has_room(cold);
        match self.waiting.backlog || self.waiting.cold.iter().any(to_ask) {
            true => TICK_AT_ONCE,
            false => TICK_WHILE_HELD.min(period),
        }
    }

    /// The time until `at` as the host counts it: in whole milliseconds, at least one.
    fn time_until(&self, at: Instant) -> Duration {
        let left = at.saturating_since(self.host.now());
        let millis = left.as_nanos().div_ceil(1_000_000);
        Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)).max(TICK_AT_ONCE)
    }

    /// Whether ticks are needed more often than usual.
    #[inline]
    pub(crate) fn is_hurried(&self) -> bool {
        !self.waiting.cold.is_empty() || !self.waiting.held.is_empty() || !self.lines.is_empty()
    }

    /// Whether another that came before the request at hand is still held for a scope of both where
    /// requests go in order. A first answer, or the end of waiting for it, lets the held go on the next
    /// tick only, and in parts.
    #[inline]
    pub(super) fn is_behind_held(&self, targets: &Targets) -> bool {
        let has_room = !self.waiting.is_full(self.config.max_held);
        !self.waiting.held.is_empty() && has_room && self.shares_line_of_held(targets)
    }

    #[cold]
    fn shares_line_of_held(&self, targets: &Targets) -> bool {
        let held = |target: Target| {
            let held = self.waiting.held.iter();
            let mut others = held.flat_map(|held| self.in_order(&held.targets));
            others.any(|other| other.is_same(target))
        };
        self.in_order(targets).any(held)
    }

    /// Where a request goes in the order of arrival: a rule that shapes and does not spare it.
    fn in_order<'a>(&'a self, targets: &'a Targets) -> impl Iterator<Item = Target> + 'a {
        let all = targets.as_slice().iter().copied();
        all.filter(|target| {
            let spared = self.is_spared(usize::from(target.rule), targets.stream);
            self.shape_of(target.rule).is_some() && !spared
        })
    }

    /// Goes on holding a request; who came after it, and goes in order with it, is behind it.
    fn hold_on(&mut self, held: Held, ahead: &mut BTreeSet<Place>) {
        ahead.extend(self.in_order(&held.targets).map(Target::place));
        self.waiting.held.push_back(held);
    }

    /// Whether a held request need not be held any more, where those `ahead` are.
    fn may_go(&mut self, now: Instant, held: &Held, ahead: &BTreeSet<Place>) -> bool {
        if now >= held.deadline || !self.config.enabled {
            return true;
        }
        let behind = |target: Target| ahead.contains(&target.place());
        !self.must_wait(&held.targets, now) && !self.in_order(&held.targets).any(behind)
    }

    /// Holds the request at hand, unless its client would rather not wait.
    #[cold]
    pub(super) fn hold(&mut self, context: u32, mut targets: Targets) -> Verdict {
        let arrival = self.arrival(context);
        let waits = targets.as_slice().iter().filter_map(|target| {
            let table = self.tables.get(usize::from(target.table))?;
            Some(table.policy.cold_start_wait)
        });
        let wait = waits.max().unwrap_or_default().min(arrival.patience);
        if wait.is_zero() {
            return self.decide_at_last(&mut targets, arrival);
        }
        self.stats.held.add_one();
        self.waiting.held.push_back(Held {
            arrival,
            targets,
            deadline: arrival.since.saturating_add(wait),
        });
        Verdict::Hold
    }

    /// What is to be remembered of the request at hand.
    pub(super) fn arrival(&self, context: u32) -> Arrival {
        Arrival {
            context,
            grpc: is_grpc(&self.host),
            since: self.host.now(),
            patience: patience(&self.host).unwrap_or(Duration::MAX),
        }
    }

    /// Decides on a request that is not held for an answer any more, though it may wait for its turn.
    fn decide_at_last(&mut self, targets: &mut Targets, arrival: Arrival) -> Verdict {
        match self.decide(targets, Attempt::Unheld) {
            Ok(Decision::Wait(short)) => self.join(targets, short, arrival),
            Ok(Decision::Refuse(refusal)) => Verdict::Refuse(refusal),
            Ok(Decision::Pass | Decision::Hold) => {
                self.begin(arrival.context, targets, Verdict::Pass);
                Verdict::Pass
            }
            Err(error) => self.complain(&error),
        }
    }

    /// Forgets a stream that has ended.
    pub(crate) fn forget(&mut self, context: u32) {
        let others = |held: &Held| held.arrival.context != context;
        self.waiting.held.retain(others);
        self.leave_line(context);
        self.end_stream(context);
    }

    /// Lets those go on that need not wait any more, for an answer or for their turn.
    pub(super) fn let_go(&mut self, now: Instant) {
        let released = self.release_held(now);
        self.release_turns(now, RELEASES_MAX.saturating_sub(released));
    }

    /// Asks for the scopes that turned up since the last tick, in as few calls as it takes, and sees
    /// whether other workers got answers for the rest.
    pub(super) fn ask_for_cold(&mut self, now: Instant) {
        let mut asks = Vec::new();
        let mut releases = Releases::new();
        let mut room = self.calls.room(Reason::Cold, &self.upstreams);
        let mut cold = core::mem::take(&mut self.waiting.cold);
        for scope in &mut cold {
            // What turns up while no more calls may be made goes into the next one together.
            if scope.asked || !room.has(scope.to) {
                self.look_again(scope, now);
                continue;
            }
            let todos = self.ask_cold(now, scope, &room);
            let id = self.scope_of(scope.target);
            let place = (scope.slot, scope.to);
            if let Some(asked) = id.and_then(|id| asked(place, &id, todos, &mut releases)) {
                room.take(asked.to);
                asks.push(asked);
            }
        }
        cold.retain(|scope| self.is_cold(scope, now));
        self.waiting.cold.append(&mut cold);
        self.refresh(now, Reason::Cold, asks);
        self.release(&releases);
    }

    /// What there is to say of a scope that turned up, unless there is no room where it is to be said.
    fn ask_cold(&mut self, now: Instant, cold: &mut Cold, room: &Room) -> Vec<(Unit, Todo)> {
        cold.asked = true;
        let (me, upstreams) = (self.id, self.upstreams.clone());
        let usage = self.permits(cold.target).map(|permits| permits.usage(me));
        let said = self.with_holding(cold.target, now, |holding, policy| {
            if let (Some(gauge), Some(usage)) = (&mut holding.concurrency, &usage) {
                gauge.report(now, usage);
            }
            let to = upstreams.of(holding.shard());
            let todos = room.has(to).then(|| holding.ask(now, policy));
            (to, todos, holding.due())
        });
        if let Some(permits) = self.permits(cold.target).filter(|_| said.is_ok()) {
            permits.settled(permits.in_use);
        }
        match said {
            Ok(((to, todos, due), slot)) => {
                cold.to = to;
                cold.asked = todos.is_some();
                let todos = todos.unwrap_or_default();
                if !todos.is_empty() {
                    cold.slot = slot;
                    self.reschedule(slot, due, State::Cold);
                }
                todos
            }
            Err(error) => {
                self.complain(&error);
                Vec::new()
            }
        }
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

    /// Decides on the held requests that need not wait any more, the oldest first; how many went on or
    /// were answered.
    fn release_held(&mut self, now: Instant) -> usize {
        let mut released: usize = 0;
        let mut ahead = BTreeSet::new();
        for _ in 0..self.waiting.held.len() {
            let Some(mut held) = self.waiting.held.pop_front() else {
                break;
            };
            // The rest keeps its order.
            if released >= RELEASES_MAX {
                self.waiting.held.push_back(held);
                continue;
            }
            if !self.may_go(now, &held, &ahead) {
                self.hold_on(held, &mut ahead);
                continue;
            }
            let attempt = match now < held.deadline {
                true => Attempt::New,
                false => Attempt::Unheld,
            };
            let verdict = match self.decide_again(&mut held.targets, attempt) {
                Ok(Decision::Hold) => {
                    self.hold_on(held, &mut ahead);
                    continue;
                }
                Ok(Decision::Wait(short)) => self.join(&held.targets, short, held.arrival),
                Ok(Decision::Pass) => Verdict::Pass,
                Ok(Decision::Refuse(refusal)) => Verdict::Refuse(refusal),
                Err(error) => {
                    held.targets.count_nowhere();
                    self.complain(&error)
                }
            };
            if verdict != Verdict::Hold {
                released = released.saturating_add(1);
                self.carry_out(now, held.arrival, &held.targets, verdict);
            }
        }
        self.waiting.backlog = released >= RELEASES_MAX;
        released
    }

    fn must_wait(&mut self, targets: &Targets, now: Instant) -> bool {
        targets.as_slice().iter().any(|target| {
            let entry = entry(&mut self.tables, *target);
            entry
                .and_then(|entry| entry.cold_until)
                .is_some_and(|until| now < until)
        })
    }

    /// Lets a request go on that has waited, or answers it.
    pub(super) fn carry_out(
        &mut self,
        now: Instant,
        arrival: Arrival,
        targets: &Targets,
        verdict: Verdict,
    ) {
        let waited = now.saturating_since(arrival.since).as_millis().to_string();
        let done = self.host.select(arrival.context).and_then(|()| {
            self.tell_pretended(verdict);
            self.tell_standing(targets, verdict);
            self.host.note("tollgate.waited_ms", &waited);
            match verdict {
                Verdict::Refuse(refusal) => {
                    refusal.send(&self.host, now, self.refuser(refusal), arrival.grpc)
                }
                _ => self.host.resume_request(),
            }
        });
        match done {
            Ok(()) => self.begin(arrival.context, targets, verdict),
            Err(error) => {
                self.put_permits_back(targets, verdict);
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
