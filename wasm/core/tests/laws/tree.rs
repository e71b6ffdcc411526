//! Laws 1, 3, 4 and 5 for trees of coordinators that talk without a network; answers may be lost.

use core::time::Duration;

use tollgate_core::lease::{
    ClientId, ClientRun, Epoch, LeaseRequest, LeaseTerms, Origin, ResourceId, Run, Unit,
};
use tollgate_core::lease_client::LeaseMessage;
use tollgate_core::lease_server::{Bounds, LeaseServer, Start, Terms};
use tollgate_core::limit::{Limit, Part};
use tollgate_core::units::{Capacity, Instant};

use super::fair_share::water_filling;
use super::random::Random;
use super::{Verdict, ensure};

const START: Instant = Instant::from_nanos(5_000_000_000);
const BOUNDS: Bounds = Bounds {
    max_resources: 1,
    max_clients_per_resource: 100,
    max_leases: 1_000_000,
    max_durable: 100_000,
};

/// Parents come before their children.
struct Tree {
    random: Random,
    now: Instant,
    resource: ResourceId,
    places: Vec<Place>,
    clients: Vec<Client>,
    /// Answers of a hundred that are lost.
    lost: u64,
}

struct Place {
    run: ClientRun,
    parent: Option<usize>,
    level: u32,
    server: LeaseServer,
    limit: Limit,
}

struct Client {
    run: ClientRun,
    at: usize,
    wants: u64,
    lease: Option<(LeaseTerms, Instant)>,
}

// === impl Tree ===

impl Tree {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let unit = [Unit::Requests, Unit::Concurrency][random.below(2) as usize];
        let mut limit = Limit::new(Capacity::from_whole(random.spread(10_000) + 20));
        limit.lease = Duration::from_millis(random.below(1000) + 1000);
        limit.refresh = limit.lease / 4;
        limit.min_refresh = Duration::from_millis(50);
        limit.headroom = [Part::NONE, Part::HALF][random.below(2) as usize];
        let mut places = vec![Place::new(0, None, 0, limit.clone())];
        limit.capacity = Capacity::UNLIMITED;
        for level in 1..=random.below(2) as u32 + 1 {
            for parent in 0..places.len() {
                let is_above = places[parent].level + 1 == level;
                for _ in 0..u64::from(is_above) * (random.below(3) + 1) {
                    places.push(Place::new(places.len(), Some(parent), level, limit.clone()));
                }
            }
        }
        // Some clients ask coordinators in the middle, and the root.
        let count = random.below(3 * places.len() as u64) as usize + 1;
        let clients = (0..count).map(|i| Client {
            run: ClientRun::only(ClientId::new(&format!("client-{i}/0")).expect("a good id")),
            at: random.below(places.len() as u64) as usize,
            wants: 0,
            lease: None,
        });
        let clients = clients.collect();
        let resource = ResourceId::new("tenant/acme", unit).expect("a good id");
        Self {
            random,
            now: START,
            resource,
            places,
            clients,
            lost: 0,
        }
    }

    fn capacity(&self) -> Capacity {
        self.places[0].limit.capacity
    }

    fn wants(&mut self) -> u64 {
        let most = self.capacity().as_micros() / 1_000_000 + 10;
        self.random.spread(most * 2) * 1_000_000
    }

    /// Changes what some want.
    fn shake(&mut self) {
        for i in 0..self.clients.len() {
            if self.random.chance(20) {
                self.clients[i].wants = self.wants();
            }
        }
    }

    /// Every client asks, in any order, and every coordinator that is to.
    fn round(&mut self) -> Verdict {
        let mut order: Vec<_> = (0..self.clients.len()).collect();
        self.random.shuffle(&mut order);
        for i in order {
            self.ask(i)?;
            self.check()?;
        }
        for i in (1..self.places.len()).rev() {
            self.borrow(i)?;
            self.check()?;
        }
        self.now = self.now.saturating_add(Duration::from_millis(50));
        for place in &mut self.places {
            place.server.handle_timeout(self.now);
        }
        self.check()
    }

    fn settle(&mut self) -> Verdict {
        let rounds = 3 * self.places[0].limit.lease.as_millis() / 50;
        (0..rounds).try_for_each(|_| self.round())
    }

    fn ask(&mut self, i: usize) -> Verdict {
        let client = &mut self.clients[i];
        let (has, wants) = (client.has(self.now), Capacity::from_micros(client.wants));
        let request = LeaseRequest::new(self.now.as_nanos(), Capacity::from_micros(has), wants);
        let place = &mut self.places[client.at];
        let terms = Terms::of(&place.limit);
        let (now, run, id) = (self.now, &client.run, &self.resource);
        let answer = place.server.handle_refresh(now, run, id, &request, &terms);
        let answer = answer.map_err(|error| error.to_string())?;
        if !self.random.chance(self.lost) {
            let until = |lease: LeaseTerms| (lease, now.saturating_add(lease.duration));
            client.lease = answer.lease.map(until);
        }
        Ok(())
    }

    fn borrow(&mut self, i: usize) -> Verdict {
        let (above, below) = self.places.split_at_mut(i);
        let place = &mut below[0];
        let parent = &mut above[place.parent.expect("no root")];
        let terms = Terms::of(&parent.limit);
        for (id, message) in place.server.ask_parent(self.now, 1) {
            let LeaseMessage::Refresh(request) = message else {
                continue;
            };
            let server = &mut parent.server;
            let answer = server.handle_refresh(self.now, &place.run, &id, &request, &terms);
            let answer = answer.map_err(|error| error.to_string())?;
            let source = (request.sequence, Origin::alone(Epoch(1)), place.level);
            if !self.random.chance(self.lost) {
                let server = &mut place.server;
                let counts = server.handle_parent_answer(self.now, &id, source, &answer);
                ensure!(counts == Ok(true), "an answer was dropped: {counts:?}");
            }
        }
        Ok(())
    }

    /// No more in use than there is, nor than the parent counts, nor for longer.
    fn check(&self) -> Verdict {
        let (used, most) = (self.used_below(0), self.capacity().as_micros());
        ensure!(used <= most, "{used} of {most} in use at {:?}", self.now);
        for (i, place) in self.places.iter().enumerate() {
            let Some(parent) = place.parent.map(|parent| &self.places[parent].server) else {
                continue;
            };
            let counted = parent.resource(&self.resource);
            let counted = counted.and_then(|above| above.clients().find(|c| *c.id == place.run.id));
            let (has, expiry) =
                counted.map_or((0, Instant::ZERO), |c| (c.has.as_micros(), c.expiry));
            let used = self.used_below(i);
            ensure!(used <= has, "place {i} and below use {used} of {has}");
            let resource = place.server.resource(&self.resource);
            let lent = resource.into_iter().flat_map(|resource| resource.clients());
            let last = lent
                .filter(|c| c.has > Capacity::ZERO)
                .map(|c| c.expiry)
                .max();
            ensure!(
                last.is_none_or(|last| last <= expiry),
                "place {i} lends until {last:?}"
            );
        }
        Ok(())
    }

    fn used_below(&self, at: usize) -> u64 {
        let own = self.clients_at(at).map(|i| self.clients[i].has(self.now));
        own.chain(self.below(at).map(|i| self.used_below(i))).sum()
    }

    fn clients_at(&self, at: usize) -> impl Iterator<Item = usize> {
        let clients = self.clients.iter().enumerate();
        clients
            .filter(move |(_, client)| client.at == at)
            .map(|(i, _)| i)
    }

    fn below(&self, at: usize) -> impl Iterator<Item = usize> {
        let places = self.places.iter().enumerate();
        places
            .filter(move |(_, place)| place.parent == Some(at))
            .map(|(i, _)| i)
    }

    /// Wants of a place and all below it, and the number that want something.
    fn needs(&self, at: usize) -> (u64, u32) {
        let own = self.clients_at(at).map(|i| self.clients[i].needs());
        let all = own.chain(self.below(at).map(|i| self.needs(i)));
        all.fold((0, 0), |sum, needs| (sum.0 + needs.0, sum.1 + needs.1))
    }

    /// Shares of the clients if `at` has `capacity`.
    fn divide(&self, at: usize, capacity: u64, shares: &mut [u64]) {
        let (clients, below): (Vec<_>, Vec<_>) =
            (self.clients_at(at).collect(), self.below(at).collect());
        let own = clients.iter().map(|i| self.clients[*i].needs());
        let needs: Vec<_> = own.chain(below.iter().map(|i| self.needs(*i))).collect();
        let parts = water_filling(&needs, capacity);
        for (i, part) in clients.iter().zip(&parts) {
            shares[*i] = *part;
        }
        for (i, part) in below.iter().zip(&parts[clients.len()..]) {
            self.divide(*i, *part, shares);
        }
    }

    /// Everybody has its share at least, and more only of what nobody wants; and nothing is left over.
    fn expect(&self, shares: &[u64]) -> Verdict {
        let one = if self.resource.unit.is_concurrency() {
            1_000_000
        } else {
            1
        };
        let rounding = one * (self.clients.len() + self.places.len()) as u64;
        let (capacity, wants) = (self.capacity().as_micros(), self.needs(0).0);
        for (client, share) in self.clients.iter().zip(shares) {
            let (id, has) = (&client.run.id, client.has(self.now));
            let within = wants <= capacity || has <= share + rounding;
            ensure!(
                has + rounding >= *share && within,
                "{id:?} has {has}, its share is {share}"
            );
        }
        let (used, due) = (self.used_below(0), wants.min(capacity));
        ensure!(used >= due, "{used} in use, {due} wanted of {capacity}");
        Ok(())
    }
}

// === impl Place ===

impl Place {
    fn new(index: usize, parent: Option<usize>, level: u32, limit: Limit) -> Self {
        let mut server = LeaseServer::new(START, Epoch(1), BOUNDS, Start::Fresh);
        if parent.is_some() {
            server.borrow_from_parent(START, 1, Duration::from_millis(300));
        }
        let run = ClientRun {
            id: ClientId::new(&format!("place-{index}/0")).expect("a good id"),
            run: Run::Term(Epoch(1)),
        };
        Self {
            run,
            parent,
            level,
            server,
            limit,
        }
    }
}

// === impl Client ===

impl Client {
    fn has(&self, now: Instant) -> u64 {
        let lasting = self.lease.filter(|(_, until)| *until > now);
        lasting.map_or(0, |(lease, _)| lease.capacity.as_micros())
    }

    fn needs(&self) -> (u64, u32) {
        (self.wants, u32::from(self.wants > 0))
    }
}

// === laws ===

/// With lost answers, all clients below the root never have more than its capacity, and no lease
/// outlives the one it was lent out of. When demand stands still, every level divides what it has by max-min, to the last millionth.
pub(crate) fn a_tree_settles_at_the_max_min_shares(seed: u64) -> Verdict {
    let mut tree = Tree::new(seed);
    tree.lost = [0, 20, 50][seed as usize % 3];
    for _ in 0..30 {
        tree.shake();
        tree.round()?;
    }
    tree.lost = 0;
    tree.settle()?;
    let mut shares = vec![0; tree.clients.len()];
    tree.divide(0, tree.capacity().as_micros(), &mut shares);
    tree.expect(&shares)
}

/// If all below each child of the root want the same, they get what they would get without a tree.
pub(crate) fn a_tree_divides_as_one_coordinator_would(seed: u64) -> Verdict {
    let mut tree = Tree::new(seed);
    for branch in 0..tree.places.len() {
        let wants = tree.wants();
        for i in 0..tree.clients.len() {
            let mut at = tree.clients[i].at;
            while let Some(parent) = tree.places[at].parent.filter(|parent| *parent > 0) {
                at = parent;
            }
            if at == branch {
                tree.clients[i].wants = wants;
            }
        }
    }
    tree.settle()?;
    let needs: Vec<_> = tree.clients.iter().map(Client::needs).collect();
    tree.expect(&water_filling(&needs, tree.capacity().as_micros()))
}
