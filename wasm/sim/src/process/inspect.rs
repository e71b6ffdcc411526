//! Looks of a process at its workers' observations, for laws.

use std::time::Duration;

use tollgate_core::lease::ResourceId;
use tollgate_core::units::Instant;

use super::Process;
use super::observations::Spent;
use super::view::{ClientView, tokens};
use crate::simulation::reached::{Case, Reached};

/// The most that an answer to a waiting request may be late beside two ticks.
const LATE: Duration = Duration::from_millis(1);

// === impl Process ===

impl Process {
    /// Takes the observations back from its workers, if there are any.
    pub(super) fn look(&mut self, local: Instant) {
        self.observations = self.workers.observations.take();
        if let Some(seen) = &mut self.observations {
            let memory = self.workers.memory.borrow();
            seen.look(local, &memory, &self.workers.scopes);
        }
    }

    /// Begins to count anew what is admitted between two events.
    pub(crate) fn forget_admitted(&mut self) {
        for resource in self
            .observations
            .iter_mut()
            .flat_map(|seen| &mut seen.resources)
        {
            resource.spent = Spent::default();
            resource.came_back.clear();
        }
    }

    /// Returns views of the process, at the place `envoy`, as client of all inspected resources.
    pub(crate) fn views<'a>(
        &'a self,
        now: Instant,
        (envoy, name): (usize, &'a str),
    ) -> impl Iterator<Item = ClientView<'a>> {
        self.observations.iter().flat_map(move |seen| {
            let resources = seen.resources.iter().enumerate();
            resources.map(move |(place, client)| ClientView {
                envoy,
                name,
                now,
                process: self,
                seen,
                client,
                place,
            })
        })
    }

    /// Returns the bytes that have passed at workers and that the shared table does not know of.
    pub(super) fn owed(&self, resource: &ResourceId) -> f64 {
        let scopes = &self.workers.scopes;
        scopes.find(&resource.scope).map_or(0.0, |number| {
            let workers = self.workers.iter();
            let owed = workers.map(|worker| tokens(worker.scope(scopes, number).owed));
            owed.sum()
        })
    }

    /// Checks that engines know the requests that wait, that none waits for longer than it may, and
    /// that each wait ends once.
    pub(super) fn check(&self, now: Instant, tally: &Reached) -> Result<(), String> {
        let kind = self.kind();
        let (local, mut waiting) = (self.clock.at(now), 0);
        let most = kind.wait_max();
        let late = kind.config.tick + kind.resolution + LATE;
        for worker in self.workers.iter() {
            let (known, waits) = (worker.known_waiting(), worker.waiting().len());
            waiting += waits as u64;
            if known != waits {
                return Err(format!("{waits} wait, the engine knows of {known}"));
            }
            let times = worker.waiting().filter_map(|stream| stream.waits_since);
            let mut times = times.map(|since| local.saturating_since(since));
            if let Some(time) = times.find(|time| *time > most + late) {
                return Err(format!("a request waits for {time:?}, not {most:?}"));
            }
        }
        let of = |case| tally.of(case);
        let ended = of(Case::WentOn) + of(Case::TimedOut) + of(Case::Left);
        if of(Case::Joined) == ended + waiting {
            Ok(())
        } else {
            Err(format!(
                "{ended} ended of those that waited, {waiting} wait"
            ))
        }
    }

    /// Returns the number of permits that workers hold; each that is used is of a request in flight.
    pub(super) fn check_permits(&self, resource: &ResourceId) -> Result<u32, String> {
        let scopes = &self.workers.scopes;
        let Some(number) = scopes.find(&resource.scope) else {
            return Ok(0);
        };
        let mut held = 0;
        for worker in self.workers.iter() {
            let scope = worker.scope(scopes, number);
            let (used, open) = (scope.permits_used, worker.counted_in_flight(number));
            held += scope.permits_held;
            if used as usize != open {
                return Err(format!("{open} are in flight with {used} permits"));
            }
        }
        Ok(held)
    }
}
