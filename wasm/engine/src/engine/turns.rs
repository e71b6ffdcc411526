//! Requests beyond the limit that wait for their turn (`on_limit: shape`).
//!
//! A request is charged when it goes on, not before: one that gives up costs nothing, and whoever needs
//! several buckets takes from all or none. It waits in the line of the bucket that is short; if at its
//! turn another one is, it waits there, at the place that its arrival gives it. A request that comes
//! overtakes nobody who waits for one of its buckets.

use core::time::Duration;
use std::collections::BTreeSet;

use tollgate_core::lease::Unit;
use tollgate_core::units::{Instant, Tokens};

use super::held::Arrival;
use super::lines::{Place, Waiting};
use super::{Attempt, Decision, Engine, Request, Short, Target, entry};
use crate::config::Shape;
use crate::host::Host;
use crate::refusal::{Denial, Verdict};
use crate::shared_table::TableError;

/// Decisions about those who wait in one callback. Each may cost a change in shared data.
const LOOKS_MAX: usize = 128;
/// A bucket is asked no sooner again: timers are no finer.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// What may still be done in this callback.
#[derive(Debug)]
struct Budget {
    releases: usize,
    looks: usize,
}

// === impl Target ===

impl Target {
    pub(super) fn place(self) -> Place {
        (self.table, self.index)
    }

    /// The same as a number, for the core.
    fn member(self) -> u64 {
        (u64::from(self.table) << 32) | u64::from(self.index)
    }
}

// === impl Request ===

impl Request {
    /// For a request that goes on without having been decided on: it took nothing to put back.
    pub(super) fn count_nowhere(&mut self) {
        (self.watched, self.gauged, self.priced_late) = (false, false, false);
    }

    /// Whose request it is where it waits for `target`: its own scope's that leads there.
    fn member_at(&self, target: Target) -> u64 {
        let own = self.as_slice().get(..self.own).unwrap_or_default();
        let is_own = own.iter().any(|other| other.is_same(target));
        let leads = own.iter().find(|other| other.table == target.rule);
        match leads.filter(|_| !is_own) {
            Some(leads) => leads.member(),
            None => target.member(),
        }
    }
}

// === impl Budget ===

impl Budget {
    fn is_spent(&self) -> bool {
        self.releases == 0 || self.looks == 0
    }
}

// === impl Engine ===

impl<H: Host> Engine<H> {
    /// How the rule of `table` lets requests wait, if it does.
    pub(super) fn shape_of(&self, table: u16) -> Option<Shape> {
        self.tables.get(usize::from(table))?.config.shape
    }

    /// What the request is denied with at `index` because others wait there, unless it is its turn.
    pub(super) fn line_before(
        &self,
        targets: &Request,
        index: usize,
        attempt: Attempt,
    ) -> Option<Denial> {
        if attempt == Attempt::Turn || self.lines.is_empty() {
            return None;
        }
        let target = *targets.as_slice().get(index)?;
        let member = targets.member_at(target);
        self.lines.denial(target, member, targets.cost)
    }

    /// Lets the request at hand wait, or refuses it.
    #[cold]
    pub(super) fn begin_to_wait(
        &mut self,
        targets: &Request,
        short: Short,
        max_wait: Option<Duration>,
    ) -> Verdict {
        let arrival = self.arrival(targets.stream, max_wait);
        self.join(targets, short, arrival)
    }

    /// Lets a request wait, unless it would be longer than it may or its client likes, or too many
    /// wait already.
    pub(super) fn join(&mut self, targets: &Request, short: Short, arrival: Arrival) -> Verdict {
        let now = self.host.now();
        let Some(deadline) = self.deadline(short, arrival) else {
            return self.turn_away(targets, short);
        };
        let member = targets.member_at(short.place);
        // When a permit comes free nobody knows.
        let unknown = short.denial.unit == Unit::Concurrency && now < deadline;
        let in_time = |at| now < deadline && at <= deadline;
        let hoped_at = self.hoped_at(now, short, member, targets.cost);
        if !short.denial.retry_at.map_or(unknown, in_time) && !hoped_at.is_some_and(in_time) {
            self.stats.wait_too_long.add_one();
            return self.turn_away(targets, short);
        }
        if !self.has_room_at(short, member) {
            self.stats.wait_full.add_one();
            return self.turn_away(targets, short);
        }
        let (place, denial) = ((short.place, member), short.denial);
        let fresh = self
            .lines
            .join(now, arrival, targets, place, deadline, denial);
        self.open_line(now, short.place, fresh);
        Verdict::Hold
    }

    /// When a request would go if a lease that is about to grow became all that there is; none if none is.
    fn hoped_at(&self, now: Instant, short: Short, member: u64, cost: Tokens) -> Option<Instant> {
        let ahead = self.lines.ahead_of(short.place, member);
        let wait = short
            .denial
            .expected_rate?
            .time_for(ahead.saturating_add(cost))?;
        Some(now.saturating_add(wait))
    }

    /// Forgets a request that waits, for its stream has ended.
    pub(super) fn leave_line(&mut self, context: u32) {
        if self.lines.is_empty() {
            return;
        }
        let now = self.host.now();
        if let Some(waiting) = self.lines.take(now, context, false) {
            self.close_line(waiting.target.place());
        }
    }

    /// Lets those go whose turn has come, and answers those whose time is over: `releases` at most.
    pub(super) fn release_turns(&mut self, now: Instant, releases: usize) {
        if self.lines.is_empty() {
            // Those who were left over may all have gone by themselves.
            self.lines.backlog = false;
            return;
        }
        if !self.config.enabled {
            self.lines.hurry(now, |_| true);
        }
        let looks = LOOKS_MAX;
        let mut budget = Budget { releases, looks };
        while !budget.is_spent()
            && let Some(place) = self.lines.due(now)
        {
            self.run_line(now, place, &mut budget);
        }
        while budget.releases > 0
            && let Some(context) = self.lines.overdue(now)
        {
            self.time_out(now, context);
            budget.releases = budget.releases.saturating_sub(1);
        }
        self.lines.backlog = budget.is_spent() && !self.lines.is_empty();
    }

    /// The scopes in `slots` have got an answer, which may be a higher limit.
    pub(super) fn hurry_lines(&mut self, now: Instant, slots: &[u32]) {
        if self.lines.is_empty() {
            return;
        }
        let slots: BTreeSet<u32> = slots.iter().copied().collect();
        let tables = &mut self.tables;
        self.lines.hurry(now, |target| {
            let entry = entry(tables, target);
            let entry = entry.filter(|entry| entry.slot.is_some_and(|slot| slots.contains(&slot)));
            entry.is_some_and(|entry| {
                entry.denial = None;
                if let Some(meters) = &mut entry.meters {
                    meters.forget_denials();
                }
                true
            })
        });
    }

    /// Counts those who wait as wanted.
    pub(super) fn count_waiting(&mut self, now: Instant) {
        for (target, attempts) in self.lines.attempts(now, self.workers) {
            self.count_attempts_of(target, attempts);
        }
    }

    /// Lets the first ones of a line go until the bucket is short.
    fn run_line(&mut self, now: Instant, place: Place, budget: &mut Budget) {
        let mut gone: usize = 0;
        while !budget.is_spent()
            && let Some(waiting) = self.lines.first(place)
        {
            budget.looks = budget.looks.saturating_sub(1);
            let mut targets = waiting.targets;
            let verdict = match self.decide_again(&mut targets, Attempt::Turn) {
                Ok(Decision::Pass) => Verdict::Pass,
                Ok(Decision::Refuse(refusal)) => Verdict::Refuse(refusal),
                Ok(Decision::Wait(short)) if short.place.place() != place => {
                    self.move_on(now, Waiting { targets, ..waiting }, short, budget);
                    continue;
                }
                Ok(Decision::Wait(Short { denial, .. })) => {
                    self.lines.keep(waiting.arrival.context, &targets);
                    let workers = self.workers;
                    self.lines.fall_short(now, place, gone, workers, denial);
                    break;
                }
                Ok(Decision::Hold) => break,
                Err(error) => {
                    targets.count_nowhere();
                    self.complain(&error)
                }
            };
            gone = gone.saturating_add(1);
            self.end_wait(now, Waiting { targets, ..waiting }, verdict);
            budget.releases = budget.releases.saturating_sub(1);
        }
        self.look_soon(now, place);
        self.close_line(place);
    }

    /// At its turn, a request is short elsewhere: it waits there, if it may.
    fn move_on(&mut self, now: Instant, waiting: Waiting, short: Short, budget: &mut Budget) {
        let member = waiting.targets.member_at(short.place);
        let deadline = self.deadline(short, waiting.arrival);
        let in_time = deadline.filter(|deadline| now < *deadline);
        let Some(deadline) = in_time.filter(|_| self.has_room_to_move(short, member)) else {
            let verdict = self.turn_away(&waiting.targets, short);
            self.end_wait(now, waiting, verdict);
            budget.releases = budget.releases.saturating_sub(1);
            return;
        };
        let (place, denial) = ((short.place, member), short.denial);
        let fresh = self.lines.transfer(now, waiting, place, deadline, denial);
        self.open_line(now, short.place, fresh);
    }

    /// Answers a request whose time is over, with what it waited for as the reason.
    fn time_out(&mut self, now: Instant, context: u32) {
        let Some(waiting) = self.lines.take(now, context, false) else {
            return;
        };
        self.stats.wait_timeouts.add_one();
        let place = waiting.target;
        let cost = waiting.targets.cost;
        let verdict = match self.lines.denial(place, waiting.member, cost) {
            Some(denial) => self.turn_away(&waiting.targets, Short { place, denial }),
            None => self.complain(&TableError::Gone),
        };
        self.carry_out(now, waiting.arrival, &waiting.targets, verdict, true);
        self.close_line(place.place());
    }

    fn end_wait(&mut self, now: Instant, waiting: Waiting, verdict: Verdict) {
        let goes = verdict == Verdict::Pass;
        if goes {
            self.stats.waited.add_one();
        }
        self.lines.take(now, waiting.arrival.context, goes);
        self.carry_out(now, waiting.arrival, &waiting.targets, verdict, true);
    }

    /// Refuses a request that may not wait; it counts from now on.
    fn turn_away(&mut self, targets: &Request, short: Short) -> Verdict {
        let refusal = short.refusal();
        self.count_refused(refusal);
        if targets.priced_late {
            self.count_what_it_would_cost(targets);
        }
        let unit = short.denial.unit;
        if let Some(meters) = self.meters(short.place) {
            meters.refuse(unit);
        }
        Verdict::Refuse(refusal)
    }

    /// Until when a request may wait for what it is short of; none if its rule lets nobody wait.
    fn deadline(&self, short: Short, arrival: Arrival) -> Option<Instant> {
        let most = self.shape_of(short.place.rule)?.max_wait;
        Some(arrival.since.saturating_add(most.min(arrival.max_wait)))
    }

    fn has_room_at(&self, short: Short, member: u64) -> bool {
        self.lines.len() < self.config.max_waiting && self.has_room_to_move(short, member)
    }

    fn has_room_to_move(&self, short: Short, member: u64) -> bool {
        let most = self.shape_of(short.place.rule);
        let most = most.map_or(0, |shape| shape.max_waiting);
        self.lines.len_of(short.place, member) < most
    }

    /// Sees to it that nobody overtakes those who wait at `target`.
    fn open_line(&mut self, now: Instant, target: Target, fresh: bool) {
        if !fresh {
            return;
        }
        self.look_soon(now, target.place());
        if let Some(entry) = entry(&mut self.tables, target) {
            entry.meters.get_or_insert_default().has_line = true;
        }
    }

    /// The bucket is asked again when it has enough, and on each tick, for limits may be raised.
    fn look_soon(&mut self, now: Instant, place: Place) {
        let soon = now.saturating_add(LOOK_AGAIN);
        let late = now.saturating_add(self.config.tick);
        self.lines.look_within(place, soon, late);
    }

    fn close_line(&mut self, place: Place) {
        if let Some(target) = self.lines.close(place)
            && let Some(meters) = self.meters(target)
        {
            meters.has_line = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{EngineConfig, HostFailure, Identity};
    use crate::testing::{FakeHost, FakeProcess};

    #[test]
    fn when_all_have_left_by_themselves_nothing_is_due() {
        let process = FakeProcess::new();
        let identity = Identity {
            worker: 1,
            node: "node".to_owned(),
            process: 1,
        };
        let config = EngineConfig {
            coordinator: "c".to_owned(),
            shards: Vec::new(),
            enabled: true,
            rules: Vec::new(),
            max_scopes: 10,
            max_pending: 10,
            max_waiting: 10,
            tick: Duration::from_millis(20),
            call_timeout: Duration::from_secs(1),
            host_failure: HostFailure::Open,
            reports_limits: false,
        };
        let mut engine = Engine::new(FakeHost::new(&process), identity, config);
        engine.lines.backlog = true;
        assert!(engine.lines.next_wake().is_some());
        process.advance(Duration::from_millis(1));
        engine.handle_tick();
        assert_eq!(engine.lines.next_wake(), None);
    }
}
