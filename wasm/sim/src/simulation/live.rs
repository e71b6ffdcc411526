//! Changes and readings of a running simulation, for programs in which people turn its knobs.
//!
//! [`Simulation::happen`] lets an event of a known length happen; these last until the opposite is
//! called. Both happen at the time that the simulation has reached. Places of Envoys and
//! coordinators count from 0, in the order of the scenario; a place that there is not changes
//! nothing.

use std::time::Duration;

use tollgate_core::client::LeaseState;
use tollgate_core::units::MICRO;

use super::Simulation;
use crate::demand::Overlay;
use crate::scenario::Direction;
use crate::topology::{ActiveCut, Node};

/// State of one Envoy and of its part of one scope. Rates are requests per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EnvoyStatus {
    /// Requests that come.
    pub wants: f64,
    /// Its lease; zero without one.
    pub has: f64,
    /// Rate that its buckets are refilled with: the lease, or what the Envoy falls back to.
    pub rate: f64,
    /// Rate that it falls back to without a lease.
    pub fallback: f64,
    /// Time for which its lease is valid; none without one.
    pub lease_left: Option<Duration>,
    /// Whether it waits for the answer to its first request for a lease.
    pub is_pending: bool,
    /// Requests for all scopes that went on, since its process started.
    pub admitted: u64,
    /// Requests for all scopes that were refused, since then.
    pub refused: u64,
}

/// State of a coordinator's masters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoordinatorStatus {
    /// No shard has one.
    Down,
    /// One learns for so long which leases are out.
    Learning(Duration),
    /// They lend.
    Lending,
}

// === impl Simulation ===

impl Simulation {
    /// Makes so many requests per second come to an Envoy, in each of its entries of the demand.
    pub fn set_demand(&mut self, envoy: usize, rate: f64) {
        let set = (rate.is_finite() && rate >= 0.0).then_some(rate);
        if set.is_some() && envoy < self.envoys.len() {
            let change = Overlay {
                set,
                ..Overlay::NONE
            };
            self.change_courses(&[envoy], |course, of| course.apply(change.of_all(of)));
        }
    }

    /// Puts the limits at a place into force, and has them read anew if they are already.
    pub fn apply_limits(&mut self, limits: usize) {
        self.switch_limits(limits);
    }

    /// Cuts an Envoy off from everything, until [`Simulation::connect`].
    pub fn cut_off(&mut self, envoy: usize) {
        self.connect(envoy);
        let now = self.now();
        let cut = ActiveCut {
            region: None,
            nodes: vec![Node::Envoy(envoy)],
            direction: Direction::Both,
            until: now.saturating_add(Duration::MAX),
        };
        self.topology.cut(now, cut);
    }

    /// Ends what [`Simulation::cut_off`] began.
    pub fn connect(&mut self, envoy: usize) {
        self.topology.lift_cuts_of(Node::Envoy(envoy));
    }

    /// Ends the masters of a coordinator, which leave nothing to their successors.
    pub fn stop_coordinator(&mut self, coordinator: usize) {
        if let Some(place) = self.coordinators.get_mut(coordinator) {
            for shard in &mut place.shards {
                (shard.server, shard.past) = (None, None);
            }
            self.end_watches(coordinator);
        }
    }

    /// Gives each shard of a coordinator without a master one, which learns first.
    pub fn start_coordinator(&mut self, coordinator: usize) {
        if let Some(place) = self.coordinators.get(coordinator) {
            let shards = 0..place.shards.len();
            let left: Vec<_> = shards.map(|shard| (shard, None)).collect();
            self.elect(coordinator, &left);
        }
    }

    /// Returns the state of the Envoy at a place, and of its part of `scope`.
    pub fn envoy_status(&self, index: usize, scope: &str) -> Option<EnvoyStatus> {
        let envoy = self.envoys.get(index)?;
        let policy = &self.kinds.get(envoy.kind)?.config.rules.first()?.policy;
        let Some(process) = &envoy.process else {
            return Some(EnvoyStatus::default());
        };
        let [admitted, refused] = process.requests();
        let mut wants = 0.0;
        self.wants_at(index, &self.open_counts(), |_, rate| wants += rate);
        let mut status = EnvoyStatus {
            wants,
            admitted,
            refused,
            ..EnvoyStatus::default()
        };
        process.scopes(self.now(), |local, id, state| {
            if id != scope {
                return;
            }
            let limiter = &state.requests;
            let expiry = limiter.lease_expiry();
            let rate_at = |at| limiter.flow(at, policy).0.as_micros() as f64 / MICRO as f64;
            status.rate = rate_at(local);
            status.fallback = rate_at(expiry.map_or(local, |at| at.max(local)));
            match limiter.state(local) {
                LeaseState::Leased => {
                    status.has = limiter.has(local).as_f64();
                    status.lease_left = expiry.map(|at| at.saturating_since(local));
                }
                state => status.is_pending = state == LeaseState::Pending,
            }
        });
        Some(status)
    }

    /// Returns the state of the coordinator at a place.
    pub fn coordinator_status(&self, coordinator: usize) -> Option<CoordinatorStatus> {
        let place = self.coordinators.get(coordinator)?;
        let learning = place.learning_left(self.now());
        Some(match learning.is_zero() {
            _ if place.is_down() => CoordinatorStatus::Down,
            true => CoordinatorStatus::Lending,
            false => CoordinatorStatus::Learning(learning),
        })
    }
}
