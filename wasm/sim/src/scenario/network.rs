//! Network of a scenario.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::quantity::{Share, Span};
use crate::random::{Chance, Random};

/// The most that a message takes longer in a calm network.
const CALM_JITTER: Duration = Duration::from_millis(5);

/// Network between Envoys and coordinators, in one region and between two.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkSpec {
    /// Time of a message in one direction within a region.
    pub latency: Span,
    /// The same between two regions.
    pub between_regions: Span,
    /// The most that a message takes longer than that; messages overtake each other by it.
    pub jitter: Span,
    /// Messages that are lost.
    pub loss: Share,
    /// Messages that arrive twice.
    pub duplication: Share,
    /// Requests that come once more, up to three seconds late.
    pub late_copies: Share,
    /// Calls without an answer whose end the transport does not report.
    pub unreported: Share,
    /// Time from which none of that happens and jitter is short; never if it is zero.
    pub calm_from: Span,
}

// === impl NetworkSpec ===

impl NetworkSpec {
    /// Returns whether the time of faults is over, so long after the start.
    pub(crate) fn is_calm(&self, elapsed: Duration) -> bool {
        !self.calm_from.0.is_zero() && elapsed > self.calm_from.0
    }

    /// Returns the shortest and the longest time of a message within a region, or between two, so long
    /// after the start.
    pub(crate) fn delays(&self, within: bool, elapsed: Duration) -> [Duration; 2] {
        let Span(latency) = [self.between_regions, self.latency][usize::from(within)];
        let Span(jitter) = self.jitter;
        let is_calm = self.is_calm(elapsed);
        let jitter = if is_calm {
            jitter.min(CALM_JITTER)
        } else {
            jitter
        };
        [latency, latency.saturating_add(jitter)]
    }

    /// Returns the delay of each copy of a message that takes from `least` to `most`; none if it is lost.
    pub(crate) fn deliveries(
        &self,
        [least, most]: [Duration; 2],
        elapsed: Duration,
        random: &mut Random,
    ) -> Vec<Duration> {
        let micros = |time: Duration| time.as_micros() as u64;
        let mut delay = || random.between(micros(least), micros(most));
        let delays = [delay(), delay()].map(Duration::from_micros);
        let faults = [self.loss, self.duplication].map(|share| {
            let chance = Chance::share(if self.is_calm(elapsed) { 0.0 } else { share.0 });
            random.happens(chance)
        });
        let copies = match faults {
            [true, _] => 0,
            [false, false] => 1,
            [false, true] => 2,
        };
        delays.into_iter().take(copies).collect()
    }
}

impl Default for NetworkSpec {
    fn default() -> Self {
        Self {
            latency: Span::from_millis(1),
            between_regions: Span::from_millis(40),
            jitter: Span::from_millis(1),
            loss: Share(0.0),
            duplication: Share(0.0),
            late_copies: Share(0.0),
            unreported: Share(0.0),
            calm_from: Span::default(),
        }
    }
}
