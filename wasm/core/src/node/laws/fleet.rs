//! A fleet of clients that follow the lease protocol, their coordinator, and a network without
//! manners: the smallest model against which the books can be held to the laws.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;
use std::format;

use super::super::*;
use crate::lease::Unit;
use crate::share::FairShare;
use crate::share::fair::tests::check as check_water_filling;
use crate::units::Capacity;

const BOUNDS: Bounds = Bounds {
    max_resources: 1,
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

/// See the module. All times are in milliseconds since the start of the world.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) now_ms: u64,
    clients: Vec<Client>,
    pub(super) faults: Faults,
    limit: Limit,
    /// Capacities that were in force before, and until when what was lent of each may be used.
    past: Vec<(Capacity, u64)>,
    node: Node,
    resource: ResourceId,
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
    wants: Capacity,
    /// What it may use, and until when by its own count.
    lease: Option<(Capacity, u64)>,
    /// The sequence of the latest request, and when it was sent.
    latest: (u64, u64),
    epoch: Epoch,
    ask_at: u64,
    /// How soon it was last told to come back.
    refresh_interval: Duration,
}

#[derive(Clone, Debug)]
enum Mail {
    Refresh(ClientId, Ask),
    Release(ClientId, u64),
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
    pub(super) fn new(seed: u64, clients: usize, limit: Limit, faults: Faults) -> Self {
        let client = |i| Client::new(&format!("envoy-{i}/0"), 0);
        Self {
            now_ms: 0,
            clients: (0..clients).map(client).collect(),
            faults,
            limit,
            past: Vec::new(),
            node: Node::new(at(0), Epoch(1), BOUNDS, Start::Fresh),
            resource: ResourceId::new("tenant/acme", Unit::Requests).unwrap(),
            granted: BTreeMap::new(),
            mail: BTreeMap::new(),
            posted: 0,
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
        }
    }

    /// From now on everybody wants up to `most` micro-units.
    pub(super) fn change_demand(&mut self, most: u64) {
        for client in &mut self.clients {
            client.wants = Capacity::from_micros(self.random.below(most + 1));
        }
    }

    /// Goes on for a time.
    pub(super) fn run(&mut self, time: Duration) {
        let end_ms = self.now_ms + time.as_millis() as u64;
        while self.now_ms < end_ms {
            self.step();
        }
    }

    /// Everybody has its max-min share but for a hundredth of it, and a millionth for rounding.
    pub(super) fn check_shares_roughly(&self) {
        let mut fair = FairShare::new();
        let places = self.clients.iter().enumerate();
        let places: Vec<_> = places
            .map(|(key, client)| fair.insert(key, client.wants, NonZeroU32::MIN))
            .collect();
        for (place, client) in places.iter().zip(&self.clients) {
            let share = fair.share(place, self.limit.capacity).as_micros();
            let has = client.has(self.now_ms).as_micros();
            assert!(has + share / 100 + 1 >= share, "{client:?}: {share}");
        }
    }

    /// Laws 3 and 4: everybody has its max-min share, or more.
    pub(super) fn check_shares(&self) {
        let wants = |client: &Client| (client.wants.as_micros(), 1);
        let wants: Vec<_> = self.clients.iter().map(wants).collect();
        let gets = |client: &Client| client.has(self.now_ms).min(client.wants).as_micros();
        let gets: Vec<_> = self.clients.iter().map(gets).collect();
        check_water_filling(&wants, self.limit.capacity.as_micros(), &gets);
    }

    /// What nobody wants is lent to those who want something, as far as the limit says so.
    pub(super) fn check_headroom(&self) {
        let wants: u64 = self.clients.iter().map(|c| c.wants.as_micros()).sum();
        let beyond = |client: &Client| client.has(self.now_ms).saturating_sub(client.wants);
        let beyond: u64 = self.clients.iter().map(|c| beyond(c).as_micros()).sum();
        let spare = self.limit.capacity.as_micros().saturating_sub(wants);
        let headroom = self.limit.headroom.of(Capacity::from_micros(spare));
        let want = if wants == 0 { 0 } else { headroom.as_micros() };
        assert_eq!(beyond, want, "{self:?}");
    }

    /// Nobody is told to hurry.
    pub(super) fn check_at_rest(&self) {
        let refresh = self.limit.refresh;
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
            Mail::Refresh(id, ask) => {
                let known = self
                    .books()
                    .is_some_and(|books| books.clients().any(|c| *c.id == id));
                let answer = self.node.handle_refresh(
                    now,
                    &id,
                    &self.resource,
                    &ask,
                    &Terms::of(&self.limit),
                );
                if let Ok(answer) = answer {
                    self.check_answer(&id, known, &ask, &answer);
                    self.post(Mail::Answer(id, ask.sequence, self.node.epoch(), answer));
                }
            }
            Mail::Release(id, sequence) => {
                self.node.handle_release(&id, &self.resource, sequence);
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
    fn check_answer(&mut self, id: &ClientId, known: bool, ask: &Ask, answer: &Answer) {
        let gets = answer.lease.map_or(Capacity::ZERO, |lease| lease.capacity);
        let min_refresh_ms = self.limit.min_refresh.as_millis() as u64;
        let learning = self
            .books()
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
        let wanted = self.books().map_or(0, Resource::sum_wants) as u64;
        let spare = self
            .limit
            .capacity
            .saturating_sub(Capacity::from_micros(wanted));
        let most = ask
            .demand
            .wants()
            .saturating_add(self.limit.headroom.of(spare));
        assert!(gets <= most, "{id:?} gets {gets:?}, wants {:?}", ask.demand);
        self.granted
            .insert(id.clone(), (gets, self.now_ms, ask.sequence));
    }

    fn books(&self) -> Option<&Resource> {
        self.node.resource(&self.resource)
    }

    fn misfortune(&mut self) {
        let i = self.random.below(self.clients.len() as u64) as usize;
        if self.random.percent(self.faults.whim) {
            let wants = self.random.below(2) * self.random.below(1500);
            self.clients[i].wants = Capacity::from_micros(wants);
            self.clients[i].ask_at = self.now_ms;
        }
        if self.random.percent(self.faults.crash) {
            // The new process knows nothing of the old one's lease, and the books still count it.
            let id = format!("envoy-{i}/{}", self.posted);
            self.clients[i] = Client::new(&id, self.now_ms);
        }
        if self.random.percent(self.faults.restart) {
            let epoch = Epoch(self.node.epoch().0 + 1);
            self.node = Node::new(at(self.now_ms), epoch, BOUNDS, Start::Learning);
            self.granted.clear();
            // It cannot know which of the leases it confirms are of a capacity that has passed, and
            // may prolong them until it has learned.
            let learning_ms = self.limit.learning.as_millis() as u64;
            let now_ms = self.now_ms;
            for (_, until) in self.past.iter_mut().filter(|(_, until)| *until > now_ms) {
                *until = now_ms + learning_ms + LEASE_MS_MAX;
            }
        }
        if self.random.percent(self.faults.new_limit) {
            let until = self.now_ms + LEASE_MS_MAX;
            self.past.push((self.limit.capacity, until));
            self.limit.capacity = Capacity::from_micros(self.random.below(2000));
            // Whoever shortens the lease keeps the time to learn what the longer ones may hold.
            let lease_ms = LEASE_MS_MAX - self.random.below(900);
            self.limit.lease = Duration::from_millis(lease_ms);
        }
    }

    /// The most that may be lent or in use now.
    fn capacity_max(&self) -> u128 {
        let past = self.past.iter().filter(|(_, until)| self.now_ms < *until);
        let capacities = past.map(|(capacity, _)| *capacity);
        let most = capacities.fold(self.limit.capacity, Capacity::max);
        u128::from(most.as_micros())
    }

    /// Law 1, in use and in the books; the sums of the books; and that the books never count less
    /// than what a client uses, once they are complete.
    fn check(&self) {
        let most = self.capacity_max();
        let used = |client: &Client| u128::from(client.has(self.now_ms).as_micros());
        let sum: u128 = self.clients.iter().map(used).sum();
        assert!(sum <= most, "{sum} in use of {most} at {}", self.now_ms);
        let Some(books) = self.books() else {
            return;
        };
        let lent: u128 = books.clients().map(|c| u128::from(c.has.as_micros())).sum();
        assert_eq!(lent, books.sum_has(), "at {}", self.now_ms);
        assert!(lent <= most, "{lent} lent of {most} at {}", self.now_ms);
        if at(self.now_ms) < books.learning_until() {
            return;
        }
        for client in &self.clients {
            let booked = books.clients().find(|books| *books.id == client.id);
            let booked = booked.map_or(Capacity::ZERO, |books| books.has);
            let has = client.has(self.now_ms);
            assert!(has <= booked, "{client:?} at {}: {booked:?}", self.now_ms);
        }
    }
}

// === impl Client ===

impl Client {
    fn new(id: &str, now_ms: u64) -> Self {
        Self {
            id: ClientId::new(id).unwrap(),
            wants: Capacity::from_micros(500),
            lease: None,
            latest: (0, now_ms),
            epoch: Epoch(0),
            ask_at: now_ms,
            refresh_interval: Duration::ZERO,
        }
    }

    /// What it may use now.
    fn has(&self, now_ms: u64) -> Capacity {
        let valid = self.lease.filter(|(_, expiry)| *expiry > now_ms);
        valid.map_or(Capacity::ZERO, |(capacity, _)| capacity)
    }

    /// A refresh; or, if it wants nothing, a release in every second such case.
    fn ask(&mut self, now_ms: u64, random: &mut Random) -> Mail {
        self.latest = (self.latest.0 + 1, now_ms);
        self.ask_at = now_ms + CALL_TIMEOUT_MS + random.below(100);
        if self.wants == Capacity::ZERO && random.percent(50) {
            self.lease = None;
            return Mail::Release(self.id.clone(), self.latest.0);
        }
        let ask = Ask::new(self.latest.0, self.has(now_ms), self.wants);
        Mail::Refresh(self.id.clone(), ask)
    }

    fn handle_answer(&mut self, now_ms: u64, sequence: u64, epoch: Epoch, answer: &Answer) {
        let (latest, sent_at) = self.latest;
        if sequence != latest || epoch < self.epoch {
            return;
        }
        self.epoch = epoch;
        self.lease = answer.lease.map(|lease| {
            let expiry = sent_at + lease.duration.as_millis() as u64;
            (lease.capacity, expiry)
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

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}
