//! Network of a scenario.

use serde::Deserialize;

use super::quantity::{Share, Span};
use crate::network::Quality;
use crate::random::Chance;

/// Network between Envoys and coordinators, in one region and between two.
#[derive(Clone, Debug, Deserialize)]
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
}

// === impl NetworkSpec ===

impl NetworkSpec {
    /// Returns the quality of connections within a region, or between two.
    pub(crate) fn quality(&self, within: bool) -> Quality {
        let latency = match within {
            true => self.latency.0,
            false => self.between_regions.0,
        };
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
        }
    }
}
