//! Requests of the whole fleet on their way to Envoys.

use std::time::Duration;

use super::event::Event;
use super::{Envoy, Simulation};

/// Time by which requests may come late: those of so long are routed together.
const BATCH: Duration = Duration::from_millis(1);

// === impl Simulation ===

impl Simulation {
    /// Sends the requests of an entry of the demand that are due to Envoys.
    pub(super) fn route(&mut self, demand: usize) {
        let elapsed = self.elapsed();
        let routed = &mut self.routed[demand];
        if routed.planned.is_none_or(|at| elapsed < at) {
            return;
        }
        routed.planned = None;
        let mut touched = Vec::new();
        while let Some(request) = routed.take(elapsed) {
            // Requests to a fleet without any Envoy are lost.
            if let Some(index) = routed.route(request.scope, |index| self.envoys[index].load())
                && let Some(process) = &mut self.envoys[index].process
            {
                process.inbox.push(request);
                touched.push(index);
            }
        }
        touched.sort_unstable();
        touched.dedup();
        for index in touched {
            self.attend(index);
        }
        self.plan_requests(demand, BATCH);
    }

    /// Plans when the next requests of an entry of the demand come, not before `least` has passed.
    pub(super) fn plan_requests(&mut self, demand: usize, least: Duration) {
        let elapsed = self.elapsed();
        let routed = &mut self.routed[demand];
        let Some(due) = routed.due() else { return };
        let next = due.max(elapsed.saturating_add(least));
        if routed.planned.is_none_or(|planned| next < planned) {
            routed.planned = Some(next);
            let demand = demand as u32;
            let event = Event::Requests { demand };
            self.queue.push(next.saturating_sub(elapsed), event);
        }
    }

    /// Lets requests that were refused come again in time.
    pub(super) fn take_retries(&mut self) {
        for retry in self.tally.take_retries() {
            let demand = retry.demand as usize;
            self.routed[demand].again.push(retry);
            self.plan_requests(demand, Duration::ZERO);
        }
    }

    /// Returns for each entry of the demand with a router how many Envoys take its requests.
    pub(super) fn open_counts(&self) -> Vec<usize> {
        let routed = self.routed.iter();
        let counts = routed.map(|routed| {
            let envoys = routed.envoys().iter();
            envoys
                .filter(|index| self.envoys[**index].is_open())
                .count()
        });
        counts.collect()
    }

    /// Calls `add` with the number of each scope that the Envoy at an index is asked for, and the
    /// tokens per second that these requests take; `open` is of [`Simulation::open_counts`].
    pub(super) fn wants_at(&self, index: usize, open: &[usize], mut add: impl FnMut(u32, f64)) {
        let envoy = &self.envoys[index];
        let streams = envoy.process.iter().flat_map(|process| &process.streams);
        for stream in streams {
            for (scope, weight) in stream.shape.weights() {
                add(scope, stream.token_rate() * weight);
            }
        }
        let routed = self.routed.iter().zip(open);
        let routed = routed
            .filter(|(routed, _)| envoy.is_open() && routed.envoys().binary_search(&index).is_ok());
        for (routed, open) in routed {
            let rate = routed.stream.token_rate();
            for (scope, weight) in routed.stream.shape.weights() {
                let is_open = |index: usize| self.envoys[index].is_open();
                let share = routed.share(index, scope, (*open, is_open));
                add(scope, rate * weight * share);
            }
        }
    }
}

// === impl Envoy ===

impl Envoy {
    /// Returns whether requests are sent to it.
    fn is_open(&self) -> bool {
        self.process.is_some() && !self.is_draining
    }

    /// Returns the number of its requests in flight; none if none are sent to it.
    fn load(&self) -> Option<usize> {
        let process = self.process.as_ref().filter(|_| !self.is_draining)?;
        Some(process.load())
    }
}
