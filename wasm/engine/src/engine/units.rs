//! Units that only some scopes have: bytes, requests in flight, and a canonical scope's share.
//!
//! Here are the ways to the shared table for these; what the worker itself remembers is in
//! [`meters`].

use core::time::Duration;

use tollgate_core::client::{ConcurrencyLimiter, DrawResult, LeaseState, PermitResult};
use tollgate_core::lease::Unit;
use tollgate_core::units::{Instant, Rate, Tokens};

use super::draw::{Step, told_limit};
use super::{Attempt, CANONICAL, Engine, Outcome, Request, RuleId, Target, entry};
use crate::config::{Overflow, RuleConfig};
use crate::host::Host;
use crate::meters::{self, Meter, Meters};
use crate::refusal::Denial;
use crate::shared_table::TableError;

/// The units that are counted in bytes.
pub(super) const BYTES: [Unit; 2] = [Unit::RequestBytes, Unit::ResponseBytes];
/// For how long a worker believes that no permit is free. Another worker's requests end meanwhile;
/// a flood of refused requests must not look each time.
const NO_PERMIT_FOR: Duration = Duration::from_millis(5);

/// What a scope state said of bytes.
struct Advanced {
    draw: DrawResult,
    due_changed: bool,
    limit: u64,
    expected_rate: Option<Rate>,
    without_lease: bool,
    step: Tokens,
}

/// What a scope state said of permits.
struct Drawn {
    permits: PermitResult,
    due_changed: bool,
    limit: u64,
    without_lease: bool,
}

// === impl Engine ===

impl<H: Host> Engine<H> {
    /// Sees to it that the target at `index` has all that the request needs of it but a permit, and
    /// adds its canonical scope to the targets.
    #[cold]
    pub(super) fn prepare(
        &mut self,
        targets: &mut Request,
        index: usize,
        attempt: Attempt,
        outcome: &mut Outcome,
    ) -> Result<(), TableError> {
        let line = self.line_before(targets, index, attempt);
        let Some(place) = targets.targets.get_mut(index) else {
            return Ok(());
        };
        let filled = entry(&mut self.tables, *place);
        if let Some(denial) = line {
            self.note_step(outcome, *place, Step::Denied(denial));
        } else if filled.is_none_or(|entry| entry.cache.left() < targets.cost) {
            let may_hold = attempt == Attempt::New && !self.is_shadow(place.rule);
            let step = self.draw(place, targets.cost, may_hold)?;
            self.note_step(outcome, *place, step);
        }
        let target = *place;
        let Some(meters) = self.meters(target) else {
            return Ok(());
        };
        targets.watched |= meters.counts_streams();
        targets.gauged |= meters.permits.is_some();
        let canonical = meters.canonical.clone().filter(|_| index < targets.own);
        for unit in BYTES {
            let counts = self.counts_at_once(target, attempt);
            let step = self.advance(target, unit, counts)?;
            self.note_step(outcome, target, step);
        }
        // What the scope itself refuses does not get as far as the other one.
        if let Some(id) = canonical
            && !outcome.is_denied()
        {
            let canonical = Target {
                rule: target.rule,
                ..self.canonical_target(&id)?
            };
            if targets.push_new(canonical) {
                self.count_attempts_of(canonical, targets.attempts());
            }
        }
        Ok(())
    }

    /// Draws the permits that the request needs; gives back what is left over if it does not go on.
    #[cold]
    pub(super) fn draw_permits(
        &mut self,
        targets: &Request,
        attempt: Attempt,
        outcome: &mut Outcome,
    ) -> Result<(), TableError> {
        let has_room = !self.waiting.is_full(self.config.max_pending);
        for target in targets.as_slice() {
            let may_hold = has_room && attempt == Attempt::New && !self.is_shadow(target.rule);
            let counts = self.counts_at_once(*target, attempt);
            let step = self.draw_permit(*target, may_hold, counts)?;
            self.note_step(outcome, *target, step);
        }
        if outcome.passes() {
            return Ok(());
        }
        for target in targets.as_slice() {
            let meters = self.meters(*target);
            let permits = meters.and_then(|meters| meters.permits.as_ref());
            if permits.is_some_and(meters::Permits::has_too_many) {
                self.report_use(*target)?;
            }
        }
        Ok(())
    }

    /// Spends what was drawn for the request.
    #[cold]
    pub(super) fn take_permits(&mut self, targets: &Request) {
        for target in targets.as_slice() {
            if let Some(permits) = self.permits(*target) {
                permits.take();
            }
        }
    }

    /// Counts bytes that have passed.
    pub(super) fn charge(&mut self, target: Target, unit: Unit, bytes: u64) {
        let Some(meter) = self.meter(target, unit) else {
            return;
        };
        let must_pay = meter.charge(bytes);
        self.enqueue(target);
        // What cannot be paid now stays owed, and the next request of the scope pays first.
        if must_pay && let Err(error) = self.pay(target, unit) {
            self.complain(&error);
        }
    }

    /// Says how many requests are in flight, and gives back permits that are not used.
    pub(super) fn report_use(&mut self, target: Target) -> Result<(), TableError> {
        let (now, me) = (self.host.now(), self.identity.worker);
        let Some(usage) = self.permits(target).map(|permits| permits.usage(me)) else {
            return Ok(());
        };
        let (due_changed, slot) = self.with_scope_state(target, now, |scope_state, _| {
            let due = scope_state.due();
            if let Some(limiter) = &mut scope_state.concurrency {
                limiter.report(now, &usage);
            }
            scope_state.due() != due
        })?;
        if due_changed {
            self.dirty.add(slot);
        }
        if let Some(permits) = self.permits(target) {
            permits.settled(permits.in_use);
        }
        Ok(())
    }

    pub(super) fn meters(&mut self, target: Target) -> Option<&mut Meters> {
        entry(&mut self.tables, target)?.meters.as_deref_mut()
    }

    pub(super) fn permits(&mut self, target: Target) -> Option<&mut meters::Permits> {
        self.meters(target)?.permits.as_mut()
    }

    fn meter(&mut self, target: Target, unit: Unit) -> Option<&mut Meter> {
        self.meters(target)?.meter(unit)
    }

    /// Sees to it that bytes may pass for the request at hand: that none are owed.
    fn advance(&mut self, target: Target, unit: Unit, counts: bool) -> Result<Step, TableError> {
        if self
            .meter(target, unit)
            .is_none_or(|meter| meter.is_ready())
        {
            return Ok(Step::Ready);
        }
        let now = self.host.now();
        let Some(meter) = self.meter(target, unit) else {
            return Ok(Step::Ready);
        };
        if let Some(denial) = meter.denial.filter(|denial| now < denial.until) {
            if counts {
                meter.refuse();
            }
            return Ok(Step::Denied(denial));
        }
        let Some(said) = self.advance_from_table(target, unit, now)? else {
            return Ok(Step::Ready);
        };
        let soon = now.saturating_add(self.config.tick);
        self.enqueue(target);
        let Some(meter) = self.meter(target, unit) else {
            return Ok(Step::Ready);
        };
        (meter.attempts, meter.owed) = (0, Tokens::ZERO);
        (meter.step, meter.denial) = (said.step, None);
        let retry_at = match said.draw {
            DrawResult::Tokens(tokens) => {
                meter.cache.add(tokens);
                return Ok(Step::Ready);
            }
            DrawResult::Denied { retry_at } => retry_at,
            DrawResult::Pending { .. } | DrawResult::ExceedsBurst { .. } => None,
        };
        let denial = Denial {
            until: retry_at.map_or(soon, |at| at.min(soon)),
            retry_at,
            limit: said.limit,
            without_lease: said.without_lease,
            unit,
            need: Tokens::ONE,
            rate: Rate::UNLIMITED,
            expected_rate: said.expected_rate,
            never: false,
        };
        if counts {
            meter.refuse();
        }
        meter.denial = Some(denial);
        Ok(Step::Denied(denial))
    }

    fn advance_from_table(
        &mut self,
        target: Target,
        unit: Unit,
        now: Instant,
    ) -> Result<Option<Advanced>, TableError> {
        let Some(meter) = self.meter(target, unit) else {
            return Ok(None);
        };
        let (attempts, owed, workers) = (meter.attempts, meter.owed, self.workers);
        let (said, slot) = self.with_scope_state(target, now, |scope_state, policy| {
            let due = scope_state.due();
            let rate = scope_state.rate_mut(unit)?;
            rate.pay(now, policy, attempts, owed);
            let draw = rate.advance(now, policy, workers);
            Some(Advanced {
                draw,
                limit: told_limit(rate, now, policy),
                expected_rate: rate.expected_rate(now),
                without_lease: rate.state(now) != LeaseState::Leased,
                step: rate.owed_max(workers),
                due_changed: scope_state.due() != due,
            })
        })?;
        if said.as_ref().is_some_and(|said| said.due_changed) {
            self.dirty.add(slot);
        }
        Ok(said)
    }

    /// Pays what is owed.
    fn pay(&mut self, target: Target, unit: Unit) -> Result<(), TableError> {
        let (now, workers) = (self.host.now(), self.workers);
        let Some(meter) = self.meter(target, unit) else {
            return Ok(());
        };
        let (attempts, owed) = (meter.attempts, meter.owed);
        let (said, slot) = self.with_scope_state(target, now, |scope_state, policy| {
            let due = scope_state.due();
            let rate = scope_state.rate_mut(unit)?;
            rate.pay(now, policy, attempts, owed);
            let step = rate.owed_max(workers);
            Some((step, scope_state.due() != due))
        })?;
        if let (Some(meter), Some((step, _))) = (self.meter(target, unit), said) {
            (meter.attempts, meter.owed, meter.step) = (0, Tokens::ZERO, step);
        }
        if said.is_some_and(|(_, due_changed)| due_changed) {
            self.dirty.add(slot);
        }
        Ok(())
    }

    fn draw_permit(
        &mut self,
        target: Target,
        may_hold: bool,
        counts: bool,
    ) -> Result<Step, TableError> {
        // Those who wait want a permit as well, and with them the one at hand.
        let waiting = self.lines.len_at(target).saturating_add(1);
        if self
            .permits(target)
            .is_none_or(|permits| permits.is_ready())
        {
            return Ok(Step::Ready);
        }
        let (now, me) = (self.host.now(), self.identity.worker);
        let Some(permits) = self.permits(target) else {
            return Ok(Step::Ready);
        };
        if let Some(denial) = permits.denial.filter(|denial| now < denial.until) {
            match counts {
                true => permits.refuse(),
                false => permits.await_by(waiting),
            }
            return Ok(Step::Denied(denial));
        }
        // Whoever holds permits must be known to live, or they would be taken away.
        let (usage, workers) = (permits.usage(me), self.workers);
        if self.last_heartbeat.is_none() {
            self.heartbeat(now)?;
        }
        let (said, slot) = self.with_scope_state(target, now, |scope_state, policy| {
            let due = scope_state.due();
            let limiter = scope_state.concurrency.as_mut()?;
            let permits = limiter.draw(now, policy, &usage, workers, may_hold);
            Some(Drawn {
                permits,
                limit: told_most(limiter, limiter.limit(now, policy)),
                without_lease: limiter.state(now) != LeaseState::Leased,
                due_changed: scope_state.due() != due,
            })
        })?;
        Ok(match said {
            Some(said) => {
                let step = self.permits_drawn(target, slot, now, &said);
                let permits = self.permits(target).filter(|_| step != Step::Ready);
                match (permits, counts) {
                    (Some(permits), true) => permits.refuse(),
                    (Some(permits), false) => permits.await_by(waiting),
                    (None, _) => {}
                }
                step
            }
            None => Step::Ready,
        })
    }

    fn permits_drawn(&mut self, target: Target, slot: u32, now: Instant, said: &Drawn) -> Step {
        if said.due_changed {
            self.dirty.add(slot);
        }
        self.enqueue(target);
        let Some(permits) = self.permits(target) else {
            return Step::Ready;
        };
        permits.denial = None;
        match said.permits {
            PermitResult::Held { held, spare } => {
                permits.settled(held);
                permits.spare = spare;
                Step::Ready
            }
            PermitResult::Pending { until } => {
                permits.settled(permits.in_use);
                let entry = entry(&mut self.tables, target);
                if entry.is_some_and(|entry| entry.cold_until.replace(until).is_none()) {
                    self.waiting.ask_soon(target, slot, until);
                }
                Step::Cold
            }
            PermitResult::Denied => {
                permits.settled(permits.in_use);
                let denial = Denial {
                    until: now.saturating_add(NO_PERMIT_FOR),
                    retry_at: None,
                    limit: said.limit,
                    without_lease: said.without_lease,
                    unit: Unit::Concurrency,
                    need: Tokens::ONE,
                    rate: Rate::ZERO,
                    expected_rate: None,
                    never: false,
                };
                permits.denial = Some(denial);
                Step::Denied(denial)
            }
        }
    }

    /// The entry of a canonical scope: of the rule whose scope it is, or of the table for those of
    /// no rule, such as groups.
    fn canonical_target(&mut self, id: &str) -> Result<Target, TableError> {
        if let Some((rule, key)) = id.split_once('/')
            && let Some(table) = self.table_named(rule)
        {
            return self.remember(table as u16, key);
        }
        let known = self
            .table_named(CANONICAL)
            .map(|table| RuleId(table as u16));
        let table = known.unwrap_or_else(|| self.add_canonical_table());
        self.remember(table.0, id)
    }

    fn add_canonical_table(&mut self) -> RuleId {
        let rule = self.config.rules.first();
        self.add_table(RuleConfig {
            name: CANONICAL.to_owned(),
            policy: rule.map(|rule| rule.policy.clone()).unwrap_or_default(),
            enforced: 100,
            on_overflow: Overflow::Share,
            final_cost: false,
            shape: None,
        })
    }
}

// === free functions ===

/// The limit to tell, in millionths: of the whole resource if it is known, else what passes.
fn told_most(limiter: &ConcurrencyLimiter, limit: u32) -> u64 {
    let whole = limiter.capacity();
    let whole = whole.filter(|capacity| !capacity.is_unlimited());
    let limit = Tokens::from_whole(limit.into());
    whole.map_or(limit.as_micros(), |capacity| capacity.as_micros())
}
