use super::*;

mod laws;
mod vectors;

const NANOS_PER_MS: u64 = 1_000_000;

/// Where pulsar's clock starts: 100 s, so that there is a time before it.
const START: Instant = Instant::from_nanos(100_000 * NANOS_PER_MS);

fn whole(tokens: u64) -> Tokens {
    Tokens::from_whole(tokens)
}

fn after(at: Instant, ms: u64) -> Instant {
    at.saturating_add(Duration::from_millis(ms))
}

fn next(at: Instant) -> Instant {
    Instant::from_nanos(at.as_nanos() + 1)
}

fn previous(at: Instant) -> Instant {
    Instant::from_nanos(at.as_nanos() - 1)
}

fn bucket_of(rate: u64, burst: u64) -> TokenBucket {
    TokenBucket::empty(START, Rate::from_whole(rate), whole(burst))
}

#[test]
fn two_thousand_at_once_admit_the_burst_and_charge_no_more() {
    // Pulsar's version 0 admits 2000 of these, and version 3 has 499 pass and charges the other 1501 as well.
    let mut bucket = TokenBucket::new(START, Rate::from_whole(500), whole(500));
    let admitted = (0..2000)
        .filter(|_| bucket.take(START, Tokens::ONE).is_ok())
        .count();
    assert_eq!(admitted, 500);
    assert_eq!(
        bucket.time_until(START, Tokens::ONE),
        Some(Duration::from_millis(2))
    );
}

#[test]
fn zero_blocks_and_unlimited_does_not() {
    let never = Err(TakeError::Short { retry_at: None });
    let mut stopped = TokenBucket::new(START, Rate::ZERO, whole(2));
    assert_eq!(stopped.take(START, whole(2)), Ok(()), "what is left");
    assert_eq!(stopped.take(after(START, 1_000_000), Tokens::ONE), never);
    assert_eq!(stopped.time_until(START, Tokens::ONE), None);

    let mut blocked = TokenBucket::new(START, Rate::ZERO, Tokens::ZERO);
    let exceeds = TakeError::ExceedsBurst {
        burst: Tokens::ZERO,
        asked: Tokens::ONE,
    };
    assert_eq!(blocked.take(START, Tokens::ONE), Err(exceeds));
    assert_eq!(exceeds.retry_at(), None);

    let mut unlimited = TokenBucket::new(START, Rate::UNLIMITED, Tokens::ZERO);
    let most = Tokens::from_micros(u64::MAX);
    for _ in 0..10 {
        assert_eq!(unlimited.take(START, most), Ok(()));
        unlimited.charge(START, most);
        assert_eq!(
            unlimited.take_up_to(START, whole(1), whole(7)),
            Ok(whole(7))
        );
    }
    assert_eq!(unlimited.balance(START), 0, "nothing is counted");

    // The largest rate that is a number is not unlimited.
    let fastest = Rate::from_micros(u64::MAX - 1);
    let mut bucket = TokenBucket::new(START, fastest, whole(1));
    assert_eq!(bucket.take(START, whole(1)), Ok(()));
    let retry_at = Some(next(START));
    assert_eq!(
        bucket.take(START, whole(1)),
        Err(TakeError::Short { retry_at })
    );
    assert_eq!(bucket.take(next(START), whole(1)), Ok(()));
}

#[test]
fn more_than_the_burst_is_an_outcome_of_its_own() {
    let mut bucket = TokenBucket::new(START, Rate::from_whole(10), whole(10));
    let error = bucket.take(START, whole(50)).unwrap_err();
    assert_eq!(
        std::format!("{error}"),
        "burst is 10000000 micro-tokens, asked 50000000"
    );
    let error = bucket.take_up_to(START, whole(11), whole(20)).unwrap_err();
    assert!(matches!(error, TakeError::ExceedsBurst { .. }), "{error:?}");
    assert_eq!(bucket.balance(START), 10_000_000, "and it costs nothing");
}

#[test]
fn a_lower_burst_does_not_hide_what_was_lacking() {
    let mut bucket = TokenBucket::new(START, Rate::from_whole(10), whole(100));
    assert!(bucket.is_whole(START));
    bucket.charge(START, whole(60));
    bucket.set(START, Rate::from_whole(10), whole(20));
    // It has 20 of 20, and had 40 of 100.
    assert_eq!(bucket.time_until(START, whole(20)), Some(Duration::ZERO));
    assert!(!bucket.is_whole(after(START, 5999)));
    assert!(bucket.is_whole(after(START, 6000)));
    // Tokens that are taken or given back count as before.
    bucket.charge(after(START, 3000), whole(25));
    bucket.give_back(after(START, 3000), whole(5));
    assert!(!bucket.is_whole(after(START, 7999)));
    assert!(bucket.is_whole(after(START, 8000)));
    // Above the larger burst again nothing is hidden.
    bucket.set(after(START, 3000), Rate::from_whole(10), whole(100));
    assert!(!bucket.is_whole(after(START, 12_999)));
    assert!(bucket.is_whole(after(START, 13_000)));
    bucket.set(after(START, 3000), Rate::UNLIMITED, whole(1));
    assert!(bucket.is_whole(after(START, 3000)));
}

#[test]
fn a_change_adds_nothing_and_takes_what_does_not_fit() {
    // Balance and burst before, burst after, balance after.
    let rows: [(i64, u64, u64, i64); 8] = [
        (50, 100, 200, 50),
        (50, 100, 60, 50),
        (50, 100, 10, 10),
        (100, 100, 100, 100),
        (100, 100, 1000, 100),
        (-70, 100, 10, -70),
        (0, 0, 100, 0),
        (7, 100, 0, 0),
    ];
    for (before, old, new, wanted) in rows {
        let micro = i64::try_from(MICRO).unwrap();
        let mut bucket = TokenBucket::from_parts(BucketState {
            balance: before * micro,
            ..bucket_of(10, old).to_parts()
        });
        bucket.set(START, Rate::from_whole(1000), whole(new));
        let row = (before, old, new);
        assert_eq!(bucket.balance(START), wanted * micro, "{row:?}");
    }
}

#[test]
fn a_change_earns_at_the_old_rate_until_then() {
    let mut bucket = bucket_of(10, 100);
    bucket.set(after(START, 1000), Rate::from_whole(1000), whole(100));
    assert_eq!(bucket.balance(after(START, 1000)), 10_000_000);
    assert_eq!(bucket.balance(after(START, 1010)), 20_000_000);

    // Time under a rate without limit is not earned twice, and leaves no debt.
    let mut bucket = bucket_of(10, 100);
    bucket.charge(START, whole(1000));
    bucket.set(START, Rate::UNLIMITED, whole(100));
    bucket.set(after(START, 60_000), Rate::from_whole(10), whole(100));
    assert_eq!(bucket.balance(after(START, 60_000)), 0);
}

#[test]
fn a_clock_that_goes_backwards_is_ignored_until_it_catches_up() {
    let mut bucket = bucket_of(1000, 10);
    let late = after(START, 5);
    assert_eq!(bucket.take(late, whole(4)), Ok(()));
    assert_eq!(bucket.balance(START), 1_000_000);
    assert_eq!(bucket.take(START, whole(1)), Ok(()));
    let retry_at = Some(after(late, 1));
    assert_eq!(
        bucket.take(START, whole(1)),
        Err(TakeError::Short { retry_at })
    );
    assert_eq!(bucket.balance(late), 0);
    assert_eq!(bucket.balance(after(late, 1)), 1_000_000);
}

#[test]
fn a_token_cache_is_whole_tokens_between_need_and_want() {
    // Micro-tokens there, need, want, got.
    let rows: [(i64, u64, u64, Option<u64>); 7] = [
        (9_999_999, 1, 5, Some(5_000_000)),
        (4_999_999, 1, 5, Some(4_000_000)),
        (1_000_000, 1, 5, Some(1_000_000)),
        (999_999, 1, 5, None),
        (8_000_000, 5, 1, Some(5_000_000)),
        (4_999_999, 5, 9, None),
        (-1, 1, 5, None),
    ];
    for (balance, need, want, got) in rows {
        let mut bucket = TokenBucket::from_parts(BucketState {
            balance,
            ..bucket_of(10, 10).to_parts()
        });
        let result = bucket.take_up_to(START, whole(need), whole(want));
        let row = (balance, need, want);
        assert_eq!(result.ok(), got.map(Tokens::from_micros), "{row:?}");
        let spent = i64::try_from(got.unwrap_or(0)).unwrap();
        assert_eq!(bucket.balance(START), balance - spent, "{row:?}");
    }
}

#[test]
fn hostile_parts_are_brought_into_range() {
    let parts = BucketState {
        balance: i64::MAX,
        last: Instant::from_nanos(u64::MAX),
        remainder: u64::MAX,
        rate: Rate::from_micros(u64::MAX - 1),
        burst: Tokens::from_micros(u64::MAX),
        lacking: Tokens::from_micros(u64::MAX),
    };
    let bucket = TokenBucket::from_parts(parts);
    assert_eq!(bucket.burst(), Tokens::from_micros(i64::MAX as u64));
    assert_eq!(bucket.balance(START), i64::MAX);

    let bucket = TokenBucket::from_parts(BucketState {
        balance: i64::MIN,
        ..parts
    });
    assert_eq!(bucket.to_parts().remainder, 999_999_999);
    assert_eq!(
        bucket.time_until(START, Tokens::ONE),
        None,
        "beyond the clock"
    );
}
