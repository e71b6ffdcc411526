//! Requests that are held for the first answer of their scope, and the scopes that wait for it.
//!
//! The request to the coordinator cannot be sent from the held stream's callback: the SDK drops an
//! answer whose stream has gone. So a cold scope is noted here and the tick, made short, asks for
//! all that turned up meanwhile in one call. The held are looked at on every tick and answer, in the order
//! of their arrival.

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use tollgate_core::client::{LeaseMessage, LeaseState};
use tollgate_core::lease::Unit;
use tollgate_core::units::{Instant, Tokens};

use super::calls::Reason;
use super::leader::asked;
use super::lines::Place;
use super::{Attempt, Decision, Engine, Request, RuleId, Target, entry};
use crate::effect::{Effect, StreamEnd, Waited};
use crate::host::Host;
use crate::refusal::Verdict;
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
    /// Where some of the held go before those who come later, as of when they were last looked at.
    awaited: BTreeSet<Place>,
    cold: Vec<Cold>,
    /// There were more streams to release than one callback may.
    backlog: bool,
}

/// What is remembered of a request from when it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) context: u32,
    pub(super) since: Instant,
    /// How long its client would wait.
    pub(super) max_wait: Duration,
}

/// A request that is held.
#[derive(Debug)]
struct Held {
    arrival: Arrival,
    targets: Request,
    /// Where it goes before those who come after it.
    first_at: Vec<Place>,
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

// === impl Engine ===

impl<H: Host> Engine<H> {
    /// Returns how often the worker needs a tick now.
    #[inline]
    pub fn tick_period(&self) -> Duration {
        let period = match self.lines.next_wake() {
            None => self.config.tick,
            Some(at) => self.time_until(at).min(self.config.tick),
        };
        if self.waiting.cold.is_empty() && self.waiting.held.is_empty() {
            return period;
        }
        let to_ask = self.waiting.cold.iter().any(|cold| !cold.asked)
            && self.calls.has_room(Reason::Cold, Upstream::ANY);
        match self.waiting.backlog || to_ask {
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

    /// Returns whether ticks are needed more often than usual.
    #[inline]
    pub fn is_hurried(&self) -> bool {
        !self.waiting.cold.is_empty() || !self.waiting.held.is_empty() || !self.lines.is_empty()
    }

    /// Whether the request at hand goes in order with others that came before it and are still held, at a
    /// scope whose first answer they were held for. It, or the end of waiting for it, lets them go on the
    /// next tick only, and in parts. Who is held for another scope keeps nobody waiting.
    #[inline]
    pub(super) fn is_behind_held(&self, targets: &Request) -> bool {
        let waiting = &self.waiting;
        !waiting.held.is_empty()
            && !waiting.is_full(self.config.max_pending)
            && targets.cost > Tokens::ZERO
            && self
                .in_order(targets)
                .any(|target| waiting.awaited.contains(&target.place()))
    }

    /// Where a request goes in the order of arrival: a rule that shapes and does not spare it.
    fn in_order<'a>(&'a self, targets: &'a Request) -> impl Iterator<Item = Target> + 'a {
        let all = targets.as_slice().iter().copied();
        all.filter(|target| {
            self.shape_of(target.rule).is_some()
                && !self.is_spared(RuleId(target.rule), targets.stream)
        })
    }

    /// Where the request at hand goes before those who come after it, if it is held now: at scopes whose first
    /// answer it awaits; else behind those who are held there.
    fn goes_first_at(&self, now: Instant, targets: &Request) -> Vec<Place> {
        let places = || self.in_order(targets).map(Target::place);
        let cold: Vec<Place> = places().filter(|place| self.awaits(*place, now)).collect();
        match cold.is_empty() {
            true => places()
                .filter(|place| self.waiting.awaited.contains(place))
                .collect(),
            false => cold,
        }
    }

    /// Whether the first answer for the scope at `place` is awaited.
    fn awaits(&self, (table, index): Place, now: Instant) -> bool {
        let table = self.tables.get(usize::from(table));
        let entry = table.and_then(|table| table.scopes.get(index));
        let until = entry.and_then(|entry| entry.cold_until);
        until.is_some_and(|until| now < until)
    }

    fn must_wait(&self, targets: &Request, now: Instant) -> bool {
        let mut places = targets.as_slice().iter().map(|target| target.place());
        places.any(|place| self.awaits(place, now))
    }

    /// Finds out where the held go first now. Who still awaits another scope's answer keeps nobody waiting
    /// where its own has come.
    fn see_who_goes_first(&mut self, now: Instant) {
        let mut awaited = BTreeSet::new();
        for held in &self.waiting.held {
            let waits = self.must_wait(&held.targets, now);
            let places = held.first_at.iter().copied();
            awaited.extend(places.filter(|place| !waits || self.awaits(*place, now)));
        }
        self.waiting.awaited = awaited;
    }

    /// Holds the request at hand, unless its client would rather not wait.
    #[cold]
    pub(super) fn hold(&mut self, targets: &mut Request, max_wait: Option<Duration>) -> Verdict {
        let arrival = self.arrival(targets.stream, max_wait);
        let waits = targets.as_slice().iter().filter_map(|target| {
            let table = self.tables.get(usize::from(target.table))?;
            Some(table.config.policy.first_lease_wait)
        });
        let wait = waits.max().unwrap_or_default().min(arrival.max_wait);
        if wait.is_zero() {
            return self.decide_at_last(targets, arrival);
        }
        self.stats.pending.add_one();
        let first_at = self.goes_first_at(arrival.since, targets);
        self.waiting.awaited.extend(&first_at);
        self.waiting.held.push_back(Held {
            arrival,
            targets: *targets,
            first_at,
            deadline: arrival.since.saturating_add(wait),
        });
        Verdict::Hold
    }

    /// What is to be remembered of the request at hand.
    pub(super) fn arrival(&self, context: u32, max_wait: Option<Duration>) -> Arrival {
        Arrival {
            context,
            since: self.host.now(),
            max_wait: max_wait.unwrap_or(Duration::MAX),
        }
    }

    /// Decides on a request that is not held for an answer any more, though it may wait for its turn.
    fn decide_at_last(&mut self, targets: &mut Request, arrival: Arrival) -> Verdict {
        match self.decide(targets, Attempt::Unheld) {
            Ok(Decision::Wait(short)) => self.join(targets, short, arrival),
            Ok(Decision::Refuse(refusal)) => Verdict::Refuse(refusal),
            Ok(Decision::Pass | Decision::Hold) => {
                self.start_stream(targets);
                Verdict::Pass
            }
            Err(error) => self.complain(&error),
        }
    }

    /// Forgets a stream that has ended, in whatever way, and charges what [`Engine::stream_needs`]
    /// asked for.
    pub fn end_stream(&mut self, stream: u32, end: &StreamEnd) {
        let others = |held: &Held| held.arrival.context != stream;
        self.waiting.held.retain(others);
        self.leave_line(stream);
        self.settle_stream(stream, end);
    }

    /// Lets those go on that need not wait any more, for an answer or for their turn.
    pub(super) fn let_go(&mut self, now: Instant) {
        let released = self.release_held(now);
        self.release_turns(now, RELEASES_MAX.saturating_sub(released));
    }

    /// Asks for the scopes that turned up since the last tick, in as few calls as it takes, and sees
    /// whether other workers got answers for the rest. Any coordinator is asked, also for who returns: a
    /// cluster of a shard that nobody answers would cost them the lease.
    pub(super) fn ask_for_cold(&mut self, now: Instant) {
        let mut asks = Vec::new();
        let mut releases = Vec::new();
        let mut room = self.calls.room(Reason::Cold, &self.upstreams);
        let mut cold = core::mem::take(&mut self.waiting.cold);
        for scope in &mut cold {
            // What turns up while no more calls may be made goes into the next one together.
            if scope.asked || !room.has(Upstream::ANY) {
                self.look_again(scope, now);
                continue;
            }
            let todos = self.ask_cold(now, scope);
            let id = self.scope_of(scope.target);
            let place = (scope.slot, Upstream::ANY);
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

    /// What there is to say of a scope that turned up.
    fn ask_cold(&mut self, now: Instant, cold: &mut Cold) -> Vec<(Unit, LeaseMessage)> {
        cold.asked = true;
        let me = self.identity.worker;
        let usage = self.permits(cold.target).map(|permits| permits.usage(me));
        let said = self.with_scope_state(cold.target, now, |scope_state, policy| {
            if let (Some(gauge), Some(usage)) = (&mut scope_state.concurrency, &usage) {
                gauge.report(now, usage);
            }
            (scope_state.ask(now, policy), scope_state.due())
        });
        if let Some(permits) = self.permits(cold.target).filter(|_| said.is_ok()) {
            permits.settled(permits.in_use);
        }
        match said {
            Ok(((todos, due), slot)) if !todos.is_empty() => {
                cold.slot = slot;
                self.reschedule(slot, due, LeaseState::Pending);
                todos
            }
            Ok(_) => Vec::new(),
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
        for _ in 0..self.waiting.held.len() {
            let Some(mut held) = self.waiting.held.pop_front() else {
                break;
            };
            // The rest keeps its order.
            if released >= RELEASES_MAX {
                self.waiting.held.push_back(held);
                continue;
            }
            let in_time = now < held.deadline && self.config.enabled;
            if in_time && self.must_wait(&held.targets, now) {
                self.waiting.held.push_back(held);
                continue;
            }
            let attempt = match now < held.deadline {
                true => Attempt::New,
                false => Attempt::Unheld,
            };
            let verdict = match self.decide_again(&mut held.targets, attempt) {
                Ok(Decision::Hold) => {
                    self.waiting.held.push_back(held);
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
                self.carry_out(now, held.arrival, &held.targets, verdict, false);
            }
        }
        self.waiting.backlog = released >= RELEASES_MAX;
        self.see_who_goes_first(now);
        released
    }

    /// Lets a request go on that has waited, or answers it. It was `queued` if it had a turn.
    pub(super) fn carry_out(
        &mut self,
        now: Instant,
        arrival: Arrival,
        targets: &Request,
        verdict: Verdict,
        queued: bool,
    ) {
        let stream = arrival.context;
        let time = now.saturating_since(arrival.since);
        let waited = Waited { time, queued };
        let effect = match verdict {
            Verdict::Refuse(refusal) => Effect::Deny {
                stream,
                waited,
                refusal,
            },
            Verdict::Pass | Verdict::Hold => {
                self.start_stream(targets);
                Effect::Resume {
                    stream,
                    waited,
                    report: self.take_report(targets),
                }
            }
        };
        self.effects.push_back(effect);
    }

    /// Another worker may have got the answer for a scope.
    fn look_again(&mut self, cold: &Cold, now: Instant) {
        let Some(shared_table) = &self.shared_table else {
            return;
        };
        let state = match shared_table.look(&self.host, cold.slot) {
            Ok(Some((_, scope_state))) => match &scope_state.concurrency {
                Some(gauge) if gauge.state(now) == LeaseState::Pending => LeaseState::Pending,
                _ => scope_state.requests.state(now),
            },
            _ => LeaseState::NoLease,
        };
        if state != LeaseState::Pending
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
