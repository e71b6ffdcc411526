use tollgate_core::lease::{Answer, ClientId, ClientRun, Epoch, Unit};
use tollgate_core::lease_server::{Bounds, LeaseServer, Start, Terms};
use tollgate_core::limit::{Limit, Part};
use tollgate_core::units::Instant;

use super::*;

const BOUNDS: Bounds = Bounds {
    max_resources: 1,
    max_clients_per_resource: 10,
    max_leases: 10,
    max_durable: 100_000,
};

/// Doorman's clients of a resource of 100 without headroom.
struct Fleet {
    server: LeaseServer,
    resource: ResourceId,
    limit: Limit,
    now: Instant,
}

impl Fleet {
    fn new(start: Start) -> Self {
        let mut limit = Limit::new(Capacity::from_whole(100));
        limit.headroom = Part::NONE;
        // Doorman's clients are told whole seconds.
        limit.min_refresh = Duration::from_secs(1);
        limit.learning = Duration::from_secs(40);
        let now = Instant::ZERO.saturating_add(Duration::from_secs(100));
        Self {
            server: LeaseServer::new(now, Epoch(1), BOUNDS, start),
            resource: ResourceId::new("doorman/r", Unit::Requests).unwrap(),
            limit,
            now,
        }
    }

    /// Answer to `client` a second after the request before, and the client's account of it: the
    /// lease until the whole second before its end.
    fn get(&mut self, client: &str, account: Option<Account>, wants: u64) -> (u64, Account) {
        self.now = self.now.saturating_add(Duration::from_secs(1));
        self.server.handle_timeout(self.now);
        let client = ClientRun::only(ClientId::new(client).unwrap());
        let ask = DoormanAsk {
            resource: self.resource.clone(),
            repeated: account.map(|account| RepeatedLease {
                capacity: account.capacity,
                remaining: account.until.saturating_since(self.now),
            }),
            demand: Demand::of(Capacity::from_whole(wants)),
        };
        let resource = self.server.resource(&self.resource);
        let known = resource.and_then(|resource| KnownClient::of(self.now, &client, resource));
        let request = ask.derive(known.as_ref());
        let terms = Terms::of(&self.limit);
        let answer =
            self.server
                .handle_refresh(self.now, &client, &self.resource, &request, &terms);
        let account = Account::of(self.now, &answer.unwrap());
        (account.capacity.as_micros() / 1_000_000, account)
    }

    fn sum_has(&self) -> u64 {
        let resource = self.server.resource(&self.resource).unwrap();
        u64::try_from(resource.sum_has()).unwrap() / 1_000_000
    }
}

/// A lease by the account of its client.
#[derive(Clone, Copy, Debug)]
struct Account {
    capacity: Capacity,
    until: Instant,
}

impl Account {
    fn of(now: Instant, answer: &Answer) -> Self {
        let lease = answer.lease.unwrap();
        let until = now.saturating_add(lease.duration.saturating_sub(Duration::from_millis(900)));
        let capacity = lease.capacity;
        Self { capacity, until }
    }
}

#[test]
fn who_says_its_last_lease_has_acknowledged_it() {
    let mut fleet = Fleet::new(Start::Fresh);
    let (_, a) = fleet.get("a", None, 100);
    assert_eq!(fleet.get("b", None, 100).0, 0, "a has it all");
    let (shrunk, a) = fleet.get("a", Some(a), 100);
    assert_eq!(
        (shrunk, fleet.sum_has()),
        (50, 100),
        "the answer may be lost"
    );
    assert_eq!(fleet.get("b", None, 100).0, 0, "it still waits");
    assert_eq!(fleet.get("a", Some(a), 100).0, 50);
    assert_eq!(fleet.sum_has(), 50);
    assert_eq!(fleet.get("b", None, 100).0, 50);
}

#[test]
fn a_late_request_frees_nothing_that_is_in_use() {
    let mut fleet = Fleet::new(Start::Fresh);
    let (_, old) = fleet.get("a", None, 10);
    let (_, new) = fleet.get("a", Some(old), 80);
    assert_eq!(new.capacity, Capacity::from_whole(80));
    // Sent before the 80 were answered, and delayed; its answer reaches no client.
    fleet.get("a", Some(old), 5);
    assert_eq!(fleet.sum_has(), 80);
    assert_eq!(fleet.get("b", None, 100).0, 20);
}

#[test]
fn a_lost_answer_is_given_again() {
    let mut fleet = Fleet::new(Start::Fresh);
    let (_, a) = fleet.get("a", None, 100);
    fleet.get("b", None, 100);
    assert_eq!(fleet.get("a", Some(a), 100).0, 50, "lost");
    assert_eq!(fleet.get("b", None, 100).0, 0, "it still waits");
    let (again, a) = fleet.get("a", Some(a), 100);
    assert_eq!((again, fleet.sum_has()), (50, 100));
    fleet.get("a", Some(a), 100);
    assert_eq!(fleet.sum_has(), 50);
}

#[test]
fn who_never_says_what_it_has_shrinks_one_lease_later() {
    let mut fleet = Fleet::new(Start::Fresh);
    fleet.get("a", None, 100);
    let lent_until = fleet.now.saturating_add(fleet.limit.lease);
    while fleet.now.saturating_add(Duration::from_secs(1)) < lent_until {
        assert!(fleet.get("a", None, 20).0 <= 100);
        assert_eq!(fleet.sum_has(), 100, "it may never have heard of less");
    }
    fleet.get("a", None, 20);
    assert_eq!(fleet.sum_has(), 20);
    assert_eq!(fleet.get("b", None, 100).0, 80);
}

#[test]
fn while_learning_a_lease_that_is_said_is_confirmed_within_the_capacity() {
    let mut fleet = Fleet::new(Start::Learning);
    let account = Account {
        capacity: Capacity::from_whole(70),
        until: fleet.now.saturating_add(Duration::from_secs(5)),
    };
    let (confirmed, account) = fleet.get("a", Some(account), 90);
    assert_eq!(confirmed, 70);
    assert_eq!(fleet.get("a", Some(account), 90).0, 70);
    let claim = Account {
        capacity: Capacity::from_whole(70),
        until: fleet.now.saturating_add(Duration::from_secs(5)),
    };
    let (kept, account) = fleet.get("b", Some(claim), 90);
    assert_eq!(kept, 70, "b keeps what it uses anyway");
    assert!(account.until <= claim.until, "and no longer: {account:?}");
    assert!(fleet.sum_has() <= 100);
}
