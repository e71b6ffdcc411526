//! The virtual clock, and what happens when.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use tollgate_core::units::Instant;

/// The clock at the start; its epoch is arbitrary.
const START: Instant = Instant::from_nanos(1_000_000_000);

/// What happens in a world.
pub(crate) trait Event: Debug {
    /// Whether it happens all the time, so that it tells runs apart by its time only.
    fn is_tick(&self) -> bool;
}

/// Events in the order of their times; those of one time in the order in which they were planned.
#[derive(Debug)]
pub(crate) struct Agenda<E> {
    now: Instant,
    queue: BTreeMap<(Instant, u64), E>,
    planned: u64,
    digest: DefaultHasher,
}

impl<E: Event> Agenda<E> {
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

    /// The time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.now.saturating_since(START)
    }

    pub(crate) fn push(&mut self, after: Duration, event: E) {
        self.planned += 1;
        let at = self.now.saturating_add(after);
        self.queue.insert((at, self.planned), event);
    }

    /// Goes on to the next event, if there is one within `duration` of the start; to the end if not.
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

    /// Equal for two runs of one seed.
    pub(crate) fn digest(&self) -> u64 {
        self.digest.finish()
    }
}
