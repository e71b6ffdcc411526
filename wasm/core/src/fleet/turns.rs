//! Turns to draw under overload.

use core::time::Duration;

use super::fleet_bucket::Turns;
use super::{FleetLimit, FleetSums};
use crate::units::{Capacity, Tokens};

/// The longest time for which a token is kept for a client.
const KEPT_FOR_MAX: Duration = Duration::from_secs(60 * 60);

/// Turns to draw beyond one for each token, if a client's next request comes as late as the bucket needs to fill.
const LATE_TURNS: u64 = 24;

/// The most of these, if the burst is two tokens; of a larger one there are less.
const RANDOM_TURNS: u64 = 8;

/// The most turns beyond one for each token, for 16 of these.
const TURNS_MAX: u32 = 16 * 64;

// === impl FleetLimit ===

impl FleetLimit {
    /// Turns of a client that wants `wants` among the others. Its first request after its turn comes at some time of
    /// the mean between two of its requests. As long as that is short beside the time in which the bucket
    /// fills, there is a turn for each token. Else there are more, or tokens would find no room while they wait; but
    /// no more than a large bucket needs where turns come at random.
    pub(super) fn turns(&self, sums: &FleetSums, wants: Capacity) -> Turns {
        let burst = sums.burst.as_micros();
        let cost = self.usual_cost();
        let of_16_tokens =
            |turns: u64| u128::from(cost.as_micros()).saturating_mul(u128::from(turns) * 16);
        let burst_wanted = u128::from(wants.as_micros()).saturating_mul(burst.into());
        let late = of_16_tokens(LATE_TURNS)
            .saturating_mul(sums.capacity.as_micros().into())
            .checked_div(burst_wanted);
        let rest = burst.saturating_sub(cost.as_micros());
        let random = of_16_tokens(RANDOM_TURNS).checked_div(rest.into());
        let more = [late, random].into_iter().flatten().min();
        let more = u32::try_from(more.unwrap_or(u128::MAX)).unwrap_or(u32::MAX);
        Turns {
            clients: usize::try_from(sums.subclients).unwrap_or(usize::MAX),
            cost,
            of_16_tokens: more.min(TURNS_MAX).saturating_add(16),
        }
    }

    /// Time in which each client could have two requests, were they divided equally; bounded.
    pub(super) fn time_of_two_turns(&self, sums: &FleetSums) -> Duration {
        let all = sums.subclients.saturating_mul(2);
        let cost = self.usual_cost().as_micros().saturating_mul(all);
        let time = sums.capacity.as_rate().time_for(Tokens::from_micros(cost));
        time.map_or(KEPT_FOR_MAX, |time| time.min(KEPT_FOR_MAX))
    }
}
