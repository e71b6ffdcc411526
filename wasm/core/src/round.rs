//! Round over the entries of a map, a few at a time.

use alloc::collections::BTreeMap;
use core::ops::Bound;

/// Place in a round over the entries of a map. Entries may come and go meanwhile: each that stays
/// is visited.
#[derive(Debug)]
pub(crate) struct Round<K> {
    /// The key that was visited last.
    after: Option<K>,
    /// Entries that are still to be visited.
    left: usize,
}

// === impl Round ===

impl<K: Clone + Ord> Round<K> {
    /// Lets the next `len` entries be visited, from where the last round stopped.
    pub(crate) fn start(&mut self, len: usize) {
        self.left = len;
    }

    /// Whether entries are still to be visited.
    pub(crate) fn is_under_way(&self) -> bool {
        self.left > 0
    }

    /// Visits the next entries of `map`, at most `most`.
    pub(crate) fn visit<V>(
        &mut self,
        map: &mut BTreeMap<K, V>,
        most: usize,
        mut visit: impl FnMut(&K, &mut V),
    ) {
        let mut todo = most.min(self.left).min(map.len());
        self.left = if map.is_empty() {
            0
        } else {
            self.left.saturating_sub(todo)
        };
        while todo > 0 {
            let from = match self.after.take() {
                Some(key) => Bound::Excluded(key),
                None => Bound::Unbounded,
            };
            let mut last = None;
            for (key, value) in map.range_mut((from, Bound::Unbounded)).take(todo) {
                visit(key, value);
                todo = todo.saturating_sub(1);
                last = Some(key);
            }
            // At the end of the map the next pass begins at its start.
            self.after = last.filter(|_| todo == 0).cloned();
        }
    }
}

impl<K> Default for Round<K> {
    fn default() -> Self {
        Self {
            after: None,
            left: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn visited(round: &mut Round<u8>, map: &mut BTreeMap<u8, ()>, most: usize) -> Vec<u8> {
        let mut visited = Vec::new();
        round.visit(map, most, |key, ()| visited.push(*key));
        visited
    }

    #[test]
    fn a_round_goes_on_where_it_stopped_and_ends() {
        let mut map: BTreeMap<_, _> = [1, 2, 3, 4].map(|key| (key, ())).into();
        let mut round = Round::default();
        assert_eq!(visited(&mut round, &mut map, 3), [0_u8; 0]);
        round.start(map.len());
        assert_eq!(visited(&mut round, &mut map, 3), [1, 2, 3]);
        assert!(round.is_under_way());
        assert_eq!(visited(&mut round, &mut map, 3), [4]);
        assert!(!round.is_under_way());
        round.start(map.len());
        assert_eq!(visited(&mut round, &mut map, 9), [1, 2, 3, 4]);
        round.start(map.len());
        assert_eq!(visited(&mut round, &mut map, 2), [1, 2]);
        round.start(map.len());
        assert_eq!(visited(&mut round, &mut map, 9), [3, 4, 1, 2]);
    }

    #[test]
    fn entries_come_and_go() {
        let mut map: BTreeMap<_, _> = [1, 2, 3, 4].map(|key| (key, ())).into();
        let mut round = Round::default();
        round.start(map.len());
        assert_eq!(visited(&mut round, &mut map, 2), [1, 2]);
        for gone in [2, 3] {
            map.remove(&gone);
        }
        assert_eq!(visited(&mut round, &mut map, 2), [4, 1]);
        assert!(!round.is_under_way());
        round.start(9);
        map.clear();
        assert_eq!(visited(&mut round, &mut map, 2), [0_u8; 0]);
        assert!(!round.is_under_way());
    }
}
