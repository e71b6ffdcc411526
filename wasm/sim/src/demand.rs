//! Demand as it comes: requests of one entry of a scenario's demand, at one Envoy or for a router.

use std::rc::Rc;
use std::time::Duration;

mod course;
mod retries;
mod router;
mod zipf;

pub(crate) use self::course::{Course, Overlay};
pub(crate) use self::retries::{Retries, Retry};
pub(crate) use self::router::{IncomingRequest, RoutedDemand};
pub(crate) use self::zipf::Zipf;
use crate::random::{Chance, Random};
use crate::scenario::{Arrivals, DemandSpec};

/// Part of all entries of a scenario's demand that is the same for all Envoys.
#[derive(Debug)]
pub(crate) struct DemandShape {
    /// Numbers of the scopes.
    pub(crate) scopes: Vec<u32>,
    /// Weights of these, if they are several.
    pub(crate) zipf: Option<Zipf>,
    /// Tokens that a request takes.
    pub(crate) cost: u32,
    pub(crate) spec: DemandSpec,
}

/// Requests of one entry, in the world's time since the start.
#[derive(Debug)]
pub(crate) struct RequestStream {
    pub(crate) shape: Rc<DemandShape>,
    course: Course,
    random: Random,
    /// Time up to which the course has been followed.
    cursor: u64,
    /// Requests that are still to come until the next one: 1 for the mean distance.
    left: f64,
    /// Requests of the present burst that have come.
    in_burst: u32,
    rate: f64,
    /// Time until which the rate holds.
    until: u64,
}

// === impl DemandShape ===

impl DemandShape {
    /// Returns the shape of an entry for the scopes of these numbers.
    pub(crate) fn new(scopes: Vec<u32>, spec: DemandSpec) -> Self {
        let spread = spec.scopes.as_ref();
        Self {
            zipf: spread.map(|spread| Zipf::new(scopes.len(), spread.zipf.0)),
            scopes,
            cost: spec.cost.unwrap_or(1),
            spec,
        }
    }

    /// Returns the share of the entry's requests that each of its scopes has.
    pub(crate) fn weights(&self) -> impl Iterator<Item = (u32, f64)> {
        let weight = |k| self.zipf.as_ref().map_or(1.0, |zipf| zipf.weight(k));
        let scopes = self.scopes.iter().enumerate();
        scopes.map(move |(k, scope)| (*scope, weight(k)))
    }
}

// === impl RequestStream ===

impl RequestStream {
    /// Returns the stream from `now` on.
    pub(crate) fn new(
        now: Duration,
        shape: Rc<DemandShape>,
        course: Course,
        mut random: Random,
    ) -> Self {
        let left = match shape.spec.arrivals {
            Arrivals::Poisson => random.exponential(),
            // Envoys do not beat time together.
            Arrivals::Even => random.fraction(),
            Arrivals::Bursts(count) => random.fraction() * f64::from(count),
        };
        let mut stream = Self {
            shape,
            course,
            random,
            cursor: nanos(now),
            left,
            in_burst: 0,
            rate: 0.0,
            until: 0,
        };
        (stream.rate, stream.until) = stream.course.piece(stream.cursor, &mut stream.random);
        stream
    }

    /// Returns the requests per second that come now.
    pub(crate) fn rate(&self) -> f64 {
        self.rate
    }

    /// Returns the tokens per second that its requests take now.
    pub(crate) fn token_rate(&self) -> f64 {
        self.rate * f64::from(self.shape.cost)
    }

    /// Returns the time of the next request, or of the next change of the rate.
    pub(crate) fn due(&self) -> Option<Duration> {
        let due = self.arrival().map_or(self.until, |at| at.min(self.until));
        (due < u64::MAX).then(|| Duration::from_nanos(due))
    }

    /// Takes the next request until `now`, and returns the scope that it is for.
    pub(crate) fn take(&mut self, now: Duration) -> Option<u32> {
        let now = nanos(now);
        loop {
            match self.arrival().filter(|at| *at <= self.until) {
                Some(at) if at <= now => {
                    self.cursor = at;
                    self.left = self.distance();
                    return Some(self.scope());
                }
                _ if self.until <= now => self.turn(self.until),
                _ => return None,
            }
        }
    }

    /// Returns the tokens that the end of the next request tells; none if it tells nothing.
    pub(crate) fn final_cost(&mut self) -> Option<u32> {
        let settles = self.shape.spec.settles?;
        if self.random.happens(Chance::share(settles.aborted.0)) {
            return None;
        }
        let cost = settles.median.0 * (settles.spread.0 * self.random.normal()).exp();
        Some((cost.round() as u32).min(settles.most))
    }

    /// Lets nothing come for a while after the last request.
    pub(crate) fn pause(&mut self, lasts: Duration) {
        self.cursor = self.cursor.saturating_add(nanos(lasts));
        (self.rate, self.until) = self.course.piece(self.cursor, &mut self.random);
    }

    /// Applies `change` to the course at `now`.
    pub(crate) fn change(&mut self, now: Duration, change: impl FnOnce(&mut Course)) {
        change(&mut self.course);
        self.turn(nanos(now));
    }

    /// Goes on with the rate that holds from `at`, or from the end of a pause.
    fn turn(&mut self, at: u64) {
        let passed = at.saturating_sub(self.cursor) as f64 / 1e9;
        self.left = (self.left - passed * self.rate).max(0.0);
        self.cursor = self.cursor.max(at);
        (self.rate, self.until) = self.course.piece(self.cursor, &mut self.random);
    }

    fn arrival(&self) -> Option<u64> {
        let after = self.left / self.rate * 1e9;
        let at = self.cursor as f64 + after.ceil();
        (self.rate > 0.0 && at < u64::MAX as f64)
            .then(|| self.cursor.saturating_add(after.ceil() as u64))
    }

    /// Returns the distance to the next request, where 1 is the mean.
    fn distance(&mut self) -> f64 {
        match self.shape.spec.arrivals {
            Arrivals::Poisson => self.random.exponential(),
            Arrivals::Even => 1.0,
            Arrivals::Bursts(count) => {
                self.in_burst = (self.in_burst + 1) % count.max(1);
                match self.in_burst {
                    0 => f64::from(count),
                    _ => 0.0,
                }
            }
        }
    }

    fn scope(&mut self) -> u32 {
        let k = match &self.shape.zipf {
            Some(zipf) => zipf.draw(&mut self.random),
            None => 0,
        };
        self.shape.scopes[k]
    }
}

// === free functions ===

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
