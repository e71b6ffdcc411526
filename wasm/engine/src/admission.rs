//! Admission of requests by one worker.
//!
//! The obvious way, a look at the process's buckets for each request, costs a change in shared data
//! each time. So a worker draws tokens ahead into token caches, and a request whose caches suffice
//! touches nothing but these. All other requests take the long way, through [`decide`].

use core::time::Duration;
use std::collections::VecDeque;

use tollgate_core::client::{Policy, ScopeState};
use tollgate_core::units::{Instant, Tokens};

use crate::config::RuleId;
use crate::decision::{BucketId, Target};
use crate::host::Host;
use crate::process::Process;
use crate::rules::{OVERFLOW, scope_id};
use crate::shared_table::TableError;

mod adjust;
mod bytes;
mod charge;
mod decide;
mod draw;
mod final_cost;
mod first_leases;
mod flush;
mod meters;
mod permits;
mod request;
mod reservation;
mod resolve;
mod scope_terms;
mod scopes;
mod shadow;
mod streams;

pub use charge::Charge;
use draw::is_overflow;
pub(crate) use final_cost::Reserved;
use first_leases::FirstLease;
pub(crate) use first_leases::SlotMessages;
pub(crate) use meters::Meters;
use meters::Permits;
pub use request::Request;
pub(crate) use request::Stage;
pub(crate) use resolve::Place;
use scope_terms::ScopeTerms;
pub(crate) use scopes::Entry;
use scopes::Scopes;
use shadow::Dice;
use streams::Streams;

/// Time after which a slot that is due should have been asked for: the sync leader has forgotten it.
const FORGOTTEN_AFTER: Duration = Duration::from_millis(500);
/// The most searches for a slot. One that was just claimed is idle until it is used, and
/// another worker that needs a slot may take it over in between.
const CLAIMS_MAX: u32 = 4;

/// Scopes of one worker with their token caches, and the streams that count in them.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Scopes by the ids of their rules.
    tables: Vec<Scopes>,
    /// Entries with something to report to the shared table, oldest first, and the round they were
    /// queued in.
    unreported: VecDeque<(Target, u64)>,
    /// Rounds of housekeeping so far; a clock that costs nothing to read.
    rounds: u64,
    /// Searches for a slot since the last round that found none.
    searches_failed: u32,
    overflow_logged: bool,
    /// Scopes whose first lease is awaited.
    first_leases: Vec<FirstLease>,
    /// The first of these to look at on the next tick.
    next_look: usize,
    streams: Streams,
    /// Whether a scope has left its canonical scope since it was asked, so that its requests wait there in vain.
    has_left: bool,
    dice: Dice,
    /// Seed of the tables' hashes; random.
    seed: u64,
}

/// Result of a change of a scope's state in the shared table.
struct Changed<R> {
    result: R,
    slot: u32,
    /// True if the scope is due at another time now.
    due_changed: bool,
}

// === impl Admission ===

impl Admission {
    /// Returns an admission without scopes; `seed` is random.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            tables: Vec::new(),
            unreported: VecDeque::new(),
            rounds: 0,
            searches_failed: 0,
            overflow_logged: false,
            first_leases: Vec::new(),
            next_look: 0,
            has_left: false,
            streams: Streams::default(),
            dice: Dice::new(seed),
            seed,
        }
    }

    /// Makes tables for rules that are new, of `rules` in all.
    pub(crate) fn add_tables(&mut self, rules: usize) {
        let seed = self.seed;
        self.tables.resize_with(rules, || Scopes::new(seed));
    }

    /// Returns whether the worker has served a request.
    pub(crate) fn serves(&self) -> bool {
        self.tables.iter().any(|scopes| scopes.len() > 0)
    }

    /// Returns whether scopes of a rule are remembered.
    pub(crate) fn has_scopes(&self, rule: RuleId) -> bool {
        let scopes = self.tables.get(rule.index());
        scopes.is_some_and(|scopes| scopes.len() > 0)
    }

    /// Returns the scopes of a rule.
    pub(crate) fn scopes(&self, rule: u16) -> Option<&Scopes> {
        self.tables.get(usize::from(rule))
    }

    /// Forgets some of the scopes that have not been used for long.
    pub(crate) fn evict(&mut self, now: Instant) {
        let idle_since = draw::idle_since(now);
        for scopes in &mut self.tables {
            scopes.evict(idle_since);
        }
    }

    /// Keeps the entries of a request that waits, and that has their indices: those in the queue of
    /// reports stay where they are, until the next round at least.
    pub(crate) fn keep(&mut self, request: &Request) {
        for target in request.targets() {
            self.enqueue(*target);
        }
    }

    /// Counts the attempts of a request that has come. Returns whether all its token caches suffice.
    #[inline]
    pub(crate) fn count(&mut self, request: &Request) -> bool {
        let (mut attempts, mut cost) = (request::attempts(request.cost), request.cost);
        let mut is_cached = true;
        for (index, target) in request.targets().iter().enumerate() {
            if request.has_own_costs() {
                (attempts, cost) = (request.attempts_at(index), request.cost_at(index));
            }
            // One look at each entry: most requests need no other but that of `spend`.
            let Some(entry) = entry(&mut self.tables, *target) else {
                is_cached = false;
                continue;
            };
            is_cached &= entry.meters.is_none() && entry.cache.left() >= cost;
            if request.has_final_cost {
                entry.count_request(attempts);
            } else {
                entry.attempts = entry.attempts.saturating_add(attempts);
            }
            if !entry.queued {
                self.enqueue(*target);
            }
        }
        is_cached
    }

    pub(crate) fn count_attempts_of(&mut self, target: Target, attempts: u32) {
        let Some(entry) = entry(&mut self.tables, target) else {
            return;
        };
        entry.count(attempts);
        if !entry.queued {
            self.enqueue(target);
        }
    }

    /// Counts attempts of requests that wait, which were counted when they came.
    pub(crate) fn count_again(&mut self, target: Target, attempts: u32) {
        if let Some(entry) = entry(&mut self.tables, target) {
            entry.repeated = entry.repeated.saturating_add(attempts);
            self.enqueue(target);
        }
    }

    /// Spends tokens of the worker's own for a request whose caches suffice.
    #[inline]
    pub(crate) fn spend(&mut self, request: &mut Request) {
        let mut taken = 0;
        for (index, target) in request.targets().iter().enumerate() {
            if let Some(entry) = entry(&mut self.tables, *target)
                // Not if a refusal has no effect.
                && entry.cache.take(request.cost_at(index))
                && request.has_final_cost
            {
                taken |= request::bit(index);
            }
        }
        request.tokens_taken = taken;
    }

    fn is_cached(&mut self, target: Target, cost: Tokens) -> bool {
        let entry = entry(&mut self.tables, target);
        entry.is_some_and(|entry| entry.meters.is_none() && entry.cache.left() >= cost)
    }

    /// Queues an entry that has something to report to the shared table.
    #[cold]
    fn enqueue(&mut self, target: Target) {
        let round = self.rounds;
        let entry = entry(&mut self.tables, target);
        if entry.is_some_and(|entry| !core::mem::replace(&mut entry.queued, true)) {
            self.unreported.push_back((target, round));
        }
    }

    /// Notes that requests wait at a bucket, or none any more, so that no other overtakes them.
    pub(crate) fn set_has_queue(&mut self, target: Target, has_queue: bool) {
        let Some(entry) = entry(&mut self.tables, target) else {
            return;
        };
        match (&mut entry.meters, has_queue) {
            (Some(meters), _) => meters.has_queue = has_queue,
            (None, true) => entry.meters.get_or_insert_default().has_queue = true,
            (None, false) => {}
        }
    }

    /// Forgets refusals at a bucket that has got an answer, if its slot is one of `slots`.
    pub(crate) fn forget_denials(
        &mut self,
        target: Target,
        is_answered: impl Fn(u32) -> bool,
    ) -> bool {
        let entry = entry(&mut self.tables, target);
        let Some(entry) = entry.filter(|entry| entry.slot.is_some_and(is_answered)) else {
            return false;
        };
        entry.forget_denials();
        true
    }

    /// Returns whether a scope has left its canonical scope since the last time.
    pub(crate) fn take_has_left(&mut self) -> bool {
        core::mem::take(&mut self.has_left)
    }

    /// Returns the entry of a scope that this worker knows.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn entry_of(&self, rule: RuleId, key: &[u8]) -> Option<&Entry> {
        let target = self.find(rule, key)?;
        self.scopes(target.table)?.get(target.index)
    }

    fn meters(&mut self, target: Target) -> Option<&mut Meters> {
        entry(&mut self.tables, target)?.meters.as_deref_mut()
    }

    fn permits(&mut self, target: Target) -> Option<&mut Permits> {
        self.meters(target)?.permits.as_mut()
    }

    /// Lets `change` decide with the state of a scope, found or claimed, and notes its slot as dirty
    /// if it is due at another time then.
    fn change_scope<H: Host, R>(
        &mut self,
        process: &mut Process<H>,
        target: Target,
        now: Instant,
        mut change: impl FnMut(&mut ScopeState, &Policy) -> R,
    ) -> Result<Changed<R>, TableError> {
        let ((result, before, due), slot) =
            self.with_scope_state(process, target, now, |scope_state, policy| {
                let before = scope_state.due();
                let result = change(scope_state, policy);
                (result, before, scope_state.due())
            })?;
        let due_changed = before != due;
        // The worker that knew when it is due may be lost, and with it the note for the sync leader.
        let is_forgotten = due.is_some_and(|due| now.saturating_since(due) >= FORGOTTEN_AFTER);
        if due_changed || is_forgotten {
            process.table.note_dirty(slot);
        }
        Ok(Changed {
            result,
            slot,
            due_changed,
        })
    }

    /// Lets `change` decide with the state of a scope, found or claimed, and returns its slot.
    fn with_scope_state<H: Host, R>(
        &mut self,
        process: &mut Process<H>,
        target: Target,
        now: Instant,
        mut change: impl FnMut(&mut ScopeState, &Policy) -> R,
    ) -> Result<(R, u32), TableError> {
        process.open()?;
        let (host, table) = (&process.host, &mut process.table);
        let rules = &process.rules;
        let entry = entry(&mut self.tables, target).ok_or(TableError::Gone)?;
        let key = String::from_utf8_lossy(entry.key());
        let scope = scope_id(rules.name(target.table), &key);
        let policy = rules.policy(target.table, &scope).ok_or(TableError::Gone)?;
        let known = entry.meters.as_ref();
        let known = known.and_then(|meters| meters.canonical.clone());
        for _ in 0..CLAIMS_MAX {
            let slot = match entry.slot {
                Some(slot) => slot,
                None => table.locate(host, now, &policy, (&scope, is_overflow(entry)))?,
            };
            entry.slot = Some(slot);
            let updated = table.slots()?.update(host, slot, &scope, |scope_state| {
                let result = change(scope_state, &policy);
                (result, ScopeTerms::of(scope_state, known.as_ref()))
            });
            match updated {
                Err(TableError::Gone) => entry.slot = None,
                Err(error) => return Err(error),
                Ok((result, terms)) => {
                    self.has_left |= known.is_some() && terms.changes_canonical();
                    terms.apply(entry);
                    return Ok((result, slot));
                }
            }
        }
        Err(TableError::Contention("slots taken over"))
    }
}

// === free functions ===

/// Returns the entry of `target`; free, so that it borrows the tables alone.
#[inline]
fn entry(tables: &mut [Scopes], target: Target) -> Option<&mut Entry> {
    tables
        .get_mut(usize::from(target.table))?
        .get_mut(target.index)
}

/// Returns whether `key` is that of an overflow scope.
#[inline]
pub(crate) fn is_overflow_key(key: &[u8]) -> bool {
    key.starts_with(OVERFLOW.as_bytes())
}
