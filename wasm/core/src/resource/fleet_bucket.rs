//! Bucket of the whole fleet: the tokens of a limit that no client has.
//!
//! A lease is a rate, and people limit counts: a fortieth of 100 a minute is a token each 24 s, in a
//! bucket that holds less than one. So what nobody has leased fills this bucket, and a client whose own
//! is empty draws of it.
//!
//! What is here, and what clients may hold, are the limit's burst at most; what fills it, and what
//! clients earn by their leases, are the capacity. So all clients together admit at most
//! `burst + rate * t` in any time `t` (`docs/design-fleet-bucket.md`).

use core::time::Duration;

use crate::bucket::{BucketState, TokenBucket};
use crate::units::{Instant, Rate, Tokens, mul_div};

/// Bucket of the whole fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetBucket {
    bucket: TokenBucket,
    /// Burst of the limit.
    whole: Tokens,
    /// Tokens that a lowered burst should have taken, and that were not there: a raise that follows
    /// brings so much less.
    missing: Tokens,
    /// Time from which the next token is not promised to a client.
    turn_at: Instant,
    /// Draws that got nothing, beyond those that got something; bounded.
    pressure: u32,
}

/// Draws in vain beside others from which each client is told a turn of its own.
const CROWDED_FROM: u32 = 8;
/// The most that is counted of them.
const PRESSURE_MAX: u32 = 4 * CROWDED_FROM;

/// State of a [`FleetBucket`] in a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FleetBucketSnapshot {
    /// Tokens that are left.
    pub left: Tokens,
    /// Burst of the limit.
    pub whole: Tokens,
    /// Tokens that a lowered burst should have taken, and that were not there.
    pub missing: Tokens,
    /// Time until which all tokens are promised.
    pub turn_in: Duration,
}

// === impl FleetBucket ===

impl FleetBucket {
    /// A full bucket of `whole` tokens, which does not fill yet.
    pub(super) fn full(now: Instant, whole: Tokens) -> Self {
        Self {
            bucket: TokenBucket::new(now, Rate::ZERO, whole),
            whole,
            missing: Tokens::ZERO,
            turn_at: now,
            pressure: 0,
        }
    }

    /// Fills it at `rate` from `now` on, up to what is left of the burst beside the `held` of clients.
    pub(super) fn set(&mut self, now: Instant, rate: Rate, held: Tokens) {
        self.bucket.set(now, rate, self.whole.saturating_sub(held));
    }

    /// Takes another burst of the limit. A raise adds the difference at once, a lowering takes it away,
    /// as far as it is there; so a burst that is lowered and raised again leaves what was there.
    pub(super) fn set_burst(&mut self, now: Instant, whole: Tokens) {
        let parts = self.bucket.to_parts();
        let lowered = self.whole.saturating_sub(whole);
        let raised = whole.saturating_sub(self.whole);
        let there = Tokens::from_micros(u64::try_from(self.bucket.balance(now)).unwrap_or(0));
        let taken = lowered.min(there);
        let owed = self.missing.min(raised);
        let after = there
            .saturating_sub(taken)
            .saturating_add(raised.saturating_sub(owed));
        self.missing = self
            .missing
            .saturating_sub(owed)
            .saturating_add(lowered.saturating_sub(taken));
        self.whole = whole;
        self.bucket = TokenBucket::from_parts(BucketState {
            balance: i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
            last: now,
            burst: whole,
            ..parts
        });
    }

    /// Takes `needs`, or else as many whole tokens as there are.
    pub(super) fn take(&mut self, now: Instant, needs: Tokens) -> Tokens {
        let tokens = match self.left(now) >= needs {
            true => needs,
            false => Tokens::from_whole(self.left(now).whole()),
        };
        self.bucket
            .take(now, tokens)
            .map_or(Tokens::ZERO, |()| tokens)
    }

    /// Takes the `part` of what is left that goes with so much of the `room` for it, to be gathered
    /// elsewhere.
    pub(super) fn share_of(&mut self, now: Instant, part: Tokens, room: Tokens) -> Tokens {
        let left = self.left(now);
        let part = part.min(room).as_micros();
        let share = mul_div(left.as_micros(), part, room.as_micros().into());
        let share = Tokens::from_micros(share);
        self.bucket
            .take(now, share)
            .map_or(Tokens::ZERO, |()| share)
    }

    /// Takes back `tokens` of a client that has gone; the others hold so much.
    pub(super) fn take_back(&mut self, tokens: Tokens, held: Tokens) {
        let last = self.bucket.to_parts().last;
        self.set(last, self.bucket.rate(), held);
        self.bucket.give_back(last, tokens);
    }

    /// Room for tokens beside what clients hold.
    pub(super) fn room(&self) -> Tokens {
        self.bucket.burst()
    }

    /// Notes a draw that got all that it needed.
    pub(super) fn note_granted(&mut self) {
        self.pressure = self.pressure.saturating_sub(2);
    }

    /// Returns the time until `first` tokens are there, or one at least; `after` if they will not come. Under overload, when
    /// most draws get nothing, the token is promised to the client, and the others are told later ones:
    /// of `clients` each has one turn at most. So they draw about as often as there are tokens.
    pub(super) fn promise(
        &mut self,
        now: Instant,
        first: Tokens,
        clients: usize,
        after: Duration,
    ) -> Duration {
        self.pressure = self.pressure.saturating_add(1).min(PRESSURE_MAX);
        let next = self.bucket.time_until(now, first.max(Tokens::ONE));
        let each = self.bucket.rate().time_for(Tokens::ONE);
        let (Some(next), Some(each)) = (next, each) else {
            return after;
        };
        if self.pressure < CROWDED_FROM {
            return next;
        }
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

    /// Time at which it is full if nobody draws and nobody holds anything, filled at `rate` from the last
    /// change on; none if never.
    pub(super) fn full_at(&self, rate: Rate) -> Option<Instant> {
        let last = self.bucket.to_parts().last;
        let time = rate.time_for(self.whole.saturating_sub(self.left(last)))?;
        Some(last.saturating_add(time))
    }

    pub(crate) fn snapshot(&self, now: Instant) -> FleetBucketSnapshot {
        FleetBucketSnapshot {
            left: self.left(now),
            whole: self.whole,
            missing: self.missing,
            turn_in: self.turn_at.saturating_since(now),
        }
    }

    pub(super) fn of(now: Instant, snapshot: &FleetBucketSnapshot) -> Self {
        let mut restored = Self::full(now, snapshot.whole);
        restored.missing = snapshot.missing;
        restored.turn_at = now.saturating_add(snapshot.turn_in);
        let parts = restored.bucket.to_parts();
        restored.bucket = TokenBucket::from_parts(BucketState {
            balance: i64::try_from(snapshot.left.as_micros()).unwrap_or(i64::MAX),
            ..parts
        });
        restored
    }
}

#[cfg(test)]
mod tests;
