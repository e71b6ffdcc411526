//! Keeps one line that repeats from drowning all others.
//!
//! The obvious way, a bound on all lines together, would let whoever causes the most of them hide
//! the rest. So each place in the code has a bound of its own: so many lines in a window, then the
//! others are only counted, and when the window is over one line says how many there were.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tollgate_core::units::Instant;

/// How long a place's lines are counted together: short enough to read along, long enough that a
/// thousand lines become a few.
pub(super) const WINDOW: Duration = Duration::from_secs(10);

/// The most places that are counted at a time. There are as many as the program has log
/// statements, so more than this means a mistake; their lines pass uncounted.
const PLACES_MAX: usize = 1024;

/// Counts the lines of each place, `K`, in its window.
#[derive(Debug)]
pub(super) struct Throttle<K> {
    lines_max: u32,
    places: HashMap<K, Place>,
}

#[derive(Debug)]
struct Place {
    since: Instant,
    passed: u32,
    left_out: u64,
    sample: String,
}

/// Lines of one place that were not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeftOut<K> {
    /// The place.
    pub(super) place: K,
    /// How many lines.
    pub(super) lines: u64,
    /// What the first of them said.
    pub(super) sample: String,
}

// === impl Throttle ===

impl<K: Clone + Eq + Hash> Throttle<K> {
    /// Lets `lines_max` lines of each place pass in a window.
    pub(super) fn new(lines_max: u32) -> Self {
        Self {
            lines_max,
            places: HashMap::new(),
        }
    }

    /// Whether a line of `place` is to be written; `sample` is what it says.
    pub(super) fn admit(
        &mut self,
        now: Instant,
        place: K,
        sample: impl FnOnce() -> String,
    ) -> bool {
        if self.places.len() >= PLACES_MAX && !self.places.contains_key(&place) {
            return true;
        }
        let place = self.places.entry(place).or_insert_with(|| Place::new(now));
        if place.left_out == 0 && place.is_over(now) {
            *place = Place::new(now);
        }
        if place.passed < self.lines_max {
            place.passed += 1;
            return true;
        }
        if place.left_out == 0 {
            place.sample = sample();
        }
        place.left_out += 1;
        false
    }

    /// What was left out in windows that are over; their places start afresh.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<LeftOut<K>> {
        let over = self.places.extract_if(|_, place| place.is_over(now));
        left_out(over)
    }

    /// What was left out until now.
    pub(super) fn take_all(&mut self) -> Vec<LeftOut<K>> {
        left_out(self.places.drain())
    }
}

// === impl Place ===

impl Place {
    fn new(now: Instant) -> Self {
        Self {
            since: now,
            passed: 0,
            left_out: 0,
            sample: String::new(),
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        now.saturating_since(self.since) >= WINDOW
    }
}

// === free functions ===

fn left_out<K>(places: impl Iterator<Item = (K, Place)>) -> Vec<LeftOut<K>> {
    let places = places.filter(|(_, counted)| counted.left_out > 0);
    places
        .map(|(place, counted)| LeftOut {
            place,
            lines: counted.left_out,
            sample: counted.sample,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO.saturating_add(Duration::from_millis(ms))
    }

    fn admitted(
        throttle: &mut Throttle<&str>,
        ms: u64,
        place: &'static str,
        lines: usize,
    ) -> usize {
        let admit = |line: usize| throttle.admit(at(ms), place, || format!("line {line}"));
        (1..=lines).map(admit).filter(|admitted| *admitted).count()
    }

    #[test]
    fn each_place_has_its_own_lines_and_the_others_are_told_of_once() {
        let mut throttle = Throttle::new(3);
        assert_eq!(admitted(&mut throttle, 0, "a", 5), 3);
        assert_eq!(admitted(&mut throttle, 5_000, "b", 4), 3);
        assert_eq!(admitted(&mut throttle, 9_999, "a", 1), 0);
        assert_eq!(throttle.take_due(at(9_999)), []);
        let a = LeftOut {
            place: "a",
            lines: 3,
            sample: "line 4".to_owned(),
        };
        assert_eq!(throttle.take_due(at(10_000)), [a]);
        assert_eq!(throttle.take_due(at(14_999)), []);
        assert_eq!(admitted(&mut throttle, 14_999, "a", 4), 3);
        let due = throttle.take_due(at(15_000));
        assert_eq!((due.len(), due[0].place, due[0].lines), (1, "b", 1));
    }

    #[test]
    fn a_window_that_left_nothing_out_ends_without_a_word() {
        let mut throttle = Throttle::new(3);
        for second in 0..60 {
            assert_eq!(admitted(&mut throttle, second * 10_000, "a", 3), 3);
        }
        assert_eq!(throttle.take_all(), []);
    }

    #[test]
    fn what_is_left_out_is_counted_until_it_is_told() {
        let mut throttle = Throttle::new(1);
        assert_eq!(admitted(&mut throttle, 0, "a", 3), 1);
        // Nobody asked at the end of the window: these still belong to it.
        assert_eq!(admitted(&mut throttle, 12_000, "a", 3), 0);
        let all = throttle.take_all();
        assert_eq!((all.len(), all[0].lines), (1, 5));
        assert_eq!(throttle.take_all(), []);
    }

    #[test]
    fn places_beyond_the_bound_pass_and_are_not_kept() {
        let mut throttle = Throttle::new(1);
        let places = PLACES_MAX + 10;
        for place in (0..places).chain(0..places) {
            let again = throttle.places.contains_key(&place);
            assert_eq!(throttle.admit(at(0), place, String::new), !again);
        }
        assert_eq!(throttle.places.len(), PLACES_MAX);
        assert_eq!(throttle.take_due(at(10_000)).len(), PLACES_MAX);
        assert_eq!(throttle.places.len(), 0);
    }
}
