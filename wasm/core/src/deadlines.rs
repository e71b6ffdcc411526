//! Timer queue.

use alloc::collections::BTreeSet;

use crate::units::Instant;

/// Timer queue: for each key one deadline, the earliest first.
///
/// The owner of a key keeps the deadline under which the key is queued, so that a look at it costs
/// no search. A deadline need not be exact: one that is too early only means a look too many, which
/// costs less than moving it whenever something is put off.
///
/// ```
/// use tollgate_core::deadlines::Deadlines;
/// use tollgate_core::units::Instant;
/// let (soon, late) = (Instant::from_nanos(1), Instant::from_nanos(9));
/// let mut deadlines = Deadlines::default();
/// let mut queued_at = late;
/// deadlines.insert(queued_at, "lease");
/// deadlines.advance(&mut queued_at, soon, &"lease");
/// assert_eq!(deadlines.earliest(), Some(soon));
/// assert_eq!(deadlines.pop_due(soon), Some("lease"));
/// assert_eq!(deadlines.pop_due(late), None);
/// ```
#[derive(Clone, Debug)]
pub struct Deadlines<K> {
    queue: BTreeSet<(Instant, K)>,
}

// === impl Deadlines ===

impl<K: Ord> Deadlines<K> {
    /// Queues `key` under `at`; it must not be queued already.
    pub fn insert(&mut self, at: Instant, key: K) {
        self.queue.insert((at, key));
    }

    /// Takes out `key`, which is queued under `at`. False if it is not.
    pub fn remove(&mut self, at: Instant, key: K) -> bool {
        self.queue.remove(&(at, key))
    }

    /// Moves `key`, which is queued under `queued_at`, to `at` if that is earlier.
    pub fn advance(&mut self, queued_at: &mut Instant, at: Instant, key: &K)
    where
        K: Clone,
    {
        if at < *queued_at
            && let Some((_, key)) = self.queue.take(&(*queued_at, key.clone()))
        {
            self.queue.insert((at, key));
            *queued_at = at;
        }
    }

    /// Moves `key`, which is queued under `queued_at` if at all, to `at`, or takes it out.
    pub fn set(&mut self, queued_at: &mut Option<Instant>, at: Option<Instant>, key: K)
    where
        K: Clone,
    {
        if *queued_at == at {
            return;
        }
        if let Some(old) = queued_at.take() {
            self.queue.remove(&(old, key.clone()));
        }
        if let Some(at) = at {
            self.queue.insert((at, key));
        }
        *queued_at = at;
    }

    /// Returns the earliest deadline.
    pub fn earliest(&self) -> Option<Instant> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// Returns the key of the earliest deadline, if that has come at `now`.
    pub fn first_due(&self, now: Instant) -> Option<&K> {
        let (at, key) = self.queue.first()?;
        (*at <= now).then_some(key)
    }

    /// Takes out the key of the earliest deadline, if that has come at `now`.
    pub fn pop_due(&mut self, now: Instant) -> Option<K> {
        self.first_due(now)?;
        self.queue.pop_first().map(|(_, key)| key)
    }
}

impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Self {
            queue: BTreeSet::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EARLY: Instant = Instant::from_nanos(1);
    const LATE: Instant = Instant::from_nanos(2);

    #[test]
    fn a_deadline_moves_forward_but_not_back() {
        let mut deadlines = Deadlines::default();
        let mut queued_at = EARLY;
        deadlines.insert(queued_at, 'a');
        deadlines.advance(&mut queued_at, LATE, &'a');
        assert_eq!((queued_at, deadlines.earliest()), (EARLY, Some(EARLY)));
        deadlines.advance(&mut queued_at, Instant::ZERO, &'a');
        assert_eq!(deadlines.pop_due(Instant::ZERO), Some('a'));
        assert_eq!(deadlines.earliest(), None);
    }

    #[test]
    fn a_deadline_is_set_moved_and_taken_out() {
        let mut deadlines = Deadlines::default();
        let mut queued_at = None;
        for at in [Some(EARLY), Some(LATE), Some(LATE), None, None] {
            deadlines.set(&mut queued_at, at, 'a');
            assert_eq!((queued_at, deadlines.earliest()), (at, at));
        }
    }

    #[test]
    fn only_a_deadline_that_has_come_is_due() {
        let mut deadlines = Deadlines::default();
        deadlines.insert(LATE, 'b');
        deadlines.insert(EARLY, 'a');
        assert_eq!(deadlines.first_due(Instant::ZERO), None);
        assert_eq!(deadlines.pop_due(EARLY), Some('a'));
        assert_eq!(deadlines.pop_due(EARLY), None);
        assert!(deadlines.remove(LATE, 'b'));
        assert!(!deadlines.remove(LATE, 'b'));
    }
}
