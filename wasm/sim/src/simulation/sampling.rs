//! Samples of the whole fleet.

use tollgate_core::client::{LeaseState, ScopeState};
use tollgate_core::units::{Capacity, Instant, MICRO};

mod divisions;
mod laws;

use super::Simulation;
use super::event::Event;
use crate::capacities::CapacitySum;
use crate::coordinator::Coordinator;
use crate::sample::{ClientSample, Sample, ScopeSample};

/// State of all Envoys.
#[derive(Debug, Default)]
struct FleetSum {
    /// By the numbers of scopes and pools.
    sums: Vec<CapacitySum>,
    wants: f64,
    clients: Vec<ClientSample>,
    envoys: u32,
    leases: u64,
    without_lease: u64,
    lost: u64,
    waiting: u64,
}

// === impl Simulation ===

impl Simulation {
    /// Takes a sample, and plans the next one.
    pub(super) fn sample(&mut self) {
        let every = self.scenario.sample.0;
        self.queue.push(every, Event::Sample);
        let now = self.now();
        for coordinator in &mut self.coordinators {
            coordinator.note_safe(now, every);
        }
        let fleet = self.look_at_envoys();
        let (elapsed, seconds) = (self.elapsed(), every.as_secs_f64());
        let mut sample = Sample {
            at: elapsed.as_secs_f64(),
            wants: fleet.wants,
            envoys: fleet.envoys,
            leases: fleet.leases,
            without_lease: fleet.without_lease,
            waiting: fleet.waiting,
            messages: self.recorder.take_messages(),
            ..Sample::default()
        };
        let requests = self.tally.sum();
        sample.admitted = requests[0] as f64 / seconds;
        sample.refused = requests[1] as f64 / seconds;
        self.look_at_capacities(&mut sample, &fleet.sums, seconds);
        let worst = self.check_sums(&fleet.sums);
        self.note_fairness(&fleet.sums);
        sample.clients = fleet.clients;
        let [admitted, refused] = requests;
        self.recorder.counts.admitted += admitted;
        self.recorder.counts.refused += refused;
        if self.recorder.measures(elapsed) {
            self.recorder.counts.leases_lost += fleet.lost;
        }
        self.check_tables();
        self.tally.clear(elapsed);
        self.recorder.keep(elapsed, sample, worst);
    }

    /// Adds the scopes and pools to `sample`.
    fn look_at_capacities(&self, sample: &mut Sample, sums: &[CapacitySum], seconds: f64) {
        for (number, node) in self.capacities.nodes().iter().enumerate() {
            let sum = &sums[number];
            if let Some(capacity) = node.capacity.requests().filter(|_| node.is_root()) {
                sample.has += micros(sum.has);
                sample.capacity += capacity;
                sample.attainable += sum.attainable;
                sample.handed_out += sum.handed_out;
            }
        }
        let watched = self.recorder.watched.iter();
        let scopes = watched.map(|number| {
            let (sum, node) = (&sums[*number], &self.capacities.nodes()[*number]);
            ScopeSample {
                wants: sum.wants,
                has: bounded(sum.has),
                capacity: node.capacity.requests(),
                ideal: self
                    .tally
                    .ideal
                    .sampled(*number)
                    .map(|count| count as f64 / seconds),
                admitted: sum.requests[0] as f64 / seconds,
                refused: sum.requests[1] as f64 / seconds,
            }
        });
        sample.scopes = scopes.collect();
    }

    fn look_at_envoys(&mut self) -> FleetSum {
        let (now, scopes) = (self.now(), self.scopes.clone());
        let watched = self.recorder.watched_envoys;
        let mut fleet = FleetSum {
            sums: vec![CapacitySum::default(); scopes.node_count()],
            ..FleetSum::default()
        };
        for (number, sum) in fleet.sums.iter_mut().enumerate().take(scopes.asked()) {
            sum.requests = self.tally.of(number);
        }
        let open = self.open_counts();
        for index in 0..self.envoys.len() {
            let mut client = ClientSample {
                has: Some(0.0),
                ..ClientSample::default()
            };
            self.wants_at(index, &open, |number, rate| {
                fleet.wants += rate;
                fleet.sums[number as usize].wants += rate;
                client.wants += if number == 0 { rate } else { 0.0 };
            });
            let (envoy, coordinators) = (&mut self.envoys[index], &self.coordinators);
            if let Some(process) = &mut envoy.process {
                fleet.envoys += 1;
                fleet.waiting += process.waiting() as u64;
                let mut without = 0;
                process.scopes(now, |local, id, state| {
                    let Some(number) = scopes.find(id) else {
                        return;
                    };
                    without += u64::from(state.requests.state(local) == LeaseState::NoLease);
                    let safe = lends_safe(coordinators, envoy.coordinator, id);
                    let has = fleet.add_lease(number, local, state, safe);
                    if number == 0 {
                        client.has = bounded(has);
                    }
                });
                fleet.without_lease += without;
                fleet.lost += without.saturating_sub(process.without_lease);
                process.without_lease = without;
            }
            if index < watched {
                fleet.clients.push(client);
            }
        }
        self.capacities.add_up(&mut fleet.sums);
        fleet
    }
}

// === impl FleetSum ===

impl FleetSum {
    /// Adds an Envoy's lease of a scope, and returns it in millionths.
    fn add_lease(&mut self, number: u32, local: Instant, state: &ScopeState, safe: bool) -> u64 {
        let sum = &mut self.sums[number as usize];
        let has = state.requests.has(local).as_micros();
        sum.has = sum.has.saturating_add(has);
        if !safe {
            sum.counted = sum.counted.saturating_add(has);
        }
        self.leases += u64::from(state.requests.state(local) == LeaseState::Leased);
        has
    }
}

// === free functions ===

/// Returns whether leases of `scope` from the coordinator at an index, or from one above, may be of
/// safe capacity.
fn lends_safe(coordinators: &[Coordinator], index: usize, scope: &str) -> bool {
    let above = |index: &usize| coordinators[*index].parent;
    let mut chain = std::iter::successors(Some(index), above);
    chain.any(|index| coordinators[index].lends_safe(scope))
}

/// Returns requests per second, of millionths; none if they have no bound.
fn bounded(capacity: u64) -> Option<f64> {
    (capacity < Capacity::MAX.as_micros()).then(|| micros(capacity))
}

/// Returns requests per second, of millionths.
fn micros(capacity: u64) -> f64 {
    capacity as f64 / MICRO as f64
}
