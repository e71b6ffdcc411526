//! Divisions of contended capacities between Envoys, and their fairness.

use tollgate_core::units::MICRO;

use super::FleetSum;
use crate::fairness::{Claim, Fairness};
use crate::simulation::Simulation;

/// Division of a capacity that more is wanted of than there is.
#[derive(Debug)]
struct Division {
    /// Number of the scope.
    scope: usize,
    capacity: f64,
    claims: Vec<Claim>,
}

// === impl Simulation ===

impl Simulation {
    /// Notes how fairly each contended capacity is divided between the Envoys that want it.
    pub(super) fn note_fairness(&mut self, fleet: &FleetSum) {
        let elapsed = self.elapsed();
        if !self.recorder.measures(elapsed) {
            return;
        }
        let scopes = self.scopes.clone();
        let mut places = vec![None; scopes.len()];
        let mut divisions = Vec::new();
        for (number, (scope, sum)) in scopes.iter().zip(&fleet.scopes).enumerate() {
            let capacity = self.limits.capacity(&scope.id).capacity;
            if !capacity.is_unlimited() && sum.wants > capacity.as_f64() {
                places[number] = Some(divisions.len());
                divisions.push(Division {
                    scope: number,
                    capacity: capacity.as_f64(),
                    claims: Vec::new(),
                });
            } else {
                self.recorder.note_fairness(elapsed, number, None);
            }
        }
        self.collect_claims(&places, &mut divisions);
        for division in divisions {
            let fairness = Fairness::of(division.capacity, &division.claims);
            self.recorder
                .note_fairness(elapsed, division.scope, fairness);
        }
    }

    /// Adds the claims of all Envoys to `divisions`, whose places are known by the numbers of scopes.
    fn collect_claims(&self, places: &[Option<usize>], divisions: &mut [Division]) {
        if divisions.is_empty() {
            return;
        }
        let place = |number: u32| places[number as usize];
        let now = self.now();
        for process in self
            .envoys
            .iter()
            .filter_map(|envoy| envoy.process.as_ref())
        {
            let nothing = Claim {
                wants: 0.0,
                has: 0.0,
                weight: 1.0,
            };
            let mut claims = vec![nothing; divisions.len()];
            for stream in &process.streams {
                for (number, weight) in stream.shape.weights() {
                    if let Some(place) = place(number) {
                        claims[place].wants += stream.rate() * weight;
                    }
                }
            }
            process.scopes(now, |local, id, state| {
                if let Some(place) = self.scopes.find(id).and_then(place) {
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
