//! Network of a scenario.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::quantity::{Share, Span};
use crate::network::Quality;
use crate::random::Chance;

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

    /// Returns the quality of connections within a region, or between two, so long after the start.
    pub(crate) fn quality(&self, within: bool, elapsed: Duration) -> Quality {
        let latency = match within {
            true => self.latency.0,
            false => self.between_regions.0,
        };
        if self.is_calm(elapsed) {
            return Quality {
                lost: Chance::NEVER,
                doubled: Chance::NEVER,
                delay_min: latency,
                delay_max: latency.saturating_add(self.jitter.0.min(CALM_JITTER)),
            };
        }
        Quality {
            lost: Chance::share(self.loss.0),
            doubled: Chance::share(self.duplication.0),
            delay_min: latency,
            delay_max: latency.saturating_add(self.jitter.0),
        }
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
