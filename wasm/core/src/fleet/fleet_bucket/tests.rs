use super::*;
use crate::fleet::draw::whole_part;

const NOW: Instant = Instant::ZERO;

fn at(secs: u64) -> Instant {
    Instant::from_nanos(secs * 1_000_000_000)
}

fn tokens(whole: u64) -> Tokens {
    Tokens::from_whole(whole)
}

fn take(
    bucket: &mut FleetBucket,
    now: Instant,
    needs: Tokens,
    first: Tokens,
    kept: Tokens,
) -> Tokens {
    let part = whole_part(bucket.left(now).saturating_sub(kept), needs, first);
    bucket.charge(now, part);
    part
}

/// Ten a minute.
fn ten() -> FleetBucket {
    let mut bucket = FleetBucket::full(NOW, tokens(10));
    bucket.set(NOW, Rate::from_micros(1_000_000 / 6 + 1), Tokens::ZERO);
    bucket
}

/// The turn of a client that draws in vain beside another one.
fn promise(bucket: &mut FleetBucket, after: Duration) -> Duration {
    bucket.note_short();
    let turns = Turns {
        cost: Tokens::ONE,
        clients: 2,
        of_16_tokens: 16,
    };
    bucket.promise(NOW, tokens(1), turns, after)
}

#[test]
fn all_that_is_there_can_be_drawn_and_no_more() {
    let mut bucket = ten();
    assert_eq!(
        take(&mut bucket, NOW, tokens(7), Tokens::ONE, Tokens::ZERO),
        tokens(7)
    );
    assert_eq!(
        take(&mut bucket, NOW, tokens(7), Tokens::ONE, Tokens::ZERO),
        tokens(3),
        "whole tokens"
    );
    assert_eq!(
        take(&mut bucket, NOW, tokens(1), Tokens::ONE, Tokens::ZERO),
        Tokens::ZERO
    );
    assert_eq!(
        take(&mut bucket, at(6), tokens(1), Tokens::ONE, Tokens::ZERO),
        tokens(1)
    );
}

#[test]
fn what_clients_hold_has_no_room_here() {
    let mut bucket = ten();
    bucket.set(NOW, Rate::from_whole(1), tokens(4));
    assert_eq!(bucket.left(at(100)), tokens(6));
    bucket.set(at(100), Rate::from_whole(1), Tokens::ZERO);
    assert_eq!(bucket.left(at(102)), tokens(8), "room brings no tokens");
}

#[test]
fn under_overload_each_client_that_gets_nothing_has_a_turn_of_its_own() {
    let mut bucket = FleetBucket::full(NOW, tokens(10));
    bucket.set(NOW, Rate::from_micros(500_000), Tokens::ZERO);
    take(&mut bucket, NOW, tokens(10), Tokens::ONE, Tokens::ZERO);
    let turns: [u64; 11] =
        core::array::from_fn(|_| promise(&mut bucket, Duration::from_secs(1)).as_secs());
    assert_eq!(turns[..7], [2; 7], "whoever comes first");
    assert_eq!(turns[7..], [2, 4, 6, 6], "within a round");
    bucket.note_granted();
    let next = promise(&mut bucket, Duration::ZERO);
    assert_eq!(next.as_secs(), 6, "still crowded");
    for _ in 0..3 {
        bucket.note_granted();
    }
    assert_eq!(promise(&mut bucket, Duration::ZERO).as_secs(), 2);
}

#[test]
fn a_bucket_that_does_not_fill_promises_nothing() {
    let mut bucket = FleetBucket::full(NOW, Tokens::ZERO);
    let after = Duration::from_secs(3);
    assert_eq!(promise(&mut bucket, after), after);
}

#[test]
fn a_burst_there_and_back_again_leaves_what_was_there() {
    for (used, low) in [(1, 1), (40, 1), (100, 7), (3, 100), (0, 0)] {
        let mut bucket = FleetBucket::full(NOW, tokens(100));
        take(&mut bucket, NOW, tokens(used), Tokens::ONE, Tokens::ZERO);
        bucket.set_burst(NOW, tokens(low));
        let fits = low.min(100 - used);
        assert_eq!(bucket.left(NOW), tokens(fits), "{used} used, burst {low}");
        bucket.set_burst(NOW, tokens(100));
        assert_eq!(
            bucket.left(NOW),
            tokens(100 - used),
            "{used} used, burst {low} and back"
        );
    }
}

#[test]
fn what_was_lacking_when_the_burst_was_lowered_is_earned_back() {
    let mut bucket = FleetBucket::full(NOW, tokens(10));
    take(&mut bucket, NOW, tokens(10), Tokens::ONE, Tokens::ZERO);
    bucket.set(NOW, Rate::from_whole(1), Tokens::ZERO);
    bucket.set_burst(NOW, tokens(5));
    bucket.set_burst(at(7), tokens(10));
    assert_eq!(bucket.left(at(7)), tokens(7));
    bucket.set_burst(at(7), tokens(5));
    bucket.set_burst(at(100), tokens(10));
    assert_eq!(bucket.left(at(100)), tokens(10));
}

#[test]
fn a_raise_adds_the_difference_at_once() {
    let mut bucket = FleetBucket::full(NOW, tokens(10));
    take(&mut bucket, NOW, tokens(10), Tokens::ONE, Tokens::ZERO);
    bucket.set_burst(NOW, tokens(20));
    assert_eq!(bucket.left(NOW), tokens(10));
}

#[test]
fn it_tells_when_it_is_full() {
    let mut bucket = FleetBucket::full(NOW, tokens(10));
    let rate = Rate::from_whole(2);
    bucket.set(NOW, rate, Tokens::ZERO);
    assert_eq!(bucket.full_at(rate), Some(NOW));
    take(&mut bucket, NOW, tokens(10), Tokens::ONE, Tokens::ZERO);
    assert_eq!(bucket.full_at(rate), Some(at(5)));
    assert_eq!(bucket.full_at(Rate::ZERO), None);
}

#[test]
fn a_snapshot_holds_all() {
    let mut bucket = ten();
    take(&mut bucket, NOW, tokens(10), Tokens::ONE, Tokens::ZERO);
    promise(&mut bucket, Duration::ZERO);
    bucket.set_burst(NOW, tokens(3));
    let mut restored = FleetBucket::of(at(9), &bucket.snapshot(NOW));
    restored.set(at(9), Rate::from_micros(1_000_000 / 6 + 1), Tokens::ZERO);
    assert_eq!(restored.snapshot(at(9)), bucket.snapshot(NOW));
}

#[test]
fn a_snapshot_keeps_what_is_lacking_whatever_clients_hold() {
    let mut bucket = FleetBucket::full(NOW, tokens(10));
    bucket.set(NOW, Rate::ZERO, tokens(7));
    take(&mut bucket, NOW, tokens(2), Tokens::ONE, Tokens::ZERO);
    let mut restored = FleetBucket::of(NOW, &bucket.snapshot(NOW));
    restored.set(NOW, Rate::ZERO, tokens(7));
    bucket.set(NOW, Rate::ZERO, tokens(7));
    assert_eq!(restored, bucket);
}

#[test]
fn a_request_that_needs_many_takes_all_or_none() {
    let mut bucket = ten();
    assert_eq!(
        take(&mut bucket, NOW, tokens(12), tokens(4), Tokens::ZERO),
        tokens(8),
        "two of three"
    );
    assert_eq!(
        take(&mut bucket, NOW, tokens(4), tokens(4), Tokens::ZERO),
        Tokens::ZERO
    );
    assert_eq!(
        take(&mut bucket, NOW, tokens(4), Tokens::ONE, Tokens::ZERO),
        tokens(2)
    );
}

#[test]
fn what_was_taken_before_it_was_there_outlives_a_hand_over() {
    let mut bucket = ten();
    take(&mut bucket, NOW, tokens(10), Tokens::ONE, Tokens::ZERO);
    let mut advance = || {
        let may = bucket.may_advance(NOW);
        bucket.charge(NOW, if may { Tokens::ONE } else { Tokens::ZERO });
        may
    };
    assert!(advance());
    assert!(advance(), "an eighth was not taken");
    assert!(!advance());
    let mut restored = FleetBucket::of(at(9), &bucket.snapshot(NOW));
    restored.set(at(9), Rate::from_whole(1), Tokens::ZERO);
    assert_eq!(restored.left(at(11)), Tokens::ZERO);
    assert_eq!(restored.left(at(12)), Tokens::ONE);
}
