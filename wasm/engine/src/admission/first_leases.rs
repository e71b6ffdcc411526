//! Scopes whose first lease is awaited.
//!
//! The request to the coordinator cannot be sent from the callback of the stream that is held: the SDK
//! drops an answer whose stream has gone. So a new scope is noted here, and the tick, made short,
//! asks for all that turned up meanwhile in one call.

use std::sync::Arc;

use tollgate_core::client::{AwaitAction, LeaseMessage, LeaseState};
use tollgate_core::lease::Unit;
use tollgate_core::units::{Instant, Tokens};

use super::{Admission, BucketId, Entry, Request, Target, entry};
use crate::host::Host;
use crate::process::Process;
use crate::rules::{Rules, scope_id};

/// Slots that are looked at in one tick because other workers may have got answers for them. A flood
/// of unseen keys must not cost a read of each on every tick.
const LOOKS_PER_TICK: usize = 64;

/// Scope whose first lease is awaited.
#[derive(Debug)]
pub(super) struct FirstLease {
    target: Target,
    slot: u32,
    state: FirstLeaseState,
}

/// State of the request for a first lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstLeaseState {
    /// This worker is to look at the slot.
    New,
    /// A call of this worker asks for it, whose end ends the wait.
    Called,
    /// Another worker asks for it, and the slot tells when it has got an answer.
    Elsewhere,
}

/// Messages of one slot to the coordinators.
pub(crate) struct SlotMessages {
    pub(crate) slot: u32,
    pub(crate) scope: Arc<str>,
    pub(crate) messages: Vec<(Unit, LeaseMessage)>,
    /// When the slot is due next.
    pub(crate) due: Option<Instant>,
}

// === impl SlotMessages ===

impl SlotMessages {
    /// Returns whether a lease is asked for.
    pub(crate) fn has_request(&self) -> bool {
        let mut messages = self.messages.iter();
        messages.any(|(_, message)| matches!(message, LeaseMessage::Refresh(_)))
    }
}

// === impl Admission ===

impl Admission {
    /// Has a scope asked for on the next tick.
    pub(super) fn ask_soon(&mut self, target: Target, slot: u32) {
        self.first_leases.push(FirstLease {
            target,
            slot,
            state: FirstLeaseState::New,
        });
    }

    /// Holds the requests of a scope until its first lease, `until` at the latest.
    pub(super) fn await_first_lease(&mut self, target: Target, slot: u32, until: Instant) {
        let entry = entry(&mut self.tables, target);
        if entry.is_some_and(|entry| entry.pending_until.replace(until).is_none()) {
            self.ask_soon(target, slot);
        }
    }

    /// Returns whether first leases are awaited.
    #[inline]
    pub(crate) fn awaits_any(&self) -> bool {
        !self.first_leases.is_empty()
    }

    /// Returns whether scopes have turned up that have not been asked for.
    pub(crate) fn has_unasked(&self) -> bool {
        let mut scopes = self.first_leases.iter();
        scopes.any(|scope| scope.state == FirstLeaseState::New)
    }

    /// Returns whether the first lease of a scope is awaited.
    pub(crate) fn awaits(&self, (table, index): BucketId, now: Instant) -> bool {
        let entry = self.scopes(table).and_then(|scopes| scopes.get(index));
        let until = entry.and_then(|entry| entry.pending_until);
        until.is_some_and(|until| now < until)
    }

    /// Returns whether a request needs a scope whose first lease is awaited.
    pub(crate) fn must_wait(&self, rules: &Rules, request: &Request, now: Instant) -> bool {
        let targets = request.targets().iter();
        let mut buckets = targets.flat_map(|target| self.buckets(rules, *target));
        buckets.any(|bucket| self.awaits(bucket, now))
    }

    /// Finds out how many tokens the requests that are held need of the scopes that are to be asked for.
    pub(crate) fn count_needs<'a>(
        &mut self,
        rules: &Rules,
        held: impl Iterator<Item = &'a Request>,
    ) {
        let tables = &mut self.tables;
        let scopes = self.first_leases.iter();
        for scope in scopes.filter(|scope| scope.state == FirstLeaseState::New) {
            // Others wait for a permit.
            if let Some(entry) = entry(tables, scope.target)
                && entry.needs_known > Tokens::ZERO
            {
                entry.needs = Some(Tokens::ZERO);
            }
        }
        for request in held {
            for (index, target) in request.targets().iter().enumerate() {
                if let Some(entry) = entry(tables, *target)
                    && let Some(needs) = &mut entry.needs
                    && request.action(rules, *target) == AwaitAction::Hold
                {
                    *needs = needs.saturating_add(request.cost_at(index));
                }
            }
        }
    }

    /// Returns messages for the scopes that turned up since the last tick, with requests for at most
    /// `requests_max` of them, and looks whether other workers got leases for the others.
    pub(crate) fn ask_for_first_leases<H: Host>(
        &mut self,
        process: &mut Process<H>,
        now: Instant,
        requests_max: usize,
    ) -> Vec<SlotMessages> {
        let mut left = requests_max;
        let mut all = Vec::new();
        let mut scopes = core::mem::take(&mut self.first_leases);
        let unasked = scopes.iter_mut();
        for scope in unasked.filter(|scope| scope.state == FirstLeaseState::New) {
            // Scopes that turn up while no more calls may be made go into the next one together.
            if left == 0 {
                break;
            }
            if let Some(messages) = self.ask_for(process, scope, now) {
                left = left.saturating_sub(usize::from(messages.has_request()));
                all.push(messages);
            }
        }
        self.look_again(process, &scopes, now);
        scopes.retain(|scope| self.is_awaited(scope, now));
        self.first_leases.append(&mut scopes);
        all
    }

    fn ask_for<H: Host>(
        &mut self,
        process: &mut Process<H>,
        scope: &mut FirstLease,
        now: Instant,
    ) -> Option<SlotMessages> {
        scope.state = FirstLeaseState::Elsewhere;
        let target = scope.target;
        let me = process.identity.worker;
        let needs = entry(&mut self.tables, target).map(Entry::take_needs);
        let needs = needs.unwrap_or_default();
        let usage = self.permits(target).map(|permits| permits.usage(me));
        let changed = self.with_scope_state(process, target, now, |scope_state, policy| {
            if let (Some(limiter), Some(usage)) = (&mut scope_state.concurrency, &usage) {
                limiter.report(now, usage);
            }
            if needs > Tokens::ZERO {
                scope_state.requests.need(now, policy, needs);
            }
            (scope_state.ask(now, policy), scope_state.due())
        });
        if let Some(permits) = self.permits(target).filter(|_| changed.is_ok()) {
            permits.settled(permits.in_use);
        }
        match changed {
            Ok(((messages, due), slot)) if !messages.is_empty() => {
                scope.slot = slot;
                let entry = self.scopes(target.table)?.get(target.index)?;
                let key = String::from_utf8_lossy(entry.key());
                let messages = SlotMessages {
                    slot,
                    scope: scope_id(process.rules.name(target.table), &key).into(),
                    messages,
                    due,
                };
                if messages.has_request() {
                    scope.state = FirstLeaseState::Called;
                }
                Some(messages)
            }
            Ok(_) => None,
            Err(error) => {
                process.fail(&error);
                None
            }
        }
    }

    /// Ends the wait for the scopes in `slots`: they have got an answer, or none will come.
    pub(crate) fn end_first_waits(&mut self, slots: &[u32]) {
        let tables = &mut self.tables;
        self.first_leases.retain(|scope| {
            let is_answered = slots.contains(&scope.slot);
            if is_answered && let Some(entry) = entry(tables, scope.target) {
                entry.pending_until = None;
                // Requests that could not be held were refused for want of the lease.
                entry.forget_denials();
            }
            !is_answered
        });
    }

    /// Looks at scopes that no call of this worker asks for, some on each tick.
    fn look_again<H: Host>(&mut self, process: &Process<H>, scopes: &[FirstLease], now: Instant) {
        let others = scopes.iter();
        let others = others.filter(|scope| scope.state != FirstLeaseState::Called);
        let count = others.clone().count();
        let looks = count.min(LOOKS_PER_TICK);
        for scope in others.cycle().skip(self.next_look).take(looks) {
            self.look_at(process, scope, now);
        }
        let next = self.next_look.saturating_add(looks);
        self.next_look = next.checked_rem(count).unwrap_or(0);
    }

    /// Ends the wait for a scope if another worker has got an answer for it.
    fn look_at<H: Host>(&mut self, process: &Process<H>, scope: &FirstLease, now: Instant) {
        let Ok(slots) = process.table.slots() else {
            return;
        };
        let state = match slots.look(&process.host, scope.slot) {
            Ok(Some((_, scope_state))) => match &scope_state.concurrency {
                Some(limiter) if limiter.is_awaited(now) => LeaseState::Pending,
                _ if scope_state.awaits_tokens(now) => LeaseState::Pending,
                _ => scope_state.requests.state(now),
            },
            _ => LeaseState::NoLease,
        };
        if state != LeaseState::Pending
            && let Some(entry) = entry(&mut self.tables, scope.target)
        {
            entry.pending_until = None;
        }
    }

    fn is_awaited(&mut self, scope: &FirstLease, now: Instant) -> bool {
        let Some(entry) = entry(&mut self.tables, scope.target) else {
            return false;
        };
        // Others may wait for longer than the one that had it asked for.
        if entry.pending_until.is_some_and(|until| now >= until) {
            entry.pending_until = None;
        }
        entry.pending_until.is_some()
    }
}
