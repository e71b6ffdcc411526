//! Draws of members of a pool, which are charged to its bucket as well.

use core::num::NonZeroU32;
use std::collections::BTreeMap;
use std::vec::Vec;

use super::*;
use crate::fleet::StoredLimit;
use crate::lease::DrawRequest;
use crate::lease_server::PoolTerms;
use crate::traffic::{Counts, Tally};

const BOUNDS: Bounds = Bounds {
    max_resources: 8,
    max_clients_per_resource: 10,
    max_leases: 100,
    max_durable: 100_000,
};

/// Coordinator of one pool, with clients that spend each token that they are granted, on a clock that the test
/// moves.
struct Site {
    server: LeaseServer,
    own: Limit,
    shared: Limit,
    now: Instant,
    /// Tokens that each client of each member was granted, ever.
    granted: BTreeMap<(&'static str, usize), Tokens>,
    /// Attempts that each client has counted.
    attempts: BTreeMap<(&'static str, usize), u64>,
    /// Wants of clients of members, where they are not one a second.
    wants: BTreeMap<&'static str, u64>,
    /// Time since the clients have spent their tokens, as they say.
    spent_for: Duration,
    /// Weights of members, where they are not one.
    weights: BTreeMap<&'static str, NonZeroU32>,
    /// Pools of members that are of another one.
    pools: BTreeMap<&'static str, ResourceId>,
    /// Tokens that came back to the client that asks.
    refunds: u64,
}

// === impl Site ===

impl Site {
    /// A pool that earns so many tokens a minute, with members that have no limit of their own.
    fn per_minute(rate: u64, burst: u64) -> Self {
        let limit = |capacity: Capacity| Limit {
            burst: Tokens::from_whole(burst),
            ..Limit::new(capacity)
        };
        let now = secs(1);
        let mut server = LeaseServer::new(now, Epoch(1), BOUNDS, Start::Fresh);
        server.keep_buckets(now, BTreeMap::new());
        Self {
            server,
            own: limit(Capacity::UNLIMITED),
            shared: limit(Capacity::from_micros(rate * 1_000_000 / 60)),
            now,
            granted: BTreeMap::new(),
            attempts: BTreeMap::new(),
            wants: BTreeMap::new(),
            spent_for: Duration::ZERO,
            weights: BTreeMap::new(),
            pools: BTreeMap::new(),
            refunds: 0,
        }
    }

    fn after(&mut self, millis: u64) -> &mut Self {
        let end = self.now.saturating_add(Duration::from_millis(millis));
        while let Some(at) = self.server.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.server.handle_timeout(self.now);
        }
        self.now = end;
        self
    }

    fn pool() -> ResourceId {
        ResourceId::new("group/gold", Unit::Requests).unwrap()
    }

    /// All clients report that they have spent their tokens.
    fn report(&mut self) -> &mut Self {
        let clients: Vec<_> = self.granted.keys().copied().collect();
        for (scope, client) in clients {
            self.draw(scope, client, 0);
        }
        self
    }

    /// Tokens that a client of the member `scope` gets that needs so many.
    fn draw(&mut self, scope: &'static str, client: usize, needs: u64) -> u64 {
        let before = self.granted.get(&(scope, client)).copied();
        let before = before.unwrap_or(Tokens::ZERO);
        let draw = self.refresh(scope, client, needs).draw.unwrap();
        self.granted.insert((scope, client), draw.granted);
        draw.granted.saturating_sub(before).whole()
    }

    fn refresh(&mut self, scope: &'static str, client: usize, needs: u64) -> Answer {
        self.now = self.now.saturating_add(Duration::from_nanos(1));
        let name = std::format!("e/{client}");
        let run = ClientRun::only(ClientId::new(&name).unwrap());
        let resource = ResourceId::new(scope, Unit::Requests).unwrap();
        let granted = self.granted.get(&(scope, client)).copied();
        let wants = Capacity::from_whole(self.wants.get(scope).copied().unwrap_or(1));
        let attempts = self.attempts.entry((scope, client)).or_default();
        *attempts += needs;
        let tally = Tally {
            counts: Counts {
                attempts: *attempts,
                refused: 0,
            },
            ..Tally::default()
        };
        let request = LeaseRequest {
            draw: Some(DrawRequest {
                account: 1,
                drawn: granted.unwrap_or(Tokens::ZERO),
                needs: Tokens::from_whole(needs),
                first: Tokens::ONE,
                spent_for: self.spent_for,
                refunds: Tokens::from_whole(self.refunds),
                ..DrawRequest::default()
            }),
            tally,
            ..LeaseRequest::new(self.now.as_nanos(), Capacity::ZERO, wants)
        };
        let pool = self.pools.get(scope).cloned();
        let pool = pool.unwrap_or_else(Self::pool);
        let terms = Terms {
            limit: &self.own,
            pool: Some(PoolTerms {
                pool: &pool,
                limit: &self.shared,
                weight: self.weights.get(scope).copied().unwrap_or(NonZeroU32::MIN),
            }),
        };
        let answer = self
            .server
            .handle_refresh(self.now, &run, &resource, &request, &terms);
        answer.unwrap()
    }

    /// A client of a resource that is in no pool draws.
    fn refresh_alone(&mut self, scope: &str, limit: &Limit) {
        let run = ClientRun::only(ClientId::new("e/0").unwrap());
        let resource = ResourceId::new(scope, Unit::Requests).unwrap();
        let wants = Capacity::from_whole(1);
        let request = LeaseRequest {
            draw: Some(DrawRequest {
                account: 1,
                ..DrawRequest::default()
            }),
            ..LeaseRequest::new(self.now.as_nanos(), Capacity::ZERO, wants)
        };
        let terms = Terms::of(limit);
        let answer = self
            .server
            .handle_refresh(self.now, &run, &resource, &request, &terms);
        answer.unwrap();
    }

    fn hand_over(&mut self) -> &mut Self {
        let (now, epoch) = (self.now, Epoch(self.server.epoch().0 + 1));
        let server = LeaseServer::new(now, epoch, BOUNDS, Start::Fresh);
        let before = core::mem::replace(&mut self.server, server);
        let snapshot = before.hand_over(now);
        self.server = LeaseServer::take_over(now, epoch, BOUNDS, &snapshot).unwrap();
        self
    }

    /// The coordinator is killed, and starts again at once with what was to be stored.
    fn crash(&mut self) -> &mut Self {
        let changes = self.server.take_bucket_changes().changes;
        let stored = changes.into_iter();
        let stored: BTreeMap<ResourceId, StoredLimit> = stored
            .filter_map(|change| Some((change.resource, change.bucket?)))
            .collect();
        self.server = LeaseServer::new(self.now, Epoch(9), BOUNDS, Start::Fresh);
        self.server.keep_buckets(self.now, stored);
        self
    }
}

#[test]
fn members_draw_of_one_bucket() {
    let mut site = Site::per_minute(10, 10);
    assert_eq!(site.draw("tenant/a", 0, 4), 4);
    assert_eq!(site.draw("tenant/b", 1, 4), 4);
    assert_eq!(site.draw("tenant/a", 2, 4), 2);
    assert_eq!(site.draw("tenant/b", 0, 1), 0);
    assert_eq!(site.report().after(6_001).draw("tenant/c", 0, 1), 1);
    assert_eq!(site.draw("tenant/a", 0, 1), 0);
}

#[test]
fn a_draw_is_charged_to_the_member_and_to_the_pool_or_to_neither() {
    let mut site = Site::per_minute(600, 10);
    site.own.capacity = Capacity::from_micros(50_000);
    site.own.burst = Tokens::from_whole(3);
    assert_eq!(site.draw("tenant/a", 0, 5), 3, "its own limit");
    assert_eq!(site.draw("tenant/b", 0, 5), 3);
    assert_eq!(site.draw("tenant/c", 0, 5), 3);
    assert_eq!(site.draw("tenant/d", 0, 3), 1, "the pool's");
    site.report().after(300);
    assert_eq!(site.draw("tenant/d", 0, 3), 2, "its own has two more");
}

#[test]
fn a_low_limit_in_a_large_pool_is_drawn() {
    let mut site = Site::per_minute(600_000, 10_000);
    site.own.capacity = Capacity::from_micros(166_667);
    site.own.burst = Tokens::from_whole(10);
    assert_eq!(site.draw("tenant/a", 0, 7), 7);
    assert_eq!(site.draw("tenant/a", 1, 7), 3);
}

#[test]
fn a_pool_is_remembered_until_its_bucket_is_full() {
    let mut site = Site::per_minute(10, 10);
    assert_eq!(site.draw("tenant/a", 0, 10), 10);
    site.report().after(30_001);
    assert_eq!(site.server.resource_count(), 0);
    let pool = site.server.pool(&Site::pool()).unwrap();
    assert_eq!(pool.member_count(), 0);
    assert_eq!(site.draw("tenant/b", 0, 10), 5);
    site.after(70_000);
    assert!(site.server.pool(&Site::pool()).is_none());
    assert_eq!(site.server.poll_timeout(), None);
    assert_eq!(site.draw("tenant/a", 0, 12), 10);
}

#[test]
fn a_pools_bucket_outlives_a_hand_over() {
    let mut site = Site::per_minute(10, 10);
    assert_eq!(site.draw("tenant/a", 0, 7), 7);
    assert_eq!(site.hand_over().draw("tenant/b", 0, 7), 3);
    // Also without a member, and it goes on to fill.
    site.report().after(30_001).hand_over();
    assert_eq!(site.server.resource_count(), 0);
    assert_eq!(site.after(12_001).draw("tenant/a", 1, 9), 7);
}

#[test]
fn tokens_that_are_reported_late_have_been_earned_meanwhile() {
    let mut site = Site::per_minute(600, 1);
    let mut got = site.draw("tenant/a", 0, 1);
    for _ in 0..100 {
        site.spent_for = Duration::from_millis(20);
        site.after(20).draw("tenant/a", 0, 0);
        site.spent_for = Duration::ZERO;
        got += site.after(80).draw("tenant/a", 0, 1);
    }
    assert!(got >= 100, "{got} of ten a second in ten seconds");
}

#[test]
fn a_member_brings_no_debt_to_the_pool_that_it_joins() {
    let mut site = Site::per_minute(600, 10);
    site.draw("tenant/b", 0, 1);
    let alone = Limit {
        burst: Tokens::from_whole(10),
        ..Limit::new(Capacity::from_whole(10))
    };
    for _ in 0..30 {
        site.after(1000).refresh_alone("tenant/a", &alone);
    }
    // It is silent for long, and comes back as a member.
    site.after(9000).refresh("tenant/a", 0, 0);
    assert_eq!(site.draw("tenant/b", 0, 5), 5);
}

#[test]
fn a_pools_bucket_is_stored() {
    let mut site = Site::per_minute(10, 10);
    assert_eq!(site.draw("tenant/a", 0, 7), 7);
    assert_eq!(site.crash().draw("tenant/b", 0, 7), 3);
    site.after(70_000);
    let changes = site.server.take_bucket_changes().changes;
    let last = changes.last().unwrap();
    assert_eq!((&last.resource, &last.bucket), (&Site::pool(), &None));
}

#[test]
fn a_pools_raised_burst_is_there_at_once() {
    let mut site = Site::per_minute(10, 10);
    assert_eq!(site.draw("tenant/a", 0, 12), 10);
    site.shared.burst = Tokens::from_whole(15);
    assert_eq!(site.draw("tenant/b", 0, 12), 5);
}

#[test]
fn the_modest_member_gets_its_part() {
    let mut site = Site::per_minute(60, 10);
    site.wants.insert("tenant/greedy", 10);
    let mut got = [0; 2];
    for round in 0..600 {
        site.after(100);
        got[0] += site.draw("tenant/greedy", 0, 1);
        if round % 10 == 0 {
            got[1] += site.draw("tenant/modest", 0, 1);
        }
    }
    // The burst and a token a second; each is entitled to half of these.
    let [greedy, modest] = got;
    assert!(greedy + modest >= 68, "{got:?}");
    assert!(modest >= 24, "{got:?}");
}

#[test]
fn members_draw_by_their_weights() {
    let mut site = Site::per_minute(60, 10);
    site.weights
        .insert("tenant/three", NonZeroU32::new(3).unwrap());
    for scope in ["tenant/one", "tenant/three"] {
        site.wants.insert(scope, 5);
    }
    let mut got = [0; 2];
    for _ in 0..600 {
        site.after(100);
        for client in 0..2 {
            got[0] += site.draw("tenant/one", client, 1);
            got[1] += site.draw("tenant/three", client, 1);
        }
    }
    let [one, three] = got;
    // A third of the burst is still kept for `three`.
    assert!(one + three >= 66, "{got:?}");
    assert!(three >= 2 * one && one >= 10, "{got:?}");
}

/// A member that asks for less than its share gets it, however little fits the bucket: 20/s with a burst of 4, of
/// which 18 and 6 are wanted.
#[test]
fn a_member_below_its_share_draws_in_vain_now_and_then_at_most() {
    let mut site = Site::per_minute(1200, 4);
    site.wants.insert("tenant/greedy", 20);
    site.wants.insert("tenant/modest", 7);
    let mut got = [0; 2];
    for tick in 0..3600 {
        site.after(17);
        if tick % 3 == 0 {
            got[0] += site.draw("tenant/greedy", 0, 1);
        }
        if tick % 9 == 0 {
            got[1] += site.draw("tenant/modest", 0, 1);
        }
    }
    let [greedy, modest] = got;
    assert!(greedy + modest >= 1200, "{got:?}");
    assert!(modest >= 390, "of 400: {got:?}");
}

/// Members beside it do not draw the standby capacity of a client that is cut off.
#[test]
fn a_member_leaves_the_others_what_it_may_use_while_it_is_cut_off() {
    let mut site = Site::per_minute(600, 10);
    let mut standby = Capacity::ZERO;
    for _ in 0..20 {
        site.after(1000);
        let answer = site.refresh("tenant/a", 0, 1).draw.unwrap();
        site.granted.insert(("tenant/a", 0), answer.granted);
        standby = answer.standby;
        site.draw("tenant/b", 1, 1);
    }
    assert!(standby > Capacity::from_whole(1), "{standby:?}");
    // The first one is cut off, and is missed after some seconds.
    for _ in 0..40 {
        site.after(100).draw("tenant/b", 1, 100);
    }
    let rate = (0..40).map(|_| site.after(100).draw("tenant/b", 1, 100));
    let rate = rate.sum::<u64>() / 4;
    let left = Capacity::from_whole(10).saturating_sub(standby);
    let whole = left.as_micros() / 1_000_000;
    assert!(
        rate >= whole.saturating_sub(1) && rate <= whole + 1,
        "{rate}, {left:?}"
    );
}

#[test]
fn what_was_spent_of_one_pool_does_not_come_back_to_another() {
    let mut site = Site::per_minute(1, 10);
    let silver = ResourceId::new("group/silver", Unit::Requests).unwrap();
    for scope in ["tenant/b", "tenant/c"] {
        site.pools.insert(scope, silver.clone());
    }
    assert_eq!(site.draw("tenant/a", 0, 10), 10);
    assert_eq!(site.draw("tenant/b", 0, 10), 10);
    site.pools.insert("tenant/a", silver);
    site.refunds = 10;
    site.draw("tenant/a", 0, 0);
    site.refunds = 0;
    assert_eq!(site.report().draw("tenant/c", 0, 10), 0);
    // Tokens that are spent of it from now on do.
    site.after(3_000).refunds = 4;
    site.draw("tenant/b", 0, 0);
    site.refunds = 0;
    assert_eq!(site.draw("tenant/c", 0, 10), 4);
}
