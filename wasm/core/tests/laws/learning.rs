//! A coordinator that has lost its lease table, honest clients with leases, and others that lie about
//! theirs.

use core::time::Duration;

use tollgate_core::lease::{
    ClientId, ClientRun, Epoch, LeaseRequest, LeaseTerms, ResourceId, Unit,
};
use tollgate_core::lease_server::{Bounds, LeaseServer, Start, Terms};
use tollgate_core::limit::{Limit, Part};
use tollgate_core::units::{Capacity, Instant};

use super::random::Random;
use super::{Verdict, ensure};

const START: Instant = Instant::from_nanos(5_000_000_000);
const BOUNDS: Bounds = Bounds {
    max_resources: 10,
    max_clients_per_resource: 100,
    max_leases: 1000,
    max_durable: 100_000,
};

/// A client of the resource; one that lies says whatever it likes of what it has.
struct Client {
    id: ClientId,
    wants: u64,
    has: u64,
    /// When what it has ends.
    until: Instant,
    due: Instant,
    lie: Option<Lie>,
}

#[derive(Clone, Copy)]
struct Lie {
    has: u64,
    left: Duration,
    /// Whether it comes again, and whether it then says what it was told.
    again: bool,
    obeys: bool,
}

struct Fleet {
    now: Instant,
    node: LeaseServer,
    limit: Limit,
    resource: ResourceId,
    clients: Vec<Client>,
    sequence: u64,
}

// === impl Fleet ===

impl Fleet {
    fn new(random: &mut Random) -> Self {
        let capacity = random.spread(1_000_000) + 100;
        let mut limit = Limit::new(Capacity::from_micros(capacity));
        limit.headroom = Part::NONE;
        // No lease ends before others that lie have to be waited for: a quarter of the learning time,
        // and three refresh intervals.
        let shortest = limit.learning / 4 + 3 * limit.refresh;
        let honest = random.below(8) + 1;
        let liars = random.below(3) + 1;
        let mut left = capacity;
        let after = |ms: u64| START.saturating_add(Duration::from_millis(ms));
        let mut clients = Vec::new();
        for i in 0..honest + liars {
            let lies = i >= honest;
            let has = random.below(left + 1);
            left -= if lies { 0 } else { has };
            let lasts = shortest + Duration::from_millis(random.below(4500));
            let lie = Lie {
                has: random.spread(1_000_000_000_000) + 1,
                left: Duration::from_millis(random.below(20_000)),
                again: random.chance(70),
                obeys: random.chance(50),
            };
            clients.push(Client {
                id: ClientId::new(&format!("node-{i}/1")).expect("a good id"),
                wants: if lies { u64::MAX / 4 } else { has.max(1) },
                has: if lies { 0 } else { has },
                until: START.saturating_add(lasts),
                due: after(random.below(1000)),
                lie: lies.then_some(lie),
            });
        }
        Self {
            now: START,
            node: LeaseServer::new(START, Epoch(2), BOUNDS, Start::Learning),
            limit,
            resource: ResourceId::new("tenant/acme", Unit::Requests).expect("a good id"),
            clients,
            sequence: 0,
        }
    }

    /// The next client that is due asks, and takes what it is told.
    fn step(&mut self) -> Verdict {
        let due = self.clients.iter().enumerate();
        let Some((i, due)) = due.map(|(i, client)| (i, client.due)).min_by_key(|c| c.1) else {
            return Ok(());
        };
        self.now = self.now.max(due);
        self.node.handle_timeout(self.now);
        let before = self.clients[i].has;
        let lease = self.ask(i)?;
        let count = self.clients.len() as u64;
        let client = &mut self.clients[i];
        if client.lie.is_none() {
            // At least an equal part of the capacity, were all to want as much.
            let share = self.limit.capacity.as_micros() / count;
            let sure = before.min(share.saturating_sub(1));
            ensure!(
                client.has >= sure,
                "{:?} has {} of {before} at {:?}: {lease:?}",
                client.id,
                client.has,
                self.now
            );
            let lasting = client.until.saturating_since(self.now);
            let late =
                self.now.saturating_since(START) > self.limit.learning / 4 + 4 * self.limit.refresh;
            ensure!(
                sure == 0 || !late || lasting == self.limit.lease,
                "{:?} is not renewed at {:?}: {lease:?}",
                client.id,
                self.now
            );
        }
        self.check()
    }

    fn ask(&mut self, i: usize) -> Result<Option<LeaseTerms>, String> {
        let (now, client) = (self.now, &mut self.clients[i]);
        if client.until <= now {
            ensure!(
                client.lie.is_some() || client.has == 0,
                "{:?} has lost {} at {now:?}",
                client.id,
                client.has
            );
            client.has = 0;
        }
        let left = client.until.saturating_since(now);
        let (has, left) = match client.lie {
            Some(lie) if client.has == 0 || !lie.obeys => (lie.has, lie.left),
            _ => (client.has, left),
        };
        self.sequence += 1;
        let request = LeaseRequest {
            remaining: Some(left),
            ..LeaseRequest::new(
                self.sequence,
                Capacity::from_micros(has),
                Capacity::from_micros(client.wants),
            )
        };
        let terms = Terms::of(&self.limit);
        let answer = self
            .node
            .handle_refresh(
                now,
                &ClientRun::only(client.id.clone()),
                &self.resource,
                &request,
                &terms,
            )
            .map_err(|error| error.to_string())?;
        let lease = answer.lease;
        client.has = lease.map_or(0, |lease| lease.capacity.as_micros());
        client.until = now.saturating_add(lease.map_or(Duration::ZERO, |lease| lease.duration));
        let again = client.lie.is_none_or(|lie| lie.again);
        client.due = if again {
            now.saturating_add(answer.refresh_interval)
        } else {
            Instant::from_nanos(u64::MAX)
        };
        Ok(lease)
    }

    /// Law 1: in the lease table, and of the honest among themselves.
    fn check(&self) -> Verdict {
        let capacity = self.limit.capacity.as_micros();
        let honest = self.clients.iter().filter(|client| client.lie.is_none());
        let used = honest.filter(|client| client.until > self.now);
        let used: u64 = used.map(|client| client.has).sum();
        ensure!(used <= capacity, "{used} of {capacity} at {:?}", self.now);
        let Some(resource) = self.node.resource(&self.resource) else {
            return Ok(());
        };
        let (lent, now) = (resource.sum_has(), self.now);
        ensure!(
            lent <= capacity.into(),
            "{lent} of {capacity} lent at {now:?}"
        );
        Ok(())
    }
}

// === laws ===

/// Against any lies, an honest client keeps its lease up to an equal part of the capacity until
/// that is renewed, which it is soon after claims have been collected; and the lease table never
/// counts more than the capacity.
pub(crate) fn a_liar_takes_nobodys_lease(seed: u64) -> Verdict {
    let mut random = Random::new(seed);
    let mut fleet = Fleet::new(&mut random);
    let end = START.saturating_add(fleet.limit.learning);
    while fleet.now < end {
        fleet.step()?;
    }
    Ok(())
}
