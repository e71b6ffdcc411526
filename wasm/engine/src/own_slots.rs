//! Slots in a process's own memory, for hosts whose workers are threads of one process.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tollgate_core::client::ScopeState;

use crate::shared_memory::{ABSENT, Cas, Written};

/// Slots of one table: each has a lock of its own, and what is in it is neither encoded nor copied out.
///
/// A host that has them hands them to the engines of one process that ask the same coordinators; the
/// first engine fixes their number. A change is made on a copy, so that a panic leaves a slot as it was.
#[derive(Debug, Default)]
pub struct OwnSlots {
    cells: OnceLock<Box<[Mutex<Cell>]>>,
}

/// Place for a scope.
#[derive(Debug, Default)]
struct Cell {
    /// Writes so far.
    writes: Cas,
    slot: Option<Box<Slot>>,
}

/// A scope with its state.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) scope: Box<str>,
    pub(crate) state: ScopeState,
}

// === impl OwnSlots ===

impl OwnSlots {
    /// Makes the table ready for `count` slots, unless it has been before.
    pub(crate) fn open(&self, count: u32) {
        self.cells
            .get_or_init(|| (0..count).map(|_| Mutex::default()).collect());
    }

    /// Lets `inspect` look at what a slot has; also returns the version to replace it with.
    pub(crate) fn look<R>(&self, slot: u32, inspect: impl FnOnce(Option<&Slot>) -> R) -> (R, Cas) {
        match self.cell(slot) {
            Some(cell) => (inspect(cell.slot.as_deref()), cell.version()),
            None => (inspect(None), ABSENT),
        }
    }

    /// Lets `change` change the scope state of a slot; `None` if the slot is empty.
    pub(crate) fn change<R>(
        &self,
        slot: u32,
        change: impl FnOnce(&str, &mut ScopeState) -> R,
    ) -> Option<R> {
        let mut cell = self.cell(slot)?;
        let known = cell.slot.as_deref_mut()?;
        let mut state = known.state.clone();
        let result = change(&known.scope, &mut state);
        known.state = state;
        cell.count_write();
        Some(result)
    }

    /// Replaces what is in a slot, if that still has the version `cas`.
    pub(crate) fn replace(&self, slot: u32, new: Option<Slot>, cas: Cas) -> Written {
        let Some(mut cell) = self.cell(slot).filter(|cell| cell.version() == cas) else {
            return Written::Lost;
        };
        cell.slot = new.map(Box::new);
        cell.count_write();
        Written::Stored
    }

    fn cell(&self, slot: u32) -> Option<MutexGuard<'_, Cell>> {
        let cell = self.cells.get()?.get(usize::try_from(slot).ok()?)?;
        // A panic cannot leave a cell half changed.
        Some(cell.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl Cell ===

impl Cell {
    /// Returns the version, that of an absent record before the first write.
    fn version(&self) -> Cas {
        match self.writes {
            0 => ABSENT,
            writes => writes,
        }
    }

    fn count_write(&mut self) {
        let next = self.writes.wrapping_add(1);
        self.writes = if next == ABSENT { 1 } else { next.max(1) };
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::client::Policy;
    use tollgate_core::units::Instant;

    use super::*;

    fn slot(scope: &str) -> Option<Slot> {
        Some(Slot {
            scope: scope.into(),
            state: ScopeState::new(Instant::ZERO, &Policy::default()),
        })
    }

    fn owner(slots: &OwnSlots, slot: u32) -> (Option<String>, Cas) {
        slots.look(slot, |known| known.map(|known| known.scope.to_string()))
    }

    #[test]
    fn a_slot_is_replaced_only_in_the_version_that_was_seen() {
        let slots = OwnSlots::default();
        assert_eq!(slots.replace(0, slot("a"), ABSENT), Written::Lost);
        slots.open(2);
        // A table is opened once.
        slots.open(9);
        assert_eq!(slots.replace(2, slot("a"), ABSENT), Written::Lost);
        assert_eq!(owner(&slots, 1), (None, ABSENT));
        assert_eq!(slots.replace(1, slot("a"), ABSENT), Written::Stored);
        let (name, version) = owner(&slots, 1);
        assert_eq!(name.as_deref(), Some("a"));
        assert_eq!(slots.replace(1, slot("b"), ABSENT), Written::Lost);
        slots.change(1, |_, _| ()).unwrap();
        assert_eq!(slots.replace(1, slot("b"), version), Written::Lost);
        let (_, version) = owner(&slots, 1);
        assert_eq!(slots.replace(1, None, version), Written::Stored);
        let (name, version) = owner(&slots, 1);
        assert_eq!((name, version == ABSENT), (None, false));
        assert_eq!(slots.change(1, |_, _| ()), None);
    }

    #[test]
    fn versions_pass_over_those_with_a_meaning() {
        let mut cell = Cell {
            writes: ABSENT - 1,
            slot: None,
        };
        cell.count_write();
        assert_eq!(cell.version(), 1);
        cell.writes = Cas::MAX;
        cell.count_write();
        assert_eq!(cell.version(), 1);
    }

    /// Wasm has neither threads nor a panic that can be caught.
    #[cfg(not(target_family = "wasm"))]
    mod of_processes {
        use std::panic::{AssertUnwindSafe, catch_unwind};
        use std::thread;

        use tollgate_core::client::DrawResult;
        use tollgate_core::units::{Capacity, Tokens};

        use super::*;

        #[test]
        fn a_panic_leaves_a_slot_as_it_was() {
            let slots = OwnSlots::default();
            slots.open(1);
            slots.replace(0, slot("a"), ABSENT);
            let spoil = || {
                slots.change(0, |_, state| {
                    state.requests.count(Instant::ZERO, 7);
                    panic!("in the middle");
                })
            };
            assert!(catch_unwind(AssertUnwindSafe(spoil)).is_err());
            let (state, _) = slots.look(0, |known| known.map(|known| known.state.clone()));
            assert_eq!(state, slot("a").map(|slot| slot.state));
        }

        #[test]
        fn threads_draw_each_token_once() {
            let policy = Policy {
                safe: Capacity::try_from_f64(100_000.0).unwrap(),
                ..Policy::default()
            };
            let new = || {
                let slots = OwnSlots::default();
                slots.open(1);
                let state = ScopeState::new(Instant::ZERO, &policy);
                let scope = "a".into();
                slots.replace(0, Some(Slot { scope, state }), ABSENT);
                slots
            };
            let draw_all = |slots: &OwnSlots| {
                let draw = |_: &str, state: &mut ScopeState| {
                    let limiter = &mut state.requests;
                    limiter.draw_at_once(Instant::ZERO, &policy, Tokens::ONE, u32::MAX)
                };
                let mut drawn = Tokens::ZERO;
                while let Some(DrawResult::Tokens(tokens)) = slots.change(0, draw) {
                    drawn = drawn.saturating_add(tokens);
                }
                drawn
            };
            let whole = draw_all(&new());
            assert!(whole > Tokens::ONE, "{whole:?}");
            let shared = new();
            let parts = thread::scope(|scope| {
                let threads = [(); 4].map(|()| scope.spawn(|| draw_all(&shared)));
                threads.map(|thread| thread.join().unwrap())
            });
            let sum = parts.into_iter().fold(Tokens::ZERO, Tokens::saturating_add);
            assert_eq!(sum, whole);
        }
    }
}
