//! The token bucket: earns tokens at a rate up to a burst, and says when it will have enough.
//!
//! The obvious bucket multiplies elapsed time by a float rate. It drifts, and it loses every fraction
//! of a token that a frequent reader rounds away: at one token per second, read every millisecond, it
//! may never earn one. This one counts micro-tokens and carries what is left of the division, so its
//! balance after any number of refills is the balance after one refill over the same time.
//!
//! Two ways to pay: [`TokenBucket::take`] is for work that may be refused and costs nothing if it is;
//! [`TokenBucket::charge`] is for work that was already accepted, and may leave a debt which the next
//! take waits for. A bucket refills before every decision (not only when it runs short): tokens
//! earned beyond the burst must be gone before any are spent.
//!
//! Corner cases, all on purpose:
//! - [`Rate::ZERO`] earns nothing: what is left may be spent, then nothing passes. With a burst of zero
//!   nothing passes at all, whatever the rate.
//! - [`Rate::UNLIMITED`] lets everything pass, counts nothing and ends a debt; the burst is ignored.
//! - Taking zero tokens passes unless there is a debt.
//! - A clock that goes backwards is ignored until it has caught up.

use core::time::Duration;

use crate::units::{Instant, MICRO, Rate, Tokens};

/// BucketState into which a micro-token divides: with a rate per second, one per nanosecond.
const FINE: u64 = 1_000_000_000;
const FINE_WIDE: u128 = FINE as u128;

/// Tokens earned at a rate up to a burst.
///
/// In any window of length `t` it admits at most `burst + rate * t`. Across changes made by
/// [`TokenBucket::set`] the burst is that at the window's start, for a change adds no token, and the
/// rate is what it was at each moment. So buckets that share a rate and a burst keep both together,
/// however their shares change.
///
/// ```
/// use core::time::Duration;
/// use tollgate_core::{bucket::{TakeError, TokenBucket}, units::{Instant, Rate, Tokens}};
/// let now = Instant::ZERO;
/// let mut bucket = TokenBucket::new(now, Rate::from_whole(10), Tokens::from_whole(2));
/// assert_eq!(bucket.take(now, Tokens::from_whole(2)), Ok(()));
/// let retry_at = now.saturating_add(Duration::from_millis(100));
/// assert_eq!(bucket.take(now, Tokens::ONE), Err(TakeError::Short { retry_at: Some(retry_at) }));
/// assert_eq!(bucket.take(retry_at, Tokens::ONE), Ok(()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket(BucketState);

/// The plain state of a [`TokenBucket`], for records in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketState {
    /// Micro-tokens at `last`; below zero is debt. At most `burst`.
    pub balance: i64,
    /// When `balance` was true.
    pub last: Instant,
    /// Part earned beyond `balance`, in 10^-9 micro-tokens. Range: 0 to 999 999 999; zero when
    /// full.
    pub remainder: u64,
    /// Tokens per second.
    pub rate: Rate,
    /// The most tokens the bucket holds. Range: 0 to `i64::MAX` micro-tokens.
    pub burst: Tokens,
    /// Tokens that were lacking when the burst was lowered, beyond what a full bucket of today lacks.
    /// Tokens earned above the burst make up for them.
    pub lacking: Tokens,
}

/// Reason for which a bucket gave no tokens. It costs none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TakeError {
    /// There are not enough tokens yet.
    #[error("not enough tokens yet")]
    Short {
        /// The first instant at which the same take passes if nothing else is taken; `None` if never,
        /// as with a rate of zero.
        retry_at: Option<Instant>,
    },
    /// More than a full bucket was asked for, which no waiting helps.
    #[error("burst is {} micro-tokens, asked {}", burst.as_micros(), asked.as_micros())]
    ExceedsBurst {
        /// Tokens in a full bucket.
        burst: Tokens,
        /// Tokens asked for.
        asked: Tokens,
    },
}

// === impl TakeError ===

impl TakeError {
    /// The first instant at which the same take passes; `None` if it never does.
    pub const fn retry_at(self) -> Option<Instant> {
        match self {
            Self::Short { retry_at } => retry_at,
            Self::ExceedsBurst { .. } => None,
        }
    }
}

// === impl TokenBucket ===

impl TokenBucket {
    /// A full bucket.
    pub fn new(now: Instant, rate: Rate, burst: Tokens) -> Self {
        Self::from_parts(BucketState {
            balance: i64::MAX,
            ..Self::empty(now, rate, burst).0
        })
    }

    /// A bucket without a token.
    pub fn empty(now: Instant, rate: Rate, burst: Tokens) -> Self {
        Self::from_parts(BucketState {
            balance: 0,
            last: now,
            remainder: 0,
            rate,
            burst,
            lacking: Tokens::ZERO,
        })
    }

    /// The bucket whose state is `parts`; parts out of their range are brought into it.
    pub fn from_parts(parts: BucketState) -> Self {
        let burst = parts
            .burst
            .min(Tokens::from_micros(i64::MAX.unsigned_abs()));
        let mut bucket = Self(BucketState {
            burst,
            remainder: parts.remainder.min(FINE - 1),
            ..parts
        });
        bucket.cap();
        bucket
    }

    /// The state, such that [`TokenBucket::from_parts`] gives the same bucket.
    pub const fn to_parts(self) -> BucketState {
        self.0
    }

    /// Tokens per second.
    pub const fn rate(&self) -> Rate {
        self.0.rate
    }

    /// The most tokens the bucket holds.
    pub const fn burst(&self) -> Tokens {
        self.0.burst
    }

    /// Takes `need` tokens, or none.
    ///
    /// # Errors
    /// If there are too few tokens, or could never be enough.
    #[inline]
    pub fn take(&mut self, now: Instant, need: Tokens) -> Result<(), TakeError> {
        self.refill(now);
        if self.0.rate.is_unlimited() {
            return Ok(());
        }
        match i64::try_from(need.as_micros()) {
            Ok(micros) if micros <= self.0.balance => {
                // Cannot saturate: the balance is at least `micros`, and that is not negative.
                self.0.balance = self.0.balance.saturating_sub(micros);
                Ok(())
            }
            _ => Err(self.denied(need)),
        }
    }

    /// Takes at least `need` tokens, and beyond that as many whole ones as there are up to `want`.
    ///
    /// # Errors
    /// If `need` cannot be had; then nothing is taken.
    pub fn take_up_to(
        &mut self,
        now: Instant,
        need: Tokens,
        want: Tokens,
    ) -> Result<Tokens, TakeError> {
        self.refill(now);
        if self.0.rate.is_unlimited() {
            return Ok(want.max(need));
        }
        let balance = u64::try_from(self.0.balance).unwrap_or(0);
        let whole = Tokens::from_whole(balance.min(want.as_micros()) / MICRO);
        let tokens = whole.max(need);
        self.take(now, tokens).map(|()| tokens)
    }

    /// Pays for work already accepted, if need be by going into debt.
    pub fn charge(&mut self, now: Instant, tokens: Tokens) {
        self.refill(now);
        if !self.0.rate.is_unlimited() {
            self.0.balance = self.0.balance.saturating_sub_unsigned(tokens.as_micros());
        }
    }

    /// Returns tokens that were taken and not used; what does not fit under the burst is lost.
    pub fn give_back(&mut self, now: Instant, tokens: Tokens) {
        self.refill(now);
        if !self.0.rate.is_unlimited() {
            self.0.balance = self.0.balance.saturating_add_unsigned(tokens.as_micros());
            self.cap();
        }
    }

    /// Changes rate and burst from `now` on.
    ///
    /// Tokens earned until now were earned at the old rate. A balance stays as it is, but for what
    /// is above the new burst: a raise adds nothing, and a lower burst takes only what no longer
    /// fits.
    pub fn set(&mut self, now: Instant, rate: Rate, burst: Tokens) {
        self.refill(now);
        let lacking = self.lacking_at_last();
        self.0.rate = rate;
        self.0.burst = burst.min(Tokens::from_micros(i64::MAX.unsigned_abs()));
        self.0.lacking = Tokens::ZERO;
        self.cap();
        self.0.lacking = lacking.saturating_sub(self.lacking_at_last());
    }

    /// Time at which it is, or was, full as far as nothing is taken of it meanwhile; none if never.
    pub fn full_at(&self) -> Option<Instant> {
        let BucketState { last, .. } = self.0;
        let time = self.time_until(last, self.burst())?;
        Some(last.saturating_add(time))
    }

    /// Whether at `now` nothing is lacking that was ever taken: the bucket is full, and would be were
    /// its burst the largest that it has had.
    pub fn is_whole(&self, now: Instant) -> bool {
        self.0.rate.is_unlimited() || self.lacking(now) == Tokens::ZERO
    }

    /// Tokens that are lacking at `now`: to the largest burst that it has had, of those that were ever taken.
    pub(crate) fn lacking(&self, now: Instant) -> Tokens {
        let mut bucket = *self;
        bucket.refill(now);
        bucket.lacking_at_last()
    }

    fn lacking_at_last(&self) -> Tokens {
        let burst = i128::from(self.0.burst.as_micros());
        let lacking = burst.saturating_sub(i128::from(self.0.balance));
        let lacking = u64::try_from(lacking).unwrap_or(u64::MAX);
        Tokens::from_micros(lacking).saturating_add(self.0.lacking)
    }

    /// Micro-tokens at `now`; below zero is debt.
    pub fn balance(&self, now: Instant) -> i64 {
        let mut bucket = *self;
        bucket.refill(now);
        bucket.0.balance
    }

    /// How long after `now` a take of `tokens` passes if nothing else is taken; `None` if never.
    ///
    /// # Examples
    /// With 10 tokens per second and a debt of 50, one token is there after 5.1 s.
    pub fn time_until(&self, now: Instant, tokens: Tokens) -> Option<Duration> {
        let mut bucket = *self;
        match bucket.take(now, tokens) {
            Ok(()) => Some(Duration::ZERO),
            Err(denied) => Some(denied.retry_at()?.saturating_since(now)),
        }
    }

    /// Earns what the time since the last refill is worth.
    #[inline]
    fn refill(&mut self, now: Instant) {
        let elapsed = now.as_nanos().saturating_sub(self.0.last.as_nanos());
        if elapsed == 0 {
            return;
        }
        self.0.last = now;
        if self.0.rate.is_unlimited() {
            self.0.balance = self.0.balance.max(0);
            return;
        }
        let (micros, remainder) = earned(self.0.rate, elapsed, self.0.remainder);
        self.0.balance = self.0.balance.saturating_add_unsigned(micros);
        self.0.remainder = remainder;
        self.cap();
    }

    /// Drops what is above the burst; a full bucket has no remainder either.
    #[inline]
    fn cap(&mut self) {
        let burst = i64::try_from(self.0.burst.as_micros()).unwrap_or(i64::MAX);
        if self.0.balance >= burst {
            let beyond = self.0.balance.saturating_sub(burst).unsigned_abs();
            self.0.lacking = self.0.lacking.saturating_sub(Tokens::from_micros(beyond));
            self.0.balance = burst;
            self.0.remainder = 0;
        }
    }

    /// Why `need` is refused. To be called with a refilled bucket that has less than `need`.
    #[cold]
    fn denied(&self, need: Tokens) -> TakeError {
        if need > self.0.burst {
            return TakeError::ExceedsBurst {
                burst: self.0.burst,
                asked: need,
            };
        }
        TakeError::Short {
            retry_at: self.instant_of(need),
        }
    }

    /// When the balance reaches `tokens`, counted from the last refill; exact to the nanosecond.
    fn instant_of(&self, tokens: Tokens) -> Option<Instant> {
        let missing = i128::from(tokens.as_micros()).saturating_sub(i128::from(self.0.balance));
        let missing = u128::try_from(missing).unwrap_or(0);
        let fine = missing
            .saturating_mul(FINE_WIDE)
            .saturating_sub(u128::from(self.0.remainder));
        let rate = u128::from(self.0.rate.as_micros());
        let nanos = fine
            .saturating_add(rate.saturating_sub(1))
            .checked_div(rate)?;
        let nanos = u64::try_from(nanos).ok()?;
        let at = self.0.last.as_nanos().checked_add(nanos)?;
        Some(Instant::from_nanos(at))
    }
}

// === free functions ===

/// Micro-tokens earned in `nanos` on top of `remainder`, and the new remainder.
#[inline]
fn earned(rate: Rate, nanos: u64, remainder: u64) -> (u64, u64) {
    let fine = rate
        .as_micros()
        .checked_mul(nanos)
        .and_then(|fine| fine.checked_add(remainder));
    match fine {
        Some(fine) => (fine / FINE, fine % FINE),
        None => earned_wide(rate, nanos, remainder),
    }
}

/// As [`earned`], for the long idle times and high rates whose product needs more than 64 bits.
#[cold]
fn earned_wide(rate: Rate, nanos: u64, remainder: u64) -> (u64, u64) {
    let fine = u128::from(rate.as_micros())
        .saturating_mul(u128::from(nanos))
        .saturating_add(u128::from(remainder));
    let micros = u64::try_from(fine / FINE_WIDE).unwrap_or(u64::MAX);
    (micros, (fine % FINE_WIDE) as u64)
}

#[cfg(test)]
mod tests;
