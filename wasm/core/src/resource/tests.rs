use super::*;
use core::time::Duration;

mod band_draws;
mod by_usage;
mod costs;
mod debts;
mod doorman;
mod draws;
mod knobs;
mod learning;
mod lease_tokens;
mod permits;
mod refunds;
mod runs;
mod silence;
mod standby;
mod throttled;

const CAPACITY: u64 = 1000;
const LEARNED: Instant = Instant::ZERO;

struct Fleet {
    resource: Resource,
    limit: Limit,
    now: Instant,
    sequence: u64,
}

impl Fleet {
    fn new(learning_until: Instant) -> Self {
        Self::of(Unit::Requests, learning_until)
    }

    fn of(unit: Unit, learning_until: Instant) -> Self {
        let limit = Limit::new(Capacity::from_whole(CAPACITY));
        let resource = Resource::new(unit, limit.clone(), learning_until);
        Self {
            resource,
            limit,
            now: at(1000),
            sequence: 0,
        }
    }

    /// A refresh with the next sequence, one minimum interval after the one before.
    fn refresh(&mut self, client: &str, has: u64, wants: u64) -> Answer {
        self.now = self.now.saturating_add(self.limit.min_refresh);
        self.sequence += 1;
        self.ask(client, self.sequence, has, wants).unwrap()
    }

    fn ask(
        &mut self,
        client: &str,
        sequence: u64,
        has: u64,
        wants: u64,
    ) -> Result<Answer, RefreshError> {
        let (has, wants) = (Capacity::from_whole(has), Capacity::from_whole(wants));
        let request = LeaseRequest::new(sequence, has, wants);
        let client = ClientRun::only(ClientId::new(client).unwrap());
        refresh(
            &mut self.resource,
            self.now,
            &client,
            &request,
            (&self.limit, 3),
        )
    }

    fn sum_has(&self) -> u64 {
        let sum: u128 = self
            .resource
            .clients()
            .map(|c| u128::from(c.has.as_micros()))
            .sum();
        assert_eq!(sum, self.resource.sum_has());
        u64::try_from(sum).unwrap() / 1_000_000
    }
}

/// The answer to `request` of `client` for a resource in no pool.
pub(super) fn refresh(
    resource: &mut Resource,
    now: Instant,
    client: &ClientRun,
    request: &LeaseRequest,
    (limit, clients_max): (&Limit, usize),
) -> Result<Answer, RefreshError> {
    resource.allocation.set_limit(Instant::ZERO, limit);
    resource.handle_refresh(now, client, request, clients_max, &mut PoolLink(None))
}

fn at(ms: u64) -> Instant {
    Instant::ZERO.saturating_add(Duration::from_millis(ms))
}

fn gets(answer: &Answer) -> u64 {
    answer.lease.expect("a lease").capacity.as_micros() / 1_000_000
}

#[test]
fn a_shift_of_demand_follows_acknowledgements() {
    // Client, has and wants; gets; told to come back after ms; sum in the lease table.
    let rows = [
        ("a", 0, 700, 850, 1000, 850), // half of the 300 that nobody wants goes on top
        ("b", 0, 700, 150, 100, 1000), // entitled to 500, but only 150 are free
        ("a", 850, 700, 500, 100, 1000), // told to shrink; 850 still count
        ("b", 150, 700, 150, 100, 1000), // so there is nothing for b yet
        ("a", 500, 700, 500, 1000, 650), // a confirms
        ("b", 150, 700, 500, 1000, 1000),
        ("b", 500, 100, 150, 100, 1000), // 100, and half of half the spare 200; 500 still count
        ("b", 150, 100, 150, 1000, 650),
    ];
    let mut fleet = Fleet::new(LEARNED);
    for (row, (client, has, wants, want_gets, want_refresh, want_sum)) in
        rows.into_iter().enumerate()
    {
        let answer = fleet.refresh(client, has, wants);
        let refresh = answer.refresh_interval.as_millis();
        assert_eq!(
            (gets(&answer), refresh, fleet.sum_has()),
            (want_gets, want_refresh, want_sum),
            "row {row}"
        );
    }
}

/// Should the coordinator be out of reach right then, it must not be at nothing for a whole lease.
#[test]
fn who_waits_for_its_part_has_nothing_for_two_refreshes_and_whom_a_limit_blocks_for_a_lease() {
    // The capacity, what another has of it; how long nothing is lent.
    let rows = [(CAPACITY, CAPACITY, 2_000), (0, 0, 10_000)];
    for (capacity, lent, want_ms) in rows {
        let mut fleet = Fleet::new(LEARNED);
        fleet.limit.capacity = Capacity::from_whole(capacity);
        assert_eq!(gets(&fleet.refresh("a", 0, 1000)), lent);
        let lease = fleet.refresh("b", 0, 1000).lease.unwrap();
        assert_eq!(lease.capacity, Capacity::ZERO);
        assert_eq!(lease.duration.as_millis(), want_ms, "of {capacity}");
    }
}

#[test]
fn a_lost_answer_keeps_the_larger_lease_in_the_books_until_it_expires() {
    let mut fleet = Fleet::new(LEARNED);
    fleet.limit.headroom = crate::limit::Part::NONE;
    fleet.refresh("a", 0, 1000);
    let granted_at = fleet.now;
    assert_eq!(gets(&fleet.refresh("a", 1000, 100)), 100);
    fleet.now = granted_at.saturating_add(fleet.limit.lease - Duration::from_millis(200));
    assert_eq!(
        gets(&fleet.refresh("b", 0, 1000)),
        0,
        "the answer to a may be lost"
    );
    assert_eq!(
        fleet.now,
        granted_at.saturating_add(fleet.limit.lease - Duration::from_millis(100))
    );
    assert_eq!(
        gets(&fleet.refresh("b", 0, 1000)),
        900,
        "a's first lease has expired"
    );
}

/// Its end is not that of the larger lease of before, which the client has given back.
#[test]
fn a_lease_that_is_kept_for_a_lowered_capacity_ends_when_it_would_have_ended() {
    let mut fleet = Fleet::new(LEARNED);
    fleet.limit.headroom = crate::limit::Part::NONE;
    fleet.limit.refresh = Duration::from_secs(4);
    fleet.refresh("a", 0, 600);
    fleet.refresh("b", 0, 400);
    fleet.now = fleet.now.saturating_add(Duration::from_secs(5));
    assert_eq!(gets(&fleet.refresh("a", 600, 400)), 400);
    fleet.limit.capacity = Capacity::from_whole(500);
    let lease = fleet.refresh("a", 400, 400).lease.unwrap();
    assert_eq!(lease.capacity, Capacity::from_whole(250));
    assert_eq!(lease.duration, Duration::from_millis(9900));
}

#[test]
fn an_older_request_is_stale_and_the_same_one_is_answered_alike() {
    let mut fleet = Fleet::new(LEARNED);
    fleet.now = at(5000);
    let first = fleet.ask("a", 7, 0, 100).unwrap();
    assert_eq!(
        fleet.ask("a", 6, 0, 999),
        Err(RefreshError::Stale { asked: 6, seen: 7 })
    );
    fleet.now = at(8000);
    let again = fleet.ask("a", 7, 0, 100).unwrap();
    let (first, again) = (first.lease.unwrap(), again.lease.unwrap());
    assert_eq!(again.capacity, first.capacity);
    assert_eq!(again.duration, first.duration - Duration::from_secs(3));
}

#[test]
fn a_request_before_the_minimum_interval_gets_its_current_lease_back() {
    let mut fleet = Fleet::new(LEARNED);
    assert_eq!(gets(&fleet.refresh("a", 0, 100)), 550);
    fleet.now = fleet.now.saturating_add(Duration::from_millis(40));
    let early = fleet.ask("a", 99, 550, 900).unwrap();
    assert_eq!(gets(&early), 550);
    assert_eq!(early.refresh_interval, Duration::from_millis(60));
    // Its wants are known already.
    assert_eq!(fleet.resource.sum_wants(), 900_000_000);
}

#[test]
fn learning_confirms_claims_up_to_the_capacity_and_lends_nothing() {
    let mut fleet = Fleet::new(at(8000));
    // Claims have been collected for a quarter of the time.
    fleet.now = at(2000);
    assert_eq!(gets(&fleet.refresh("a", 700, 900)), 700);
    assert_eq!(fleet.refresh("b", 0, 500).lease, None, "no claim, no lease");
    assert_eq!(
        gets(&fleet.refresh("c", 400, 500)),
        333,
        "it keeps its share of what it has"
    );
    assert_eq!(fleet.sum_has(), 1000, "no more than the capacity counts");
    fleet.now = at(7000);
    fleet.refresh("b", 0, 500);
    fleet.refresh("c", 333, 500);
    fleet.now = at(8000);
    assert_eq!(gets(&fleet.refresh("a", 700, 900)), 333, "a third each");
    assert_eq!(
        gets(&fleet.refresh("b", 0, 500)),
        0,
        "until a has confirmed"
    );
}

#[test]
fn a_capacity_lowered_while_learning_is_not_exceeded_by_what_is_confirmed() {
    let mut fleet = Fleet::new(at(8000));
    assert_eq!(gets(&fleet.refresh("a", 700, 900)), 700);
    fleet.limit.capacity = Capacity::from_whole(100);
    let lowered = fleet.refresh("a", 700, 900);
    assert_eq!(gets(&lowered), 100);
    assert_eq!(
        lowered.refresh_interval, fleet.limit.min_refresh,
        "to confirm"
    );
}

#[test]
fn a_claim_after_learning_is_void() {
    let mut fleet = Fleet::new(LEARNED);
    fleet.refresh("a", 0, 1000);
    assert_eq!(gets(&fleet.refresh("b", 1000, 1000)), 0);
    assert_eq!(fleet.sum_has(), CAPACITY);

    let mut fleet = Fleet::new(LEARNED);
    fleet.limit.headroom = crate::limit::Part::NONE;
    assert_eq!(gets(&fleet.refresh("a", 500, 10)), 10);
    assert_eq!(
        fleet.sum_has(),
        10,
        "nothing is kept for what a does not have"
    );
}

#[test]
fn release_and_expiry_empty_the_books() {
    let mut fleet = Fleet::new(LEARNED);
    fleet.refresh("a", 0, 100);
    fleet.refresh("b", 0, 100);
    let a = ClientRun::only(ClientId::new("a").unwrap());
    let b = ClientId::new("b").unwrap();
    fleet.resource.handle_release(&a, 0);
    assert_eq!(
        fleet.resource.client_count(),
        2,
        "a release from before the last refresh"
    );
    fleet.resource.handle_release(&a, 2);
    assert_eq!(
        fleet
            .resource
            .clients()
            .map(|c| c.id.clone())
            .collect::<Vec<_>>(),
        [b]
    );
    let expiry = fleet.resource.poll_timeout().unwrap();
    assert_eq!(expiry, fleet.now.saturating_add(fleet.limit.lease));
    fleet.resource.expire(expiry);
    assert_eq!((fleet.sum_has(), fleet.resource.sum_wants()), (0, 0));
    assert_eq!(fleet.resource.poll_timeout(), None);
}

#[test]
fn a_lowered_capacity_shrinks_leases_and_never_goes_negative() {
    let mut fleet = Fleet::new(LEARNED);
    fleet.refresh("a", 0, 600);
    fleet.refresh("b", 0, 400);
    let expiry = fleet.resource.poll_timeout().unwrap();
    fleet.limit.capacity = Capacity::from_whole(300);
    let a = fleet.refresh("a", 800, 600);
    assert_eq!(gets(&a), 150, "b has 200, but a keeps its share of the 300");
    let left = expiry.saturating_since(fleet.now);
    assert_eq!(a.lease.unwrap().duration, left, "it is not prolonged");
    assert_eq!(gets(&fleet.refresh("b", 200, 400)), 150);
    assert_eq!(fleet.sum_has(), 1000, "neither has confirmed");
    let a = fleet.refresh("a", 150, 600);
    assert!(a.lease.unwrap().duration < left, "b may still have 200");
    for client in ["b", "a"] {
        let answer = fleet.refresh(client, 150, 600);
        assert_eq!(gets(&answer), 150);
        assert_eq!(answer.lease.unwrap().duration, fleet.limit.lease);
    }
    assert_eq!(fleet.sum_has(), 300);
}

#[test]
fn what_is_above_a_lowered_capacity_ends_with_the_leases_that_were_out() {
    let mut fleet = Fleet::new(LEARNED);
    fleet.refresh("a", 0, 600);
    fleet.refresh("b", 0, 400);
    let expiry = fleet.resource.poll_timeout().unwrap();
    fleet.limit.capacity = Capacity::from_whole(300);
    // b is gone, so a cannot have 150 without exceeding 300; close to its expiry it gives way.
    let before = expiry.saturating_since(Instant::ZERO) - fleet.limit.refresh;
    fleet.now = Instant::ZERO.saturating_add(before);
    assert_eq!(gets(&fleet.refresh("a", 800, 600)), 100);
    fleet.now = expiry.saturating_add(Duration::from_millis(100));
    assert_eq!(gets(&fleet.refresh("a", 100, 600)), 300);
    assert_eq!(fleet.sum_has(), 300);
}

#[test]
fn small_shifts_hurry_nobody() {
    // The spare wants of b change; what a gets, and when it should come back, in ms.
    let rows = [
        (500, 500, 1000),
        (495, 505, 1000),
        (501, 500, 1000),
        (400, 600, 1000),
        (500, 500, 100),
    ];
    let mut fleet = Fleet::new(LEARNED);
    fleet.limit.headroom = crate::limit::Part::NONE;
    let (mut a, mut b) = (0, 0);
    for (wants, want_gets, want_refresh) in rows {
        // b has asked until everything is settled; a asks once after that.
        b = gets(&fleet.refresh("b", b, wants));
        b = gets(&fleet.refresh("b", b, wants));
        let answer = fleet.refresh("a", a, 900);
        a = gets(&answer);
        let refresh = answer.refresh_interval.as_millis();
        assert_eq!((a, refresh), (want_gets, want_refresh), "b wants {wants}");
    }
}

#[test]
fn zero_blocks_and_unlimited_lets_pass() {
    let mut fleet = Fleet::new(LEARNED);
    fleet.limit.capacity = Capacity::ZERO;
    assert_eq!(gets(&fleet.refresh("a", 0, 10)), 0);
    fleet.limit.capacity = Capacity::UNLIMITED;
    let lease = fleet.refresh("a", 0, 10).lease.unwrap();
    assert!(lease.capacity.is_unlimited());
    // Back to a number: everybody first has to say that it is no longer without a limit.
    fleet.limit.capacity = Capacity::from_whole(CAPACITY);
    assert_eq!(gets(&fleet.refresh("b", 0, 10)), 0);
    fleet.refresh("a", 1_000_000_000_000, 10);
    fleet.refresh("a", 10, 10);
    assert!(gets(&fleet.refresh("b", 0, 10)) >= 10);
}

#[test]
fn the_number_of_clients_is_bounded() {
    let mut fleet = Fleet::new(LEARNED);
    for client in ["a", "b", "c"] {
        fleet.refresh(client, 0, 1);
    }
    let error = fleet.ask("d", 100, 0, 1).unwrap_err();
    assert_eq!(error, RefreshError::TooManyClients { max: 3 });
    fleet.refresh("a", 1, 1);
}

/// After a shorter lease the larger loan expires last, and both must be looked at just once.
#[test]
fn a_larger_lease_may_outlive_a_shorter_lease() {
    let mut fleet = Fleet::new(LEARNED);
    fleet.limit.headroom = crate::limit::Part::NONE;
    fleet.refresh("a", 0, 1000);
    let first = fleet.now.saturating_add(fleet.limit.lease);
    fleet.limit.lease = Duration::from_secs(2);
    assert_eq!(gets(&fleet.refresh("a", 1000, 100)), 100);
    let second = fleet.now.saturating_add(fleet.limit.lease);

    fleet.resource.expire(second);
    assert_eq!(fleet.sum_has(), 1000, "the answer to a may be lost");
    fleet.resource.expire(first);
    assert_eq!((fleet.sum_has(), fleet.resource.client_count()), (0, 0));
}

/// The same amount for a shorter time: if that answer is lost, the longer loan is still in use.
#[test]
fn a_longer_lease_counts_after_a_shorter_one_of_the_same_amount() {
    let mut fleet = Fleet::new(LEARNED);
    fleet.refresh("a", 0, 1000);
    let first = fleet.now.saturating_add(fleet.limit.lease);
    fleet.limit.lease = Duration::from_secs(2);
    assert_eq!(gets(&fleet.refresh("a", 1000, 1000)), 1000);
    let before = first.saturating_since(Instant::ZERO) - Duration::from_millis(200);
    fleet.now = Instant::ZERO.saturating_add(before);
    assert_eq!(gets(&fleet.refresh("b", 0, 1000)), 0);
    assert_eq!(
        gets(&fleet.refresh("b", 0, 1000)),
        1000,
        "now it has expired"
    );
}

/// A request that was sent to the master before arrives late, and claims what has been given back
/// since; the next one comes too early for a new decision, and must not get that back.
#[test]
fn learning_never_returns_what_a_client_no_longer_says_it_has() {
    let mut fleet = Fleet::new(at(9000));
    fleet.sequence = 6;
    assert_eq!(gets(&fleet.refresh("a", 700, 900)), 700);
    let early = fleet.ask("a", 8, 200, 900).unwrap();
    assert_eq!(gets(&early), 200);
    assert_eq!(fleet.sum_has(), 200);
}
