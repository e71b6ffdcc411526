//! Divisions of contended capacities between Envoys and between members of pools, and their fairness.

use tollgate_core::units::MICRO;

use crate::capacities::CapacitySum;
use crate::fairness::{Claim, Fairness, max_min};
use crate::simulation::Simulation;

/// Division of a capacity that more is wanted of than there is.
#[derive(Debug)]
struct Division {
    /// Number of what is divided.
    number: usize,
    capacity: f64,
    claims: Vec<Claim>,
}

// === impl Simulation ===

impl Simulation {
    /// Notes how fairly each contended capacity is divided between those that want it: a pool's
    /// between its members, and a scope's between Envoys.
    pub(super) fn note_fairness(&mut self, sums: &[CapacitySum]) {
        let elapsed = self.elapsed();
        if !self.recorder.measures(elapsed) {
            return;
        }
        let pools = self.pool_divisions(sums);
        let capacities = self.capacities_of_scopes(&pools);
        let mut divisions = Vec::new();
        let mut places = vec![None; capacities.len()];
        for (number, capacity) in capacities.into_iter().enumerate() {
            if let Some(capacity) = capacity.filter(|capacity| sums[number].wants > *capacity) {
                places[number] = Some(divisions.len());
                divisions.push(Division {
                    number,
                    capacity,
                    claims: Vec::new(),
                });
            } else {
                self.recorder.fairness.note(elapsed, number, None);
            }
        }
        self.collect_claims(&places, &mut divisions);
        for division in pools.iter().chain(&divisions) {
            let fairness = Fairness::of(division.capacity, &division.claims);
            let log = &mut self.recorder.fairness;
            log.note(elapsed, division.number, fairness);
        }
    }

    /// Returns the divisions of pools between the members that want something.
    fn pool_divisions(&self, sums: &[CapacitySum]) -> Vec<Division> {
        let nodes = self.capacities.nodes();
        let first = self.scopes.len();
        let pools = nodes.iter().enumerate().skip(first);
        let pools = pools.map(|(number, node)| Division {
            number,
            capacity: node.capacity.requests().unwrap_or(f64::INFINITY),
            claims: Vec::new(),
        });
        let mut pools: Vec<Division> = pools.collect();
        for (number, node) in nodes.iter().enumerate().take(first) {
            let sum = &sums[number];
            if let Some(pool) = self.capacities.pool_of(number).filter(|_| sum.wants > 0.0) {
                pools[pool - first].claims.push(Claim {
                    wants: sum.attainable,
                    has: sum.has as f64 / MICRO as f64,
                    weight: node.weight,
                    number,
                });
            }
        }
        pools
    }

    /// Returns how much of each scope there is to divide between Envoys: of a member of a pool its
    /// max-min share there, at most. None if there is no bound.
    fn capacities_of_scopes(&self, pools: &[Division]) -> Vec<Option<f64>> {
        let scopes = self.capacities.nodes().iter().take(self.scopes.len());
        let mut capacities: Vec<_> = scopes.map(|node| node.capacity.requests()).collect();
        for Division {
            capacity, claims, ..
        } in pools
        {
            for (claim, share) in claims.iter().zip(max_min(*capacity, claims)) {
                let own = capacities[claim.number].unwrap_or(f64::INFINITY);
                capacities[claim.number] = Some(own.min(share)).filter(|_| capacity.is_finite());
            }
        }
        capacities
    }

    /// Adds the claims of all Envoys to `divisions`, whose places are known by the numbers of scopes.
    fn collect_claims(&self, places: &[Option<usize>], divisions: &mut [Division]) {
        if divisions.is_empty() {
            return;
        }
        let nodes = self.capacities.nodes();
        let now = self.now();
        let envoys = self.envoys.iter().enumerate();
        let processes = envoys.filter_map(|(index, envoy)| Some((index, envoy.process.as_ref()?)));
        let open = self.open_counts();
        for (index, process) in processes {
            let mut claims = vec![Claim::of(index); divisions.len()];
            self.wants_at(index, &open, |number, rate| {
                let number = number as usize;
                let shared = nodes[number].parent;
                let of = [Some(number), shared].into_iter().flatten();
                for place in of.filter_map(|number| *places.get(number)?) {
                    claims[place].wants += rate;
                }
            });
            process.scopes(now, |local, id, state| {
                let number = self.scopes.find(id);
                if let Some(place) = number.and_then(|number| places[number as usize]) {
                    let has = state.requests.has(local).as_micros();
                    claims[place].has = has as f64 / MICRO as f64;
                }
            });
            for (division, claim) in divisions.iter_mut().zip(claims) {
                if claim.wants > 0.0 {
                    division.claims.push(claim);
                }
            }
        }
    }
}
