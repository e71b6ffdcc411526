//! Clients, their lease server, and a bag of messages between them. All times are in milliseconds.

use core::num::{NonZeroU32, NonZeroU64};
use core::time::Duration;
use std::collections::BTreeMap;
use std::format;
use std::vec::Vec;

use super::super::*;
use super::client::{Client, at};
use super::step::Step;
use crate::client::LeaseMessage;
use crate::lease::{Answer, Band, LeaseRequest, Unit};
use crate::limit::Limit;
use crate::resource::RefreshError;
use crate::share::Quantum;
use crate::units::Capacity;

const BOUNDS: Bounds = Bounds {
    max_resources: 3,
    max_clients_per_resource: 100,
    max_leases: 1_000_000,
    max_durable: 100_000,
};

/// The longest lease of any limit, and the lease of the first one.
pub(super) const LEASE_MS_MAX: u64 = 2000;

/// Time at the start, so that earlier times can be told.
const START_MS: u64 = 1_000_000;

/// The longest that a message is under way.
const LATE_MS_MAX: u64 = 800;

/// Number of the clients that are there at the start.
const FIRST: NonZeroU64 = NonZeroU64::MIN;

/// Capacities that the clients share.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    /// The limit of each resource.
    pub(super) limits: Vec<Limit>,
    /// The pool that the resources are members of at first.
    pub(super) pool: Option<Limit>,
    pub(super) unit: Unit,
}

/// A capacity with its limit of now.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) id: ResourceId,
    pub(super) limit: Limit,
    /// Capacities that were in force before, and until when what was lent of each may be used.
    past: Vec<(Capacity, u64)>,
}

/// A resource and its place in the pool.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) own: Source,
    pub(super) in_pool: bool,
    pub(super) weight: NonZeroU32,
}

#[derive(Debug)]
pub(super) struct Table {
    pub(super) now_ms: u64,
    pub(super) clients: Vec<Client>,
    pub(super) members: Vec<Member>,
    pub(super) pool: Option<Source>,
    /// Millionths in the smallest part.
    pub(super) scale: u64,
    pub(super) server: LeaseServer,
    /// A server that answers the same requests and never hands over.
    kept: LeaseServer,
    /// How much further the server's clock is than the world's.
    offset_ms: u64,
    /// Last answers of the present server: what it granted, when, and to which sequence.
    pub(super) granted: BTreeMap<ClientRun, (Capacity, u64, u64)>,
    /// Messages under way, and when they were sent.
    bag: Vec<(u64, Mail)>,
    /// Number of the client that started last.
    runs: NonZeroU64,
}

#[derive(Clone, Debug)]
enum Mail {
    Refresh(ClientRun, usize, LeaseRequest),
    Release(ClientRun, usize, u64),
    Answer(ClientRun, u64, Epoch, Answer),
}

// === impl Table ===

impl Table {
    pub(super) fn new(shared: Shared, bands: &[Band]) -> Self {
        let Shared { limits, pool, unit } = shared;
        let source = |scope: &str, limit| Source {
            id: ResourceId::new(scope, unit).unwrap(),
            limit,
            past: Vec::new(),
        };
        let members = limits.into_iter().enumerate().map(|(i, limit)| Member {
            own: source(&format!("tenant/{i}"), limit),
            in_pool: pool.is_some(),
            weight: NonZeroU32::MIN.saturating_add(i as u32),
        });
        let members: Vec<_> = members.collect();
        let clients = bands.iter().enumerate();
        let clients = clients.map(|(i, band)| Client::new(i, FIRST, i % members.len(), *band));
        let server = || LeaseServer::new(at(START_MS), Epoch(1), BOUNDS, Start::Fresh);
        let mut table = Self {
            now_ms: START_MS,
            clients: clients.collect(),
            members,
            pool: pool.map(|limit| source("group/gold", limit)),
            scale: Quantum::of(unit).micros(),
            server: server(),
            kept: server(),
            offset_ms: 0,
            granted: BTreeMap::new(),
            bag: Vec::new(),
            runs: FIRST,
        };
        table.want(bands);
        table
    }

    /// From now on the clients want this many parts.
    pub(super) fn want(&mut self, bands: &[Band]) {
        for (client, band) in bands.iter().enumerate() {
            self.want_one(client, *band);
        }
    }

    fn want_one(&mut self, client: usize, band: Band) {
        let wants = self.parts(band.wants.as_micros());
        self.clients[client].band = Band { wants, ..band };
    }

    /// Takes a step, and checks what must hold always.
    pub(super) fn take(&mut self, step: &Step) {
        let count = self.clients.len();
        match *step {
            Step::Wait(ms) => self.wait(ms),
            Step::Exchange(i) => self.exchange(i % count),
            Step::Ask(i) => self.ask(i % count),
            Step::Release(i) => self.release(i % count),
            Step::Deliver { mail, again } => self.deliver_one(mail, again),
            Step::Lose(mail) => drop(self.pick(mail, false)),
            Step::Want(i, band) => self.want_one(i % count, band),
            Step::Crash { client, keeps_id } => self.crash(client % count, keeps_id),
            Step::Restart => self.restart(),
            Step::HandOver { offset_ms } => self.hand_over(offset_ms),
            Step::Limit {
                member,
                parts,
                shorter_ms,
            } => {
                let (until, capacity) = (self.now_ms + LEASE_MS_MAX, self.parts(parts));
                let member = member % self.members.len();
                let own = &mut self.members[member].own;
                own.change(until, capacity);
                // An operator that shortens the lease keeps the time to learn of the longer ones.
                own.limit.lease = Duration::from_millis(LEASE_MS_MAX - shorter_ms);
            }
            Step::PoolLimit(parts) => {
                let (until, capacity) = (self.now_ms + LEASE_MS_MAX, self.parts(parts));
                if let Some(pool) = &mut self.pool {
                    pool.change(until, capacity);
                }
            }
            Step::Move { member, weight } => self.move_over(member % self.members.len(), weight),
        }
        self.check();
    }

    /// Nothing goes wrong any more, and what is under way is lost.
    pub(super) fn calm_down(&mut self) {
        self.bag.clear();
    }

    /// Goes on for a time, in which clients ask when they are to, and have their answers at once.
    pub(super) fn run(&mut self, time: Duration) {
        let end_ms = self.now_ms + time.as_millis() as u64;
        loop {
            let due = self.clients.iter().enumerate();
            let due = due.map(|(i, client)| (client.due_ms(self.now_ms), i));
            let Some((due_ms, i)) = due.min().filter(|(due_ms, _)| *due_ms < end_ms) else {
                break;
            };
            self.wait(due_ms - self.now_ms);
            self.exchange(i);
            self.check();
        }
        self.wait(end_ms - self.now_ms);
        self.check();
    }

    /// Time by the server's clock.
    pub(super) fn clock(&self) -> Instant {
        at(self.now_ms + self.offset_ms)
    }

    pub(super) fn resource(&self, member: usize) -> Option<&Resource> {
        self.server.resource(&self.members[member].own.id)
    }

    fn parts(&self, parts: u64) -> Capacity {
        Capacity::from_micros(parts * self.scale)
    }

    fn wait(&mut self, ms: u64) {
        self.now_ms += ms;
        let oldest = self.now_ms.saturating_sub(LATE_MS_MAX);
        self.bag.retain(|(sent_ms, _)| *sent_ms >= oldest);
        self.server.handle_timeout(at(self.now_ms + self.offset_ms));
        self.kept.handle_timeout(at(self.now_ms));
    }

    // Messages.

    fn exchange(&mut self, i: usize) {
        let under_way = self.bag.len();
        self.ask(i);
        while self.bag.len() > under_way {
            self.deliver_one(under_way, false);
        }
    }

    fn ask(&mut self, i: usize) {
        let message = self.clients[i].ask(self.now_ms);
        self.post(i, message);
    }

    fn release(&mut self, i: usize) {
        if let Some(message) = self.clients[i].release() {
            self.post(i, message);
        }
    }

    fn post(&mut self, i: usize, message: LeaseMessage) {
        let Client { run, member, .. } = &self.clients[i];
        let mail = match message {
            LeaseMessage::Nothing => return,
            LeaseMessage::Refresh(request) => Mail::Refresh(run.clone(), *member, request),
            LeaseMessage::Release { sequence } => Mail::Release(run.clone(), *member, sequence),
        };
        self.bag.push((self.now_ms, mail));
    }

    fn pick(&mut self, mail: usize, keep: bool) -> Option<Mail> {
        let index = mail.checked_rem(self.bag.len())?;
        let (_, mail) = if keep {
            self.bag[index].clone()
        } else {
            self.bag.remove(index)
        };
        Some(mail)
    }

    fn deliver_one(&mut self, mail: usize, again: bool) {
        match self.pick(mail, again) {
            Some(Mail::Refresh(run, member, request)) => self.refresh(run, member, &request),
            Some(Mail::Release(run, member, sequence)) => {
                let id = &self.members[member].own.id;
                for server in [&mut self.kept, &mut self.server] {
                    server.handle_release(&run, id, sequence);
                }
            }
            Some(Mail::Answer(run, sequence, epoch, answer)) => {
                // A client that is gone gets no mail.
                if let Some(client) = self.clients.iter_mut().find(|client| client.run == run) {
                    client.handle_answer(self.now_ms, sequence, epoch, &answer);
                }
            }
            None => {}
        }
    }

    fn refresh(&mut self, run: ClientRun, member: usize, request: &LeaseRequest) {
        let known = self.resource(member);
        let known = known.is_some_and(|resource| booked(resource, &run).is_some());
        let (now_ms, clock) = (self.now_ms, self.clock());
        let (own, pool) = (&self.members[member], self.pool.as_ref());
        let answer = own.refresh(&mut self.server, clock, &run, pool, request);
        let unmoved = own.refresh(&mut self.kept, at(now_ms), &run, pool, request);
        let last = self.granted.get(&run).map(|(.., sequence)| *sequence);
        if last != Some(request.sequence) {
            assert_eq!(answer, unmoved, "who has not handed over answers otherwise");
        }
        if let Ok(answer) = answer {
            self.check_answer(&run, member, known, request, &answer);
            let epoch = self.server.epoch();
            let mail = Mail::Answer(run, request.sequence, epoch, answer);
            self.bag.push((self.now_ms, mail));
        }
    }

    // Starts and changes.

    /// The lease table still counts what the client has lost.
    fn crash(&mut self, i: usize, keeps_id: bool) {
        self.runs = self.runs.saturating_add(1);
        let Client { member, band, .. } = self.clients[i];
        let id = if keeps_id {
            i
        } else {
            100 + self.runs.get() as usize
        };
        self.clients[i] = Client::new(id, self.runs, member, band);
    }

    fn restart(&mut self) {
        let epoch = Epoch(self.server.epoch().0 + 1);
        let server = |now| LeaseServer::new(now, epoch, BOUNDS, Start::Learning);
        self.server = server(self.clock());
        self.kept = server(at(self.now_ms));
        self.granted.clear();
    }

    fn hand_over(&mut self, offset_ms: u64) {
        let epoch = Epoch(self.server.epoch().0 + 1);
        let none = LeaseServer::new(Instant::ZERO, epoch, BOUNDS, Start::Fresh);
        let old = core::mem::replace(&mut self.server, none);
        let snapshot = old.hand_over(self.clock());
        self.offset_ms = offset_ms;
        let server = LeaseServer::take_over(self.clock(), epoch, BOUNDS, &snapshot);
        self.server = server.unwrap();
        let again = Snapshot {
            epoch: snapshot.epoch,
            ..self.server.snapshot(self.clock())
        };
        assert_eq!(again, snapshot);
    }

    fn move_over(&mut self, member: usize, weight: u32) {
        if let Some(pool) = &mut self.pool {
            let member = &mut self.members[member];
            member.in_pool = !member.in_pool;
            member.weight = NonZeroU32::new(weight).unwrap();
            // The leases that it brings along may be anything for the time of a lease. And while the
            // pool still counts one that has left, others may get less; never more.
            pool.past.push((Capacity::MAX, self.now_ms + LEASE_MS_MAX));
        }
    }
}

// === impl Member ===

impl Member {
    /// The server's answer under the configuration of now.
    fn refresh(
        &self,
        server: &mut LeaseServer,
        now: Instant,
        client: &ClientRun,
        pool: Option<&Source>,
        request: &LeaseRequest,
    ) -> Result<Answer, RefreshError> {
        let pool = pool.filter(|_| self.in_pool);
        let terms = Terms {
            limit: &self.own.limit,
            pool: pool.map(|pool| PoolTerms {
                pool: &pool.id,
                limit: &pool.limit,
                weight: self.weight,
            }),
        };
        server.handle_refresh(now, client, &self.own.id, request, &terms)
    }
}

// === impl Source ===

impl Source {
    /// Capacity that clients divide: without the reserve.
    pub(super) fn divided(&self) -> Capacity {
        let (quantum, capacity) = (Quantum::of(self.id.unit), self.limit.capacity);
        let reserve = quantum.floor(self.limit.reserve.of(capacity));
        quantum.floor(capacity).saturating_sub(reserve)
    }

    fn change(&mut self, until: u64, capacity: Capacity) {
        self.past.push((self.limit.capacity, until));
        self.limit.capacity = capacity;
    }

    /// The most that may be lent or in use now.
    pub(super) fn capacity_max(&self, now_ms: u64) -> u128 {
        let past = self.past.iter().filter(|(_, until)| now_ms < *until);
        let capacities = past.map(|(capacity, _)| *capacity);
        let most = capacities.fold(self.limit.capacity, Capacity::max);
        u128::from(most.as_micros())
    }
}

// === free functions ===

/// Lease that the lease table counts for a client.
pub(super) fn booked(resource: &Resource, run: &ClientRun) -> Option<Capacity> {
    let mut clients = resource.clients();
    let record = clients.find(|record| *record.id == run.id && record.run == run.run);
    record.map(|record| record.has)
}
