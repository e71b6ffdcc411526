//! Claims while learning, true ones and lies.

use super::*;
use crate::lease::LeaseTerms;
use crate::units::Tokens;

/// When learning begins, which takes ten seconds; claims are collected for two and a half.
const BEGIN: u64 = 1000;
const COLLECTED: u64 = BEGIN + 2500;
/// Until when, with two refresh intervals, what was only said counts.
const COUNTED: u64 = COLLECTED + 2000;

/// Clients that come back to a coordinator of 1000 that has lost its lease table.
struct Restart {
    fleet: Fleet,
    sequence: u64,
}

/// A client that keeps to the protocol, and uses what it has until that ends.
struct Honest {
    name: &'static str,
    wants: u64,
    has: u64,
    until: Instant,
}

impl Restart {
    fn new() -> Self {
        let mut fleet = Fleet::new(at(BEGIN + 10_000));
        fleet.limit.headroom = crate::limit::Part::NONE;
        Self { fleet, sequence: 0 }
    }

    /// The lease that `client` is answered at `ms` when it says that it has `has` for `left_ms`.
    fn ask(&mut self, ms: u64, client: &str, has: u64, left_ms: u64, wants: u64) -> LeaseTerms {
        self.sequence += 1;
        self.fleet.now = at(ms);
        let request = LeaseRequest {
            remaining: Some(Duration::from_millis(left_ms)),
            ..LeaseRequest::new(
                self.sequence,
                Capacity::from_whole(has),
                Capacity::from_whole(wants),
            )
        };
        let client = ClientRun::only(ClientId::new(client).unwrap());
        let limit = self.fleet.limit.clone();
        let resource = &mut self.fleet.resource;
        let answer = refresh(resource, at(ms), &client, &request, (&limit, 10));
        assert!(self.fleet.sum_has() <= CAPACITY, "at {ms}");
        answer.unwrap().lease.unwrap_or(LeaseTerms {
            capacity: Capacity::ZERO,
            burst: Tokens::ZERO,
            duration: Duration::ZERO,
            fingerprint: 0,
        })
    }

    /// Lets `client` refresh at `ms`; it must have its whole lease still.
    fn refresh(&mut self, ms: u64, client: &mut Honest) {
        assert!(
            client.until > at(ms),
            "{}: expired before {ms}",
            client.name
        );
        let left = client.until.saturating_since(at(ms)).as_millis() as u64;
        let lease = self.ask(ms, client.name, client.has, left, client.wants);
        assert_eq!(
            lease.capacity,
            Capacity::from_whole(client.has),
            "{} at {ms}",
            client.name
        );
        client.until = at(ms).saturating_add(lease.duration);
    }
}

fn honest() -> [Honest; 2] {
    let until = at(BEGIN + 7000);
    [("a", 100), ("b", 200)].map(|(name, has)| Honest {
        name,
        wants: has,
        has,
        until,
    })
}

#[test]
fn a_lone_client_with_the_whole_capacity_keeps_it() {
    for left in [300, 2000, 7000] {
        let mut restart = Restart::new();
        let mut client = Honest {
            name: "a",
            wants: 1500,
            has: CAPACITY,
            until: at(BEGIN + left),
        };
        for ms in (BEGIN..BEGIN + 10_000).step_by(200) {
            restart.refresh(ms, &mut client);
            let counted = restart.fleet.sum_has();
            assert_eq!(counted, CAPACITY, "at {ms}");
        }
    }
}

#[test]
fn who_claims_everything_first_does_not_take_the_leases_of_others() {
    // How long it says that it has it, whether it comes again, and whether it obeys.
    for (left, again, obeys) in [
        (10_000, true, true),
        (10_000, true, false),
        (10_000, false, false),
        (1, true, true),
        (1, true, false),
        (1, false, false),
    ] {
        let row = std::format!("{left} {again} {obeys}");
        let mut restart = Restart::new();
        let mut honest = honest();
        let huge = 1_000_000_000_000;
        let mut claimed = huge;
        for ms in (BEGIN..BEGIN + 10_000).step_by(500) {
            if again || ms == BEGIN {
                let lie = restart.ask(ms, "liar", claimed, left, huge);
                let most = if ms < COLLECTED { CAPACITY } else { 700 };
                assert!(lie.capacity <= Capacity::from_whole(most), "{row} at {ms}");
                if obeys && ms >= COLLECTED {
                    claimed = lie.capacity.as_micros() / 1_000_000;
                }
            }
            for client in &mut honest {
                restart.refresh(ms + 100, client);
                // At the latest then its lease is renewed as ever.
                let renewed =
                    client.until == at(ms + 100).saturating_add(restart.fleet.limit.lease);
                assert!(
                    renewed || ms + 100 < COUNTED,
                    "{row}: {} at {ms}",
                    client.name
                );
            }
        }
    }
}

#[test]
fn a_late_liar_gets_what_others_leave() {
    let mut restart = Restart::new();
    let mut honest = honest();
    for ms in (BEGIN..BEGIN + 10_000).step_by(500) {
        for client in &mut honest {
            restart.refresh(ms, client);
        }
        if ms > COLLECTED {
            restart.ask(ms + 10, "liar", 1_000_000, 10_000, 1_000_000);
        }
    }
}

#[test]
fn claims_that_do_not_fit_are_cut_to_shares_only_when_all_have_been_heard() {
    let mut restart = Restart::new();
    let until = at(BEGIN + 9000);
    let mut busy = Honest {
        name: "busy",
        wants: 900,
        has: 900,
        until,
    };
    for ms in [BEGIN, BEGIN + 1000, BEGIN + 2000] {
        restart.refresh(ms, &mut busy);
        restart.ask(ms, "liar", 900, 9000, 900);
    }
    // Nobody can tell who of the two lies.
    let now = COLLECTED + 100;
    let left = until.saturating_since(at(now)).as_millis() as u64;
    let got = restart.ask(now, "busy", 900, left, 900).capacity;
    assert_eq!(got, Capacity::from_whole(500));
    let got = restart.ask(now + 10, "liar", 900, left, 900).capacity;
    assert_eq!(got, Capacity::from_whole(500));
}

#[test]
fn a_repeated_request_is_told_again_to_keep_a_claim_that_does_not_fit() {
    let mut restart = Restart::new();
    restart.ask(BEGIN, "liar", CAPACITY, 9000, CAPACITY);
    // All is claimed, so what it has is not counted, but used for as long as it lasts.
    let first = restart.ask(BEGIN + 100, "a", 100, 5000, 100);
    assert_eq!(first.capacity, Capacity::from_whole(100));
    assert_eq!(restart.fleet.sum_has(), CAPACITY);
    for later in [0, 200, 4000] {
        restart.sequence -= 1;
        let again = restart.ask(BEGIN + 100 + later, "a", 100, 5000, 100);
        assert_eq!(again.capacity, first.capacity, "after {later} ms");
        let left = first.duration - Duration::from_millis(later);
        assert_eq!(again.duration, left, "after {later} ms");
    }
    restart.sequence -= 1;
    let over = restart.ask(BEGIN + 5100, "a", 100, 5000, 100);
    assert_eq!(over.capacity, Capacity::ZERO);
}

#[test]
fn nothing_that_is_only_said_outlives_the_learning() {
    let mut restart = Restart::new();
    let end = BEGIN + 10_000;
    let lease = restart.ask(end - 100, "liar", CAPACITY, 10_000, 0);
    assert_eq!(lease.capacity, Capacity::ZERO, "it wants nothing");
    let lie = restart.ask(end - 50, "other", CAPACITY, 10_000, CAPACITY);
    assert!(lie.duration <= Duration::from_secs(10));
    restart.fleet.resource.expire(at(end));
    let first = restart.ask(end + 100, "a", 0, 0, 100);
    assert!(first.capacity <= Capacity::from_whole(100));
}

#[test]
fn wants_that_sway_lose_nothing_while_learning() {
    let mut restart = Restart::new();
    restart.fleet.limit.headroom = crate::limit::Part::ALL;
    for (ms, wants) in [(0, 12), (1000, 5), (2000, 9), (3000, 14)] {
        let lease = restart.ask(BEGIN + ms, "a", 20, 5000, wants);
        assert_eq!(lease.capacity, Capacity::from_whole(20), "it wants {wants}");
    }
}

/// A capacity was lowered, and the coordinator has started twice: what was lent before ends when it
/// would have ended, however late the requests are that speak of it.
#[test]
fn a_claim_of_before_a_lowered_capacity_ends_when_its_client_says() {
    let mut restart = Restart::new();
    let mut of_before = |ms, sequence, left_ms| {
        let request = LeaseRequest {
            remaining: Some(Duration::from_millis(left_ms)),
            // Twice what there is today.
            fingerprint: Capacity::from_whole(2 * CAPACITY).as_micros() + 2,
            ..LeaseRequest::new(
                sequence,
                Capacity::from_whole(2 * CAPACITY),
                Capacity::from_whole(2 * CAPACITY),
            )
        };
        let client = ClientRun::only(ClientId::new("a").unwrap());
        let Fleet {
            resource, limit, ..
        } = &mut restart.fleet;
        let limit = limit.clone();
        let answer = refresh(resource, at(ms), &client, &request, (&limit, 10));
        answer.unwrap().lease.unwrap().duration
    };
    // The first was 290 ms on its way, the others less, so that the table would let it last longer.
    assert_eq!(
        of_before(COLLECTED + 290, 1, 1538),
        Duration::from_millis(1538)
    );
    assert_eq!(
        of_before(COLLECTED + 300, 2, 1238),
        Duration::from_millis(1238)
    );
    assert_eq!(
        of_before(COLLECTED + 600, 3, 938),
        Duration::from_millis(938)
    );
}
