//! Facts about a tree that its coordinators may not know themselves: which of them has borrowed what,
//! and which leases are of safe capacity, lent while a parent was away.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate_core::lease::{Answer, ClientRun, Epoch, ResourceId, Run};
use tollgate_core::limit::{Limit, SafeCapacity};
use tollgate_core::message::Refreshed;
use tollgate_core::units::{Capacity, Instant};
use tollgate_sim::simulation::Simulation;
use tollgate_sim::simulation::exchanges::{AnsweredRequest, Exchange};
use tollgate_sim::simulation::masters::CoordinatorView;
use tollgate_sim::simulation::reached::Case;
use tollgate_sim::{ClientKey, ClientView, Node};

use crate::plan::Plan;

/// Facts about a tree, brought up to date after each event.
pub(crate) struct Borrowing {
    resource: ResourceId,
    delay_max: Duration,
    /// Extra time for which a lease may be counted: the sum of all transfers.
    pub(crate) held_up: Duration,
    /// Number of crashes of coordinators, and of those of others than the root.
    pub(crate) crashes: [u32; 2],
    places: Vec<Place>,
    clients: Vec<Option<LeaseOrigin>>,
    /// The last lease of each client of each coordinator.
    last_leases: BTreeMap<(usize, ClientRun), LastLease>,
    /// Answers with leases of safe capacity.
    safe_answers: BTreeMap<u64, bool>,
    started: u64,
    /// Leases of safe capacity that were lent, and those of them that were lent out of such a lease.
    pub(crate) safe_lent: [u64; 2],
}

/// Coordinator. Times are the world's.
pub(crate) struct Place {
    parent: Option<usize>,
    /// Envoys that ask it.
    envoys: Vec<usize>,
    /// Use of the root's capacity, in millionths, by the processes there and below it.
    pub(crate) used: u128,
    pub(crate) limit: Limit,
    epoch: Epoch,
    /// End of learning mode, if it has started without a snapshot.
    pub(crate) learning_until: Instant,
    /// Leases of its parent, by all answers that it applied, that have not expired.
    pub(crate) borrowed: Vec<Borrowed>,
    /// Expiry of the last lease that it ever had.
    pub(crate) borrowed_until: Instant,
    /// The safe capacity that its parent last reported, if it ever answered.
    reported_safe: Option<Option<Capacity>>,
    /// The capacity of the whole resource that its parent last reported.
    pub(crate) reported_whole: Capacity,
    /// Time since which it has lent the safe capacity, if it does.
    pub(crate) safe_since: Option<Instant>,
    /// Expiry of the last safe capacity that it has lent or was lent.
    safe_until: Instant,
}

/// Lease of the parent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Borrowed {
    pub(crate) capacity: Capacity,
    pub(crate) until: Instant,
    /// Whether the parent had no lease itself and lent safe capacity.
    pub(crate) safe: bool,
}

#[derive(Clone, Copy)]
struct LastLease {
    capacity: Capacity,
    until: Instant,
    safe: bool,
}

/// Origin of the lease of a process.
struct LeaseOrigin {
    key: ClientKey,
    /// Answers that it has applied.
    applied: u64,
    safe: bool,
}

// === impl Borrowing ===

impl Borrowing {
    pub(crate) fn new(plan: &Plan, now: Instant) -> Self {
        let network = &plan.scenario.network;
        let place = |index| Place {
            parent: plan.parent_of(index),
            envoys: plan.envoys_of(index),
            used: 0,
            limit: plan.limit_of(index),
            epoch: Epoch(1),
            learning_until: now,
            borrowed: Vec::new(),
            borrowed_until: now,
            reported_safe: None,
            reported_whole: Capacity::UNLIMITED,
            safe_since: None,
            safe_until: now,
        };
        let coordinators = 0..plan.scenario.coordinators.len();
        let envoys = plan.scenario.envoys.iter();
        Self {
            resource: plan.history.members[0].own.id.clone(),
            delay_max: network.latency.0 + network.jitter.0,
            held_up: plan.transfers().sum(),
            crashes: [
                plan.crashed().count() as u32,
                plan.crashed()
                    .filter(|coordinator| *coordinator > 0)
                    .count() as u32,
            ],
            places: coordinators.map(place).collect(),
            clients: envoys.map(|_| None).collect(),
            last_leases: BTreeMap::new(),
            safe_answers: BTreeMap::new(),
            started: 0,
            safe_lent: [0; 2],
        }
    }

    // Observations for the laws.

    pub(crate) fn place(&self, coordinator: usize) -> &Place {
        &self.places[coordinator]
    }

    pub(crate) fn places(&self) -> &[Place] {
        &self.places
    }

    /// Returns whether a process has safe capacity, lent by a coordinator without a lease.
    pub(crate) fn is_safe(&self, envoy: usize) -> bool {
        self.clients[envoy]
            .as_ref()
            .is_some_and(|client| client.safe)
    }

    /// Returns the capacity lent at `coordinator` by leases that last, as far as it knows.
    pub(crate) fn lent_at(&self, now: Instant, coordinator: usize) -> u128 {
        let lent = self.last_leases.iter();
        let lent = lent.filter(|((at, _), lent)| *at == coordinator && lent.until > now);
        lent.map(|(_, lent)| u128::from(lent.capacity.as_micros()))
            .sum()
    }

    /// Returns whether a client may claim safe capacity of `coordinator` as if it were the root's: a
    /// coordinator that knows nothing believes it, and confirms it for as long as a lease.
    pub(crate) fn claims_safe(&self, now: Instant, coordinator: usize) -> bool {
        let Place {
            safe_until, limit, ..
        } = &self.places[coordinator];
        now < safe_until.saturating_add(limit.lease)
    }

    /// Returns the number of processes that have ever asked a coordinator.
    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    /// Returns the processes that ask at `coordinator`.
    pub(crate) fn clients_at<'a>(
        &self,
        simulation: &'a Simulation,
        coordinator: usize,
    ) -> impl Iterator<Item = ClientView<'a>> {
        let envoys = self.places[coordinator].envoys.iter();
        envoys.flat_map(|envoy| simulation.clients_at(*envoy))
    }

    /// Returns the coordinators right below `coordinator`.
    pub(crate) fn below(&self, coordinator: usize) -> impl Iterator<Item = usize> {
        let places = self.places.iter().enumerate();
        places
            .filter(move |(_, place)| place.parent == Some(coordinator))
            .map(|(index, _)| index)
    }

    // Changes.

    /// Takes the last event.
    pub(crate) fn observe(&mut self, plan: &Plan, simulation: &Simulation) {
        let now = simulation.now();
        for (index, coordinator) in simulation.coordinators().enumerate() {
            self.note_start(plan, simulation.elapsed(), (index, coordinator), now);
        }
        self.note_processes(simulation);
        for exchange in simulation.exchanges() {
            self.take(simulation, exchange);
        }
        for (index, coordinator) in simulation.coordinators().enumerate() {
            let away = coordinator.master(&self.resource.scope).is_some()
                && self.borrowed_capacity(coordinator).is_none();
            let place = &mut self.places[index];
            let safe = away && place.safe().is_some();
            place.safe_since = safe.then(|| place.safe_since.unwrap_or(now));
        }
        self.add_up(simulation);
    }

    /// Adds up the use of the root's capacity.
    fn add_up(&mut self, simulation: &Simulation) {
        for index in 0..self.places.len() {
            let clients = self.clients_at(simulation, index);
            let lent = clients.filter(|client| !self.is_safe(client.envoy));
            let used = lent
                .map(|client| u128::from(client.has().as_micros()))
                .sum();
            self.places[index].used = used;
        }
        // Each stands after its parent.
        for index in (1..self.places.len()).rev() {
            if let Some(parent) = self.places[index].parent {
                self.places[parent].used += self.places[index].used;
            }
        }
    }

    /// Notes that a coordinator has a new master.
    fn note_start(
        &mut self,
        plan: &Plan,
        elapsed: Duration,
        (index, coordinator): (usize, CoordinatorView<'_>),
        now: Instant,
    ) {
        let held_up = self.held_up;
        let place = &mut self.places[index];
        let in_table = now.saturating_sub(held_up);
        place.borrowed.retain(|borrowed| borrowed.until > in_table);
        let epoch = coordinator.epoch(&self.resource.scope);
        if epoch == place.epoch {
            return;
        }
        place.epoch = epoch;
        if !plan.is_transfer(index, elapsed) {
            place.learning_until = now.saturating_add(place.limit.learning);
        }
        if coordinator.parent().is_some() {
            place.reported_safe = None;
            place.reported_whole = Capacity::UNLIMITED;
        }
    }

    /// Notes which processes are new.
    fn note_processes(&mut self, simulation: &Simulation) {
        for client in simulation.touched_clients() {
            let known = &mut self.clients[client.envoy];
            if known.as_ref().is_none_or(|known| known.key != client.key()) {
                self.started += 1;
                *known = Some(LeaseOrigin {
                    key: client.key(),
                    applied: 0,
                    safe: false,
                });
            }
        }
    }

    fn take(&mut self, simulation: &Simulation, exchange: &Exchange) {
        let now = simulation.now();
        match exchange {
            Exchange::Answered(answered) => {
                let safe = self.lends_safe(simulation, answered);
                self.safe_answers.insert(answered.answer, safe);
            }
            Exchange::Delivered { answer, envoy } => {
                let safe = self.safe_answers.get(answer).copied().unwrap_or_default();
                let mut touched = simulation.touched_clients();
                let view = touched.find(|view| view.envoy == *envoy);
                if let (Some(known), Some(view)) = (&mut self.clients[*envoy], view) {
                    let applied = view.tally().of(Case::Applied);
                    if applied > known.applied {
                        (known.applied, known.safe) = (applied, safe);
                    }
                }
            }
            Exchange::Borrowed {
                answer,
                coordinator,
                sent_at,
                resource,
                content,
            } if *resource == self.resource => {
                let safe = self.safe_answers.get(answer).copied().unwrap_or_default();
                let lease = content.lease.map(|lease| Borrowed {
                    capacity: lease.capacity,
                    until: sent_at.saturating_add(lease.duration),
                    safe,
                });
                let lease = lease.filter(|lease| lease.until > now);
                self.places[*coordinator].note(lease, content);
            }
            Exchange::Borrowed { .. } => {}
        }
    }

    /// Returns the capacity that a coordinator may lend on; none if it has no lease. The root has all.
    fn borrowed_capacity(&self, coordinator: CoordinatorView<'_>) -> Option<Capacity> {
        let master = coordinator.master(&self.resource.scope)?;
        match master.parent_leases() {
            Some(leases) => leases.view(coordinator.clock(), &self.resource)?.capacity,
            None => Some(Capacity::UNLIMITED),
        }
    }

    /// Returns whether the lease of an answer is safe capacity, and records it; but not if the request
    /// was kept on its way: then the client has made another one since, or has given up.
    fn lends_safe(&mut self, simulation: &Simulation, answered: &AnsweredRequest) -> bool {
        let (now, to) = (simulation.now(), answered.coordinator);
        let client = entry(&answered.request.client);
        let lease = answer_of(&answered.content, &self.resource);
        let Some(lease) = lease.and_then(|answer| answer.lease) else {
            return false;
        };
        let view = simulation.coordinator(to);
        let borrowed = view.and_then(|view| self.borrowed_capacity(view));
        let place = &self.places[to];
        let until = now.saturating_add(lease.duration);
        // The time left of a lease was right when its client reported it, which is a while ago.
        let reported_at = until.saturating_sub(self.delay_max);
        let lends_safe = borrowed.is_none() && place.safe().is_some();
        let known = self.last_leases.get(&(to, client.clone())).copied();
        let known = known.filter(|known| {
            let again = known.until >= reported_at && known.capacity >= lease.capacity;
            again && (known.safe || !lends_safe)
        });
        let safe = match (known, borrowed, place.safe()) {
            // The same lease once more, or less of it.
            (Some(known), ..) => known.safe,
            (None, Some(_), _) => place.borrowed.last().is_some_and(|last| last.safe),
            (None, None, Some(_)) => true,
            // It knows nothing, and lets its clients keep what they have.
            (None, None, None) => match answered.client {
                Node::Envoy(index) => self.is_safe(index),
                Node::Coordinator(index) => {
                    let last = self.places[index].borrowed.last();
                    last.is_none_or(|last| last.safe)
                }
            },
        };
        if safe && lease.capacity > Capacity::ZERO {
            self.safe_lent[0] += 1;
            self.safe_lent[1] += u64::from(borrowed.is_some());
            let place = &mut self.places[to];
            place.safe_until = place.safe_until.max(until);
        }
        let last = LastLease {
            capacity: lease.capacity,
            until,
            safe,
        };
        if now.saturating_since(answered.sent_at) <= self.delay_max {
            self.last_leases.insert((to, client), last);
        }
        safe
    }
}

// === impl Place ===

impl Place {
    /// Returns the safe capacity of each of its clients while its parent is away, if any is known.
    pub(crate) fn safe(&self) -> Option<Capacity> {
        match (self.reported_safe.flatten(), self.limit.safe) {
            (Some(safe), _) | (None, SafeCapacity::Fixed(safe)) => Some(safe),
            (None, SafeCapacity::Client | SafeCapacity::Dynamic) => None,
        }
    }

    /// Records an answer of its parent, and its lease if it has one.
    fn note(&mut self, lease: Option<Borrowed>, answer: &Answer) {
        // A parent that waits for its own knows of no limit yet.
        let waits = answer.lease.is_none() && answer.capacity.is_unlimited();
        if waits && self.reported_safe.is_some() {
            return;
        }
        if (self.reported_safe, self.reported_whole) != (Some(answer.safe), answer.capacity) {
            self.safe_since = None;
        }
        self.reported_safe = Some(answer.safe);
        self.reported_whole = answer.capacity;
        if let Some(lease) = lease {
            if lease.safe {
                self.safe_until = self.safe_until.max(lease.until);
            }
            self.borrowed_until = self.borrowed_until.max(lease.until);
            self.borrowed.push(lease);
        }
    }
}

// === free functions ===

/// Returns the common part of all runs that share one entry of the lease table.
fn entry(client: &ClientRun) -> ClientRun {
    let run = match client.run {
        Run::Term(_) => Run::Term(Epoch(0)),
        run => run,
    };
    ClientRun {
        id: client.id.clone(),
        run,
    }
}

/// Returns the answer for `resource`, if there is one.
fn answer_of<'a>(answer: &'a Refreshed, resource: &ResourceId) -> Option<&'a Answer> {
    let mut scopes = answer.scopes.iter().flatten();
    let scope = scopes.find(|answer| answer.scope == resource.scope)?;
    let mut units = scope.outcome.as_ref().ok()?.iter();
    let found = units.find(|answer| answer.unit == resource.unit)?;
    Some(&found.answer)
}
