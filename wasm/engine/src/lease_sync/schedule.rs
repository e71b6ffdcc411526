//! Schedule of the sync leader.
//!
//! The schedule is a copy: what counts is in the slots. It is rebuilt by looking at every slot, a part
//! on each tick, when the leader lock changes hands, and kept current by the leader's own requests and
//! by the dirty queue. A slot that is scheduled too early costs one look.

use core::time::Duration;

use tollgate_core::client::LeaseState;
use tollgate_core::deadlines::Deadlines;
use tollgate_core::units::Instant;

use super::SCAN_PER_ROUND;
use crate::host::Host;
use crate::shared_table::codec::DirtyQueue;
use crate::shared_table::{SlotTable, TableError};

/// Time after which a slot is looked at again for which there was no room in a call.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Deadlines and states of all slots, as far as the sync leader knows.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    due: Deadlines<u32>,
    slots: Vec<SlotView>,
    /// The next slot to look at since the leader lock was taken; past the end when all were.
    scan: u32,
    used: u64,
    without_lease: u64,
}

/// Slot as it was last seen.
#[derive(Clone, Copy, Debug, Default)]
struct SlotView {
    due: Option<Instant>,
    used: bool,
    without_lease: bool,
}

// === impl Schedule ===

impl Schedule {
    /// Returns the number of slots in use.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Returns the number of slots in use that have no lease.
    pub(super) fn without_lease(&self) -> u64 {
        self.without_lease
    }

    pub(super) fn set_due(&mut self, slot: u32, due: Option<Instant>) {
        let index = slot as usize;
        if index >= self.slots.len() {
            let len = index.saturating_add(1);
            self.slots.resize(len, SlotView::default());
        }
        if let Some(view) = self.slots.get_mut(index) {
            self.due.set(&mut view.due, due, slot);
        }
    }

    pub(super) fn set_state(&mut self, slot: u32, state: LeaseState) {
        let Some(view) = self.slots.get_mut(slot as usize) else {
            return;
        };
        let old = *view;
        view.used = state != LeaseState::Idle;
        // A scope whose first answer is awaited has not fallen back to anything.
        view.without_lease = state == LeaseState::NoLease;
        let new = *view;
        adjust(&mut self.used, old.used, new.used);
        adjust(
            &mut self.without_lease,
            old.without_lease,
            new.without_lease,
        );
    }

    /// Has the slots of a dirty queue looked at soon; all slots if more became due than it holds.
    pub(super) fn take(&mut self, dirty: DirtyQueue, now: Instant) {
        for slot in dirty.slots {
            self.set_due(slot, Some(now));
        }
        if dirty.spilled {
            self.scan = 0;
        }
    }

    /// Takes out a slot that is due by `now`.
    pub(super) fn pop(&mut self, now: Instant) -> Option<u32> {
        let slot = *self.due.first_due(now)?;
        self.set_due(slot, None);
        Some(slot)
    }

    /// Looks at some of the slots that have not been looked at since the leader lock was taken.
    pub(super) fn scan<H: Host>(
        &mut self,
        host: &H,
        slots: &SlotTable,
        now: Instant,
    ) -> Result<(), TableError> {
        let end = self.scan.saturating_add(SCAN_PER_ROUND);
        let end = end.min(slots.slots_in_all());
        while self.scan < end {
            let slot = self.scan;
            self.scan = slot.saturating_add(1);
            if let Some((_, scope_state)) = slots.look(host, slot)? {
                self.set_due(slot, scope_state.due());
                self.set_state(slot, scope_state.state(now));
            }
        }
        Ok(())
    }
}

// === free functions ===

fn adjust(count: &mut u64, old: bool, new: bool) {
    match (old, new) {
        (false, true) => *count = count.saturating_add(1),
        (true, false) => *count = count.saturating_sub(1),
        _ => {}
    }
}
