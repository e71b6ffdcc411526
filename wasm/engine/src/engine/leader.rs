//! What the worker that holds the leader lock does: it knows when each slot is due and asks in time.
//!
//! The schedule is a copy: what counts is in the slots. It is rebuilt by looking at every slot, a
//! part on each tick, when the leader lock changes hands, and kept current by its owner's own requests and
//! by the dirty of the other workers. A slot that is scheduled too early costs one look.

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use tollgate_core::client::{LeaderLock, LeaderRole, LeaseMessage, LeaseState};
use tollgate_core::lease::{LeaseRequest, ResourceId, Unit};
use tollgate_core::units::Instant;

use super::Engine;
use super::call_budget::CallBudget;
use super::calls::{Asked, Reason};
use super::conditions::Conditions;
use super::tick::or_later;
use crate::codec::DirtyQueue;
use crate::host::{Host, Level};
use crate::shared_table::TableError;
use crate::stats::ProcessStats;
use crate::upstreams::Upstream;

/// Slots that are looked at in one round after the leader lock was taken.
const SCAN_PER_ROUND: u32 = 500;
/// Slots that are asked for in one round.
const ASKS_PER_ROUND: usize = 1000;
/// When a slot is looked at again while whoever is to be asked for it has more to answer than it may.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// When each slot is due, as far as the holder of the leader lock knows.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    due: BTreeSet<(Instant, u32)>,
    slots: Vec<Seen>,
    /// The next slot to look at since the leader lock was taken; past the end when all were.
    scan: u32,
    used: u64,
    without_lease: u64,
}

/// A slot as it was last seen.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    due: Option<Instant>,
    used: bool,
    without_lease: bool,
}

/// What is to be said of one slot.
struct Due {
    to: Upstream,
    scope: Arc<str>,
    todos: Vec<(Unit, LeaseMessage)>,
    due: Option<Instant>,
    state: LeaseState,
}

// === impl Schedule ===

impl Schedule {
    fn set_due(&mut self, slot: u32, due: Option<Instant>) {
        let Some(seen) = self.seen(slot) else { return };
        let old = core::mem::replace(&mut seen.due, due);
        if let Some(old) = old {
            self.due.remove(&(old, slot));
        }
        if let Some(due) = due {
            self.due.insert((due, slot));
        }
    }

    fn set_state(&mut self, slot: u32, state: LeaseState) {
        let Some(seen) = self.seen(slot) else { return };
        let old = *seen;
        seen.used = state != LeaseState::Idle;
        // A scope whose first answer is awaited has not fallen back to anything.
        seen.without_lease = state == LeaseState::NoLease;
        let new = *seen;
        adjust(&mut self.used, old.used, new.used);
        adjust(
            &mut self.without_lease,
            old.without_lease,
            new.without_lease,
        );
    }

    /// Looks at what was noted, soon; at everything if there was more than could be noted.
    fn take(&mut self, dirty: DirtyQueue, now: Instant) {
        for slot in dirty.slots {
            self.set_due(slot, Some(now));
        }
        if dirty.spilled {
            self.scan = 0;
        }
    }

    fn seen(&mut self, slot: u32) -> Option<&mut Seen> {
        let index = slot as usize;
        if index >= self.slots.len() {
            self.slots.resize(index.saturating_add(1), Seen::default());
        }
        self.slots.get_mut(index)
    }

    fn pop(&mut self, now: Instant) -> Option<u32> {
        let (due, slot) = *self.due.first()?;
        if due > now {
            return None;
        }
        self.set_due(slot, None);
        Some(slot)
    }
}

// === impl Engine ===

impl<H: Host> Engine<H> {
    /// Takes, keeps or leaves the leader lock, and does its work while it has it.
    pub(super) fn take_turn(&mut self, now: Instant) -> Result<(), TableError> {
        let is_leader = self.is_leader(now)?;
        if let Some(warning) = self.warning.take().filter(|_| is_leader) {
            self.host.log(Level::Warn, &warning);
        }
        if !is_leader {
            self.schedule = None;
            self.conditions = Conditions::default();
            return self.hand_notes_over();
        }
        let schedule = self.schedule.get_or_insert_default();
        schedule.take(core::mem::take(&mut self.dirty), now);
        or_later(self.drain_dirty(now))?;
        self.scan(now)?;
        self.ask_for_due(now)?;
        or_later(self.tell_conditions(now))
    }

    /// How the process stands, of those workers that live.
    pub(super) fn survey(&self) -> ProcessStats {
        let schedule = self.schedule.as_ref();
        let levels = || self.living.iter().map(|worker| worker.levels);
        let own = self.host.memory_bytes();
        ProcessStats {
            safe_mode: schedule.map_or(0, |schedule| schedule.without_lease),
            missing_clusters: self.conditions.missing_count(),
            slots_used: schedule.map_or(0, |schedule| schedule.used),
            waiting: levels().map(|levels| u64::from(levels.waiting)).sum(),
            in_flight: levels().map(|levels| u64::from(levels.in_flight)).sum(),
            vm_memory_bytes: levels().fold(own, |most, levels| most.max(levels.memory)),
        }
    }

    /// Says when `slot` is due next, and how it stands: to the own schedule, or to whoever holds the
    /// lock, which looks at the slot again.
    pub(super) fn reschedule(&mut self, slot: u32, due: Option<Instant>, state: LeaseState) {
        match &mut self.schedule {
            Some(schedule) => {
                schedule.set_due(slot, due);
                schedule.set_state(slot, state);
            }
            None => self.dirty.add(slot),
        }
    }

    fn is_leader(&self, now: Instant) -> Result<bool, TableError> {
        let shared_table = self.shared_table.as_ref().ok_or(TableError::Gone)?;
        let me = self.identity.worker;
        let held =
            shared_table.update_record(&self.host, "leader", |bytes| {
                match LeaderLock::decide(LeaderLock::decode(bytes), now, me) {
                    LeaderRole::Hold => (true, None),
                    LeaderRole::Write(lock) => (true, Some(lock.encode().to_vec())),
                    LeaderRole::Leave => (false, None),
                }
            });
        match held {
            Err(TableError::Contention(_)) => Ok(false),
            held => held,
        }
    }

    fn hand_notes_over(&mut self) -> Result<(), TableError> {
        if self.dirty.is_empty() {
            return Ok(());
        }
        let shared_table = self.shared_table.as_ref().ok_or(TableError::Gone)?;
        shared_table.update_record(&self.host, "dirty", |bytes| {
            let mut dirty = DirtyQueue::decode(bytes);
            dirty.extend(&self.dirty);
            ((), Some(dirty.encode()))
        })?;
        self.dirty = DirtyQueue::default();
        Ok(())
    }

    fn drain_dirty(&mut self, now: Instant) -> Result<(), TableError> {
        let shared_table = self.shared_table.as_ref().ok_or(TableError::Gone)?;
        let mut dirty = shared_table.update_record(&self.host, "dirty", |bytes| {
            let dirty = DirtyQueue::decode(bytes);
            let changed = (!dirty.is_empty()).then(|| DirtyQueue::default().encode());
            (dirty, changed)
        })?;
        // The schedule has a place for each slot up to the highest, so none may be made up.
        dirty
            .slots
            .retain(|slot| *slot < shared_table.slots_in_all());
        if let Some(schedule) = &mut self.schedule {
            schedule.take(dirty, now);
        }
        Ok(())
    }

    fn scan(&mut self, now: Instant) -> Result<(), TableError> {
        let shared_table = self.shared_table.as_ref().ok_or(TableError::Gone)?;
        let Some(schedule) = &mut self.schedule else {
            return Ok(());
        };
        let end = schedule
            .scan
            .saturating_add(SCAN_PER_ROUND)
            .min(shared_table.slots_in_all());
        while schedule.scan < end {
            let slot = schedule.scan;
            schedule.scan = slot.saturating_add(1);
            if let Some((_, scope_state)) = shared_table.look(&self.host, slot)? {
                schedule.set_due(slot, scope_state.due());
                schedule.set_state(slot, scope_state.state(now));
            }
        }
        Ok(())
    }

    fn ask_for_due(&mut self, now: Instant) -> Result<(), TableError> {
        self.see_who_lives(now)?;
        let mut asks = Vec::new();
        let mut releases = Vec::new();
        let mut room = self.calls.room(Reason::Due, &self.upstreams);
        for _ in 0..ASKS_PER_ROUND {
            if room.is_none() {
                break;
            }
            let Some(slot) = self
                .schedule
                .as_mut()
                .and_then(|schedule| schedule.pop(now))
            else {
                break;
            };
            match self.ask_slot(now, slot, &room) {
                Ok(due) => {
                    if let Some(asked) = self.collect(slot, due, &mut releases) {
                        room.take(asked.to);
                        asks.push(asked);
                    }
                }
                Err(TableError::Gone) => self.note_vacant(slot),
                // What was popped must be looked at again.
                Err(error) => {
                    if let Some(schedule) = &mut self.schedule {
                        schedule.set_due(slot, Some(now));
                    }
                    self.complain(&error);
                    break;
                }
            }
        }
        self.refresh(now, Reason::Due, asks);
        self.release(&releases);
        Ok(())
    }

    fn note_vacant(&mut self, slot: u32) {
        if let Some(schedule) = &mut self.schedule {
            schedule.set_state(slot, LeaseState::Idle);
        }
    }

    /// What there is to say of a slot, if there is room for it.
    fn ask_slot(&self, now: Instant, slot: u32, room: &CallBudget) -> Result<Due, TableError> {
        let shared_table = self.shared_table.as_ref().ok_or(TableError::Gone)?;
        shared_table.update_any(&self.host, slot, |scope, scope_state| {
            if let Some(gauge) = &mut scope_state.concurrency {
                let living = self.living.iter().map(|other| other.worker);
                gauge.sweep(now, &living.collect::<Vec<_>>());
            }
            let to = self.upstreams.of(scope_state.shard());
            let (todos, due) = match room.has(to) {
                true => (
                    scope_state.ask(now, &self.policy_of(scope)),
                    scope_state.due(),
                ),
                false => (Vec::new(), Some(now.saturating_add(LOOK_AGAIN))),
            };
            Due {
                to,
                scope: scope.into(),
                todos,
                due,
                state: scope_state.state(now),
            }
        })
    }

    fn collect(
        &mut self,
        slot: u32,
        due: Due,
        releases: &mut Vec<(ResourceId, u64)>,
    ) -> Option<Asked> {
        if let Some(schedule) = &mut self.schedule {
            schedule.set_due(slot, due.due);
            schedule.set_state(slot, due.state);
        }
        asked((slot, due.to), &due.scope, due.todos, releases)
    }
}

// === free functions ===

/// What there is to ask for a scope, if anything; what is to be released goes to `releases`.
pub(super) fn asked(
    (slot, to): (u32, Upstream),
    scope: &Arc<str>,
    todos: Vec<(Unit, LeaseMessage)>,
    releases: &mut Vec<(ResourceId, u64)>,
) -> Option<Asked> {
    let mut asks: Vec<(Unit, LeaseRequest)> = Vec::with_capacity(todos.len());
    for (unit, todo) in todos {
        match todo {
            LeaseMessage::Nothing => {}
            LeaseMessage::Refresh(ask) => asks.push((unit, ask)),
            LeaseMessage::Release { sequence } => {
                let scope = scope.clone();
                releases.push((ResourceId { scope, unit }, sequence));
            }
        }
    }
    let scope = scope.clone();
    let asked = Asked {
        slot,
        to,
        scope,
        asks,
    };
    (!asked.asks.is_empty()).then_some(asked)
}

fn adjust(count: &mut u64, old: bool, new: bool) {
    match (old, new) {
        (false, true) => *count = count.saturating_add(1),
        (true, false) => *count = count.saturating_sub(1),
        _ => {}
    }
}
