//! Settings of a client for where it has no lease.

use core::time::Duration;

use crate::lease::{Priority, Unit};
use crate::lease_client::KnownLimit;
use crate::units::{Capacity, Rate, Tokens};

/// The least burst in optimistic mode. Wants may be measured a little low, and of requests at equal
/// intervals a bucket that holds one would then refuse every second.
const OPTIMISTIC_BURST: Tokens = Tokens::from_whole(2);

/// Rule for a client that has no valid lease. None admits more than a limit that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The safe capacity: the one last sent, else the configured one; everything where the
    /// coordinator has said that there is no limit.
    #[default]
    Safe,
    /// The wants, but at least the safe capacity: for operators who would rather overload than
    /// refuse.
    Optimistic,
    /// Nothing.
    Pessimistic,
}

/// A client's settings for the resources of one scope rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Mode without a valid lease.
    pub no_lease: Mode,
    /// The safe capacity of requests, per second, as long as the coordinator has sent none.
    pub safe: Capacity,
    /// The same for bytes, per second in each direction.
    pub safe_bytes: Capacity,
    /// The same for requests in flight.
    pub safe_concurrency: Capacity,
    /// Time for which the first requests may be held for the first answer; zero holds none.
    pub first_lease_wait: Duration,
    /// Time after which a request to the coordinator counts as lost.
    pub call_timeout: Duration,
    /// Time without attempts after which a lease is released.
    pub idle_after: Duration,
    /// The most that may be owed for traffic that passed before it could be counted, as a time at
    /// the present rate: so long the next request may have to wait.
    pub max_debt: Duration,
    /// Priority band of the client's requests.
    pub priority: Priority,
    /// Limit of requests of most of the rule's scopes, as the coordinator has told it: it holds for
    /// those of which nothing else is known.
    pub usual: Option<KnownLimit>,
}

impl Policy {
    /// The safe capacity of `unit` as long as the coordinator has sent none.
    pub const fn safe_of(&self, unit: Unit) -> Capacity {
        match unit {
            Unit::Requests => self.safe,
            Unit::RequestBytes | Unit::ResponseBytes => self.safe_bytes,
            Unit::Concurrency => self.safe_concurrency,
        }
    }

    /// Capacity of a client of `unit` that has no lease and wants `wants`, under the limit that is
    /// `known`, if one is.
    pub fn without_lease(
        &self,
        unit: Unit,
        known: Option<KnownLimit>,
        wants: Capacity,
    ) -> Capacity {
        let safe = known.and_then(|known| known.safe);
        let safe = safe.unwrap_or_else(|| self.safe_of(unit));
        let capacity = match self.no_lease {
            Mode::Safe => safe,
            Mode::Optimistic => safe.max(wants),
            Mode::Pessimistic => Capacity::ZERO,
        };
        known.map_or(capacity, |known| capacity.min(known.capacity))
    }

    /// The same as a rate, with its burst: a second of the rate, but no more than the limit's.
    pub fn flow_without_lease(
        &self,
        unit: Unit,
        known: Option<KnownLimit>,
        wants: Capacity,
    ) -> (Rate, Tokens) {
        let rate = self.without_lease(unit, known, wants).as_rate();
        let least = match (rate, self.no_lease) {
            (Rate::ZERO, _) => Tokens::ZERO,
            (_, Mode::Safe | Mode::Pessimistic) => Tokens::ONE,
            (_, Mode::Optimistic) => OPTIMISTIC_BURST,
        };
        let burst = rate.tokens_in(Duration::from_secs(1)).max(least);
        let most = known.and_then(|known| known.burst);
        (rate, most.map_or(burst, |most| burst.min(most)))
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            no_lease: Mode::Safe,
            safe: Capacity::from_whole(10),
            safe_bytes: Capacity::from_whole(1024 * 1024),
            safe_concurrency: Capacity::from_whole(10),
            first_lease_wait: Duration::from_millis(250),
            call_timeout: Duration::from_secs(1),
            idle_after: Duration::from_secs(10),
            max_debt: Duration::from_secs(10),
            priority: Priority::default(),
            usual: None,
        }
    }
}
