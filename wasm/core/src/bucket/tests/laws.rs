//! Law 6 and the bucket's other properties, over any history.

use std::vec::Vec;

use proptest::prelude::*;

use super::*;

/// Event in the life of a bucket.
#[derive(Clone, Copy, Debug)]
enum Event {
    Pass(u64),
    Take(u64),
    Draw(u64, u64),
    Charge(u64),
    GiveBack,
    Set(u64, u64),
}

fn rates() -> impl Strategy<Value = u64> {
    prop_oneof![0..10_u64, 1..5_000_000_u64, 0..10_000_000_000_u64]
}

fn times() -> impl Strategy<Value = u64> {
    prop_oneof![0..5_u64, 0..2_000_000_u64, 0..5_000_000_000_u64]
}

fn amounts() -> impl Strategy<Value = u64> {
    prop_oneof![Just(MICRO), 0..5_u64, 0..30_000_000_u64]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => times().prop_map(Event::Pass),
        3 => amounts().prop_map(Event::Take),
        1 => (amounts(), amounts()).prop_map(|(need, want)| Event::Draw(need, want)),
        1 => amounts().prop_map(Event::Charge),
        1 => Just(Event::GiveBack),
        1 => (rates(), amounts()).prop_map(|(rate, burst)| Event::Set(rate, burst)),
    ];
    proptest::collection::vec(event, 1..60)
}

/// One moment of a bucket's history.
#[derive(Clone, Copy, Debug)]
struct Moment {
    /// Micro-tokens spent by then, less those given back. Charges count.
    spent: i128,
    /// Earned by then at the rates of the time, in 10^-9 micro-tokens, capped by nothing.
    earned: u128,
    /// By how much the burst was raised by then, in all.
    raised: u128,
    burst: Tokens,
}

/// Carries `events` out; returns the history, one moment after each.
fn history(bucket: &mut TokenBucket, events: &[Event]) -> Vec<Moment> {
    let mut now = START;
    let mut loan = Tokens::ZERO;
    let mut moment = Moment {
        spent: 0,
        earned: 0,
        raised: 0,
        burst: bucket.burst(),
    };
    let mut moments = std::vec![moment];
    for event in events {
        let mut got = Tokens::ZERO;
        match *event {
            Event::Pass(nanos) => {
                now = now.saturating_add(Duration::from_nanos(nanos));
                moment.earned += u128::from(bucket.rate().as_micros()) * u128::from(nanos);
            }
            Event::Take(micros) => {
                let need = Tokens::from_micros(micros);
                got = bucket.take(now, need).map_or(Tokens::ZERO, |()| need);
            }
            Event::Draw(need, want) => {
                let (need, want) = (Tokens::from_micros(need), Tokens::from_micros(want));
                got = bucket.take_up_to(now, need, want).unwrap_or(Tokens::ZERO);
                loan = got;
            }
            Event::Charge(micros) => {
                got = Tokens::from_micros(micros);
                bucket.charge(now, got);
            }
            Event::GiveBack => {
                bucket.give_back(now, loan);
                moment.spent -= i128::from(loan.as_micros());
                loan = Tokens::ZERO;
            }
            Event::Set(rate, burst) => {
                let burst = Tokens::from_micros(burst);
                bucket.set(now, Rate::from_micros(rate), burst);
                moment.raised += u128::from(burst.saturating_sub(moment.burst).as_micros());
                moment.burst = burst;
            }
        }
        moment.spent += i128::from(got.as_micros());
        moments.push(moment);
    }
    moments
}

proptest! {
    /// Law 6 over every window between two events, changes of rate and burst included.
    #[test]
    fn never_admits_more_than_burst_and_rate(
        rate in rates(), burst in amounts(), mut events in events(),
    ) {
        // Charges were admitted elsewhere.
        events.retain(|event| !matches!(event, Event::Charge(_)));
        let mut bucket = TokenBucket::new(START, Rate::from_micros(rate), Tokens::from_micros(burst));
        let moments = history(&mut bucket, &events);
        for (i, start) in moments.iter().enumerate() {
            for end in &moments[i..] {
                let admitted = end.spent - start.spent;
                // A micro-token may be due from before the window: the remainder at its start.
                let earned = (end.earned - start.earned + 999_999_999) / u128::from(FINE);
                let most = u128::from(start.burst.as_micros()) + (end.raised - start.raised) + earned;
                prop_assert!(admitted <= i128::try_from(most).unwrap(), "{start:?} {end:?}");
            }
        }
    }

    /// A window with one change admits no more than the larger burst and the larger rate allow.
    #[test]
    fn one_change_admits_no_more_than_the_larger_values(
        rates in (rates(), rates()), bursts in (amounts(), amounts()),
        before in times(), after in times(), takes in proptest::collection::vec(amounts(), 0..8),
    ) {
        let mut now = START;
        let mut bucket =
            TokenBucket::new(now, Rate::from_micros(rates.0), Tokens::from_micros(bursts.0));
        let mut admitted = 0_u128;
        let mut drain = |bucket: &mut TokenBucket, now| {
            for micros in takes.iter().copied().chain([1000, 1]) {
                while let Ok(tokens) = bucket.take_up_to(
                    now, Tokens::from_micros(micros.max(1)), Tokens::from_micros(u64::MAX),
                ) {
                    admitted += u128::from(tokens.as_micros());
                }
            }
        };
        drain(&mut bucket, now);
        now = now.saturating_add(Duration::from_nanos(before));
        bucket.set(now, Rate::from_micros(rates.1), Tokens::from_micros(bursts.1));
        drain(&mut bucket, now);
        now = now.saturating_add(Duration::from_nanos(after));
        drain(&mut bucket, now);
        let nanos = u128::from(before) + u128::from(after);
        let most = u128::from(bursts.0.max(bursts.1))
            + u128::from(rates.0.max(rates.1)) * nanos / u128::from(FINE);
        prop_assert!(admitted <= most, "{admitted} of {most}");
    }

    /// A refused take passes at the named instant if nothing else is taken, and not before it.
    #[test]
    fn denied_exactly_until_retry_at(
        rate in rates(), burst in amounts(), events in events(), need in amounts(), late in times(),
    ) {
        let mut bucket = TokenBucket::new(START, Rate::from_micros(rate), Tokens::from_micros(burst));
        history(&mut bucket, &events);
        let now = bucket.to_parts().last.saturating_add(Duration::from_nanos(late));
        let need = Tokens::from_micros(need);
        match bucket.take(now, need) {
            Ok(()) => {}
            Err(TakeError::ExceedsBurst { .. }) => prop_assert!(need > bucket.burst()),
            Err(TakeError::Short { retry_at: None }) => {
                let end = Instant::from_nanos(u64::MAX);
                prop_assert!(bucket.take(end, need).is_err());
            }
            Err(TakeError::Short { retry_at: Some(at) }) => {
                prop_assert!(at > now);
                let want = TakeError::Short { retry_at: Some(at) };
                prop_assert_eq!(bucket.take(previous(at), need), Err(want));
                prop_assert_eq!(bucket.take(at, need), Ok(()));
            }
        }
    }

    /// However time is cut up, the same is earned.
    #[test]
    fn no_token_is_lost_to_rounding(rate in rates(), steps in proptest::collection::vec(times(), 1..200)) {
        let burst = Tokens::from_micros(i64::MAX.unsigned_abs());
        let once = TokenBucket::empty(START, Rate::from_micros(rate), burst);
        let mut often = once;
        let mut now = START;
        for nanos in steps {
            now = now.saturating_add(Duration::from_nanos(nanos));
            often.charge(now, Tokens::ZERO);
        }
        prop_assert_eq!(often.balance(now), once.balance(now));
        let due = u128::from(rate) * u128::from(now.as_nanos() - START.as_nanos());
        prop_assert_eq!(often.balance(now) as u128, due / u128::from(FINE));
    }

    /// After any events the balance stays at or below the burst, and the parts hold the whole
    /// state.
    #[test]
    fn the_balance_is_never_above_the_burst(
        rate in rates(), burst in amounts(), events in events(), extra in any::<u64>(), idle in any::<u64>(),
    ) {
        let mut bucket = TokenBucket::new(START, Rate::from_micros(rate), Tokens::from_micros(burst));
        history(&mut bucket, &events);
        prop_assert_eq!(TokenBucket::from_parts(bucket.to_parts()), bucket);
        let now = bucket.to_parts().last;
        bucket.give_back(now, Tokens::from_micros(extra));
        let most = i64::try_from(bucket.burst().as_micros()).unwrap();
        prop_assert!(bucket.balance(now) <= most);
        prop_assert!(bucket.balance(Instant::from_nanos(idle)) <= most);
        prop_assert!(bucket.to_parts().remainder < 1_000_000_000);
    }

    /// Any idle time at any rate: earned what is due, or full.
    #[test]
    fn any_idle_time_is_earned_or_full(rate in 0..u64::MAX, burst in any::<u64>(), idle in any::<u64>()) {
        let bucket =
            TokenBucket::empty(Instant::ZERO, Rate::from_micros(rate), Tokens::from_micros(burst));
        let due = u128::from(rate) * u128::from(idle) / u128::from(FINE);
        let want = due.min(u128::from(bucket.burst().as_micros()));
        prop_assert_eq!(bucket.balance(Instant::from_nanos(idle)) as u128, want);
    }
}
