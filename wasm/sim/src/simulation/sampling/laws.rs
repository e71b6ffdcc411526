//! Law 1, for scopes and for pools: leases never sum to more than the capacity.

use std::time::Duration;

use tollgate_core::units::Capacity;

use crate::capacities::{CapacitySum, CapacityTree};
use crate::limits::FleetCapacity;
use crate::simulation::Simulation;
use crate::simulation::reached::Case;

// === impl Simulation ===

impl Simulation {
    /// Checks that no leases sum to more than their capacity as Envoys use them, and returns how full
    /// the fullest capacity is.
    pub(super) fn check_sums(&mut self, sums: &[CapacitySum]) -> f64 {
        let mut worst: f64 = 0.0;
        for (number, sum) in sums.iter().enumerate() {
            let capacity = self.capacities.nodes()[number].capacity;
            if !capacity.capacity.is_unlimited() {
                worst = worst.max(self.fullness(number, sum.counted, capacity));
            }
        }
        worst
    }

    /// Returns the part of a capacity that its leases sum to. One that was lowered counts for as long
    /// as leases of before may last.
    fn fullness(&mut self, number: usize, has: u64, capacity: FleetCapacity) -> f64 {
        let most = self.most_allowed(number, capacity.capacity);
        if capacity.is_promised && has > most.as_micros() {
            let has = Capacity::from_micros(has);
            let numbers = format!("sum to {has}, its capacity is {most}");
            let leases = format!("the leases of {}", self.scopes.id(number));
            self.recorder.refuse(self.queue.elapsed(), leases, &numbers);
        }
        match most.as_micros() {
            0 if has == 0 => 0.0,
            most => has as f64 / most.max(1) as f64,
        }
    }

    /// Returns the largest capacity within the last lease.
    fn most_allowed(&self, number: usize, capacity: Capacity) -> Capacity {
        let before = self.lowered_from(number);
        before.map_or(capacity, |before| capacity.max(before))
    }

    /// Returns the capacity before it was lowered, while leases of then may last.
    fn lowered_from(&self, number: usize) -> Option<Capacity> {
        let (before, until) = self.lowered.get(&number)?;
        (*until >= self.now()).then_some(*before)
    }

    /// Puts other limits into force, and remembers which capacities they lower.
    pub(in crate::simulation) fn switch_limits(&mut self, limits: usize) {
        self.limits.switch(limits);
        let after = CapacityTree::new(&self.scopes, &self.limits);
        let elapsed = self.elapsed();
        let (ideal, scopes) = (&mut self.tally.ideal, &self.scopes);
        ideal.set_limits(elapsed, &after, scopes, &self.limits);
        let before = std::mem::replace(&mut self.capacities, after);
        let now = self.now();
        let mut changed = Vec::new();
        for (number, old) in before.nodes().iter().enumerate() {
            let new = &self.capacities.nodes()[number];
            if new.capacity.capacity < old.capacity.capacity {
                changed.push((number, old.capacity.capacity, old.lease));
            }
            // A member brings its leases along into its pool.
            if let Some(pool) = self.capacities.pool_of(number)
                && old.parent != new.parent
            {
                changed.push((pool, Capacity::UNLIMITED, old.lease));
            }
        }
        if !changed.is_empty() {
            self.reached.count(Case::CapacityLowered);
        }
        for (number, before, lasts) in changed {
            let most = self.most_allowed(number, before);
            let earlier = self.lowered.get(&number).map(|(_, until)| *until);
            let until = now.saturating_add(lasts);
            let until = earlier.map_or(until, |earlier| earlier.max(until));
            self.lowered.insert(number, (most, until));
        }
    }

    /// Checks the lease tables of all coordinators.
    pub(super) fn check_tables(&mut self) {
        let mut broken = Vec::new();
        for (index, coordinator) in self.coordinators.iter().enumerate() {
            // The borrowed capacity may be lowered at any time.
            if coordinator.parent.is_some() {
                continue;
            }
            let resources = coordinator.servers().flat_map(|server| server.resources());
            let resources = resources.map(|(id, resource)| {
                let number = self.scopes.find(&id.scope).map(|number| number as usize);
                (id, number, resource.limit(), resource.sum_has())
            });
            let pools = coordinator.servers().flat_map(|server| server.pools());
            let pools = pools.map(|(id, pool)| {
                let number = self.scopes.find_pool(&id.scope);
                (id, number, pool.limit(), pool.sum_has())
            });
            for (id, number, limit, has) in resources.chain(pools) {
                let lowered = number.is_some_and(|number| self.lowered_from(number).is_some());
                if lowered || !limit.algorithm.shares() || limit.capacity.is_unlimited() {
                    continue;
                }
                if has > limit.capacity.as_micros().into() {
                    let name = &self.scenario.coordinators[index].name;
                    let (has, capacity) = (Capacity::from_sum(has), limit.capacity);
                    broken.push((
                        format!("the leases of {} that {name} counts", id.scope),
                        format!("sum to {has}, its capacity is {capacity}"),
                    ));
                }
            }
        }
        let elapsed: Duration = self.elapsed();
        for (leases, numbers) in broken {
            self.recorder.refuse(elapsed, leases, &numbers);
        }
    }
}
