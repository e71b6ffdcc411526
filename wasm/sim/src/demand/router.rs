//! Router: sends the requests of one entry of a scenario's demand to Envoys.

use std::rc::Rc;
use std::time::Duration;

use super::{DemandShape, RequestStream, Retries, Retry};
use crate::random::Random;
use crate::scenario::Routing;

/// Draws of a random Envoy that does not run, before the next one that does is taken.
const DRAWS_MAX: usize = 16;

/// Requests of one entry for all its Envoys together.
#[derive(Debug)]
pub(crate) struct RoutedDemand {
    /// Number of the entry among those with a router.
    number: u32,
    pub(crate) stream: RequestStream,
    /// Requests that come again.
    pub(crate) again: Retries,
    /// Times that each comes again at most.
    retries: u32,
    routing: Routing,
    random: Random,
    /// Envoys to which they may go, in their order.
    envoys: Vec<usize>,
    /// Place of the Envoy whose turn it is.
    place: usize,
    /// Requests that it got in this turn.
    in_turn: u32,
    /// Time for which the next requests are planned.
    pub(crate) planned: Option<Duration>,
}

/// Request that comes to an Envoy.
#[derive(Clone, Debug)]
pub(crate) struct IncomingRequest {
    pub(crate) shape: Rc<DemandShape>,
    pub(crate) scope: u32,
    /// Number of its entry among those with a router.
    pub(crate) demand: u32,
    /// Times that it comes again at most.
    pub(crate) left: u32,
    /// Whether it comes for the first time.
    pub(crate) is_first: bool,
    /// Tokens that its end tells it has cost, if that tells any.
    pub(crate) final_cost: Option<u32>,
}

// === impl RoutedDemand ===

impl RoutedDemand {
    pub(crate) fn new(
        number: u32,
        stream: RequestStream,
        (routing, retries): (Routing, u32),
        envoys: Vec<usize>,
        random: Random,
    ) -> Self {
        Self {
            number,
            stream,
            again: Retries::default(),
            retries,
            routing,
            random,
            envoys,
            place: 0,
            in_turn: 0,
            planned: None,
        }
    }

    /// Returns the Envoys to which requests may go.
    pub(crate) fn envoys(&self) -> &[usize] {
        &self.envoys
    }

    /// Returns the time of the next request, or of the next change of the rate.
    pub(crate) fn due(&self) -> Option<Duration> {
        let due = [self.stream.due(), self.again.due()];
        due.into_iter().flatten().min()
    }

    /// Takes the next request until `now`.
    pub(crate) fn take(&mut self, now: Duration) -> Option<IncomingRequest> {
        let (scope, left, is_first) = match self.again.take(now) {
            Some(Retry { scope, left, .. }) => (scope, left, false),
            None => (self.stream.take(now)?, self.retries, true),
        };
        Some(IncomingRequest {
            final_cost: self.stream.final_cost(),
            shape: self.stream.shape.clone(),
            scope,
            demand: self.number,
            left,
            is_first,
        })
    }

    /// Returns the Envoy for a request for `scope`. `load` is the number of requests in flight at an
    /// Envoy, none of one that takes no requests.
    pub(crate) fn route(
        &mut self,
        scope: u32,
        load: impl Fn(usize) -> Option<usize>,
    ) -> Option<usize> {
        let count = self.envoys.len();
        let first = match self.routing {
            Routing::Random => self.draw(&load)?,
            Routing::Sticky => sticky_place(scope, count)?,
            Routing::RoundRobin | Routing::LeastLoaded | Routing::InTurn(_) => self.place,
        };
        let places = (first..count).chain(0..first);
        let open = places.filter_map(|place| Some((place, load(self.envoys[place])?)));
        let (place, _) = match self.routing {
            Routing::LeastLoaded => { open }.min_by_key(|(_, load)| *load)?,
            _ => { open }.next()?,
        };
        self.advance(place);
        Some(self.envoys[place])
    }

    /// Returns the part of the requests for `scope` that comes to `envoy`, one of the so many to which
    /// they may go and that take requests.
    pub(crate) fn share(
        &self,
        envoy: usize,
        scope: u32,
        (open, is_open): (usize, impl Fn(usize) -> bool),
    ) -> f64 {
        let first = match self.routing {
            Routing::Sticky => sticky_place(scope, self.envoys.len()).unwrap_or(0),
            Routing::InTurn(_) => self.place,
            Routing::Random | Routing::RoundRobin | Routing::LeastLoaded => {
                return 1.0 / open.max(1) as f64;
            }
        };
        let (before, from) = self.envoys.split_at(first);
        let mut next = from.iter().chain(before).filter(|envoy| is_open(**envoy));
        f64::from(next.next() == Some(&envoy))
    }

    /// Returns a random place, if possible of an Envoy that takes requests.
    fn draw(&mut self, load: &impl Fn(usize) -> Option<usize>) -> Option<usize> {
        let last = self.envoys.len().checked_sub(1)? as u64;
        let mut place = 0;
        for _ in 0..DRAWS_MAX {
            place = self.random.between(0, last) as usize;
            if load(self.envoys[place]).is_some() {
                break;
            }
        }
        Some(place)
    }

    /// Notes that the Envoy at `place` got a request.
    fn advance(&mut self, place: usize) {
        let next = (place + 1) % self.envoys.len();
        match self.routing {
            Routing::Random | Routing::Sticky => {}
            Routing::RoundRobin | Routing::LeastLoaded => self.place = next,
            Routing::InTurn(turn) => {
                self.in_turn = if place == self.place {
                    self.in_turn + 1
                } else {
                    1
                };
                self.place = place;
                if self.in_turn >= turn.requests {
                    (self.place, self.in_turn) = (next, 0);
                    self.stream.pause(turn.pause.0);
                }
            }
        }
    }
}

// === impl IncomingRequest ===

impl IncomingRequest {
    /// Returns a request that comes just once.
    pub(crate) fn of_stream(stream: &mut RequestStream, scope: u32) -> Self {
        Self {
            final_cost: stream.final_cost(),
            shape: stream.shape.clone(),
            scope,
            demand: 0,
            left: 0,
            is_first: true,
        }
    }
}

// === free functions ===

/// Returns the place of `count` that the hash of a scope's number chooses.
fn sticky_place(scope: u32, count: usize) -> Option<usize> {
    let last = count.checked_sub(1)? as u64;
    Some(Random::new(scope.into()).between(0, last) as usize)
}

#[cfg(test)]
mod tests;
