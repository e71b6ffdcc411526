//! Samples of the whole fleet, and the laws that they are checked for.

use std::time::Duration;

use tollgate_core::client::{LeaseState, ScopeState};
use tollgate_core::lease::Unit;
use tollgate_core::units::{Capacity, Instant, MICRO};

mod divisions;

use super::Simulation;
use super::event::Event;
use crate::coordinator::Coordinator;
use crate::demand::RequestStream;
use crate::limits::FleetCapacity;
use crate::sample::{ClientSample, Sample, ScopeSample};

/// State of one scope while a sample is taken, in millionths where it is whole.
#[derive(Clone, Copy, Debug, Default)]
struct ScopeSum {
    wants: f64,
    has: u64,
    /// Without safe capacity that a coordinator lends while its parent is away: that is no part of the
    /// scope's capacity.
    counted: u64,
    leases: u64,
}

/// State of all Envoys.
#[derive(Debug, Default)]
struct FleetSum {
    scopes: Vec<ScopeSum>,
    clients: Vec<ClientSample>,
    envoys: u32,
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
            envoys: fleet.envoys,
            without_lease: fleet.without_lease,
            waiting: fleet.waiting,
            messages: self.recorder.take_messages(),
            ..Sample::default()
        };
        let requests = self.tally.sum();
        sample.admitted = requests[0] as f64 / seconds;
        sample.refused = requests[1] as f64 / seconds;
        let worst = self.look_at_scopes(&mut sample, &fleet, seconds);
        self.note_fairness(&fleet);
        sample.clients = fleet.clients;
        self.recorder.count_requests(requests);
        if self.recorder.measures(elapsed) {
            self.recorder.count_lost_leases(fleet.lost);
        }
        self.check_tables();
        self.tally.clear();
        self.windows.advance();
        self.recorder.keep(elapsed, sample, worst);
    }

    /// Adds the scopes to `sample`, and returns how full the fullest is.
    fn look_at_scopes(&mut self, sample: &mut Sample, fleet: &FleetSum, seconds: f64) -> f64 {
        let (scopes, watched) = (self.scopes.clone(), self.recorder.watched());
        let mut worst: f64 = 0.0;
        for (number, (scope, sum)) in scopes.iter().zip(&fleet.scopes).enumerate() {
            let shared = self.limits.capacity(&scope.id);
            let capacity = shared.capacity;
            let has = sum.has as f64 / MICRO as f64;
            sample.wants += sum.wants;
            sample.leases += sum.leases;
            if !capacity.is_unlimited() {
                let attainable = capacity.as_f64().min(sum.wants);
                sample.has += has;
                sample.capacity += capacity.as_f64();
                sample.attainable += attainable;
                sample.handed_out += has.min(attainable);
                worst = worst.max(self.fullness(number, &scope.id, sum.counted, shared));
                self.note_admitted(number, capacity);
            }
            if number < watched {
                let [admitted, refused] = self.tally.of(number);
                sample.scopes.push(ScopeSample {
                    wants: sum.wants,
                    has,
                    capacity: (!capacity.is_unlimited()).then(|| capacity.as_f64()),
                    admitted: admitted as f64 / seconds,
                    refused: refused as f64 / seconds,
                });
            }
        }
        worst
    }

    /// Returns the part of its capacity that the leases of a scope sum to. One that was lowered
    /// counts for as long as leases of before may last.
    fn fullness(&mut self, number: usize, id: &str, has: u64, shared: FleetCapacity) -> f64 {
        let most = self.most_allowed(number, shared.capacity);
        if shared.is_promised && has > most.as_micros() {
            let has = Capacity::from_micros(has);
            let numbers = format!("sum to {has}, its capacity is {most}");
            let elapsed = self.elapsed();
            let leases = format!("the leases of {id}");
            self.recorder.refuse(elapsed, leases, &numbers);
        }
        match most.as_micros() {
            0 if has == 0 => 0.0,
            most => has as f64 / most.max(1) as f64,
        }
    }

    /// Notes how much of a scope's capacity went on in the last seconds.
    fn note_admitted(&mut self, number: usize, capacity: Capacity) {
        let [admitted, _] = self.tally.of(number);
        self.windows.add(number, admitted);
        let most = self.most_allowed(number, capacity).as_f64();
        if let Some(mean) = self.windows.mean(number).filter(|_| most > 0.0)
            && self.recorder.measures(self.elapsed())
        {
            self.recorder.note_admitted(mean / most);
        }
    }

    /// Returns the largest capacity of a scope within the last lease.
    fn most_allowed(&self, number: usize, capacity: Capacity) -> Capacity {
        let now = self.now();
        let before = self.lowered.get(&number);
        let before = before.filter(|(_, until)| *until >= now);
        before.map_or(capacity, |(before, _)| capacity.max(*before))
    }

    /// Puts other limits into force, and remembers which capacities they lower.
    pub(super) fn switch_limits(&mut self, limits: usize) {
        let scopes = self.scopes.clone();
        let lasts = |limits: &crate::limits::ScopeLimits| {
            let terms = limits.terms(Unit::Requests);
            terms.map_or(Duration::ZERO, |terms| terms.limit.lease)
        };
        let before = scopes.iter().map(|scope| {
            let limits = self.limits.of(&scope.id);
            (lasts(&limits), self.limits.capacity(&scope.id).capacity)
        });
        let before: Vec<_> = before.collect();
        self.limits.switch(limits);
        let now = self.now();
        for (number, (scope, before)) in scopes.iter().zip(before).enumerate() {
            let (lasts, capacity) = before;
            if self.limits.capacity(&scope.id).capacity < capacity {
                let until = now.saturating_add(lasts);
                let most = self.most_allowed(number, capacity);
                self.lowered.insert(number, (most, until));
            }
        }
    }

    fn look_at_envoys(&mut self) -> FleetSum {
        let (now, scopes) = (self.now(), self.scopes.clone());
        let watched = self.recorder.watched_envoys();
        let mut fleet = FleetSum {
            scopes: vec![ScopeSum::default(); scopes.len()],
            ..FleetSum::default()
        };
        let (envoys, coordinators) = (&mut self.envoys, &self.coordinators);
        for (index, envoy) in envoys.iter_mut().enumerate() {
            let mut client = ClientSample::default();
            if let Some(process) = &mut envoy.process {
                fleet.envoys += 1;
                fleet.waiting += process.waiting() as u64;
                for stream in &process.streams {
                    client.wants += fleet.add_wants(stream);
                }
                let mut without = 0;
                process.scopes(now, |local, id, state| {
                    let Some(number) = scopes.find(id) else {
                        return;
                    };
                    without += u64::from(state.requests.state(local) == LeaseState::NoLease);
                    let safe = lends_safe(coordinators, envoy.coordinator, id);
                    let has = fleet.add_lease(number, local, state, safe);
                    if number == 0 {
                        client.has = has.as_f64();
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
        fleet
    }

    /// Checks the lease tables of all coordinators.
    fn check_tables(&mut self) {
        let mut broken = Vec::new();
        for (index, coordinator) in self.coordinators.iter().enumerate() {
            let borrows = coordinator.parent.is_some();
            for (id, resource) in coordinator.servers().flat_map(|server| server.resources()) {
                let number = self.scopes.find(&id.scope);
                let lowered = number.is_some_and(|number| {
                    let before = self.lowered.get(&(number as usize));
                    before.is_some_and(|(_, until)| *until >= self.now())
                });
                // The borrowed capacity may be lowered at any time.
                if borrows || lowered || !resource.limit().algorithm.shares() {
                    continue;
                }
                let capacity = resource.limit().capacity;
                if !capacity.is_unlimited() && resource.sum_has() > capacity.as_micros().into() {
                    let name = &self.scenario.coordinators[index].name;
                    let has = Capacity::from_sum(resource.sum_has());
                    broken.push((
                        format!("the leases of {} that {name} counts", id.scope),
                        format!("sum to {has}, its capacity is {capacity}"),
                    ));
                }
            }
        }
        let elapsed = self.elapsed();
        for (leases, numbers) in broken {
            self.recorder.refuse(elapsed, leases, &numbers);
        }
    }
}

// === impl FleetSum ===

impl FleetSum {
    /// Adds the requests of a stream, and returns those for the first scope.
    fn add_wants(&mut self, stream: &RequestStream) -> f64 {
        let (rate, mut first) = (stream.token_rate(), 0.0);
        for (number, weight) in stream.shape.weights() {
            self.scopes[number as usize].wants += rate * weight;
            if number == 0 {
                first = rate * weight;
            }
        }
        first
    }

    /// Adds an Envoy's lease of a scope, and returns its capacity.
    fn add_lease(
        &mut self,
        number: u32,
        local: Instant,
        state: &ScopeState,
        safe: bool,
    ) -> Capacity {
        let sum = &mut self.scopes[number as usize];
        let has = state.requests.has(local);
        sum.has = sum.has.saturating_add(has.as_micros());
        if !safe {
            sum.counted = sum.counted.saturating_add(has.as_micros());
        }
        sum.leases += u64::from(state.requests.state(local) == LeaseState::Leased);
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
