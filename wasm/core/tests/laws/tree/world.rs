//! A tree on a virtual clock, and what must hold in it at every instant.

use core::time::Duration;
use std::collections::BTreeMap;

use tollgate_core::client::LeaseMessage;
use tollgate_core::lease::{Answer, ClientRun, Epoch, LeaseRequest, Origin, ResourceId, Run, Unit};
use tollgate_core::lease_server::Terms;
use tollgate_core::limit::Limit;
use tollgate_core::units::{Capacity, Instant};

use super::super::random::Random;
use super::super::{Verdict, ensure};
use super::place::{Client, Place};
use super::{limit, sums, unit, water_fill};

/// The longest that a message is under way.
const MAIL_LATEST: Duration = Duration::from_secs(2);

/// Faults, in percent.
#[derive(Clone, Copy, Default)]
pub(super) struct Faults {
    lost: u64,
    away: u64,
    restarts: u64,
    lowered: u64,
}

/// The root is the first place; parents come before their children.
pub(super) struct World {
    pub(super) random: Random,
    pub(super) faults: Faults,
    /// The root's.
    pub(super) limit: Limit,
    now: Instant,
    places: Vec<Place>,
    clients: Vec<Client>,
    resource: ResourceId,
    mail: BTreeMap<(Instant, u64), Mail>,
    sent: u64,
    /// The most that the root has had in the last lease, and until when that counts.
    before: Vec<(Instant, Capacity)>,
}

/// The sender of a message, and its run.
#[derive(Clone, Copy, Debug)]
enum Who {
    Client(usize, Run),
    Place(usize, Run),
}

#[derive(Clone, Debug)]
enum Mail {
    Refresh(Who, usize, LeaseRequest),
    Release(Who, usize, u64),
    Answer(Who, u64, Epoch, Answer),
}

// === impl Faults ===

impl Faults {
    pub(super) fn of(seed: u64) -> Self {
        let on = |bit: u64, percent| if seed >> bit & 1 == 1 { percent } else { 0 };
        Self {
            lost: on(0, 15),
            away: on(1, 4),
            restarts: on(2, 3),
            lowered: on(3, 5),
        }
    }

    /// How much longer than a lease what is above a lowered capacity may last: a coordinator that
    /// has started again counts what a client claims from when it hears it, at each level.
    fn hearsay(self) -> Duration {
        if self.restarts > 0 {
            MAIL_LATEST * 2
        } else {
            Duration::ZERO
        }
    }
}

// === impl World ===

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let unit = unit(&mut random);
        let root = limit(&mut random);
        let mut own = root.clone();
        own.capacity = Capacity::UNLIMITED;
        let mut places = vec![Place::new(0, None, 0, root.clone())];
        let three_levels = random.chance(50);
        for level in 1..=if three_levels { 2 } else { 1 } {
            let above: Vec<usize> = (0..places.len())
                .filter(|i| places[*i].level == level - 1)
                .collect();
            for parent in above {
                for _ in 0..=random.below(3) {
                    places.push(Place::new(places.len(), Some(parent), level, own.clone()));
                }
            }
        }
        // Clients also ask coordinators in the middle, and the root.
        let mut clients = Vec::new();
        for at in 0..places.len() {
            let leaf = !places.iter().any(|place| place.parent == Some(at));
            let most = if leaf { 4 } else { 2 };
            for _ in 0..random.below(most) + u64::from(leaf) {
                clients.push(Client::new(clients.len(), at));
            }
        }
        let mut world = Self {
            random,
            faults: Faults::default(),
            limit: root,
            now: Instant::from_nanos(1_000_000_000),
            places,
            clients,
            resource: ResourceId::new("tenant/acme", unit).expect("a good id"),
            mail: BTreeMap::new(),
            sent: 0,
            before: Vec::new(),
        };
        for i in 0..world.clients.len() {
            world.want(i);
        }
        world
    }

    fn want(&mut self, client: usize) {
        let most = self.limit.capacity.as_micros() / 1_000_000 + 10;
        self.clients[client].wants = Capacity::from_whole(self.random.spread(most * 2));
    }

    /// All clients below one child of the root want the same.
    pub(super) fn want_the_same_in_each_branch(&mut self) {
        let most = self.limit.capacity.as_micros() / 1_000_000 + 10;
        let branches: Vec<usize> = (0..self.places.len()).map(|i| self.branch(i)).collect();
        for branch in 0..self.places.len() {
            let wants = Capacity::from_whole(self.random.spread(most));
            let below = |client: &&mut Client| branches[client.at] == branch;
            for client in self.clients.iter_mut().filter(below) {
                client.wants = wants;
            }
        }
    }

    /// The child of the root that `at` is or is below; the root itself for the root.
    fn branch(&self, at: usize) -> usize {
        match self.places[at].parent {
            None | Some(0) => at,
            Some(parent) => self.branch(parent),
        }
    }

    /// Changes demand, and lets some things fail.
    pub(super) fn shake(&mut self) {
        for i in 0..self.clients.len() {
            if self.random.chance(5) {
                self.want(i);
            }
        }
        let now = self.now;
        for i in 0..self.places.len() {
            if self.random.chance(self.faults.away) {
                let time = Duration::from_millis(self.random.spread(6000));
                self.places[i].away_until = now.saturating_add(time);
            }
            if self.random.chance(self.faults.restarts) {
                self.places[i].restart(now);
            }
        }
        for i in 0..self.clients.len() {
            if self.random.chance(self.faults.restarts) {
                self.clients[i].restart(i, now);
            }
        }
        if self.random.chance(self.faults.lowered) {
            let capacity = Capacity::from_whole(self.random.spread(10_000) + 20);
            let until = now.saturating_add(self.limit.lease + self.faults.hearsay());
            self.before.push((until, self.limit.capacity));
            self.limit.capacity = capacity;
            self.places[0].limit.capacity = capacity;
        }
    }

    pub(super) fn heal(&mut self) {
        self.faults = Faults::default();
        for place in &mut self.places {
            place.away_until = Instant::ZERO;
        }
    }

    /// Lets `time` pass, with everything that is due in it.
    pub(super) fn run(&mut self, time: Duration) -> Verdict {
        let until = self.now.saturating_add(time);
        while let Some(at) = self.next().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.work();
            self.check()?;
        }
        self.now = until;
        self.check()
    }

    fn next(&self) -> Option<Instant> {
        let mail = self.mail.keys().next().map(|(at, _)| *at);
        let asks = self.clients.iter().map(Client::ask_at);
        let nodes = self.places.iter();
        let nodes = nodes.flat_map(|place| [place.node.poll_parent(), place.node.poll_timeout()]);
        mail.into_iter().chain(asks).chain(nodes.flatten()).min()
    }

    fn work(&mut self) {
        let now = self.now;
        while let Some(entry) = self.mail.first_entry().filter(|entry| entry.key().0 <= now) {
            let mail = entry.remove();
            self.deliver(mail);
        }
        for i in 0..self.clients.len() {
            if self.clients[i].ask_at() <= now {
                let request = self.clients[i].ask(now);
                let who = Who::Client(i, self.clients[i].run().run);
                self.post(Mail::Refresh(who, self.clients[i].at, request));
            }
        }
        for i in 0..self.places.len() {
            let parent = self.places[i].parent;
            for (_, message) in self.places[i].message(now) {
                let to = parent.expect("who asks has a parent");
                let who = Who::Place(i, self.places[i].run());
                self.post(match message {
                    LeaseMessage::Refresh(request) => Mail::Refresh(who, to, request),
                    LeaseMessage::Release { sequence } => Mail::Release(who, to, sequence),
                    LeaseMessage::Nothing => continue,
                });
            }
        }
    }

    /// Puts `mail` on its way; some of it never arrives, some of it twice.
    fn post(&mut self, mail: Mail) {
        if self.random.chance(self.faults.lost) {
            return;
        }
        if self.random.chance(self.faults.lost) {
            self.post(mail.clone());
        }
        let late = self.faults.lost > 0 && self.random.chance(10);
        let most = if late {
            MAIL_LATEST
        } else {
            Duration::from_millis(5)
        };
        let delay = self.random.below(most.as_nanos() as u64) + 1;
        let at = self.now.saturating_add(Duration::from_nanos(delay));
        self.sent += 1;
        self.mail.insert((at, self.sent), mail);
    }

    fn reaches(&self, at: usize) -> bool {
        self.places[at].away_until <= self.now
    }

    /// The client id and run under which a coordinator counts it.
    fn client(&self, who: Who) -> ClientRun {
        let (id, run) = match who {
            Who::Client(i, run) => (self.clients[i].id.clone(), run),
            Who::Place(i, run) => (self.places[i].id.clone(), run),
        };
        ClientRun { id, run }
    }

    fn deliver(&mut self, mail: Mail) {
        let now = self.now;
        match mail {
            Mail::Refresh(who, to, request) if self.reaches(to) => {
                let client = self.client(who);
                let place = &mut self.places[to];
                place.node.handle_timeout(now);
                let terms = Terms::of(&place.limit);
                let answer =
                    place
                        .node
                        .handle_refresh(now, &client, &self.resource, &request, &terms);
                let epoch = place.node.epoch();
                if let Ok(answer) = answer {
                    self.post(Mail::Answer(who, request.sequence, epoch, answer));
                }
            }
            Mail::Release(from, to, sequence) if self.reaches(to) => {
                let client = self.client(from);
                self.places[to]
                    .node
                    .handle_release(&client, &self.resource, sequence);
            }
            Mail::Answer(Who::Client(i, run), sequence, epoch, answer)
                if self.clients[i].run().run == run =>
            {
                self.clients[i].handle_answer(now, (sequence, epoch), &answer);
            }
            Mail::Answer(Who::Place(i, run), sequence, epoch, answer)
                if self.reaches(i) && self.places[i].run() == run =>
            {
                let place = &mut self.places[i];
                let source = (sequence, Origin::alone(epoch), place.level);
                // An earlier term's answer counts as a failure.
                let _ = place
                    .node
                    .handle_parent_answer(now, &self.resource, source, &answer);
            }
            _ => {}
        }
    }

    // === laws ===

    fn check(&mut self) -> Verdict {
        let now = self.now;
        self.before.retain(|(until, _)| *until > now);
        let before = self.before.iter().map(|(_, capacity)| *capacity);
        let most = before.fold(self.limit.capacity, Capacity::max).as_micros();
        let used: u64 = self
            .clients
            .iter()
            .map(|client| client.has(now).as_micros())
            .sum();
        ensure!(used <= most, "{used} of {most} in use at {now:?}");
        for (i, place) in self.places.iter().enumerate() {
            self.check_place(i, place)?;
        }
        Ok(())
    }

    /// Capacity in use below a place is counted by its parent, and ends no later there.
    fn check_place(&self, i: usize, place: &Place) -> Verdict {
        let now = self.now;
        let (Some(parent), Some(resource)) = (place.parent, place.node.resource(&self.resource))
        else {
            return Ok(());
        };
        // Claims of clients of a place that has started again, or does not know the resource, count
        // from when it hears them.
        let learning_until = place.learning_until.max(resource.learning_until());
        if now < learning_until.saturating_add(self.limit.lease) {
            return Ok(());
        }
        let parent = &self.places[parent];
        let above = parent.node.resource(&self.resource);
        let learning = above.is_some_and(|above| now < above.learning_until());
        if now < parent.learning_until || learning {
            return Ok(());
        }
        let mine = above.and_then(|above| above.clients().find(|client| *client.id == place.id));
        let (has, expiry) = mine.map_or((0, Instant::ZERO), |mine| {
            (mine.has.as_micros(), mine.expiry)
        });
        let used = self.used_below(i);
        ensure!(
            used <= has,
            "place {i} and below use {used} of {has} at {now:?}"
        );
        let lent = resource
            .clients()
            .filter(|client| client.has > Capacity::ZERO);
        for client in lent.filter(|client| client.expiry > now) {
            ensure!(
                client.expiry <= expiry,
                "place {i} has lent until {:?} what ends at {expiry:?}",
                client.expiry
            );
        }
        Ok(())
    }

    /// Capacity of the clients of `at` and of all places below it.
    fn used_below(&self, at: usize) -> u64 {
        let own = self.clients.iter().filter(|client| client.at == at);
        let own: u64 = own.map(|client| client.has(self.now).as_micros()).sum();
        let below = (0..self.places.len()).filter(|i| self.places[*i].parent == Some(at));
        own + below.map(|i| self.used_below(i)).sum::<u64>()
    }

    fn wants(&self, client: &Client) -> u128 {
        client.wants.as_micros().into()
    }

    /// Wants of a place and all below it, and the number that want something.
    fn needs(&self, at: usize) -> (u128, u128) {
        let own = self.clients.iter().filter(|client| client.at == at);
        let own = own.map(|client| (self.wants(client), u128::from(self.wants(client) > 0)));
        let below = (0..self.places.len()).filter(|i| self.places[*i].parent == Some(at));
        let all = own.chain(below.map(|i| self.needs(i)));
        all.fold((0, 0), |sum, needs| (sum.0 + needs.0, sum.1 + needs.1))
    }

    /// Capacity that each client should have if `at` has `capacity`.
    fn divide(&self, at: usize, capacity: u128, shares: &mut BTreeMap<usize, u128>) {
        let clients: Vec<usize> = (0..self.clients.len())
            .filter(|i| self.clients[*i].at == at)
            .collect();
        let below: Vec<usize> = (0..self.places.len())
            .filter(|i| self.places[*i].parent == Some(at))
            .collect();
        let own = clients.iter().map(|i| self.wants(&self.clients[*i]));
        let own = own.map(|wants| (wants, u128::from(wants > 0)));
        let needs: Vec<_> = own.chain(below.iter().map(|i| self.needs(*i))).collect();
        let parts = water_fill(capacity, &needs);
        let (of_clients, of_places) = parts.split_at(clients.len());
        shares.extend(clients.into_iter().zip(of_clients.iter().copied()));
        for (i, part) in below.into_iter().zip(of_places) {
            self.divide(i, *part, shares);
        }
    }

    /// How far a share may be from the one that was computed by other roundings.
    fn rounding(&self) -> u128 {
        let one = if self.resource.unit == Unit::Concurrency {
            1_000_000
        } else {
            1
        };
        one * (self.clients.len() + self.places.len()) as u128
    }

    pub(super) fn check_settled(&self) -> Verdict {
        let mut shares = BTreeMap::new();
        self.divide(0, self.limit.capacity.as_micros().into(), &mut shares);
        self.check_shares(&shares)?;
        let (wants, _) = self.needs(0);
        let due = wants.min(self.limit.capacity.as_micros().into());
        let has = self
            .clients
            .iter()
            .map(|client| u128::from(client.has(self.now).as_micros()));
        let has: u128 = has.sum();
        ensure!(
            has >= due,
            "{has} in use, {due} wanted of {:?}",
            self.limit.capacity
        );
        Ok(())
    }

    pub(super) fn check_flat(&self) -> Verdict {
        let needs: Vec<_> = self
            .clients
            .iter()
            .map(|client| (self.wants(client), 1))
            .collect();
        let needs: Vec<_> = needs
            .into_iter()
            .map(|(w, n)| (w, if w > 0 { n } else { 0 }))
            .collect();
        let parts = water_fill(self.limit.capacity.as_micros().into(), &needs);
        self.check_shares(&parts.into_iter().enumerate().collect())
    }

    /// Everybody has its share at least, and more only of what nobody wants.
    fn check_shares(&self, shares: &BTreeMap<usize, u128>) -> Verdict {
        let rounding = self.rounding();
        let spare = self.needs(0).0 <= u128::from(self.limit.capacity.as_micros());
        for (i, share) in shares {
            let client = &self.clients[*i];
            let has = u128::from(client.has(self.now).as_micros());
            let at = &self.places[client.at];
            ensure!(
                has + rounding >= *share && (spare || has <= share + rounding),
                "{:?} of {:?} has {has}, its share is {share}; by place: {:?}",
                client.id,
                at.id,
                sums(
                    self.clients
                        .iter()
                        .map(|c| (c.at, u128::from(c.has(self.now).as_micros())))
                )
            );
        }
        Ok(())
    }
}
