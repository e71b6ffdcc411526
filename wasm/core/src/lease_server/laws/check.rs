//! Laws that the table is held to.

use std::vec;
use std::vec::Vec;

use super::super::*;
use super::client::Client;
use super::table::{Source, Table, booked};
use crate::hash::fnv1a;
use crate::lease::{Answer, Demand, LeaseRequest};
use crate::limit::Limit;
use crate::resource::tie_break_of;
use crate::share::{FairShare, PriorityBands, Quantum};
use crate::units::Capacity;

impl Table {
    /// Law 1, in use and in the lease table, for each resource and for the pool.
    pub(super) fn check(&self) {
        let (mut used_of_pool, mut lent_of_pool) = (0, 0);
        for (i, member) in self.members.iter().enumerate() {
            let most = member.own.capacity_max(self.now_ms);
            let used = self.used(i);
            assert!(used <= most, "{used} of {most} in use at {}", self.now_ms);
            let lent = self.check_resource(i, most);
            used_of_pool += if member.in_pool { used } else { 0 };
            let pool = self.server.pool_of(&member.own.id);
            lent_of_pool += if pool.is_some() { lent } else { 0 };
        }
        if let Some(pool) = &self.pool {
            let most = pool.capacity_max(self.now_ms);
            assert!(used_of_pool <= most, "{used_of_pool} of {most} in use");
            let table = self.server.pool(&pool.id);
            assert_eq!(lent_of_pool, table.map_or(0, Pool::sum_has));
            assert!(lent_of_pool <= most, "{lent_of_pool} of {most} lent");
        }
    }

    fn used(&self, member: usize) -> u128 {
        let clients = self.clients.iter().filter(|c| c.member == member);
        let used = clients.map(|c| u128::from(c.has(self.now_ms).as_micros()));
        used.sum()
    }

    /// Checks the sums of a resource, and that the lease table never counts less than a client uses,
    /// once it is complete. Returns what is lent.
    fn check_resource(&self, member: usize, most: u128) -> u128 {
        let Some(resource) = self.resource(member) else {
            return 0;
        };
        let clients = resource.clients();
        let lent: u128 = clients.map(|c| u128::from(c.has.as_micros())).sum();
        assert_eq!(lent, resource.sum_has(), "at {}", self.now_ms);
        assert!(lent <= most, "{lent} of {most} lent at {}", self.now_ms);
        let learned = self.clock() >= resource.learning_until();
        for client in self
            .clients
            .iter()
            .filter(|c| learned && c.member == member)
        {
            let booked = booked(resource, &client.run).unwrap_or_default();
            let has = client.has(self.now_ms);
            assert!(has <= booked, "{client:?} at {}: {booked:?}", self.now_ms);
            assert_eq!(has.as_micros() % self.scale, 0, "{client:?}");
        }
        lent
    }

    /// Law 2: nobody gets more than it wants and what headroom there is; but who asks too early or
    /// twice may get what it got before, if it still has it.
    pub(super) fn check_answer(
        &mut self,
        run: &ClientRun,
        member: usize,
        known: bool,
        request: &LeaseRequest,
        answer: &Answer,
    ) {
        let gets = answer.lease.map_or(Capacity::ZERO, |lease| lease.capacity);
        let own = &self.members[member].own;
        let min_refresh_ms = own.limit.min_refresh.as_millis() as u64;
        let before = self.granted.get(run).copied().filter(|_| known);
        let again = before.filter(|(granted, granted_ms, sequence)| {
            let early = self.now_ms < granted_ms + min_refresh_ms;
            (request.sequence == *sequence || early) && gets <= *granted
        });
        let granted = match again {
            Some((granted, granted_ms, _)) => (granted, granted_ms, request.sequence),
            None => {
                let most = request.demand.wants().saturating_add(self.headroom(own));
                assert!(gets <= most, "{run:?} gets {gets:?}, at most {most:?}");
                (gets, self.now_ms, request.sequence)
            }
        };
        self.granted.insert(run.clone(), granted);
    }

    /// Capacity that may be lent beyond wants, as far as the server knows these.
    fn headroom(&self, own: &Source) -> Capacity {
        let spare = |capacity: Capacity, wanted: u128| {
            let wanted = Capacity::from_micros(wanted as u64);
            own.limit.headroom.of(capacity.saturating_sub(wanted))
        };
        let wants = self.server.resource(&own.id).map_or(0, Resource::sum_wants);
        let headroom = spare(own.limit.capacity, wants);
        let pool = self.server.pool_of(&own.id);
        pool.map_or(headroom, |(_, pool)| {
            headroom.min(spare(pool.limit().capacity, pool.sum_wants()))
        })
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

    /// Laws 3 and 4: everybody has its share, and headroom is spread.
    pub(super) fn check_shares(&self) {
        for (client, share) in self.clients.iter().zip(self.shares()) {
            if self.is_prompt(client.member) {
                let has = client.has(self.now_ms);
                let gets = has.min(client.band.wants).as_micros();
                assert_eq!(gets, share, "{client:?} of {:?}", self.members);
            }
        }
        let members = 0..self.members.len();
        for i in members.filter(|i| self.is_prompt(*i)) {
            self.check_headroom(i);
        }
    }

    /// Whether nothing is left over once demand is stable, whatever the members' algorithms.
    fn is_prompt(&self, member: usize) -> bool {
        let shares_pool = |i: usize| i == member || self.members[member].in_pool;
        let mut members = self
            .members
            .iter()
            .enumerate()
            .filter(|(i, _)| shares_pool(*i));
        members.all(|(_, member)| !member.own.limit.algorithm.goes_by_usage())
    }

    /// Shares of the clients: first the pool between its members, then each resource between its
    /// clients. Each step is the division that has tests of its own.
    fn shares(&self) -> Vec<u64> {
        let mut shares = vec![0; self.clients.len()];
        for (i, (member, allotted)) in self.members.iter().zip(self.allotted()).enumerate() {
            let Limit {
                algorithm,
                guaranteed,
                ..
            } = &member.own.limit;
            let mut bands = PriorityBands::new(Quantum::of(member.own.id.unit));
            let clients = self.clients.iter().enumerate();
            let clients = clients.filter(|(_, client)| client.member == i);
            let places = clients.map(|(at, client)| {
                let demand = Demand::one(client.band);
                let place = bands.insert(tie_break_of(&client.run), &demand, Capacity::UNLIMITED);
                (at, place)
            });
            for (at, place) in &places.collect::<Vec<_>>() {
                let share = bands.share(place, allotted, *algorithm, guaranteed);
                shares[*at] = share.as_micros();
            }
        }
        shares
    }

    /// Capacity that the clients of each resource may divide.
    fn allotted(&self) -> Vec<Capacity> {
        let mut allotted: Vec<_> = self.members.iter().map(|m| m.own.divided()).collect();
        let Some(pool) = &self.pool else {
            return allotted;
        };
        let mut fair = FairShare::of(Quantum::of(pool.id.unit));
        let members = self.members.iter().enumerate();
        let places = members
            .filter(|(_, member)| member.in_pool)
            .map(|(i, member)| {
                let tie_break = fnv1a(member.own.id.scope.as_bytes());
                let wants = self.wanted(i).min(allotted[i]);
                (i, fair.insert(tie_break, wants, member.weight))
            });
        for (i, place) in &places.collect::<Vec<_>>() {
            allotted[*i] = allotted[*i].min(fair.share(place, pool.divided()));
        }
        allotted
    }

    /// Wants of the clients of a resource.
    fn wanted(&self, member: usize) -> Capacity {
        let clients = self.clients.iter().filter(|c| c.member == member);
        clients.fold(Capacity::ZERO, |sum, c| sum.saturating_add(c.band.wants))
    }

    /// Unwanted capacity of a resource in no pool is lent to clients that want something, as far as
    /// the limit says so.
    fn check_headroom(&self, member: usize) {
        let Source { id, limit, .. } = &self.members[member].own;
        if self.members[member].in_pool {
            return;
        }
        let wants = self.wanted(member);
        let clients = self.clients.iter().filter(|c| c.member == member);
        let beyond = clients.map(|c| c.has(self.now_ms).saturating_sub(c.band.wants));
        let beyond: u64 = beyond.map(Capacity::as_micros).sum();
        let spare = self.members[member].own.divided().saturating_sub(wants);
        let headroom = Quantum::of(id.unit)
            .floor(limit.headroom.of(spare))
            .as_micros();
        let want = if wants == Capacity::ZERO { 0 } else { headroom };
        assert_eq!(beyond, want, "{self:?}");
    }

    /// Nobody is told to hurry.
    pub(super) fn check_at_rest(&self) {
        let refresh = self.members[0].own.limit.refresh;
        let wanting = |client: &&Client| client.band.wants > Capacity::ZERO;
        for client in self.clients.iter().filter(wanting) {
            assert_eq!(client.interval, refresh, "{client:?} in {self:?}");
        }
    }
}
