//! Quotas of limits of which clients draw.

use std::collections::BTreeMap;
use std::vec;

use super::*;
use crate::fleet::{QuotaChange, QuotaChangeRequest, QuotaError, StoredLimit};
use crate::lease::{DrawAnswer, DrawRequest};
use crate::quota::{Calendar, CalendarUnit, Quota, QuotaPeriod, Quotas};
use crate::units::{WallClock, WallTime};

const HOUR: u64 = 3600;

/// Coordinator with a store, and clients that are asked for one request at a time, on clocks that the test moves.
struct Site {
    server: LeaseServer,
    store: BTreeMap<ResourceId, StoredLimit>,
    limit: Limit,
    now: Instant,
    /// Seconds by which the wall clock is ahead.
    wall_ahead: u64,
    clients: BTreeMap<usize, Client>,
    /// Requests of all clients that have passed.
    passed: u64,
}

#[derive(Clone, Copy, Default)]
struct Client {
    granted: Tokens,
    left: Tokens,
}

// === impl Site ===

impl Site {
    /// A limit of `rate` a second, and so many an hour.
    fn hourly(rate: u64, amount: u64) -> Self {
        let quota = Quota {
            amount: Tokens::from_whole(amount),
            period: QuotaPeriod::Calendar(Calendar::utc(CalendarUnit::Hour)),
        };
        let mut site = Self {
            server: LeaseServer::new(secs(1), Epoch(1), BOUNDS, Start::Fresh),
            store: BTreeMap::new(),
            limit: Limit {
                quotas: Quotas::new(vec![quota]),
                ..Limit::new(Capacity::from_whole(rate))
            },
            now: secs(HOUR),
            wall_ahead: 0,
            clients: BTreeMap::new(),
            passed: 0,
        };
        site.server.keep_buckets(site.now, BTreeMap::new());
        site
    }

    fn after(&mut self, secs: u64) -> &mut Self {
        self.now = self.now.saturating_add(Duration::from_secs(secs));
        self.server.handle_timeout(self.now);
        self
    }

    /// Asks for the tokens of `needs` requests, which pass if there are enough. Returns the answer's draw.
    fn ask(&mut self, client: usize, needs: u64) -> DrawAnswer {
        self.now = self.now.saturating_add(Duration::from_millis(1));
        self.read_clock();
        let name = std::format!("envoy-{client}");
        let run = ClientRun::only(ClientId::new(&name).unwrap());
        let resource = ResourceId::new("tenant/a", Unit::Requests).unwrap();
        let state = self.clients.entry(client).or_default();
        let request = LeaseRequest {
            draw: Some(DrawRequest {
                account: 1,
                drawn: state.granted,
                holds: state.left,
                needs: Tokens::from_whole(needs),
                first: Tokens::ONE,
                ..DrawRequest::default()
            }),
            ..LeaseRequest::new(
                self.now.as_nanos(),
                Capacity::ZERO,
                Capacity::from_whole(100),
            )
        };
        let terms = Terms::of(&self.limit);
        let answer = self
            .server
            .handle_refresh(self.now, &run, &resource, &request, &terms);
        let draw = answer.unwrap().draw.unwrap();
        self.store_changes();
        let state = self.clients.entry(client).or_default();
        let tokens = draw.granted.saturating_sub(state.granted);
        state.granted = draw.granted;
        state.left = state.left.saturating_add(tokens);
        let passes = state.left.whole().min(needs);
        state.left = state.left.saturating_sub(Tokens::from_whole(passes));
        self.passed += passes;
        draw
    }

    fn read_clock(&mut self) {
        let seconds = self.now.as_nanos() / 1_000_000_000 + self.wall_ahead;
        let wall = WallTime::from_millis(seconds * 1000);
        self.server.set_wall_clock(WallClock::new(self.now, wall));
    }

    fn store_changes(&mut self) {
        for change in self.server.take_bucket_changes().changes {
            match change.bucket {
                Some(stored) => self.store.insert(change.resource, stored),
                None => self.store.remove(&change.resource),
            };
        }
    }

    /// The coordinator is killed, and another one starts with what is stored, and learns.
    fn restart(&mut self) {
        let epoch = Epoch(self.server.epoch().0 + 1);
        self.server = LeaseServer::new(self.now, epoch, BOUNDS, Start::Learning);
        self.server.keep_buckets(self.now, self.store.clone());
        self.read_clock();
    }

    /// The same; after a second there are tokens of the rate again.
    fn crash(&mut self) -> &mut Self {
        self.restart();
        // Its bucket begins when it is first asked for.
        self.ask(0, 0);
        self.after(1)
    }

    fn hand_over(&mut self) -> &mut Self {
        let (now, epoch) = (self.now, Epoch(self.server.epoch().0 + 1));
        let server = LeaseServer::new(now, epoch, BOUNDS, Start::Fresh);
        let before = core::mem::replace(&mut self.server, server);
        let snapshot = before.hand_over(now);
        self.server = LeaseServer::take_over(now, epoch, BOUNDS, &snapshot).unwrap();
        self.server.keep_buckets(now, self.store.clone());
        self
    }
}

#[test]
fn a_quota_is_never_exceeded_and_opens_with_its_window() {
    let mut site = Site::hourly(1000, 50);
    for round in 0..30 {
        site.ask(round % 3, 4);
    }
    assert_eq!(site.passed, 50);
    let draw = site.ask(0, 1);
    let opens_in = draw.next.unwrap();
    assert!(opens_in > Duration::from_secs(HOUR - 10) && opens_in <= Duration::from_secs(HOUR));
    assert_eq!(draw.quota.unwrap().left, Tokens::ZERO);
    site.after(HOUR);
    for round in 0..30 {
        site.ask(round % 3, 4);
    }
    assert_eq!(site.passed, 100);
}

#[test]
fn a_quota_outlives_a_crash_and_a_hand_over() {
    for outlives in [Site::crash, Site::hand_over] {
        let mut site = Site::hourly(1000, 50);
        site.ask(0, 30);
        outlives(&mut site);
        site.ask(1, 15);
        outlives(&mut site);
        site.ask(0, 15);
        site.ask(2, 15);
        assert_eq!(site.passed, 50);
    }
}

#[test]
fn a_quota_is_drawn_while_a_coordinator_learns() {
    let mut site = Site::hourly(1000, 50);
    site.ask(0, 10);
    site.crash().ask(0, 10);
    assert_eq!(site.passed, 20);
}

#[test]
fn no_window_opens_twice_whatever_the_wall_clock_does() {
    let mut site = Site::hourly(1000, 50);
    site.ask(0, 60);
    // It says that it has spent them.
    site.ask(0, 0);
    site.wall_ahead = 24 * HOUR;
    site.ask(0, 20);
    site.wall_ahead = 0;
    site.ask(0, 60);
    site.crash().ask(0, 60);
    site.wall_ahead = 24 * HOUR;
    site.ask(0, 60);
    assert_eq!(site.passed, 100);
}

#[test]
fn a_quota_without_use_is_not_remembered() {
    let mut site = Site::hourly(1000, 50);
    site.ask(0, 1);
    site.after(HOUR / 2);
    assert_eq!(site.server.resource_count(), 1);
    site.after(HOUR);
    assert_eq!(site.server.resource_count(), 0);
    assert_eq!(site.server.durable_count(), 0);
}

#[test]
fn costs_that_are_known_late_count() {
    let mut site = Site::hourly(1000, 50);
    site.ask(0, 10);
    let run = ClientRun::only(ClientId::new("envoy-0").unwrap());
    let resource = ResourceId::new("tenant/a", Unit::Requests).unwrap();
    let request = LeaseRequest {
        draw: Some(DrawRequest {
            account: 1,
            drawn: site.clients[&0].granted,
            owed: Tokens::from_whole(30),
            debt_max: Tokens::from_whole(1000),
            ..DrawRequest::default()
        }),
        ..LeaseRequest::new(
            site.now.as_nanos() + 1,
            Capacity::ZERO,
            Capacity::from_whole(1),
        )
    };
    let terms = Terms::of(&site.limit);
    let answer = site
        .server
        .handle_refresh(site.now, &run, &resource, &request, &terms);
    let quota = answer.unwrap().draw.unwrap().quota.unwrap();
    assert_eq!(quota.left, Tokens::from_whole(10));
}

#[test]
fn a_fast_limits_burst_does_not_come_again_with_a_crash() {
    let mut site = Site::hourly(50, 1000);
    site.ask(0, 50);
    site.restart();
    site.ask(0, 50);
    assert_eq!(site.passed, 50);
}

#[test]
fn a_blocked_limit_does_not_forget_its_quota() {
    let mut site = Site::hourly(1000, 50);
    site.ask(0, 50);
    site.limit.capacity = Capacity::ZERO;
    let resource = ResourceId::new("tenant/a", Unit::Requests).unwrap();
    let run = ClientRun::only(ClientId::new("envoy-0").unwrap());
    site.server.handle_release(&run, &resource, u64::MAX);
    site.after(60);
    site.limit.capacity = Capacity::from_whole(1000);
    site.ask(1, 50);
    assert_eq!(site.passed, 50);
}

#[test]
fn without_room_in_the_store_no_answer_may_tell_of_a_quota() {
    let mut site = Site::hourly(1000, 50);
    let bounds = Bounds {
        max_durable: 1,
        ..BOUNDS
    };
    site.server = LeaseServer::new(site.now, Epoch(2), bounds, Start::Fresh);
    site.server.keep_buckets(site.now, BTreeMap::new());
    let run = ClientRun::only(ClientId::new("envoy-0").unwrap());
    let request = LeaseRequest {
        draw: Some(DrawRequest {
            account: 1,
            needs: Tokens::ONE,
            first: Tokens::ONE,
            ..DrawRequest::default()
        }),
        ..LeaseRequest::new(1, Capacity::ZERO, Capacity::from_whole(1))
    };
    let terms = Terms::of(&site.limit);
    let [stored, unstored] = ["tenant/a", "tenant/b"].map(|scope| {
        let resource = ResourceId::new(scope, Unit::Requests).unwrap();
        let answer = site
            .server
            .handle_refresh(site.now, &run, &resource, &request, &terms);
        assert!(answer.unwrap().draw.is_some());
        site.server.take_bucket_changes()
    });
    assert!(stored.is_strict && !stored.is_unstored);
    assert!(unstored.is_unstored);
}

#[test]
fn what_a_store_knows_beyond_a_lease_table_that_was_taken_over_counts() {
    let mut site = Site::hourly(1000, 50);
    site.ask(0, 30);
    let store = site.store.clone();
    // A master that could not read the store hands over what it knows.
    site.server = LeaseServer::new(site.now, Epoch(2), BOUNDS, Start::Fresh);
    site.clients.clear();
    site.ask(0, 2);
    site.store = store;
    site.hand_over();
    site.passed = 30;
    site.ask(1, 50);
    assert_eq!(site.passed, 50);
}

#[test]
fn a_person_sees_and_changes_what_is_used_also_without_clients() {
    let mut site = Site::hourly(1000, 50);
    let id = ResourceId::new("tenant/a", Unit::Requests).unwrap();
    let limit = site.limit.clone();
    let request = |change| QuotaChangeRequest {
        quota: "hour".into(),
        by: "operator".into(),
        change,
    };
    let set = request(QuotaChange::SetUsed(Tokens::from_whole(40)));
    let change = |site: &mut Site, request: &QuotaChangeRequest| {
        let terms = Terms::of(&limit);
        let outcome = site
            .server
            .handle_quota_change(site.now, &id, &terms, request);
        site.store_changes();
        outcome
    };
    let used = |site: &Site| {
        let usage = site.server.quota_usage(site.now, &id, &limit);
        let [one] = &*usage else { panic!("one quota") };
        (one.used.whole(), one.left.whole())
    };
    site.read_clock();
    assert_eq!(used(&site), (0, 50));
    change(&mut site, &set).unwrap();
    assert_eq!(used(&site), (40, 10));
    site.restart();
    assert_eq!(used(&site), (40, 10), "as the store says");
    assert_eq!(site.server.accounts_after(&id, 9).len(), 0);
    let first = ResourceId::new("a", Unit::Requests).unwrap();
    assert!(site.server.accounts_after(&first, 9).contains(&&id));
    let credit = request(QuotaChange::Credit {
        id: "ticket 7".into(),
        amount: Tokens::from_whole(5),
        until: None,
    });
    for _ in 0..2 {
        change(&mut site, &credit).unwrap();
        site.restart();
    }
    assert_eq!(used(&site), (40, 15));
    site.ask(0, 0);
    site.after(1);
    for _ in 0..10 {
        site.ask(0, 4);
    }
    assert_eq!(site.passed, 15);
    let day = QuotaChangeRequest {
        quota: "day".into(),
        ..set
    };
    assert_eq!(change(&mut site, &day), Err(QuotaError::Unknown));
    // Also what nobody asks for ends with its window.
    site.now = site.now.saturating_add(Duration::from_secs(HOUR));
    assert_eq!(used(&site), (0, 50));
    site.after(HOUR);
    assert_eq!(site.server.resource_count(), 0);
}
