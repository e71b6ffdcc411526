//! Virtual clock, and the queue of events ordered by time.

use std::collections::BinaryHeap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use tollgate_core::units::Instant;

/// Clock at the start; its epoch is arbitrary.
const START: Instant = Instant::from_nanos(1_000_000_000);

/// Event in a simulated world.
pub trait Event {
    /// Adds to the digest what tells the event from others; its time is there already.
    fn digest(&self, hasher: &mut DefaultHasher);
}

/// Event queue in the order of time; events of the same time are in the order of planning.
#[derive(Debug)]
pub struct EventQueue<E> {
    now: Instant,
    queue: BinaryHeap<Planned<E>>,
    planned: u64,
    handled: u64,
    digest: DefaultHasher,
}

/// Event in the queue.
#[derive(Debug)]
struct Planned<E> {
    at: Instant,
    number: u64,
    event: E,
}

// === impl EventQueue ===

impl<E: Event> EventQueue<E> {
    /// Returns an empty queue, with the clock at the start.
    pub fn new() -> Self {
        Self {
            now: START,
            queue: BinaryHeap::new(),
            planned: 0,
            handled: 0,
            digest: DefaultHasher::new(),
        }
    }

    /// Returns the time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.now.saturating_since(START)
    }

    /// Returns the number of events that have happened.
    pub fn handled(&self) -> u64 {
        self.handled
    }

    /// Returns the number of planned events.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether no event is planned.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Plans `event` in so much time.
    pub fn push(&mut self, after: Duration, event: E) {
        self.push_at(self.now.saturating_add(after), event);
    }

    /// Plans `event` at a time, but not before now.
    pub fn push_at(&mut self, at: Instant, event: E) {
        self.planned += 1;
        self.queue.push(Planned {
            at: at.max(self.now),
            number: self.planned,
            event,
        });
    }

    /// Advances to the next event if there is one within `duration` of the start, else to the end.
    pub fn next(&mut self, duration: Duration) -> Option<E> {
        let end = START.saturating_add(duration);
        if self.queue.peek().is_none_or(|next| next.at > end) {
            self.now = end.max(self.now);
            return None;
        }
        let next = self.queue.pop()?;
        self.now = next.at;
        self.handled += 1;
        next.at.as_nanos().hash(&mut self.digest);
        next.event.digest(&mut self.digest);
        Some(next.event)
    }

    /// Returns a digest that is equal for two runs of one seed.
    pub fn digest(&self) -> u64 {
        self.digest.finish()
    }
}

impl<E: Event> Default for EventQueue<E> {
    fn default() -> Self {
        Self::new()
    }
}

// === impl Planned ===

// The heap's greatest is the next: the earliest, and of these the one planned first.
impl<E> Ord for Planned<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<E> PartialOrd for Planned<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Planned<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<E> Eq for Planned<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    impl Event for u64 {
        fn digest(&self, hasher: &mut DefaultHasher) {
            self.hash(hasher);
        }
    }

    #[test]
    fn events_come_in_the_order_of_time_and_of_planning() {
        let mut queue = EventQueue::new();
        for (after, event) in [(5, 1), (2, 2), (5, 3), (0, 4), (9, 5)] {
            queue.push(Duration::from_secs(after), event);
        }
        let next = |queue: &mut EventQueue<u64>| queue.next(Duration::from_secs(5));
        let order: Vec<u64> = std::iter::from_fn(|| next(&mut queue)).collect();
        assert_eq!(order, [4, 2, 1, 3]);
        assert_eq!(queue.elapsed(), Duration::from_secs(5));
        assert_eq!(queue.next(Duration::from_secs(10)), Some(5), "it was kept");
        assert_eq!(queue.handled(), 5);
    }
}
