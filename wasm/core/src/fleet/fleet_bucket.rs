//! Bucket of the whole fleet: the tokens of a limit that no client has.
//!
//! A lease is a rate, and people limit counts: a fortieth of 100 a minute is a token each 24 s, in a
//! bucket that holds less than one. So clients of a small limit, or of one that is little used, have no lease,
//! and draw each token of this bucket.
//!
//! The tokens here, and those that clients hold, are the limit's burst at most; it fills at the capacity,
//! less what is leased. So all clients together admit at most `burst + rate * t` in any
//! time `t` (`docs/design-fleet-bucket.md`).

use core::time::Duration;

use super::stored_bucket::{Stored, StoredBucket, ahead, is_slow};
use crate::bucket::{BucketState, TokenBucket};
use crate::units::{Instant, Rate, Tokens};

/// Draws in vain beside others from which each client is told a turn of its own.
const CROWDED_FROM: u32 = 8;
/// The most of these that is counted.
const PRESSURE_MAX: u32 = 4 * CROWDED_FROM;

/// Part of the burst that may be taken before it is there.
const ADVANCED_PARTS: u64 = 8;

/// Bucket of the whole fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetBucket {
    bucket: TokenBucket,
    /// Burst of the limit.
    whole: Tokens,
    /// Time from which the next token is not promised to a client.
    turn_at: Instant,
    /// Draws that got nothing, beyond those that got something; bounded.
    pressure: u32,
    /// Time since when it has held all that it can, at the present rate.
    full_since: Option<Instant>,
    /// Its record in the store, if there is one.
    stored: Option<Stored>,
}

/// State of a [`FleetBucket`] in a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FleetBucketSnapshot {
    /// Tokens that are left.
    pub left: Tokens,
    /// Burst of the limit.
    pub whole: Tokens,
    /// Tokens that were taken before they were there, and have not been paid.
    pub owed: Tokens,
    /// Tokens that are lacking, of those that were ever taken of it.
    pub lacking: Tokens,
    /// Time until which all tokens are promised.
    pub turn_in: Duration,
    /// Draws that got nothing, beyond those that got something.
    pub pressure: u32,
}

/// Turns to draw that clients have under overload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    /// Number of clients, of which each has one turn at a time.
    pub(super) clients: usize,
    /// Tokens of one turn.
    pub(super) cost: Tokens,
    /// Turns for 16 tokens: more than these where a client may have no request for a while when its turn
    /// comes.
    pub(super) of_16_tokens: u32,
}

// === impl FleetBucket ===

impl FleetBucket {
    /// An empty bucket for `whole` tokens, which does not fill yet.
    pub(super) fn empty(now: Instant, whole: Tokens) -> Self {
        let mut bucket = Self::full(now, whole);
        bucket.charge(now, whole);
        bucket
    }

    /// A full bucket of `whole` tokens, which does not fill yet.
    pub(super) fn full(now: Instant, whole: Tokens) -> Self {
        Self {
            bucket: TokenBucket::new(now, Rate::ZERO, whole),
            whole,
            turn_at: now,
            pressure: 0,
            full_since: None,
            stored: None,
        }
    }

    /// The bucket that a store has, of a limit that has a burst of `whole` now.
    pub(super) fn restored(now: Instant, whole: Tokens, stored: StoredBucket) -> Self {
        let mut bucket = Self::full(now, stored.whole);
        bucket.bucket.charge(now, stored.missing());
        bucket.set_burst(now, whole);
        bucket.stored = Some(Stored::new(now, stored));
        bucket
    }

    /// Returns what is to be stored of the bucket, of which clients hold `held` and whose limit earns `rate`, but for
    /// `withheld` at most, by clients that are cut off; and whether before its tokens are used. None if what the store has
    /// is as good, unless the limit `has_news` beside it. Nobody holds or earns what they do now after `lease`.
    pub(super) fn store_change(
        &mut self,
        now: Instant,
        rate: Rate,
        (held, withheld): (Tokens, Tokens),
        lease: Duration,
        has_news: bool,
    ) -> Option<(StoredBucket, bool)> {
        if !is_slow(rate, self.whole) && !has_news {
            return None;
        }
        let left = self.left(now);
        let missing = self.whole.saturating_sub(left);
        let missing = missing.max(self.bucket.lacking(now));
        let known = self.stored.map(|stored| stored.aged(now));
        let known_left = known.map_or(self.whole, |known| {
            Self::restored(now, self.whole, known).left(now)
        });
        let is_urgent = has_news
            || left < known_left
            || known.map_or(Tokens::ZERO, |known| known.missing()) < missing
            || known.map_or(Tokens::ZERO, |known| known.held()) < held
            || known.is_some_and(|known| known.rate != rate);
        let ahead = ahead(self.whole);
        // A crash loses the tokens that the store lacks.
        let most = ahead.saturating_add(ahead).saturating_add(Tokens::ONE);
        if !is_urgent && left < known_left.saturating_add(most.saturating_add(withheld)) {
            return None;
        }
        let ahead = if is_urgent {
            ahead.min(left)
        } else {
            Tokens::ZERO
        };
        let fills_in = rate.time_for(missing.saturating_add(ahead));
        let debt = Tokens::from_micros(self.bucket.balance(now).min(0).unsigned_abs());
        let most = left.saturating_add(missing);
        let all = missing.saturating_add(ahead).saturating_add(withheld);
        let stored = StoredBucket {
            whole: most.saturating_sub(debt),
            rate,
            missing: all.min(most),
            held: held.saturating_add(ahead),
            held_for: lease,
            lasts: fills_in.unwrap_or(Duration::MAX).saturating_add(lease),
            age: Duration::ZERO,
        };
        self.stored = Some(Stored::new(now, stored));
        Some((stored, is_urgent))
    }

    /// Notes that the store does not have it.
    pub(super) fn not_stored(&mut self) {
        self.stored = None;
    }

    /// Fills it at `rate` from `now` on, up to what is left of the burst beside the `held` of clients.
    pub(super) fn set(&mut self, now: Instant, rate: Rate, held: Tokens) {
        let now = now.max(self.bucket.to_parts().last);
        let full_at = match self.bucket.full_at() {
            // Tokens that were taken at this instant are held by a client, so that there is no room for others.
            _ if self.bucket.to_parts().last == now => self.full_since,
            Some(at) if at <= now => self.full_since.or(Some(at)),
            _ => None,
        };
        let full_since = full_at.filter(|_| rate == self.bucket.rate());
        self.bucket.set(now, rate, self.whole.saturating_sub(held));
        self.full_since = self.is_full(now).then(|| full_since.unwrap_or(now));
    }

    /// Takes another burst, of a part of a limit: a raise adds nothing.
    pub(super) fn resize(&mut self, now: Instant, whole: Tokens, rate: Rate, held: Tokens) {
        self.set(now, self.bucket.rate(), Tokens::ZERO);
        self.whole = whole;
        self.set(now, rate, held);
    }

    /// Takes another burst of the limit. A raise adds the difference at once, but for what was lacking
    /// when the burst was lowered before and has not been earned since; a lowering takes only what no
    /// longer fits. So a burst that is lowered and raised again leaves what was there.
    pub(super) fn set_burst(&mut self, now: Instant, whole: Tokens) {
        self.set(now, self.bucket.rate(), Tokens::ZERO);
        let raised = whole.saturating_sub(self.whole);
        let added = raised.saturating_sub(self.bucket.to_parts().lacking);
        self.whole = whole;
        self.set(now, self.bucket.rate(), Tokens::ZERO);
        self.bucket.give_back(now, added);
    }

    /// Takes `tokens`, if need be by going into debt.
    pub(crate) fn charge(&mut self, now: Instant, tokens: Tokens) {
        self.bucket.charge(now, tokens);
    }

    /// Sets it as [`FleetBucket::set`] does, of which clients hold `held` since they have spent `room` tokens. They
    /// did so `age` ago: what it would have earned since, had it not held all that it could, it earns now. No time
    /// counts twice, so in any time it earns no more than its rate.
    pub(super) fn earn_late(&mut self, now: Instant, age: Duration, room: Tokens, held: Tokens) {
        let rate = self.bucket.rate();
        let from = self
            .full_since
            .map(|since| since.max(now.saturating_sub(age)));
        let time = from.map_or(Duration::ZERO, |from| now.saturating_since(from));
        let earned = rate.tokens_in(time).min(room);
        let until = rate.time_for(earned).zip(from);
        self.set(now, rate, held);
        self.bucket.give_back(now, earned);
        if let Some((time, from)) = until.filter(|_| earned > Tokens::ZERO && self.is_full(now)) {
            self.full_since = Some(from.saturating_add(time));
        }
    }

    fn is_full(&self, now: Instant) -> bool {
        let most = i64::try_from(self.bucket.burst().as_micros());
        self.bucket.balance(now) >= most.unwrap_or(i64::MAX)
    }

    /// Takes back tokens that a client has not spent, and held until now.
    pub(super) fn give_back(&mut self, now: Instant, tokens: Tokens) {
        self.bucket.give_back(now, tokens);
    }

    /// Whether a token may be taken that is not there yet, for a client with a lease that would begin with nothing; the
    /// next ones pay for it. Not if more than an eighth of the burst was taken in this way.
    pub(crate) fn may_advance(&self, now: Instant) -> bool {
        let most = self.whole.as_micros() / ADVANCED_PARTS;
        self.bucket.balance(now).min(0).unsigned_abs() <= most
    }

    /// Pays for tokens that were spent before they were drawn, if need be by going into debt, but lacks `debt_max` at
    /// most. Returns those that it has paid for.
    pub(super) fn pay(&mut self, now: Instant, owed: Tokens, debt_max: Tokens) -> Tokens {
        let debt_max = i64::try_from(debt_max.as_micros()).unwrap_or(i64::MAX);
        let most = self.bucket.balance(now).saturating_add(debt_max);
        let most = Tokens::from_micros(u64::try_from(most).unwrap_or(0));
        let paid = owed.min(most);
        self.bucket.charge(now, paid);
        paid
    }

    /// Time after which it has a token again, if it owes some.
    pub(super) fn debt_paid_in(&self, now: Instant) -> Option<Duration> {
        let time = self.bucket.time_until(now, Tokens::ONE);
        time.filter(|_| self.is_in_debt(now))
    }

    /// Time until it has so many tokens; none if never.
    pub(super) fn time_until(&self, now: Instant, tokens: Tokens) -> Option<Duration> {
        self.bucket.time_until(now, tokens)
    }

    /// Whether it owes tokens.
    pub(super) fn is_in_debt(&self, now: Instant) -> bool {
        self.bucket.balance(now) < 0
    }

    /// The part of `kept` that leaves room for `needs`: a full bucket serves whoever asks.
    pub(super) fn keeps(&self, kept: Tokens, needs: Tokens) -> Tokens {
        kept.min(self.bucket.burst().saturating_sub(needs))
    }

    /// Notes a draw that got all that it needed.
    pub(super) fn note_granted(&mut self) {
        self.pressure = self.pressure.saturating_sub(2);
    }

    /// Notes a draw that got too little.
    pub(super) fn note_short(&mut self) {
        self.pressure = self.pressure.saturating_add(1).min(PRESSURE_MAX);
    }

    /// Whether all tokens that are there are promised, so that a client that has just got what it needs is told
    /// its next turn, too.
    pub(super) fn is_exhausted(&self, now: Instant) -> bool {
        let ahead = self.turn_at.saturating_since(now);
        let promised = self.bucket.rate().tokens_in(ahead);
        self.pressure >= CROWDED_FROM && self.left(now) <= promised
    }

    /// Returns the time until `first` tokens are there, or one at least; `after` if they will not come.
    ///
    /// Under overload, when most draws get nothing, the token is promised to the client, and the others
    /// are told later ones: of the `turns` each client has one at most. So all together draw about as often
    /// as there are tokens.
    pub(super) fn promise(
        &mut self,
        now: Instant,
        first: Tokens,
        turns: Turns,
        after: Duration,
    ) -> Duration {
        let next = self.bucket.time_until(now, first.max(Tokens::ONE));
        let each = self.bucket.rate().time_for(turns.cost);
        let (Some(next), Some(each)) = (next, each) else {
            return after;
        };
        if self.pressure < CROWDED_FROM {
            return next;
        }
        let Turns {
            clients,
            of_16_tokens,
            ..
        } = turns;
        let each = each.saturating_mul(16).checked_div(of_16_tokens.max(16));
        let each = each.unwrap_or(Duration::ZERO);
        let clients = u32::try_from(clients).unwrap_or(u32::MAX);
        let last = now.saturating_add(next.saturating_add(each.saturating_mul(clients)));
        let at = self.turn_at.max(now.saturating_add(next)).min(last);
        self.turn_at = at.saturating_add(each);
        at.saturating_since(now)
    }

    /// Tokens that can be had at `now`.
    pub fn left(&self, now: Instant) -> Tokens {
        Tokens::from_micros(u64::try_from(self.bucket.balance(now)).unwrap_or(0))
    }

    /// Time at which it is full, also by the largest burst that it has had, if nobody draws and nobody holds
    /// anything, filled at `rate` from the last change on; none if never.
    pub(super) fn full_at(&self, rate: Rate) -> Option<Instant> {
        let last = self.bucket.to_parts().last;
        let time = rate.time_for(self.bucket.lacking(last))?;
        Some(last.saturating_add(time))
    }

    pub(crate) fn snapshot(&self, now: Instant) -> FleetBucketSnapshot {
        FleetBucketSnapshot {
            left: self.left(now),
            whole: self.whole,
            owed: Tokens::from_micros(self.bucket.balance(now).min(0).unsigned_abs()),
            lacking: self.bucket.lacking(now),
            turn_in: self.turn_at.saturating_since(now),
            pressure: self.pressure,
        }
    }

    pub(super) fn of(now: Instant, snapshot: &FleetBucketSnapshot) -> Self {
        // Its size follows from the tokens that clients hold, and these are restored later.
        let FleetBucketSnapshot {
            left,
            owed,
            lacking,
            ..
        } = *snapshot;
        let balance = i64::try_from(left.as_micros()).unwrap_or(i64::MAX);
        let bucket = BucketState {
            balance: balance.saturating_sub_unsigned(owed.as_micros()),
            last: now,
            remainder: 0,
            rate: Rate::ZERO,
            burst: left,
            lacking,
        };
        Self {
            bucket: TokenBucket::from_parts(bucket),
            whole: snapshot.whole,
            turn_at: now.saturating_add(snapshot.turn_in),
            pressure: snapshot.pressure.min(PRESSURE_MAX),
            full_since: None,
            // The record of the master before may be older.
            stored: None,
        }
    }
}

#[cfg(test)]
mod tests;
