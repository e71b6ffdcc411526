//! A resource that moves between two masters while leases of it are out.
//!
//! Both masters have learned all that there is, and neither knows the other's lease table: that is a
//! change of an attachment in a cluster of several shards.

use proptest::prelude::*;

use super::super::limit;
use super::client::{Client, Random};
use super::*;
use crate::limit::Part;
use crate::pool::Pool;

/// Two masters, a resource that moves between them, and one that stays.
#[derive(Debug)]
struct Movers {
    now_ms: u64,
    nodes: [LeaseServer; 2],
    /// Where the mover is: alone with the first master, or in the pool of the second.
    at: usize,
    limits: [Limit; 2],
    pool: ResourceId,
    ids: [ResourceId; 2],
    /// Of the mover or of the one that stays, by [`Client::member`].
    clients: Vec<Client>,
    /// Capacity that the mover's clients could have lent to them before each move, and its end.
    past: Vec<(Capacity, u64)>,
    mail: BTreeMap<(u64, u64), Mail>,
    posted: u64,
    random: Random,
    late_ms_max: u64,
}

// === impl Movers ===

impl Movers {
    fn new(seed: u64, clients: usize, parts: [u64; 2], late_ms_max: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let id = |scope| ResourceId::new(scope, Unit::Requests).unwrap();
        let client = |i: usize| {
            let mut client = Client::new(&format!("envoy-{i}/0"), 0, i % 2, 0);
            client.wants = Capacity::from_micros(random.below(1500));
            client
        };
        Self {
            now_ms: 0,
            clients: (0..clients).map(client).collect(),
            nodes: [1, 2].map(|epoch| LeaseServer::new(at(0), Epoch(epoch), BOUNDS, Start::Fresh)),
            at: 0,
            limits: parts.map(|parts| limit(Unit::Requests, parts, Part::NONE)),
            pool: id("group/gold"),
            ids: [id("tenant/mover"), id("tenant/stayer")],
            past: Vec::new(),
            mail: BTreeMap::new(),
            posted: 0,
            random,
            late_ms_max,
        }
    }

    fn step(&mut self) {
        let asks = self.clients.iter().map(|client| client.ask_at).min();
        let mail = self.mail.first_key_value().map(|((at, _), _)| *at);
        let next = asks.into_iter().chain(mail).min().unwrap_or(self.now_ms);
        self.now_ms = self.now_ms.max(next);
        for node in &mut self.nodes {
            node.handle_timeout(at(self.now_ms));
        }
        match self.mail.first_entry() {
            Some(first) if first.key().0 <= self.now_ms => {
                let mail = first.remove();
                self.deliver(mail);
            }
            _ => self.let_someone_ask(),
        }
    }

    fn let_someone_ask(&mut self) {
        let due = |client: &&mut Client| client.ask_at <= self.now_ms;
        if let Some(client) = self.clients.iter_mut().find(due) {
            let mail = client.ask(self.now_ms, &mut self.random);
            self.post(mail);
        }
    }

    fn post(&mut self, mail: Mail) {
        self.posted += 1;
        let late = self.random.below(self.late_ms_max + 1);
        if !self.random.percent(10) {
            self.mail.insert((self.now_ms + late, self.posted), mail);
        }
    }

    fn deliver(&mut self, mail: Mail) {
        let now = at(self.now_ms);
        match mail {
            Mail::Refresh(id, member, request) => {
                let place = self.place_of(member);
                let free = Limit::new(Capacity::UNLIMITED);
                let [alone, pooled] = &self.limits;
                let terms = match place {
                    0 => Terms::of(alone),
                    _ => Terms {
                        limit: &free,
                        pool: Some(PoolTerms {
                            pool: &self.pool,
                            limit: pooled,
                            weight: NonZeroU32::MIN,
                        }),
                    },
                };
                let resource = &self.ids[member];
                let answer = self.nodes[place].handle_refresh(now, &id, resource, &request, &terms);
                if let Ok(answer) = answer {
                    // Their terms cannot be compared, so that the client takes both for one.
                    self.post(Mail::Answer(id, request.sequence, Epoch(1), answer));
                }
            }
            Mail::Release(id, member, sequence) => {
                let place = self.place_of(member);
                self.nodes[place].handle_release(&id, &self.ids[member], sequence);
            }
            Mail::Answer(id, sequence, epoch, answer) => {
                if let Some(client) = self.clients.iter_mut().find(|client| client.run == id) {
                    client.handle_answer(self.now_ms, sequence, epoch, &answer);
                }
            }
        }
    }

    fn place_of(&self, member: usize) -> usize {
        if member == 0 { self.at } else { 1 }
    }

    fn move_over(&mut self) {
        let until = self.now_ms + LEASE_MS_MAX;
        self.past.push((self.limits[self.at].capacity, until));
        self.at = 1 - self.at;
    }

    fn used(&self, member: usize) -> u128 {
        let clients = self.clients.iter().filter(|c| c.member == member);
        let used = clients.map(|c| u128::from(c.has(self.now_ms).as_micros()));
        used.sum()
    }

    /// In use is what the present master may lend and what was lent before the moves of the last
    /// lease, and no more than what the present one may lend when that is over.
    fn check(&self) {
        let past = self.past.iter().filter(|(_, until)| self.now_ms < *until);
        let past: u128 = past.map(|(lent, _)| u128::from(lent.as_micros())).sum();
        let [alone, pooled] = [0, 1].map(|i| u128::from(self.limits[i].capacity.as_micros()));
        let (mover, stayer) = (self.used(0), self.used(1));
        let (used, most) = match self.at {
            0 => (mover, alone + past),
            _ => (mover + stayer, pooled + past),
        };
        assert!(used <= most, "{used} of {most} in use at {}", self.now_ms);
        assert!(stayer <= pooled, "{stayer} of {pooled} in use");
        let lent = self.nodes[1].pool(&self.pool).map_or(0, Pool::sum_has);
        assert!(lent <= pooled, "{lent} of {pooled} lent");
    }
}

proptest! {
    #[test]
    fn a_resource_that_moves_adds_at_most_its_old_leases_for_one_lease(
        seed: u64,
        clients in 2..8_usize,
        parts in prop::array::uniform2(1..2000_u64),
        late_ms_max in 0..400_u64,
        moves in 0..4_u64,
    ) {
        let mut movers = Movers::new(seed, clients, parts, late_ms_max);
        for _ in 0..1500 {
            movers.step();
            if movers.random.below(300) < moves {
                movers.move_over();
            }
            movers.check();
        }
    }
}
