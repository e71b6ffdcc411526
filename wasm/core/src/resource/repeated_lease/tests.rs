use super::*;
use crate::lease::{Answer, ClientId, Unit};
use crate::limit::{Limit, Part};
use crate::resource::tests::refresh;

const LEARNED: Instant = Instant::ZERO;

/// Doorman's clients of a resource of 100 without headroom.
struct Fleet {
    resource: Resource,
    limit: Limit,
    now: Instant,
}

impl Fleet {
    fn new(learning_until: Instant) -> Self {
        let mut limit = Limit::new(Capacity::from_whole(100));
        limit.headroom = Part::NONE;
        Self {
            resource: Resource::new(Unit::Requests, limit.clone(), learning_until),
            limit,
            now: Instant::ZERO.saturating_add(Duration::from_secs(100)),
        }
    }

    /// What `client` is answered a second after the request before, and what it then says of it:
    /// the lease until the whole second before its end.
    fn get(
        &mut self,
        client: &str,
        repeated: Option<ClientStatement>,
        wants: u64,
    ) -> (u64, ClientStatement) {
        self.now = self.now.saturating_add(Duration::from_secs(1));
        let client = ClientRun::only(ClientId::new(client).unwrap());
        let demand = Demand::of(Capacity::from_whole(wants));
        let repeated = repeated.map(|said| RepeatedLease {
            capacity: said.capacity,
            remaining: said.until.saturating_since(self.now),
        });
        let request = self.resource.ask_of(self.now, &client, repeated, demand);
        let answer = refresh(
            &mut self.resource,
            self.now,
            &client,
            &request,
            (&self.limit, 10),
        );
        let said = ClientStatement::of(self.now, &answer.unwrap());
        (said.capacity.as_micros() / 1_000_000, said)
    }

    fn sum_has(&self) -> u64 {
        u64::try_from(self.resource.sum_has()).unwrap() / 1_000_000
    }
}

/// A lease by the account of its client.
#[derive(Clone, Copy, Debug)]
struct ClientStatement {
    capacity: Capacity,
    until: Instant,
}

impl ClientStatement {
    fn of(now: Instant, answer: &Answer) -> Self {
        let lease = answer.lease.unwrap();
        let until = now.saturating_add(lease.duration.saturating_sub(Duration::from_millis(900)));
        let capacity = lease.capacity;
        Self { capacity, until }
    }
}

#[test]
fn who_says_its_last_lease_has_acknowledged_it() {
    let mut fleet = Fleet::new(LEARNED);
    let (_, a) = fleet.get("a", None, 100);
    assert_eq!(fleet.get("b", None, 100).0, 0, "a has it all");
    let (shrunk, a) = fleet.get("a", Some(a), 100);
    assert_eq!(
        (shrunk, fleet.sum_has()),
        (50, 100),
        "the answer may be lost"
    );
    assert_eq!(fleet.get("a", Some(a), 100).0, 50);
    assert_eq!(fleet.sum_has(), 50);
    assert_eq!(fleet.get("b", None, 100).0, 50);
}

#[test]
fn a_late_request_frees_nothing_that_is_in_use() {
    let mut fleet = Fleet::new(LEARNED);
    let (_, old) = fleet.get("a", None, 10);
    let (_, new) = fleet.get("a", Some(old), 80);
    assert_eq!(new.capacity, Capacity::from_whole(80));
    // Sent before the 80 were answered, and delayed; its answer reaches nobody.
    fleet.get("a", Some(old), 5);
    assert_eq!(fleet.sum_has(), 80);
    assert_eq!(fleet.get("b", None, 100).0, 20);
}

#[test]
fn a_lost_answer_is_given_again() {
    let mut fleet = Fleet::new(LEARNED);
    let (_, a) = fleet.get("a", None, 100);
    fleet.get("b", None, 100);
    assert_eq!(fleet.get("a", Some(a), 100).0, 50, "lost");
    let (again, a) = fleet.get("a", Some(a), 100);
    assert_eq!((again, fleet.sum_has()), (50, 100));
    fleet.get("a", Some(a), 100);
    assert_eq!(fleet.sum_has(), 50);
}

#[test]
fn who_never_says_what_it_has_shrinks_one_lease_later() {
    let mut fleet = Fleet::new(LEARNED);
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
    let mut fleet = Fleet::new(Instant::ZERO.saturating_add(Duration::from_secs(200)));
    let said = ClientStatement {
        capacity: Capacity::from_whole(70),
        until: fleet.now.saturating_add(Duration::from_secs(5)),
    };
    let (confirmed, said) = fleet.get("a", Some(said), 90);
    assert_eq!(confirmed, 70);
    assert_eq!(fleet.get("a", Some(said), 90).0, 70);
    let claim = ClientStatement {
        capacity: Capacity::from_whole(70),
        until: fleet.now.saturating_add(Duration::from_secs(5)),
    };
    let (kept, said) = fleet.get("b", Some(claim), 90);
    assert_eq!(kept, 70, "b keeps what it uses anyway");
    assert!(said.until <= claim.until, "and no longer: {said:?}");
    assert!(fleet.sum_has() <= 100);
}
