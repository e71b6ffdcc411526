//! Masters that learn for less than a lease, and what is lent meanwhile.

use super::*;

#[test]
fn a_time_without_a_master_counts_as_learning_but_for_a_tenth() {
    for (vacant, learned) in [
        (0, secs(110)),
        (5, Instant::from_nanos(105_500_000_000)),
        (10, secs(101)),
        (11, Instant::from_nanos(100_100_000_000)),
        (12, secs(100)),
        (1000, secs(100)),
    ] {
        let since = secs(100).saturating_sub(Duration::from_secs(vacant));
        let start = Start::Vacant { since };
        let mut node = LeaseServer::new(secs(100), Epoch(1), BOUNDS, start);
        refresh(&mut node, secs(100), "tenant/a").unwrap();
        let resource = ResourceId::new("tenant/a", Unit::Requests).unwrap();
        let until = node.resource(&resource).unwrap().learning_until();
        assert_eq!(until, learned, "{vacant}");
        // Its successor goes on so.
        let snapshot = node.hand_over(secs(100));
        let mut node = LeaseServer::take_over(secs(200), Epoch(2), BOUNDS, &snapshot).unwrap();
        refresh(&mut node, secs(200), "tenant/b").unwrap();
        let resource = ResourceId::new("tenant/b", Unit::Requests).unwrap();
        let until = node.resource(&resource).unwrap().learning_until();
        assert_eq!(
            until.saturating_since(secs(200)),
            learned.saturating_since(secs(100))
        );
    }
}

/// A master that has lost its lease table, at the 20th second of its learning, and two clients that
/// have 60 and 40 of 100.
struct Restart {
    world: World,
    a: Claim,
    b: Claim,
}

/// A lease of a client, as it has it.
#[derive(Clone, Copy)]
struct Claim {
    name: &'static str,
    lease: LeaseTerms,
}

impl Restart {
    fn new() -> Self {
        let mut limit = Limit::new(Capacity::from_whole(100));
        limit.lease = Duration::from_secs(60);
        limit.learning = limit.lease;
        let claim = |name, has| Claim {
            name,
            lease: lease(has, basis_of(100)),
        };
        Self {
            world: World::restarted(secs(100), &limit),
            a: claim("a", 60),
            b: claim("b", 40),
        }
    }

    /// Lease for a client that has `claim` for half a minute and wants so much.
    fn ask(&mut self, now: u64, claim: Claim, wants: u64) -> LeaseTerms {
        let answer =
            self.world
                .ask_for(secs(now), claim.name, (claim.lease, secs(now + 30)), wants);
        let lent = self.world.node.resources().next().unwrap().1.sum_has();
        assert!(lent <= 100_000_000, "{lent} at {now}");
        answer.lease.unwrap()
    }

    fn gets(&mut self, now: u64, claim: Claim, wants: u64) -> u64 {
        self.ask(now, claim, wants).capacity.as_micros() / 1_000_000
    }
}

#[test]
fn capacity_given_back_while_learning_is_lent_once_that_is_acknowledged() {
    let mut restart = Restart::new();
    let Restart { a, b, .. } = restart;
    assert_eq!(restart.gets(120, b, 1000), 40);
    let lowered = restart.ask(121, a, 20);
    assert_eq!(lowered.capacity, Capacity::from_whole(20));
    assert_ne!(lowered.fingerprint, a.lease.fingerprint, "a receipt");
    assert_eq!(restart.gets(122, b, 1000), 40, "the answer may be lost");
    let a = Claim {
        lease: lowered,
        ..a
    };
    let again = restart.ask(123, a, 20);
    assert_eq!(again.capacity, Capacity::from_whole(20));
    assert_eq!(again.fingerprint, basis_of(100), "as before");
    assert_eq!(restart.gets(124, b, 1000), 80);
    let b = Claim {
        lease: lease(80, basis_of(100)),
        ..b
    };
    assert_eq!(restart.gets(125, b, 1000), 80, "once");
}

#[test]
fn only_a_receipt_proves_that_a_client_has_given_back() {
    let mut restart = Restart::new();
    let Restart { a, b, .. } = restart;
    restart.ask(120, b, 1000);
    restart.ask(121, a, 20);
    // It had no more than 20 of the last master already, and its first request came late.
    let a = Claim {
        lease: lease(20, basis_of(100)),
        ..a
    };
    assert_eq!(restart.gets(123, a, 20), 20);
    assert_eq!(restart.gets(124, b, 1000), 40);
}

#[test]
fn nothing_is_lent_of_what_was_given_back_before_all_claims_can_have_been_heard() {
    let mut restart = Restart::new();
    let Restart { a, b, .. } = restart;
    let lowered = restart.ask(101, a, 20);
    restart.ask(
        102,
        Claim {
            lease: lowered,
            ..a
        },
        20,
    );
    assert_eq!(restart.gets(103, b, 1000), 40);
    assert_eq!(restart.gets(114, b, 1000), 40);
    assert_eq!(restart.gets(115, b, 1000), 80);
}

#[test]
fn nothing_is_lent_of_what_was_given_back_under_other_limits() {
    for capacity in [90, 110] {
        let mut restart = Restart::new();
        let Restart { a, b, .. } = restart;
        let b = Claim {
            lease: lease(30, b.lease.fingerprint),
            ..b
        };
        restart.ask(120, b, 1000);
        let lowered = restart.ask(121, a, 20);
        restart.ask(
            122,
            Claim {
                lease: lowered,
                ..a
            },
            20,
        );
        restart.world.limit.capacity = Capacity::from_whole(capacity);
        assert_eq!(restart.gets(123, b, 1000), 30, "{capacity}");
    }
}
