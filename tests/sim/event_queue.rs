//! Virtual clock, and the queue of events ordered by time.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use tollgate_core::units::Instant;

/// Clock at the start; its epoch is arbitrary.
const START: Instant = Instant::from_nanos(1_000_000_000);

/// Event in a simulated world.
pub(crate) trait Event: Debug {
    /// Returns whether the event recurs all the time, so that only its time tells runs apart.
    fn is_tick(&self) -> bool;
}

/// Event queue in the order of time; events of the same time are in the order of planning.
#[derive(Debug)]
pub(crate) struct EventQueue<E> {
    now: Instant,
    queue: BTreeMap<(Instant, u64), E>,
    planned: u64,
    digest: DefaultHasher,
}

impl<E: Event> EventQueue<E> {
    pub(crate) fn new() -> Self {
        Self {
            now: START,
            queue: BTreeMap::new(),
            planned: 0,
            digest: DefaultHasher::new(),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Returns the time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.now.saturating_since(START)
    }

    pub(crate) fn push(&mut self, after: Duration, event: E) {
        self.planned += 1;
        let at = self.now.saturating_add(after);
        self.queue.insert((at, self.planned), event);
    }

    /// Advances to the next event if there is one within `duration` of the start, else to the end.
    pub(crate) fn next(&mut self, duration: Duration) -> Option<E> {
        let end = START.saturating_add(duration);
        let next = self.queue.pop_first();
        let Some(((at, _), event)) = next.filter(|((at, _), _)| *at <= end) else {
            self.now = end;
            return None;
        };
        self.now = at;
        at.as_nanos().hash(&mut self.digest);
        if !event.is_tick() {
            format!("{event:?}").hash(&mut self.digest);
        }
        Some(event)
    }

    /// Returns a digest that is equal for two runs of one seed.
    pub(crate) fn digest(&self) -> u64 {
        self.digest.finish()
    }
}
