//! Laws that the fleet is held to.

use super::*;
use crate::hash::fnv1a;

impl Fleet {
    /// Everybody has its share but for one for rounding, and for what the others need not give back
    /// in a hurry: a hundredth of what each has.
    pub(in super::super) fn check_shares_roughly(&self) {
        let shares = self.shares();
        let slack = shares.iter().sum::<u64>() / 100 + self.scale;
        for (client, share) in self.clients.iter().zip(shares) {
            let has = client.has(self.now_ms).as_micros();
            assert!(has + slack >= share, "{client:?}: {share}");
        }
    }

    /// Laws 3 and 4: everybody has its share, or more.
    pub(in super::super) fn check_shares(&self) {
        for (client, share) in self.clients.iter().zip(self.shares()) {
            let gets = client.has(self.now_ms).min(client.wants).as_micros();
            assert_eq!(
                gets, share,
                "{client:?} of {:?} in {:?}",
                self.members, self.pool
            );
        }
    }

    /// Shares of the clients: first the pool between its members, then each resource between its
    /// clients. Each step is the division that has tests of its own.
    fn shares(&self) -> Vec<u64> {
        let allotted = self.allotted();
        let mut shares = vec![0; self.clients.len()];
        for (i, (member, allotted)) in self.members.iter().zip(allotted).enumerate() {
            let Limit {
                algorithm,
                guaranteed,
                ..
            } = &member.own.limit;
            let mut bands = PriorityBands::new(Quantum::of(member.own.id.unit));
            let clients = self.clients.iter().enumerate();
            let places = clients.filter(|(_, client)| client.member == i);
            let places: Vec<_> = places
                .map(|(at, client)| {
                    let tie_break = tie_break_of(&client.run);
                    (
                        at,
                        bands.insert(tie_break, &client.demand(), Capacity::UNLIMITED),
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

    /// Capacity that the clients of each resource may divide.
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
                let tie_break = fnv1a(member.own.id.scope.as_bytes());
                let wants = self.wanted(i).min(*own);
                (i, fair.insert(tie_break, wants, member.weight))
            })
            .collect();
        let mut allotted = own.clone();
        for (i, place) in &places {
            allotted[*i] = own[*i].min(fair.share(place, pool.divided()));
        }
        allotted
    }

    /// Wants of the clients of a resource.
    fn wanted(&self, member: usize) -> Capacity {
        let clients = self.clients.iter().filter(|c| c.member == member);
        clients.fold(Capacity::ZERO, |sum, c| sum.saturating_add(c.wants))
    }

    /// Unwanted capacity of a resource in no pool is lent to clients that want something, as far as
    /// the limit says so.
    pub(in super::super) fn check_headroom(&self) {
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
    pub(in super::super) fn check_at_rest(&self) {
        let refresh = self.members[0].own.limit.refresh;
        // A client that wants nothing may have released, and then is told nothing.
        let hurried =
            |client: &&Client| client.wants > Capacity::ZERO && client.refresh_interval != refresh;
        let hurried = self.clients.iter().find(hurried);
        assert!(hurried.is_none(), "{hurried:?} in {self:?}");
    }

    /// Law 1, in use and in the lease table; the sums of the table; and that the table never counts
    /// less than a client uses, once it is complete.
    pub(super) fn check(&self) {
        let mut pooled = 0;
        for (i, member) in self.members.iter().enumerate() {
            let used = self.used(i);
            let most = member.own.capacity_max(self.now_ms);
            assert!(used <= most, "{used} in use of {most} at {}", self.now_ms);
            pooled += if member.in_pool { used } else { 0 };
            self.check_resource(i, most);
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
        let Some(table) = self.node.pool(&pool.id) else {
            return;
        };
        let members =
            |(id, _): &(&ResourceId, &Resource)| self.node.resources[*id].pool() == Some(&pool.id);
        let members: Vec<_> = self.node.resources().filter(members).collect();
        let lent: u128 = members.iter().map(|(_, resource)| resource.sum_has()).sum();
        assert_eq!(lent, table.sum_has(), "at {}", self.now_ms);
        assert_eq!(members.len(), table.member_count());
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

    fn check_resource(&self, member: usize, most: u128) {
        let Some(resource) = self.resource(member) else {
            return;
        };
        let lent: u128 = resource
            .clients()
            .map(|c| u128::from(c.has.as_micros()))
            .sum();
        assert_eq!(lent, resource.sum_has(), "at {}", self.now_ms);
        assert!(lent <= most, "{lent} lent of {most} at {}", self.now_ms);
        if self.clock() < resource.learning_until() {
            return;
        }
        for client in self.clients.iter().filter(|c| c.member == member) {
            let booked = resource.clients().find(|record| is(record, &client.run));
            let booked = booked.map_or(Capacity::ZERO, |record| record.has);
            let has = client.has(self.now_ms);
            assert!(has <= booked, "{client:?} at {}: {booked:?}", self.now_ms);
            assert_eq!(has.as_micros() % self.scale, 0, "{client:?}");
        }
    }
}
