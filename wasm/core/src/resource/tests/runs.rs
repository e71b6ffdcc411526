//! Clients that start again under their id while requests of the run before are on their way.

use core::num::NonZeroU64;
use std::vec::Vec;

use super::*;
use crate::lease::Claim;
use crate::limit::Part;

fn incarnation(id: &str, number: u64) -> ClientRun {
    let number = NonZeroU64::new(number).unwrap();
    run(id, Run::Incarnation(number))
}

fn run(id: &str, run: Run) -> ClientRun {
    let id = ClientId::new(id).unwrap();
    ClientRun { id, run }
}

impl Fleet {
    /// A resource of whose capacity nothing is lent as headroom.
    fn lean() -> Self {
        let mut fleet = Self::new(LEARNED);
        fleet.limit.headroom = Part::NONE;
        fleet
    }

    /// The answer to `client`, one minimum interval after the request before.
    fn say(
        &mut self,
        client: &ClientRun,
        sequence: u64,
        (has, wants): (u64, u64),
    ) -> Result<u64, RefreshError> {
        let (has, wants) = (Capacity::from_whole(has), Capacity::from_whole(wants));
        let request = LeaseRequest::new(sequence, has, wants);
        self.send(client, &request)
    }

    fn send(&mut self, client: &ClientRun, request: &LeaseRequest) -> Result<u64, RefreshError> {
        self.now = self.now.saturating_add(self.limit.min_refresh);
        let limit = self.limit.clone();
        let resource = &mut self.resource;
        let answer = refresh(resource, self.now, client, request, (&limit, 10));
        answer.map(|answer| gets(&answer))
    }

    fn has(&self, client: &ClientRun) -> u64 {
        let mut records = self.resource.clients();
        let record = records.find(|record| (record.id, record.run) == (&client.id, client.run));
        record.map_or(0, |record| record.has.as_micros() / 1_000_000)
    }
}

/// The answer that lowers the lease of the new run is lost, and then the old run's request comes, of
/// a higher sequence and from before it had anything.
#[test]
fn a_late_request_of_a_dead_run_acknowledges_nothing_of_the_next_one() {
    let mut fleet = Fleet::lean();
    let (dead, living, other) = (
        incarnation("a", 1),
        incarnation("a", 2),
        incarnation("b", 1),
    );
    assert_eq!(fleet.say(&living, 5, (0, 1000)), Ok(1000));
    assert_eq!(fleet.say(&other, 1, (0, 1000)), Ok(0));
    assert_eq!(fleet.say(&living, 6, (1000, 1000)), Ok(500), "is lost");
    let _ = fleet.say(&dead, 900, (0, 1000));
    assert_eq!(fleet.has(&living), 1000, "it may be using that");
    assert_eq!(fleet.say(&other, 2, (0, 1000)), Ok(0));
    fleet.resource.handle_release(&dead, u64::MAX);
    assert_eq!(fleet.has(&living), 1000);
    assert_eq!(fleet.say(&other, 3, (0, 1000)), Ok(0));
    assert_eq!(fleet.say(&living, 7, (500, 1000)), Ok(500), "it says so");
    assert_eq!(fleet.say(&other, 4, (0, 1000)), Ok(500));
}

/// One entry that remembered the latest incarnation, and acknowledged nothing where that changes,
/// would take the second late request of the living run for an acknowledgement.
#[test]
fn late_requests_of_two_runs_by_turns_acknowledge_nothing() {
    let mut fleet = Fleet::lean();
    let (dead, living) = (incarnation("a", 1), incarnation("a", 2));
    assert_eq!(fleet.say(&living, 7, (0, 1000)), Ok(1000));
    assert_eq!(fleet.say(&living, 8, (1000, 400)), Ok(400), "is lost");
    let _ = fleet.say(&dead, 900, (0, 1000));
    // Both were sent before the first answer.
    for late in [5, 6] {
        let stale = RefreshError::Stale {
            asked: late,
            seen: 8,
        };
        assert_eq!(fleet.say(&living, late, (0, 1000)), Err(stale));
        let _ = fleet.say(&dead, 900 + late, (0, 1000));
    }
    assert_eq!(fleet.has(&living), 1000);
}

#[test]
fn what_a_dead_run_had_is_counted_until_it_expires() {
    let mut fleet = Fleet::lean();
    let (dead, living) = (incarnation("a", 2), incarnation("a", 1));
    assert_eq!(fleet.say(&dead, 900, (0, 600)), Ok(600));
    let expiry = fleet.now.saturating_add(fleet.limit.lease);
    assert_eq!(fleet.say(&living, 1, (0, 1000)), Ok(400));
    assert_eq!((fleet.has(&dead), fleet.sum_has()), (600, 1000));
    fleet.now = expiry;
    assert_eq!(fleet.say(&living, 2, (400, 1000)), Ok(1000));
    assert_eq!(fleet.resource.client_count(), 1);
}

/// An entry for each run, and no more of them than of clients.
#[test]
fn runs_are_bounded_as_clients_are() {
    let mut fleet = Fleet::lean();
    for number in 1..=10 {
        assert!(fleet.say(&incarnation("a", number), 1, (0, 10)).is_ok());
    }
    let refused = fleet.say(&incarnation("a", 11), 1, (0, 10));
    assert_eq!(refused, Err(RefreshError::TooManyClients { max: 10 }));
    let mut runs = fleet.resource.clients();
    assert!(runs.all(|record| record.id.as_str() == "a"));
}

#[test]
fn a_client_without_runs_is_another_than_one_with_them() {
    let mut fleet = Fleet::lean();
    let clients = [
        run("a", Run::Only),
        incarnation("a", 1),
        run("a", Run::Term(Epoch(1))),
    ];
    for client in &clients {
        assert_eq!(fleet.say(client, 1, (0, 100)), Ok(100));
    }
    assert_eq!(fleet.sum_has(), 300);
    let runs: Vec<_> = fleet.resource.clients().map(|record| record.run).collect();
    assert_eq!(runs, clients.map(|client| client.run));
}

#[test]
fn a_later_term_takes_over_and_nothing_of_an_earlier_one_counts() {
    let mut fleet = Fleet::lean();
    let term = |term| run("leaf/0", Run::Term(Epoch(term)));
    let (dead, living, other) = (term(3), term(4), incarnation("b", 1));
    assert_eq!(fleet.say(&dead, 900, (0, 1000)), Ok(1000));
    // It has started without a lease table, and its sequences from below.
    let first = LeaseRequest {
        claim: Claim::AtLeast,
        ..LeaseRequest::new(1, Capacity::ZERO, Capacity::from_whole(1000))
    };
    assert_eq!(fleet.send(&living, &first), Ok(1000), "as one client");
    assert_eq!(fleet.say(&other, 1, (0, 1000)), Ok(0));
    assert_eq!(fleet.say(&living, 2, (1000, 1000)), Ok(500), "is lost");
    let earlier = RefreshError::EarlierTerm {
        asked: Epoch(3),
        seen: Epoch(4),
    };
    assert_eq!(fleet.say(&dead, 901, (0, 1000)), Err(earlier));
    fleet.resource.handle_release(&dead, u64::MAX);
    assert_eq!(fleet.has(&living), 1000);
    assert_eq!(fleet.say(&living, 3, (500, 1000)), Ok(500));
    assert_eq!(fleet.has(&living), 500);
    // A release of a later run is as good as one of the same.
    fleet.resource.handle_release(&term(5), 0);
    assert_eq!(fleet.has(&living), 0);
}
