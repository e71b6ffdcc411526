//! A fleet of clients that follow the lease protocol, their coordinator, and a network without
//! manners: the smallest model that holds a lease server to the laws.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::num::{NonZeroU32, NonZeroU64};
use core::time::Duration;
use std::format;

use super::super::*;
use crate::lease::{Answer, Band, Demand, LeaseRequest, Priority, Run, Unit};
use crate::limit::Limit;
use crate::resource::RefreshError;
use crate::resource::{ClientRecord, tie_break_of};
use crate::share::{FairShare, PriorityBands, Quantum};
use crate::units::Capacity;

const BOUNDS: Bounds = Bounds {
    max_resources: 3,
    max_clients_per_resource: 100,
    max_leases: 1_000_000,
};

mod check;
mod client;
mod moves;

use self::client::{Client, Random};

/// How long a client waits for an answer before it asks again.
const CALL_TIMEOUT_MS: u64 = 250;

/// The longest lease of any limit, and the lease of the first one.
pub(super) const LEASE_MS_MAX: u64 = 2000;

/// Faults: percentages of messages, and of the steps in which something else happens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faults {
    pub(super) lost: u64,
    pub(super) twice: u64,
    pub(super) late_ms_max: u64,
    /// Somebody wants something else, and asks at once.
    pub(super) whim: u64,
    pub(super) crash: u64,
    pub(super) restart: u64,
    /// The coordinator hands its lease table over.
    pub(super) hand_over: u64,
    pub(super) new_limit: u64,
}

/// Capacities that the fleet shares.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    /// The limit of each resource.
    pub(super) limits: Vec<Limit>,
    /// The pool that the resources are members of, each with its weight, at first.
    pub(super) pool: Option<Limit>,
    pub(super) unit: Unit,
}

/// A capacity with its limit of now.
#[derive(Debug)]
struct Source {
    id: ResourceId,
    limit: Limit,
    /// Capacities that were in force before, and until when what was lent of each may be used.
    past: Vec<(Capacity, u64)>,
}

/// A resource and its place in the pool.
#[derive(Debug)]
struct Member {
    own: Source,
    in_pool: bool,
    weight: NonZeroU32,
}

/// See the module. All times are in milliseconds since the start of the world.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) now_ms: u64,
    clients: Vec<Client>,
    pub(super) faults: Faults,
    members: Vec<Member>,
    pool: Option<Source>,
    /// Millionths in the smallest part.
    scale: u64,
    node: LeaseServer,
    /// How much further the master's clock is than the world's.
    offset_ms: u64,
    /// Last grants of the present master, with their time and sequence.
    granted: BTreeMap<ClientRun, (Capacity, u64, u64)>,
    mail: BTreeMap<(u64, u64), Mail>,
    posted: u64,
    random: Random,
    /// So that two fleets with different masters go the same way.
    fates: Random,
    /// Answers so far, but for the epochs.
    pub(super) answers: Vec<(u64, ClientRun, Result<Answer, RefreshError>)>,
}

#[derive(Clone, Debug)]
enum Mail {
    Refresh(ClientRun, usize, LeaseRequest),
    Release(ClientRun, usize, u64),
    Answer(ClientRun, u64, Epoch, Answer),
}

// === impl Faults ===

impl Faults {
    pub(super) const NONE: Self = Self {
        lost: 0,
        twice: 0,
        late_ms_max: 20,
        whim: 0,
        crash: 0,
        restart: 0,
        hand_over: 0,
        new_limit: 0,
    };
}

// === impl Fleet ===

impl Fleet {
    pub(super) fn new(seed: u64, clients: usize, shared: Shared, faults: Faults) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let Shared { limits, pool, unit } = shared;
        let source = |scope: &str, limit| Source {
            id: ResourceId::new(scope, unit).unwrap(),
            limit,
            past: Vec::new(),
        };
        let members: Vec<_> = limits
            .into_iter()
            .enumerate()
            .map(|(i, limit)| Member {
                own: source(&format!("tenant/{i}"), limit),
                in_pool: pool.is_some(),
                weight: random.weight(),
            })
            .collect();
        let client = |i: usize| Client::new(&format!("envoy-{i}/0"), 0, i % members.len(), 0);
        let mut fleet = Self {
            now_ms: 0,
            clients: (0..clients).map(client).collect(),
            faults,
            members,
            pool: pool.map(|limit| source("group/gold", limit)),
            scale: Quantum::of(unit).micros(),
            node: LeaseServer::new(at(0), Epoch(1), BOUNDS, Start::Fresh),
            offset_ms: 0,
            granted: BTreeMap::new(),
            mail: BTreeMap::new(),
            posted: 0,
            fates: Random(random.below(1 << 60) | 1),
            random,
            answers: Vec::new(),
        };
        fleet.change_demand(1000);
        fleet
    }

    /// From now on everybody wants up to `most`, in the smallest parts.
    pub(super) fn change_demand(&mut self, most: u64) {
        for client in &mut self.clients {
            client.wants = Capacity::from_micros(self.random.below(most + 1) * self.scale);
            // Most are of one band.
            if self.random.percent(20) {
                client.priority = Priority::nearest(self.random.below(3) as i64);
                client.subclients = self.random.weight();
            }
        }
    }

    /// Goes on for a time.
    pub(super) fn run(&mut self, time: Duration) {
        let end_ms = self.now_ms + time.as_millis() as u64;
        while self.now_ms < end_ms {
            self.step();
        }
    }

    /// Goes to the next thing that happens, lets it happen, and checks what must hold always.
    pub(super) fn step(&mut self) {
        let asks = self.clients.iter().map(|client| client.ask_at).min();
        let mail = self.mail.first_key_value().map(|((at, _), _)| *at);
        let next = asks.into_iter().chain(mail).min().unwrap_or(self.now_ms);
        self.now_ms = self.now_ms.max(next);
        self.node.handle_timeout(self.clock());
        match self.mail.first_entry() {
            Some(first) if first.key().0 <= self.now_ms => {
                let mail = first.remove();
                self.deliver(mail);
            }
            _ => self.let_someone_ask(),
        }
        self.misfortune();
        self.check();
    }

    fn let_someone_ask(&mut self) {
        let due = |client: &&mut Client| client.ask_at <= self.now_ms;
        let Some(client) = self.clients.iter_mut().find(due) else {
            return;
        };
        let mail = client.ask(self.now_ms, &mut self.random);
        self.post(mail);
    }

    fn post(&mut self, mail: Mail) {
        let copies = 1 + u64::from(self.random.percent(self.faults.twice));
        for _ in 0..copies {
            self.posted += 1;
            let late = self.random.below(self.faults.late_ms_max + 1);
            if !self.random.percent(self.faults.lost) {
                let key = (self.now_ms + late, self.posted);
                self.mail.insert(key, mail.clone());
            }
        }
    }

    /// Time by the master's clock.
    fn clock(&self) -> Instant {
        at(self.now_ms + self.offset_ms)
    }

    fn deliver(&mut self, mail: Mail) {
        let now = self.clock();
        match mail {
            Mail::Refresh(id, member, request) => {
                let known = self
                    .resource(member)
                    .is_some_and(|resource| resource.clients().any(|c| is(&c, &id)));
                let answer = refresh(
                    &mut self.node,
                    now,
                    &id,
                    &self.members[member],
                    self.pool.as_ref(),
                    &request,
                );
                self.answers.push((self.now_ms, id.clone(), answer));
                if let Ok(answer) = answer {
                    self.check_answer(&id, member, known, &request, &answer);
                    self.post(Mail::Answer(
                        id,
                        request.sequence,
                        self.node.epoch(),
                        answer,
                    ));
                }
            }
            Mail::Release(id, member, sequence) => {
                let resource = &self.members[member].own.id;
                self.node.handle_release(&id, resource, sequence);
            }
            Mail::Answer(id, sequence, epoch, answer) => {
                // A client that is gone gets no mail.
                if let Some(client) = self.clients.iter_mut().find(|client| client.run == id) {
                    client.handle_answer(self.now_ms, sequence, epoch, &answer);
                }
            }
        }
    }

    /// Law 2: nobody gets more than it wants and what headroom there is; but who asks too early or
    /// twice gets what it got before, if it still has it. One that asks too early may get more, for
    /// which it has waited.
    fn check_answer(
        &mut self,
        id: &ClientRun,
        member: usize,
        known: bool,
        request: &LeaseRequest,
        answer: &Answer,
    ) {
        let gets = answer.lease.map_or(Capacity::ZERO, |lease| lease.capacity);
        let limit = self.members[member].own.limit.clone();
        let min_refresh_ms = limit.min_refresh.as_millis() as u64;
        let learning = self
            .resource(member)
            .is_some_and(|resource| self.clock() < resource.learning_until());
        let before = self.granted.get(id).copied().filter(|_| known);
        if let Some((granted, granted_ms, sequence)) = before
            && (request.sequence == sequence
                || (self.now_ms < granted_ms + min_refresh_ms && !learning && gets <= granted))
        {
            assert!(
                gets <= granted,
                "{id:?} gets {gets:?} again, not {granted:?}"
            );
            let again = (granted, granted_ms, request.sequence);
            self.granted.insert(id.clone(), again);
            return;
        }
        let spare = |capacity: Capacity, wanted: u128| {
            let wanted = Capacity::from_micros(wanted as u64);
            limit.headroom.of(capacity.saturating_sub(wanted))
        };
        let resource = self.resource(member);
        let mut headroom = spare(limit.capacity, resource.map_or(0, Resource::sum_wants));
        let slot = self.node.resources.get(&self.members[member].own.id);
        if let Some(pool) = slot.and_then(|slot| self.node.pool(slot.pool()?)) {
            headroom = headroom.min(spare(pool.limit().capacity, pool.sum_wants()));
        }
        let most = request.demand.wants().saturating_add(headroom);
        assert!(
            gets <= most,
            "{id:?} gets {gets:?}, wants {:?}",
            request.demand
        );
        self.granted
            .insert(id.clone(), (gets, self.now_ms, request.sequence));
    }

    fn resource(&self, member: usize) -> Option<&Resource> {
        self.node.resource(&self.members[member].own.id)
    }

    fn misfortune(&mut self) {
        let i = self.random.below(self.clients.len() as u64) as usize;
        if self.random.percent(self.faults.whim) {
            let wants = self.random.below(2) * self.random.below(1500) * self.scale;
            self.clients[i].wants = Capacity::from_micros(wants);
            self.clients[i].ask_at = self.now_ms;
        }
        if self.random.percent(self.faults.crash) {
            // The new process knows nothing of the old one's lease, and the lease table still counts it. It
            // has the id of the old one, of which there may be mail on its way, or another.
            let id = match self.random.percent(50) {
                true => self.clients[i].run.id.as_str().into(),
                false => format!("envoy-{i}/{}", self.posted),
            };
            let member = self.clients[i].member;
            self.clients[i] = Client::new(&id, self.posted, member, self.now_ms);
            self.clients[i].wants = Capacity::from_micros(500 * self.scale);
        }
        if self.random.percent(self.faults.restart) {
            let epoch = Epoch(self.node.epoch().0 + 1);
            self.node = LeaseServer::new(self.clock(), epoch, BOUNDS, Start::Learning);
            self.granted.clear();
        }
        if self.fates.percent(self.faults.hand_over) {
            self.hand_over();
        }
        if self.random.percent(self.faults.new_limit) {
            self.reconfigure();
        }
    }

    /// Another master goes on, by another clock.
    fn hand_over(&mut self) {
        let epoch = Epoch(self.node.epoch().0 + 1);
        let none = LeaseServer::new(Instant::ZERO, epoch, BOUNDS, Start::Fresh);
        let old = core::mem::replace(&mut self.node, none);
        let snapshot = old.hand_over(self.clock());
        self.offset_ms = self.fates.below(100_000);
        let node = LeaseServer::take_over(self.clock(), epoch, BOUNDS, &snapshot);
        self.node = node.unwrap();
        let again = Snapshot {
            epoch: snapshot.epoch,
            ..self.node.snapshot(self.clock())
        };
        assert_eq!(again, snapshot);
    }

    /// Changes the capacity and the lease of a resource, or the capacity of the pool, or who is in
    /// it with what weight.
    fn reconfigure(&mut self) {
        let until = self.now_ms + LEASE_MS_MAX;
        let capacity = Capacity::from_micros(self.random.below(2000) * self.scale);
        let i = self.random.below(self.members.len() as u64) as usize;
        match (self.random.below(3), &mut self.pool) {
            (1, Some(pool)) => pool.change(until, capacity),
            (2, Some(pool)) => {
                let member = &mut self.members[i];
                member.in_pool = !member.in_pool;
                member.weight = self.random.weight();
                // The leases that it brings along may be anything for the time of a lease. And
                // while the pool still counts one that has left, others may get less; never more.
                pool.past.push((Capacity::MAX, until));
            }
            _ => {
                let own = &mut self.members[i].own;
                own.change(until, capacity);
                // An operator that shortens the lease keeps the time to learn of the longer ones.
                let lease_ms = LEASE_MS_MAX - self.random.below(900);
                own.limit.lease = Duration::from_millis(lease_ms);
            }
        }
    }
}

// === impl Source ===

impl Source {
    fn divided(&self) -> Capacity {
        self.limit.divided(Quantum::of(self.id.unit))
    }

    fn change(&mut self, until: u64, capacity: Capacity) {
        self.past.push((self.limit.capacity, until));
        self.limit.capacity = capacity;
    }

    /// The most that may be lent or in use now.
    fn capacity_max(&self, now_ms: u64) -> u128 {
        let past = self.past.iter().filter(|(_, until)| now_ms < *until);
        let capacities = past.map(|(capacity, _)| *capacity);
        let most = capacities.fold(self.limit.capacity, Capacity::max);
        u128::from(most.as_micros())
    }
}

/// Whether `record` is of the run `client`.
fn is(record: &ClientRecord<'_>, client: &ClientRun) -> bool {
    (record.id, record.run) == (&client.id, client.run)
}

/// A refresh under the configuration of now.
fn refresh(
    node: &mut LeaseServer,
    now: Instant,
    client: &ClientRun,
    member: &Member,
    pool: Option<&Source>,
    request: &LeaseRequest,
) -> Result<Answer, RefreshError> {
    let pool = pool.filter(|_| member.in_pool);
    let terms = Terms {
        limit: &member.own.limit,
        pool: pool.map(|pool| PoolTerms {
            pool: &pool.id,
            limit: &pool.limit,
            weight: member.weight,
        }),
    };
    node.handle_refresh(now, client, &member.own.id, request, &terms)
}

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}
