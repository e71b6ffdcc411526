//! Where a worker gets tokens from when its token cache is empty, and a place for scopes it does not know.

use core::time::Duration;

use tollgate_core::client::{BucketLevel, DrawResult, LeaseState, Policy, RateLimiter, ScopeState};
use tollgate_core::lease::Unit;
use tollgate_core::units::{Instant, Rate, Tokens};

use super::scope_terms::ScopeTerms;
use super::{Engine, OVERFLOW, Target, entry, scope_id, scope_of_key};
use crate::config::Overflow;
use crate::host::{Host, Level};
use crate::refusal::{Denial, LimitStatus};
use crate::scopes::Entry;
use crate::shared_table::TableError;

/// Scopes that have not been used for this long make room for new ones.
const IDLE_AFTER: Duration = Duration::from_secs(60);
/// Fruitless searches for a slot that one round of housekeeping allows. Each takes up to 32
/// look-ups, and a flood of unseen names must not make every request pay for them.
const SEARCHES_MAX: u32 = 32;

/// How often a slot is searched for. One that was just claimed is idle until its holder is used,
/// and another worker that needs a slot may take it over in between.
const CLAIMS_MAX: u32 = 4;

/// What came of drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The token cache has a token now.
    Ready,
    /// The first answer is awaited.
    Cold,
    Denied(Denial),
}

/// What is wanted of a scope state.
struct Needs {
    now: Instant,
    attempts: u64,
    tokens: Tokens,
    workers: u32,
    may_hold: bool,
}

/// What a scope state said.
struct Drawn {
    draw: DrawResult,
    due_changed: bool,
    expiry: Option<Instant>,
    limit: u64,
    rate: Rate,
    expected_rate: Option<Rate>,
    state: LeaseState,
    fill: BucketLevel,
}

// === impl Drawn ===

impl Drawn {
    fn limit_status(&self) -> LimitStatus {
        LimitStatus {
            limit: self.limit,
            left: self.fill.left,
            full_in: self.fill.full_in,
        }
    }
}

// === impl Engine ===

impl<H: Host> Engine<H> {
    /// Draws `cost` for the entry of `target`, or for its rule's overflow if no slot is left for it, to
    /// which `target` then points.
    #[cold]
    pub(super) fn draw(
        &mut self,
        target: &mut Target,
        cost: Tokens,
        may_hold: bool,
    ) -> Result<Step, TableError> {
        let now = self.host.now();
        let may_hold = may_hold && !self.waiting.is_full(self.config.max_pending);
        if let Some(step) = self.known(*target, now, cost, may_hold) {
            return Ok(step);
        }
        if self.may_search(*target) {
            match self.draw_from_table(*target, now, cost, may_hold) {
                Err(TableError::Full) if !self.is_overflow(*target) => self.search_failed(),
                result => return result,
            }
        }
        self.fall_to_overflow(target, now);
        let place = self.tables.get(usize::from(target.table));
        match place.map_or(Overflow::Share, |table| table.config.on_overflow) {
            Overflow::Share => {}
            Overflow::Pass => return Ok(Step::Ready),
            Overflow::Refuse => return Ok(Step::Denied(Denial::overflow(now))),
        }
        match self.known(*target, now, cost, may_hold) {
            Some(step) => Ok(step),
            None => self.draw_from_table(*target, now, cost, may_hold),
        }
    }

    /// Whether the entry has a slot or may still look for one in this round.
    pub(super) fn may_search(&mut self, target: Target) -> bool {
        let entry = entry(&mut self.tables, target);
        let at_home = entry.is_some_and(|entry| entry.slot.is_some() || is_overflow(entry));
        at_home || self.searches_failed < SEARCHES_MAX
    }

    /// Counts a fruitless search against this round.
    pub(super) fn search_failed(&mut self) {
        self.searches_failed = self.searches_failed.saturating_add(1);
    }

    pub(super) fn is_overflow(&mut self, target: Target) -> bool {
        entry(&mut self.tables, target).is_some_and(|entry| is_overflow(entry))
    }

    /// Points `target` to its rule's overflow and counts what was attempted there, for the holder of
    /// the overflow is the one that asks for a lease.
    fn fall_to_overflow(&mut self, target: &mut Target, now: Instant) {
        let own = entry(&mut self.tables, *target);
        let attempts = own.map_or(0, |entry| core::mem::take(&mut entry.attempts));
        *target = Target {
            rule: target.rule,
            ..self.overflow(target.table, now)
        };
        self.stats.overflow.add_one();
        self.count_attempts_of(*target, attempts);
    }

    /// What is known without asking the shared table.
    fn known(
        &mut self,
        target: Target,
        now: Instant,
        cost: Tokens,
        may_hold: bool,
    ) -> Option<Step> {
        let entry = entry(&mut self.tables, target)?;
        if entry.cache.left() >= cost {
            return Some(Step::Ready);
        }
        if may_hold && entry.cold_until.is_some_and(|until| now < until) {
            return Some(Step::Cold);
        }
        entry
            .denial
            .as_deref()
            .filter(|denial| now < denial.until && cost == denial.need)
            .map(|denial| Step::Denied(*denial))
    }

    fn draw_from_table(
        &mut self,
        target: Target,
        now: Instant,
        cost: Tokens,
        may_hold: bool,
    ) -> Result<Step, TableError> {
        let Some(known) = entry(&mut self.tables, target) else {
            return Err(TableError::Gone);
        };
        let needs = Needs {
            now,
            attempts: u64::from(known.attempts),
            tokens: cost.saturating_sub(known.cache.left()),
            workers: self.workers,
            may_hold,
        };
        let (drawn, slot) = self.with_scope_state(target, now, |scope_state, policy| {
            drawn(scope_state, policy, &needs)
        })?;
        if drawn.due_changed {
            self.dirty.add(slot);
        }
        let tick = self.config.tick;
        let told = self.config.reports_limits;
        let Some(entry) = entry(&mut self.tables, target) else {
            return Err(TableError::Gone);
        };
        entry.attempts = 0;
        entry.seen = now;
        entry.expiry = drawn.expiry;
        entry.limit_status = told.then(|| Box::new(drawn.limit_status()));
        entry.denial = None;
        Ok(match drawn.draw {
            DrawResult::Tokens(tokens) => {
                if drawn.state != LeaseState::Pending {
                    entry.cold_until = None;
                }
                entry.cache.add(tokens);
                // A held request's entry has left the queue; its token cache must go back one day.
                if !core::mem::replace(&mut entry.queued, true) {
                    self.queue.push_back((target, self.rounds));
                }
                // Cold, but not to be held: its first request is still to be sent at once.
                if drawn.due_changed && !may_hold {
                    self.waiting.ask_soon(target, slot, now);
                }
                Step::Ready
            }
            DrawResult::Pending { until } => {
                if entry.cold_until.replace(until).is_none() {
                    self.waiting.ask_soon(target, slot, until);
                }
                Step::Cold
            }
            DrawResult::Denied { .. } | DrawResult::ExceedsBurst { .. } => {
                let (retry_at, never) = match drawn.draw {
                    DrawResult::Denied { retry_at } => (retry_at, false),
                    _ => (None, true),
                };
                let soon = now.saturating_add(tick);
                let denial = Denial {
                    until: retry_at.map_or(soon, |at| at.min(soon)),
                    retry_at,
                    limit: drawn.limit,
                    without_lease: drawn.state != LeaseState::Leased,
                    unit: Unit::Requests,
                    need: cost,
                    rate: drawn.rate,
                    expected_rate: drawn.expected_rate,
                    never: never && drawn.expected_rate.is_none(),
                };
                entry.denial = Some(Box::new(denial));
                Step::Denied(denial)
            }
        })
    }

    /// Lets `change` decide with the scope state of `target`, found or claimed, and says its slot.
    pub(super) fn with_scope_state<R>(
        &mut self,
        target: Target,
        now: Instant,
        mut change: impl FnMut(&mut ScopeState, &Policy) -> R,
    ) -> Result<(R, u32), TableError> {
        self.open()?;
        let shared_table = self.shared_table.as_ref().ok_or(TableError::Gone)?;
        let table = self.tables.get_mut(usize::from(target.table));
        let table = table.ok_or(TableError::Gone)?;
        let policy = &table.config.policy;
        let entry = table.scopes.get_mut(target.index).ok_or(TableError::Gone)?;
        let scope = scope_id(&table.config.name, entry);
        let known = entry.meters.as_ref();
        let known = known.and_then(|meters| meters.canonical.clone());
        let mut update = |slot| {
            shared_table.update(&self.host, slot, &scope, |scope_state| {
                let result = change(scope_state, policy);
                (result, ScopeTerms::of(scope_state, known.as_ref()))
            })
        };
        for _ in 0..CLAIMS_MAX {
            let slot = match entry.slot {
                Some(slot) => slot,
                None if is_overflow(entry) => {
                    shared_table.locate_overflow(&self.host, now, &scope, policy)?
                }
                None => shared_table.locate(&self.host, now, &scope, policy)?,
            };
            entry.slot = Some(slot);
            match update(slot) {
                Err(TableError::Gone) => entry.slot = None,
                Err(error) => return Err(error),
                Ok((result, scope_terms)) => {
                    scope_terms.apply(entry);
                    return Ok((result, slot));
                }
            }
        }
        Err(TableError::Contention("slots taken over"))
    }

    /// A new entry for `key`, or the rule's overflow if there is no room for it.
    #[cold]
    pub(super) fn remember(&mut self, table: u16, key: &str) -> Result<Target, TableError> {
        if let Some(index) = self
            .scopes(table)
            .and_then(|scopes| scopes.find(key.as_bytes()))
        {
            return Ok(Target::of(table, index));
        }
        let now = self.host.now();
        self.open()?;
        if key == OVERFLOW || !self.has_room(table, now) || self.searches_failed >= SEARCHES_MAX {
            self.stats.overflow.add_one();
            return Ok(self.overflow(table, now));
        }
        let shared_table = self.shared_table.as_ref().ok_or(TableError::Gone)?;
        let place = self
            .tables
            .get_mut(usize::from(table))
            .ok_or(TableError::Gone)?;
        let scope = scope_of_key(&place.config.name, key);
        match shared_table.locate(&self.host, now, &scope, &place.config.policy) {
            Ok(slot) => {
                let index = place.scopes.insert(key.as_bytes(), Some(slot), now);
                Ok(Target::of(table, index))
            }
            Err(TableError::Full) => {
                self.search_failed();
                self.stats.overflow.add_one();
                Ok(self.overflow(table, now))
            }
            Err(error) => Err(error),
        }
    }

    fn has_room(&mut self, table: u16, now: Instant) -> bool {
        let max = self.config.max_scopes as usize;
        let remembered = self
            .tables
            .iter()
            .map(|table| table.scopes.len())
            .sum::<usize>();
        if remembered < max {
            return true;
        }
        let table = self.tables.get_mut(usize::from(table));
        table.is_some_and(|table| table.scopes.evict(idle_since(now)) > 0)
    }

    /// The entry that scopes of a rule share when no slot is left for them.
    pub(super) fn overflow(&mut self, table: u16, now: Instant) -> Target {
        if !self.overflow_logged {
            self.overflow_logged = true;
            let rule = self
                .tables
                .get(usize::from(table))
                .map_or("", |table| &table.config.name);
            let message = format!(
                "tollgate: more scopes than max_scopes: new ones share {rule}/{OVERFLOW} (logged once)"
            );
            self.host.log(Level::Warn, &message);
        }
        let key = OVERFLOW.as_bytes();
        let scopes = self
            .tables
            .get_mut(usize::from(table))
            .map(|table| &mut table.scopes);
        let index = scopes.map_or(0, |scopes| {
            scopes
                .find(key)
                .unwrap_or_else(|| scopes.insert(key, None, now))
        });
        Target::of(table, index)
    }
}

// === free functions ===

/// Scopes that nobody has used since then make room for new ones.
pub(super) fn idle_since(now: Instant) -> Instant {
    Instant::from_nanos(now.as_nanos().saturating_sub(IDLE_AFTER.as_nanos() as u64))
}

fn is_overflow(entry: &Entry) -> bool {
    entry.key() == OVERFLOW.as_bytes()
}

/// Counts and draws with a scope state.
fn drawn(scope_state: &mut ScopeState, policy: &Policy, needs: &Needs) -> Drawn {
    let due = scope_state.due();
    let (now, tokens, workers) = (needs.now, needs.tokens, needs.workers);
    let limiter = &mut scope_state.requests;
    limiter.count(now, needs.attempts);
    let draw = match needs.may_hold {
        true => limiter.draw(now, policy, tokens, workers),
        false => limiter.draw_at_once(now, policy, tokens, workers),
    };
    let limit = told_limit(limiter, now, policy);
    let (rate, _) = limiter.flow(now, policy);
    let expected_rate = limiter.expected_rate(now);
    let (expiry, state, fill) = (
        limiter.lease_expiry(),
        limiter.state(now),
        limiter.level(now),
    );
    Drawn {
        draw,
        due_changed: scope_state.due() != due,
        expiry,
        limit,
        rate,
        expected_rate,
        state,
        fill,
    }
}

/// The limit to tell: of the whole resource if it is known, else what passes.
pub(super) fn told_limit(limiter: &RateLimiter, now: Instant, policy: &Policy) -> u64 {
    let (rate, _) = limiter.flow(now, policy);
    let whole = limiter.capacity();
    let whole = whole.filter(|capacity| !capacity.is_unlimited());
    whole
        .map_or(rate, |capacity| capacity.as_rate())
        .as_micros()
}
