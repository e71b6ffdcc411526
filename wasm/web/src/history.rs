//! History of the fleet: the last minute, for the chart.

use std::collections::VecDeque;
use std::time::Duration;

/// Time between two points.
pub(crate) const STEP: Duration = Duration::from_millis(250);
/// Points of the minute that the chart shows.
pub(crate) const POINTS_MAX: usize = 241;

/// State of the fleet at one time. Rates are requests per second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Point {
    /// Seconds since the start.
    pub(crate) at: f64,
    pub(crate) capacity: f64,
    /// Requests of all Envoys that went on in the last second.
    pub(crate) admitted: f64,
    /// Leases of the Envoys.
    pub(crate) leases: Vec<f64>,
    /// Rates that Envoys without a lease fall back to; zero for the others.
    pub(crate) fallbacks: Vec<f64>,
}

/// Points of the last minute, the oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(VecDeque<Point>);

// === impl History ===

impl History {
    pub(crate) fn push(&mut self, point: Point) {
        if self.0.len() == POINTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(point);
    }

    pub(crate) fn points(&self) -> impl DoubleEndedIterator<Item = &Point> + Clone {
        self.0.iter()
    }

    pub(crate) fn last(&self) -> Option<&Point> {
        self.0.back()
    }
}
