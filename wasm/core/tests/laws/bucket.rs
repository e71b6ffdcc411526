//! Law 6 for one bucket, against its definition in exact numbers.

use core::time::Duration;

use tollgate_core::bucket::{TakeError, TokenBucket};
use tollgate_core::units::{Instant, MICRO, Rate, Tokens};

use super::random::Random;
use super::{Verdict, ensure};

/// BucketState of a micro-token that one micro-token per second earns in a nanosecond.
const FINE: i128 = 1_000_000_000;

/// The definition: what is left in 10^-9 micro-tokens, without any rounding.
struct Exact {
    now: u64,
    fine: i128,
    rate: u64,
    burst: u64,
}

// === impl Exact ===

impl Exact {
    fn pass(&mut self, nanos: u64) {
        self.now += nanos;
        let earned = i128::from(self.rate) * i128::from(nanos);
        self.fine = (self.fine + earned).min(i128::from(self.burst) * FINE);
    }

    fn take(&mut self, micros: u64) -> bool {
        let need = i128::from(micros) * FINE;
        let passes = need <= self.fine;
        if passes {
            self.fine -= need;
        }
        passes
    }
}

// === laws ===

/// Takes, charges and returns in any order leave what they should to the micro-token.
pub(crate) fn equals_its_definition(seed: u64) -> Verdict {
    let mut random = Random::new(seed);
    let (rate, burst) = (random.spread(1 << 50), random.spread(1 << 45));
    let mut exact = Exact {
        now: random.spread(1 << 60),
        fine: i128::from(burst) * FINE,
        rate,
        burst,
    };
    let start = Instant::from_nanos(exact.now);
    let mut bucket = TokenBucket::new(start, Rate::from_micros(rate), Tokens::from_micros(burst));
    for step in 0..200 {
        exact.pass(random.spread(1 << 40));
        let now = Instant::from_nanos(exact.now);
        let micros = random.spread(burst + 2);
        let tokens = Tokens::from_micros(micros);
        match random.below(8) {
            0 => {
                bucket.charge(now, tokens);
                exact.fine -= i128::from(micros) * FINE;
            }
            1 => {
                bucket.give_back(now, tokens);
                exact.fine += i128::from(micros) * FINE;
                exact.pass(0);
            }
            _ => {
                let (took, takes) = (bucket.take(now, tokens).is_ok(), exact.take(micros));
                ensure!(took == takes, "step {step}: took {took}, should {takes}");
            }
        }
        let (left, want) = (i128::from(bucket.balance(now)), exact.fine.div_euclid(FINE));
        ensure!(left == want, "step {step}: {left} left, {want} expected");
    }
    Ok(())
}

/// In any window: the burst, and what the rate earns. Slabs and single tokens alike.
pub(crate) fn never_admits_more_than_burst_and_rate(seed: u64) -> Verdict {
    let mut random = Random::new(seed);
    let (rate, burst) = (random.spread(1 << 44), random.spread(100 * MICRO) + 1);
    let mut nanos = 0;
    let mut bucket = TokenBucket::new(
        Instant::ZERO,
        Rate::from_micros(rate),
        Tokens::from_micros(burst),
    );
    let mut admitted = 0_u128;
    let mut moments = vec![(0_u64, 0_u128)];
    for _ in 0..150 {
        nanos += random.spread(1 << 34);
        let now = Instant::from_nanos(nanos);
        let need = Tokens::from_micros(random.spread(burst + MICRO));
        let got = if random.chance(50) {
            bucket.take(now, need).map(|()| need)
        } else {
            bucket.take_up_to(now, need, Tokens::from_micros(random.spread(1 << 40)))
        };
        admitted += got.map_or(0, |tokens| u128::from(tokens.as_micros()));
        moments.push((nanos, admitted));
    }
    for (i, start) in moments.iter().enumerate() {
        for end in &moments[i + 1..] {
            let window = u128::from(end.0 - start.0);
            let earned = (u128::from(rate) * window).div_ceil(FINE as u128);
            let (got, most) = (end.1 - start.1, u128::from(burst) + earned);
            ensure!(
                got <= most,
                "{got} of {most} in {window} ns after {}",
                start.0
            );
        }
    }
    Ok(())
}

/// Buckets that share a rate and a burst, as those of a fleet do, admit no more together in any window
/// than one bucket, however often their shares go up and down: no share grows before others have
/// shrunk.
pub(crate) fn shares_that_change_mint_nothing(seed: u64) -> Verdict {
    let mut random = Random::new(seed);
    let (rate, burst) = (random.spread(1 << 34) + 1, random.spread(100 * MICRO) + 1);
    let count = random.below(5) + 1;
    let (mut rates_left, mut bursts_left) = (rate, burst);
    let part = |left: &mut u64, random: &mut Random| {
        let part = random.below(*left + 1);
        *left -= part;
        part
    };
    let mut buckets: Vec<_> = (0..count)
        .map(|_| {
            let rate = Rate::from_micros(part(&mut rates_left, &mut random));
            let burst = Tokens::from_micros(part(&mut bursts_left, &mut random));
            TokenBucket::new(Instant::ZERO, rate, burst)
        })
        .collect();
    let mut moments = vec![(0_u64, 0_u64)];
    let mut nanos = 0;
    let mut admitted = 0;
    for _ in 0..150 {
        nanos += random.spread(1 << 34);
        let now = Instant::from_nanos(nanos);
        let bucket = &mut buckets[random.below(count) as usize];
        if random.chance(50) {
            rates_left += bucket.rate().as_micros();
            bursts_left += bucket.burst().as_micros();
            let rate = Rate::from_micros(part(&mut rates_left, &mut random));
            let burst = Tokens::from_micros(part(&mut bursts_left, &mut random));
            bucket.set(now, rate, burst);
        } else {
            let want = Tokens::from_micros(random.spread(burst + MICRO));
            let got = if random.chance(50) {
                bucket.take(now, want).map(|()| want)
            } else {
                bucket.take_up_to(now, Tokens::ZERO, want)
            };
            admitted += got.map_or(0, Tokens::as_micros);
        }
        moments.push((nanos, admitted));
    }
    for (i, start) in moments.iter().enumerate() {
        for end in &moments[i + 1..] {
            let window = u128::from(end.0 - start.0);
            let earned = (u128::from(rate) * window).div_ceil(FINE as u128);
            // The part of its next millionth that a bucket has earned is not in its balance.
            let most = u128::from(burst) + earned + u128::from(count);
            let got = u128::from(end.1 - start.1);
            ensure!(
                got <= most,
                "{got} of {most} in {window} ns after {}",
                start.0
            );
        }
    }
    Ok(())
}

/// A refused take passes at the instant it named, and not a nanosecond before.
pub(crate) fn denied_exactly_until_retry_at(seed: u64) -> Verdict {
    let mut random = Random::new(seed);
    let rate = Rate::from_micros(random.spread(1 << 44) + MICRO);
    let burst = Tokens::from_micros(random.spread(1 << 44) + 1);
    let mut now = Instant::from_nanos(random.spread(1 << 60));
    let mut bucket = TokenBucket::new(now, rate, burst);
    for _ in 0..50 {
        now = now.saturating_add(Duration::from_nanos(random.spread(1 << 34)));
        bucket.charge(
            now,
            Tokens::from_micros(random.spread(burst.as_micros() + 1)),
        );
        let need = Tokens::from_micros(random.spread(burst.as_micros() + 1));
        let Err(denied) = bucket.take(now, need) else {
            continue;
        };
        let Some(at) = denied.retry_at() else {
            return Err(format!("{need:?} of {burst:?} never passes: {denied:?}"));
        };
        let before = Instant::from_nanos(at.as_nanos() - 1);
        let (mut early, mut in_time) = (bucket, bucket);
        let again = Err(TakeError::Short { retry_at: Some(at) });
        ensure!(
            early.take(before, need) == again,
            "not refused before {at:?}"
        );
        ensure!(in_time.take(at, need) == Ok(()), "refused at {at:?}");
    }
    Ok(())
}

/// Millions of tiny refills earn what one does: nothing is lost to rounding.
pub(crate) fn any_cut_of_time_earns_the_same(seed: u64) -> Verdict {
    let mut random = Random::new(seed);
    let rate = Rate::from_micros(random.spread(1 << 40));
    let burst = Tokens::from_micros(1 << 62);
    let once = TokenBucket::empty(Instant::ZERO, rate, burst);
    let mut often = once;
    let mut nanos = 0;
    let most = random.spread(1 << 30) + 1;
    for _ in 0..20_000 {
        nanos += random.below(most) + 1;
        often.charge(Instant::from_nanos(nanos), Tokens::ZERO);
    }
    let now = Instant::from_nanos(nanos);
    let (got, want) = (often.balance(now), once.balance(now));
    ensure!(got == want, "{got} earned in 20 000 parts, {want} at once");
    Ok(())
}
