//! A fleet of clients that follow the lease protocol, their coordinator, and a network without
//! manners: the smallest model against which the books can be held to the laws.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;
use std::format;

use super::super::*;
use crate::hash::fnv1a;
use crate::lease::{Band, Priority, Unit};
use crate::limit::Limit;
use crate::share::{Bands, FairShare, Quantum};
use crate::units::Capacity;

const BOUNDS: Bounds = Bounds {
    max_resources: 3,
    max_clients_per_resource: 100,
};

/// How long a client waits for an answer before it asks again.
const CALL_TIMEOUT_MS: u64 = 250;

/// The longest lease of any limit, and the lease of the first one.
pub(super) const LEASE_MS_MAX: u64 = 2000;

/// What goes wrong: percentages of messages, and of the steps in which something else happens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faults {
    pub(super) lost: u64,
    pub(super) twice: u64,
    pub(super) late_ms_max: u64,
    /// Somebody wants something else, and asks at once.
    pub(super) whim: u64,
    pub(super) crash: u64,
    pub(super) restart: u64,
    pub(super) new_limit: u64,
}

/// What the fleet shares.
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
    node: Node,
    /// What the present master last granted, when, and to which sequence.
    granted: BTreeMap<ClientId, (Capacity, u64, u64)>,
    mail: BTreeMap<(u64, u64), Mail>,
    posted: u64,
    random: Random,
}

/// One process that asks, uses what it has, and forgets it at its expiry.
#[derive(Debug)]
struct Client {
    id: ClientId,
    /// The index of its resource.
    member: usize,
    priority: Priority,
    subclients: NonZeroU32,
    wants: Capacity,
    /// What it may use, until when by its own count, and on what that rests.
    lease: Option<(Capacity, u64, u64)>,
    /// The sequence of the latest request, and when it was sent.
    latest: (u64, u64),
    epoch: Epoch,
    ask_at: u64,
    /// How soon it was last told to come back.
    refresh_interval: Duration,
}

#[derive(Clone, Debug)]
enum Mail {
    Refresh(ClientId, usize, Ask),
    Release(ClientId, usize, u64),
    Answer(ClientId, u64, Epoch, Answer),
}

/// A sequence that looks random (xorshift).
#[derive(Debug)]
pub(super) struct Random(u64);

// === impl Faults ===

impl Faults {
    pub(super) const NONE: Self = Self {
        lost: 0,
        twice: 0,
        late_ms_max: 20,
        whim: 0,
        crash: 0,
        restart: 0,
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
        let client = |i: usize| Client::new(&format!("envoy-{i}/0"), i % members.len(), 0);
        let mut fleet = Self {
            now_ms: 0,
            clients: (0..clients).map(client).collect(),
            faults,
            members,
            pool: pool.map(|limit| source("group/gold", limit)),
            scale: Quantum::of(unit).micros(),
            node: Node::new(at(0), Epoch(1), BOUNDS, Start::Fresh),
            granted: BTreeMap::new(),
            mail: BTreeMap::new(),
            posted: 0,
            random,
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

    /// Everybody has its share but for one for rounding, and for what the others need not give back
    /// in a hurry: a hundredth of what each has.
    pub(super) fn check_shares_roughly(&self) {
        let shares = self.shares();
        let slack = shares.iter().sum::<u64>() / 100 + self.scale;
        for (client, share) in self.clients.iter().zip(shares) {
            let has = client.has(self.now_ms).as_micros();
            assert!(has + slack >= share, "{client:?}: {share}");
        }
    }

    /// Laws 3 and 4: everybody has its share, or more.
    pub(super) fn check_shares(&self) {
        for (client, share) in self.clients.iter().zip(self.shares()) {
            let gets = client.has(self.now_ms).min(client.wants).as_micros();
            assert_eq!(
                gets, share,
                "{client:?} of {:?} in {:?}",
                self.members, self.pool
            );
        }
    }

    /// What each client is entitled to: first the pool between its members, then each resource
    /// between its clients. Each step is the division that has tests of its own.
    fn shares(&self) -> Vec<u64> {
        let allotted = self.allotted();
        let mut shares = vec![0; self.clients.len()];
        for (i, (member, allotted)) in self.members.iter().zip(allotted).enumerate() {
            let Limit {
                algorithm,
                guaranteed,
                ..
            } = &member.own.limit;
            let mut bands = Bands::new(Quantum::of(member.own.id.unit));
            let clients = self.clients.iter().enumerate();
            let places = clients.filter(|(_, client)| client.member == i);
            let places: Vec<_> = places
                .map(|(at, client)| {
                    let rank = fnv1a(client.id.as_str().as_bytes());
                    (
                        at,
                        bands.insert(rank, &client.demand(), Capacity::UNLIMITED),
                    )
                })
                .collect();
            for (at, place) in &places {
                let share = bands.share(place, allotted, *algorithm, guaranteed);
                shares[*at] = share.as_micros();
            }
        }
        shares
    }

    /// What the clients of each resource may divide.
    fn allotted(&self) -> Vec<Capacity> {
        let own: Vec<_> = self.members.iter().map(|m| m.own.divided()).collect();
        let Some(pool) = &self.pool else {
            return own;
        };
        let mut fair = FairShare::of(Quantum::of(pool.id.unit));
        let places = self.members.iter().zip(&own).enumerate();
        let places: Vec<_> = places
            .filter(|(_, (member, _))| member.in_pool)
            .map(|(i, (member, own))| {
                let rank = fnv1a(member.own.id.scope.as_bytes());
                let wants = self.wanted(i).min(*own);
                (i, fair.insert(rank, wants, member.weight))
            })
            .collect();
        let mut allotted = own.clone();
        for (i, place) in &places {
            allotted[*i] = own[*i].min(fair.share(place, pool.divided()));
        }
        allotted
    }

    /// What the clients of a resource want together.
    fn wanted(&self, member: usize) -> Capacity {
        let clients = self.clients.iter().filter(|c| c.member == member);
        clients.fold(Capacity::ZERO, |sum, c| sum.saturating_add(c.wants))
    }

    /// What nobody wants of a resource in no pool is lent to those who want something, as far as
    /// the limit says so.
    pub(super) fn check_headroom(&self) {
        for (i, member) in self.members.iter().enumerate().filter(|(_, m)| !m.in_pool) {
            let wants = self.wanted(i);
            let clients = self.clients.iter().filter(|c| c.member == i);
            let beyond = clients.map(|c| c.has(self.now_ms).saturating_sub(c.wants));
            let beyond: u64 = beyond.map(Capacity::as_micros).sum();
            let limit = &member.own.limit;
            let spare = member.own.divided().saturating_sub(wants);
            let headroom = Quantum::of(member.own.id.unit).floor(limit.headroom.of(spare));
            let none = wants == Capacity::ZERO;
            let want = if none { 0 } else { headroom.as_micros() };
            assert_eq!(beyond, want, "{self:?}");
        }
    }

    /// Nobody is told to hurry.
    pub(super) fn check_at_rest(&self) {
        let refresh = self.members[0].own.limit.refresh;
        // Who wants nothing may have released, and then is told nothing.
        let hurried =
            |client: &&Client| client.wants > Capacity::ZERO && client.refresh_interval != refresh;
        let hurried = self.clients.iter().find(hurried);
        assert!(hurried.is_none(), "{hurried:?} in {self:?}");
    }

    /// Goes to the next thing that happens, lets it happen, and checks what must hold always.
    pub(super) fn step(&mut self) {
        let asks = self.clients.iter().map(|client| client.ask_at).min();
        let mail = self.mail.first_key_value().map(|((at, _), _)| *at);
        let next = asks.into_iter().chain(mail).min().unwrap_or(self.now_ms);
        self.now_ms = self.now_ms.max(next);
        self.node.handle_timeout(at(self.now_ms));
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

    fn deliver(&mut self, mail: Mail) {
        let now = at(self.now_ms);
        match mail {
            Mail::Refresh(id, member, ask) => {
                let known = self
                    .books(member)
                    .is_some_and(|books| books.clients().any(|c| *c.id == id));
                let answer = refresh(
                    &mut self.node,
                    now,
                    &id,
                    &self.members[member],
                    self.pool.as_ref(),
                    &ask,
                );
                if let Ok(answer) = answer {
                    self.check_answer(&id, member, known, &ask, &answer);
                    self.post(Mail::Answer(id, ask.sequence, self.node.epoch(), answer));
                }
            }
            Mail::Release(id, member, sequence) => {
                let resource = &self.members[member].own.id;
                self.node.handle_release(&id, resource, sequence);
            }
            Mail::Answer(id, sequence, epoch, answer) => {
                // A client that is gone gets no mail.
                if let Some(client) = self.clients.iter_mut().find(|client| client.id == id) {
                    client.handle_answer(self.now_ms, sequence, epoch, &answer);
                }
            }
        }
    }

    /// Law 2: nobody gets more than it wants and what headroom there is; but who asks too early or
    /// twice gets what it got before, if it still has it.
    fn check_answer(
        &mut self,
        id: &ClientId,
        member: usize,
        known: bool,
        ask: &Ask,
        answer: &Answer,
    ) {
        let gets = answer.lease.map_or(Capacity::ZERO, |lease| lease.capacity);
        let limit = self.members[member].own.limit.clone();
        let min_refresh_ms = limit.min_refresh.as_millis() as u64;
        let learning = self
            .books(member)
            .is_some_and(|books| at(self.now_ms) < books.learning_until());
        let before = self.granted.get(id).copied().filter(|_| known);
        if let Some((granted, granted_ms, sequence)) = before
            && (ask.sequence == sequence
                || (self.now_ms < granted_ms + min_refresh_ms && !learning))
        {
            assert!(
                gets <= granted,
                "{id:?} gets {gets:?} again, not {granted:?}"
            );
            let again = (granted, granted_ms, ask.sequence);
            self.granted.insert(id.clone(), again);
            return;
        }
        let spare = |capacity: Capacity, wanted: u128| {
            let wanted = Capacity::from_micros(wanted as u64);
            limit.headroom.of(capacity.saturating_sub(wanted))
        };
        let books = self.books(member);
        let mut headroom = spare(limit.capacity, books.map_or(0, Resource::sum_wants));
        if let Some(pool) = self.node.pool_of(&self.members[member].own.id)
            && let Some(pool) = self.node.pool(pool)
        {
            headroom = headroom.min(spare(pool.limit().capacity, pool.sum_wants()));
        }
        let most = ask.demand.wants().saturating_add(headroom);
        assert!(gets <= most, "{id:?} gets {gets:?}, wants {:?}", ask.demand);
        self.granted
            .insert(id.clone(), (gets, self.now_ms, ask.sequence));
    }

    fn books(&self, member: usize) -> Option<&Resource> {
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
            // The new process knows nothing of the old one's lease, and the books still count it.
            let id = format!("envoy-{i}/{}", self.posted);
            self.clients[i] = Client::new(&id, self.clients[i].member, self.now_ms);
            self.clients[i].wants = Capacity::from_micros(500 * self.scale);
        }
        if self.random.percent(self.faults.restart) {
            let epoch = Epoch(self.node.epoch().0 + 1);
            self.node = Node::new(at(self.now_ms), epoch, BOUNDS, Start::Learning);
            self.granted.clear();
        }
        if self.random.percent(self.faults.new_limit) {
            self.reconfigure();
        }
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
                // What it brings along may be anything for the time of a lease. And while the
                // pool still counts one that has left, others may get less; never more.
                pool.past.push((Capacity::MAX, until));
            }
            _ => {
                let own = &mut self.members[i].own;
                own.change(until, capacity);
                // Whoever shortens the lease keeps the time to learn what the longer ones may hold.
                let lease_ms = LEASE_MS_MAX - self.random.below(900);
                own.limit.lease = Duration::from_millis(lease_ms);
            }
        }
    }

    /// Law 1, in use and in the books; the sums of the books; and that the books never count less
    /// than what a client uses, once they are complete.
    fn check(&self) {
        let mut pooled = 0;
        for (i, member) in self.members.iter().enumerate() {
            let used = self.used(i);
            let most = member.own.capacity_max(self.now_ms);
            assert!(used <= most, "{used} in use of {most} at {}", self.now_ms);
            pooled += if member.in_pool { used } else { 0 };
            self.check_books(i, most);
        }
        let Some(pool) = &self.pool else {
            return;
        };
        let most = pool.capacity_max(self.now_ms);
        assert!(
            pooled <= most,
            "{pooled} of the pool's {most} at {}",
            self.now_ms
        );
        let Some(books) = self.node.pool(&pool.id) else {
            return;
        };
        let seated = |(id, _): &(&ResourceId, &Resource)| self.node.pool_of(id) == Some(&pool.id);
        let seated: Vec<_> = self.node.resources().filter(seated).collect();
        let lent: u128 = seated.iter().map(|(_, books)| books.sum_has()).sum();
        assert_eq!(lent, books.sum_has(), "at {}", self.now_ms);
        assert_eq!(seated.len(), books.member_count());
        assert!(
            lent <= most,
            "{lent} lent of the pool's {most} at {}",
            self.now_ms
        );
    }

    fn used(&self, member: usize) -> u128 {
        let clients = self.clients.iter().filter(|c| c.member == member);
        let used = clients.map(|c| u128::from(c.has(self.now_ms).as_micros()));
        used.sum()
    }

    fn check_books(&self, member: usize, most: u128) {
        let Some(books) = self.books(member) else {
            return;
        };
        let lent: u128 = books.clients().map(|c| u128::from(c.has.as_micros())).sum();
        assert_eq!(lent, books.sum_has(), "at {}", self.now_ms);
        assert!(lent <= most, "{lent} lent of {most} at {}", self.now_ms);
        if at(self.now_ms) < books.learning_until() {
            return;
        }
        for client in self.clients.iter().filter(|c| c.member == member) {
            let booked = books.clients().find(|books| *books.id == client.id);
            let booked = booked.map_or(Capacity::ZERO, |books| books.has);
            let has = client.has(self.now_ms);
            assert!(has <= booked, "{client:?} at {}: {booked:?}", self.now_ms);
            assert_eq!(has.as_micros() % self.scale, 0, "{client:?}");
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

// === impl Client ===

impl Client {
    fn new(id: &str, member: usize, now_ms: u64) -> Self {
        Self {
            id: ClientId::new(id).unwrap(),
            member,
            priority: Priority::LOWEST,
            subclients: NonZeroU32::MIN,
            wants: Capacity::ZERO,
            lease: None,
            latest: (0, now_ms),
            epoch: Epoch(0),
            ask_at: now_ms,
            refresh_interval: Duration::ZERO,
        }
    }

    /// What it may use now.
    fn has(&self, now_ms: u64) -> Capacity {
        let valid = self.lease.filter(|(_, expiry, _)| *expiry > now_ms);
        valid.map_or(Capacity::ZERO, |(capacity, ..)| capacity)
    }

    fn demand(&self) -> Demand {
        Demand::one(Band {
            priority: self.priority,
            wants: self.wants,
            subclients: self.subclients,
        })
    }

    /// A refresh; or, if it wants nothing, a release in every second such case.
    fn ask(&mut self, now_ms: u64, random: &mut Random) -> Mail {
        self.latest = (self.latest.0 + 1, now_ms);
        self.ask_at = now_ms + CALL_TIMEOUT_MS + random.below(100);
        if self.wants == Capacity::ZERO && random.percent(50) {
            self.lease = None;
            return Mail::Release(self.id.clone(), self.member, self.latest.0);
        }
        let remaining = |(_, expiry, _): (_, u64, _)| expiry.saturating_sub(now_ms);
        let ask = Ask {
            sequence: self.latest.0,
            has: self.has(now_ms),
            remaining: self.lease.map(remaining).map(Duration::from_millis),
            basis: self.lease.map_or(0, |(_, _, basis)| basis),
            demand: self.demand(),
        };
        Mail::Refresh(self.id.clone(), self.member, ask)
    }

    fn handle_answer(&mut self, now_ms: u64, sequence: u64, epoch: Epoch, answer: &Answer) {
        let (latest, sent_at) = self.latest;
        if sequence != latest || epoch < self.epoch {
            return;
        }
        self.epoch = epoch;
        self.lease = answer.lease.map(|lease| {
            let expiry = sent_at + lease.duration.as_millis() as u64;
            (lease.capacity, expiry, lease.basis)
        });
        self.refresh_interval = answer.refresh_interval;
        self.ask_at = now_ms + answer.refresh_interval.as_millis() as u64;
    }
}

// === impl Random ===

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound.max(1)
    }

    fn weight(&mut self) -> NonZeroU32 {
        NonZeroU32::MIN.saturating_add(self.below(4) as u32)
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A refresh under the configuration of now.
fn refresh(
    node: &mut Node,
    now: Instant,
    client: &ClientId,
    member: &Member,
    pool: Option<&Source>,
    ask: &Ask,
) -> Result<Answer, RefreshError> {
    let pool = pool.filter(|_| member.in_pool);
    let terms = Terms {
        limit: &member.own.limit,
        pool: pool.map(|pool| Membership {
            pool: &pool.id,
            limit: &pool.limit,
            weight: member.weight,
        }),
    };
    node.handle_refresh(now, client, &member.own.id, ask, &terms)
}

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}
