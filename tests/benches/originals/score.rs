//! Figures of a division.

use std::fmt;
use std::time::Duration;

use tollgate_sim::fairness::{Claim, Fairness, FairnessFigures, FairnessLog};

use crate::course::Course;
use crate::original::Played;

/// Seconds of the start that count for law 1 alone.
const START: u64 = 60;

/// Figures of a division, as columns of the table.
#[derive(Debug)]
pub(crate) struct Score {
    used: f64,
    overshoot: f64,
    most_used: f64,
    fairness: FairnessFigures,
    messages: u64,
}

// === impl Score ===

impl Score {
    /// Scores the samples of a course.
    pub(crate) fn of(course: &Course, played: &Played) -> Self {
        let capacity = course.capacity;
        let mut log = FairnessLog::default();
        let (mut parts, mut count) = (0.0, 0.0);
        let (mut most_had, mut most_used) = (0.0_f64, 0.0_f64);
        let samples = course.times.iter().zip(&course.wants).zip(&played.has);
        for ((at, wants), has) in samples {
            let claims = wants.iter().zip(has).enumerate();
            let claims = claims.map(|(number, (wants, has))| Claim {
                wants: *wants,
                has: *has,
                ..Claim::of(number)
            });
            let claims: Vec<Claim> = claims.filter(|claim| claim.wants > 0.0).collect();
            let used: f64 = claims.iter().map(|claim| claim.has.min(claim.wants)).sum();
            most_had = most_had.max(has.iter().sum());
            most_used = most_used.max(used);
            if *at <= START {
                continue;
            }
            log.note(Duration::from_secs(*at), 0, Fairness::of(capacity, &claims));
            let wanted: f64 = wants.iter().sum();
            let attainable = wanted.min(capacity);
            if attainable > 0.0 {
                parts += (used / attainable).min(1.0);
                count += 1.0;
            }
        }
        let end = course.times.last().copied().unwrap_or_default();
        Self {
            used: parts / f64::max(count, 1.0),
            overshoot: (most_had / capacity - 1.0).max(0.0),
            most_used: most_used / capacity,
            fairness: log.figures(Duration::from_secs(end)),
            messages: played.messages,
        }
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FairnessFigures {
            index,
            mean,
            longest,
            unfair,
            ..
        } = self.fairness;
        let seconds =
            |time: Option<f64>| time.map_or_else(|| "–".to_owned(), |time| format!("{time:.0} s"));
        let index = index.map_or_else(|| "–".to_owned(), |index| format!("{index:.3}"));
        let at_least = if unfair > 0 { "at least " } else { "" };
        write!(
            f,
            "{:.2} % | {index} | {:.1} % | {:.1} % | {} | {at_least}{} | {}",
            self.used * 100.0,
            self.overshoot * 100.0,
            self.most_used * 100.0,
            seconds(mean),
            seconds(longest),
            self.messages
        )
    }
}
