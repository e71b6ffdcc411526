//! Virtual clock, and the queue of events ordered by time.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use tollgate_core::units::Instant;

use super::event::Event;
use crate::wall::START;

/// Event queue in the order of time; events of the same time are in the order of planning.
#[derive(Debug)]
pub(super) struct EventQueue {
    now: Instant,
    /// Events by their times, and by the order of planning.
    queue: BTreeMap<(Instant, u64), Event>,
    planned: u64,
    handled: u64,
    digest: DefaultHasher,
}

// === impl EventQueue ===

impl EventQueue {
    /// Returns an empty queue, with the clock at the start.
    pub(super) fn new() -> Self {
        Self {
            now: START,
            queue: BTreeMap::new(),
            planned: 0,
            handled: 0,
            digest: DefaultHasher::new(),
        }
    }

    /// Returns the time.
    pub(super) fn now(&self) -> Instant {
        self.now
    }

    /// Returns the time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.now.saturating_since(START)
    }

    /// Returns the number of events that have happened.
    pub(super) fn handled(&self) -> u64 {
        self.handled
    }

    /// Returns the number of planned events.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Plans `event` in so much time.
    pub(super) fn push(&mut self, after: Duration, event: Event) {
        self.push_at(self.now.saturating_add(after), event);
    }

    /// Plans `event` at a time, but not before now.
    pub(super) fn push_at(&mut self, at: Instant, event: Event) {
        self.planned += 1;
        let at = at.max(self.now);
        self.queue.insert((at, self.planned), event);
    }

    /// Advances to the next event if there is one within `duration` of the start, else to the end.
    pub(super) fn next(&mut self, duration: Duration) -> Option<Event> {
        let end = START.saturating_add(duration);
        let first = self.queue.first_entry().filter(|next| next.key().0 <= end);
        let Some(next) = first else {
            self.now = end.max(self.now);
            return None;
        };
        let ((at, _), event) = next.remove_entry();
        self.now = at;
        self.handled += 1;
        at.as_nanos().hash(&mut self.digest);
        event.digest(&mut self.digest);
        Some(event)
    }

    /// Returns a digest that is equal for two runs of one seed.
    pub(super) fn digest(&self) -> u64 {
        self.digest.finish()
    }
}
