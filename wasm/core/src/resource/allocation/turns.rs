//! Turns to draw under overload, and clients that ask for more than their part.

use core::time::Duration;

use super::{Allocation, ClientEntry};
use crate::limit::Limit;
use crate::resource::fleet_bucket::Turns;
use crate::units::{Instant, Tokens};

/// The longest time for which a token is kept for a client.
const KEPT_FOR_MAX: Duration = Duration::from_secs(60 * 60);

/// Turns to draw beyond one for each token, if a client's next request comes as late as the bucket needs to fill.
const LATE_TURNS: u64 = 24;

/// The most of these, if the burst is two tokens; of a larger one there are less.
const RANDOM_TURNS: u64 = 8;

/// The most turns beyond one for each token, for 16 of these.
const TURNS_MAX: u32 = 16 * 64;

// === impl Allocation ===

impl Allocation {
    /// Counts `attempts` at the client of `entry`.
    pub(super) fn note_attempts(&self, now: Instant, entry: &mut ClientEntry, attempts: u64) {
        let excess = self.excess(now, entry);
        let most = self.limit.burst.saturating_add(self.limit.burst);
        let more = excess.saturating_add(Tokens::from_whole(attempts));
        entry.excess = (more.min(most), now);
    }

    /// Whether the client of `entry` asks for more than an equal part of the limit all the time.
    pub(super) fn asks_for_more(&self, now: Instant, entry: &ClientEntry) -> bool {
        self.excess(now, entry) > self.limit.burst
    }

    fn excess(&self, now: Instant, entry: &ClientEntry) -> Tokens {
        let (excess, at) = entry.excess;
        let rate = self.limit.capacity.as_rate();
        let earned = rate.tokens_in(now.saturating_since(at)).as_micros();
        let part = earned.checked_div(self.shares.subclients().max(1));
        excess.saturating_sub(Tokens::from_micros(part.unwrap_or(0)))
    }

    /// Turns of the client of `entry` among the others. Its first request after its turn comes at some time of
    /// the mean between two of its requests. As long as that is short beside the time in which the bucket
    /// fills, there is a turn for each token. Else there are more, or tokens would find no room while they wait; but
    /// no more than a large bucket needs where turns come at random.
    pub(super) fn turns_of(&self, entry: &ClientEntry) -> Turns {
        let Limit {
            capacity, burst, ..
        } = self.limit;
        let burst = burst.as_micros();
        let cost = self.usual_cost();
        let of_16_tokens =
            |turns: u64| u128::from(cost.as_micros()).saturating_mul(u128::from(turns) * 16);
        let burst_wanted = u128::from(entry.wants().as_micros()).saturating_mul(burst.into());
        let late = of_16_tokens(LATE_TURNS)
            .saturating_mul(capacity.as_micros().into())
            .checked_div(burst_wanted);
        let rest = burst.saturating_sub(cost.as_micros());
        let random = of_16_tokens(RANDOM_TURNS).checked_div(rest.into());
        let more = [late, random].into_iter().flatten().min();
        let more = u32::try_from(more.unwrap_or(u128::MAX)).unwrap_or(u32::MAX);
        Turns {
            clients: usize::try_from(self.shares.subclients()).unwrap_or(usize::MAX),
            cost,
            of_16_tokens: more.min(TURNS_MAX).saturating_add(16),
        }
    }

    /// Time in which each client could have two requests, were they divided equally; bounded.
    pub(super) fn time_of_two_turns(&self) -> Duration {
        let all = self.shares.subclients().saturating_mul(2);
        let cost = self.usual_cost().as_micros().saturating_mul(all);
        let time = self
            .limit
            .capacity
            .as_rate()
            .time_for(Tokens::from_micros(cost));
        time.map_or(KEPT_FOR_MAX, |time| time.min(KEPT_FOR_MAX))
    }
}
