//! Refusals of requests, and the state of limits that clients are told.

use core::num::NonZeroU32;
use core::time::Duration;

use tollgate_core::fleet::QuotaLevel;
use tollgate_core::lease::Unit;
use tollgate_core::units::{Capacity, Instant, Rate, RatePeriod, Tokens};

use crate::config::RuleId;

/// Time after which a bucket is asked again that other workers have changed all the time.
const CONTENDED_FOR: Duration = Duration::from_millis(1);

/// Refusal of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A bucket has too little.
    Denied {
        /// The rule whose bucket it is.
        rule: RuleId,
        /// The rule whose scope leads to that bucket: the same, but for the limits of groups.
        by: RuleId,
        /// Why, and for how long.
        denial: Denial,
    },
    /// The rule found no usable key and must have one.
    Missing {
        /// The rule that refuses.
        rule: RuleId,
    },
    /// The host failed, and the configuration says not to go on then.
    HostFailure,
}

/// Why a scope's requests are refused, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Until then the answer is known without asking the shared table.
    pub until: Instant,
    /// When the next request passes, if that is known.
    pub retry_at: Option<Instant>,
    /// The limit to tell: micro-requests per second.
    pub limit: u64,
    /// Period for which it was written, if it is known.
    pub period: Option<RatePeriod>,
    /// Refused for want of a lease.
    pub without_lease: bool,
    /// The exhausted unit.
    pub unit: Unit,
    /// Tokens that were asked for.
    pub need: Tokens,
    /// Tokens that come in for the process; unlimited where one token lets all go on.
    pub rate: Rate,
    /// The most that may come in soon, if a lease is about to grow.
    pub expected_rate: Option<Rate>,
    /// The most that there can be at once, if it is less.
    pub most: Option<Tokens>,
    /// It is more than there can ever be at once.
    pub never: bool,
    /// The quota that refuses it, if one does.
    pub quota: Option<QuotaPolicy>,
}

/// Quota as it is told: small, for it is in each denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaPolicy {
    /// Whole tokens of a window.
    pub amount: u64,
    /// Usual length of a window, in seconds, rounded up.
    pub window_s: NonZeroU32,
}

/// State of a bucket as a worker last saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitStatus {
    /// The limit to tell: micro-requests per second.
    pub limit: u64,
    /// Period for which it was written, if it is known.
    pub period: Option<RatePeriod>,
    /// Tokens that the process could spend at once.
    pub left: Tokens,
    /// Time until the bucket is full if no request draws, if it ever is.
    pub full_in: Option<Duration>,
    /// The quota that is nearest to its end, if there is any.
    pub quota: Option<QuotaLevel>,
}

/// State of a scope's limit of requests at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScopeLevel {
    /// Capacity of the whole resource, as the coordinator last said; `None` if it has not yet.
    pub capacity: Option<Capacity>,
    /// Period for which that was written, if it is known.
    pub period: Option<RatePeriod>,
    /// Rate at which the process earns tokens.
    pub rate: Rate,
    /// Whether the rate is that of a lease, not a fallback.
    pub is_leased: bool,
    /// Tokens that the process could spend at once.
    pub left: Tokens,
    /// Time until it could spend one; `None` if only a change of the lease can help.
    pub next_in: Option<Duration>,
    /// Time until the bucket is full if no request draws, if it ever is.
    pub full_in: Option<Duration>,
    /// The quota that is nearest to its end, if there is any.
    pub quota: Option<QuotaLevel>,
}

// === impl Refusal ===

impl Refusal {
    /// Returns the one of two refusals that lasts longer; one whose end is unknown lasts longest.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        let end = |refusal| match refusal {
            Self::Denied { denial, .. } => denial.retry_at.map_or(u64::MAX, Instant::as_nanos),
            Self::Missing { .. } | Self::HostFailure => u64::MAX,
        };
        if end(other) > end(self) { other } else { self }
    }

    /// Returns the rule that refuses.
    pub fn rule(self) -> Option<RuleId> {
        match self {
            Self::Denied { rule, .. } | Self::Missing { rule } => Some(rule),
            Self::HostFailure => None,
        }
    }

    /// Returns the rule that says how the client is told.
    pub fn told_by(self) -> Option<RuleId> {
        match self {
            Self::Denied { by, .. } => Some(by),
            Self::Missing { .. } | Self::HostFailure => self.rule(),
        }
    }
}

// === impl QuotaPolicy ===

impl From<&QuotaLevel> for QuotaPolicy {
    fn from(level: &QuotaLevel) -> Self {
        let window_s = level.length.as_millis().div_ceil(1000);
        let window_s = u32::try_from(window_s).unwrap_or(u32::MAX);
        Self {
            amount: level.amount.whole(),
            window_s: NonZeroU32::new(window_s).unwrap_or(NonZeroU32::MIN),
        }
    }
}

// === impl Denial ===

impl Denial {
    /// Returns the denial of one token of `unit`, without a time at which there is one.
    pub(crate) fn new(unit: Unit, until: Instant) -> Self {
        Self {
            until,
            retry_at: None,
            limit: 0,
            period: None,
            without_lease: true,
            unit,
            need: Tokens::ONE,
            rate: Rate::ZERO,
            expected_rate: None,
            most: None,
            never: false,
            quota: None,
        }
    }

    /// Returns the denial of a bucket that other workers have changed all the time. It tells of no
    /// limit, and says to ask again in a moment.
    pub(crate) fn contended(unit: Unit, need: Tokens, now: Instant) -> Self {
        Self {
            retry_at: Some(now.saturating_add(CONTENDED_FOR)),
            without_lease: false,
            need,
            rate: Rate::UNLIMITED,
            ..Self::new(unit, now)
        }
    }

    /// Returns the denial of a scope that has no slot and whose rule refuses it then.
    pub(crate) fn overflow(now: Instant) -> Self {
        Self::new(Unit::Requests, now)
    }
}
