//! Times from a change of load to its effect.
//!
//! A single one says little on a machine that others use as well. So a test measures several, and judges
//! the median; and if that is too long, only of those in which nothing stood still.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use tokio::time::Instant;

use crate::conclude;
use crate::conditions::{INCONCLUSIVE, lost_in};

/// Reactions of one kind, each from the change to its effect.
#[derive(Debug)]
pub struct Reactions {
    name: &'static str,
    limit: Duration,
    spans: Vec<Range<Instant>>,
}

// === impl Reactions ===

impl Reactions {
    /// Creates an empty list of reactions that should take `limit` at most.
    pub const fn new(name: &'static str, limit: Duration) -> Self {
        Self {
            name,
            limit,
            spans: Vec::new(),
        }
    }

    /// Adds one that took the time of `span`.
    pub fn add(&mut self, span: Range<Instant>) {
        self.spans.push(span);
    }

    /// Prints the median and the longest, and asserts that the median is within the limit.
    ///
    /// A stall is known a tenth of a second after its end, so this is called that long after the last
    /// reaction.
    ///
    /// # Panics
    /// When it is not, or none was measured; marked as inconclusive if something stood still in all of
    /// them.
    #[track_caller]
    pub fn conclude(&self) {
        let Self { name, limit, .. } = self;
        let all = Times::of(&self.spans);
        eprintln!("{name}: {all}; should be {limit:.0?}");
        let Err(failure) = self.judge(|span| lost_in(span.clone()).is_nothing()) else {
            return;
        };
        assert!(!failure.starts_with(INCONCLUSIVE), "{failure}");
        conclude!(false, "{failure}");
    }

    /// Compares the median with the limit. The error is marked if no reaction counts, because none
    /// `is_quiet`.
    fn judge(&self, is_quiet: impl Fn(&Range<Instant>) -> bool) -> Result<(), String> {
        let Self { name, limit, .. } = self;
        let all = Times::of(&self.spans);
        let Some(median) = all.median() else {
            return Err(format!("{name}: none was measured"));
        };
        if median <= *limit {
            return Ok(());
        }
        let quiet = Times::of(self.spans.iter().filter(|span| is_quiet(span)));
        match quiet.median() {
            Some(median) if median <= *limit => Ok(()),
            Some(_) => Err(format!("{name}: {quiet}, limit {limit:?}")),
            None => Err(format!(
                "{INCONCLUSIVE} {name}: {all}; something stood still in each"
            )),
        }
    }
}

/// Lengths of spans, in ascending order.
struct Times(Vec<Duration>);

impl Times {
    fn of<'a>(spans: impl IntoIterator<Item = &'a Range<Instant>>) -> Self {
        let lengths = spans
            .into_iter()
            .map(|span| span.end.saturating_duration_since(span.start));
        let mut lengths: Vec<_> = lengths.collect();
        lengths.sort();
        Self(lengths)
    }

    fn median(&self) -> Option<Duration> {
        self.0.get(self.0.len() / 2).copied()
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        let [median, longest] = [self.median(), self.0.last().copied()];
        let [median, longest] = [median, longest].map(Option::unwrap_or_default);
        write!(f, "median {median:.0?} of {count}, at most {longest:.0?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_median_counts_and_without_a_core_nothing_does() {
        // Lengths, of which 200 are allowed; the longest one in which nothing stood still; the result.
        let rows: [(&[u64], u64, Result<(), &str>); 6] = [
            (&[900, 200, 100], 0, Ok(())),
            (&[900, 100, 201], 900, Err("rise: median 201ms of 3")),
            (&[900, 100, 201], 100, Ok(())),
            (&[900, 300, 100], 300, Err("rise: median 300ms of 2")),
            (&[900, 300], 0, Err(INCONCLUSIVE)),
            (&[], 0, Err("rise: none was measured")),
        ];
        let start = Instant::now();
        for (lengths, quiet, expected) in rows {
            let mut reactions = Reactions::new("rise", ms(200));
            for length in lengths {
                reactions.add(start..start + ms(*length));
            }
            let judged = reactions.judge(|span| span.end - span.start <= ms(quiet));
            match expected {
                Ok(()) => assert_eq!(judged, Ok(()), "{lengths:?}"),
                Err(beginning) => {
                    let failure = judged.unwrap_err();
                    assert!(failure.starts_with(beginning), "{lengths:?}: {failure}");
                }
            }
        }
    }
}
