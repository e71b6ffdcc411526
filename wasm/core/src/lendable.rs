//! Capacity that may be lent of the borrowed one.

use crate::limit::burst_part;
use crate::units::{Capacity, Instant, RatePeriod, Tokens};

/// Capacity that a coordinator with a parent may lend of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LendableCapacity {
    pub(crate) source: LendableSource,
    /// Capacity of the whole resource, by the parent's answer.
    pub(crate) whole: Capacity,
    /// Period for which that was written.
    pub(crate) whole_period: Option<RatePeriod>,
    /// Burst of the whole resource, by the parent's answer.
    pub(crate) whole_burst: Option<Tokens>,
    /// Capacity that each client falls back to, by the parent's answer.
    pub(crate) safe: Option<Capacity>,
    /// Number of coordinators above.
    pub(crate) level: u32,
}

/// Source of the capacity that may be lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LendableSource {
    /// A lease of the parent.
    Lease {
        /// Its capacity.
        capacity: Capacity,
        /// Its expiry.
        until: Instant,
        /// Its burst.
        burst: Tokens,
    },
    /// The parent is away: safe capacity for each client.
    Safe(Capacity),
    /// The parent is away, and had no limit when it was there: the own limit holds, if there is one.
    Own,
    /// The parent's first answer is awaited, and will come soon or not at all.
    Awaited,
    /// The parent has not answered for long, or is away and no safe capacity is known.
    Nothing,
}

// === impl LendableCapacity ===

impl LendableCapacity {
    /// The state of a resource before the parent's first answer.
    pub(crate) fn pending(level: u32) -> Self {
        Self {
            source: LendableSource::Awaited,
            whole: Capacity::UNLIMITED,
            whole_period: None,
            whole_burst: None,
            safe: None,
            level,
        }
    }

    /// Part of the borrowed burst that goes with `gets`: in proportion, as of a limit's. Where nothing
    /// is borrowed that it could be a part of, the whole burst, if it is known.
    pub(crate) fn burst_for(&self, gets: Capacity) -> Option<Tokens> {
        let LendableSource::Lease {
            capacity, burst, ..
        } = self.source
        else {
            return self.whole_burst;
        };
        Some(burst_part(burst, capacity, gets).max(Tokens::ONE))
    }

    /// Capacity and burst of the parent's lease, if there is one.
    pub(crate) fn lease(&self) -> Option<(Capacity, Tokens)> {
        match self.source {
            LendableSource::Lease {
                capacity, burst, ..
            } => Some((capacity, burst)),
            _ => None,
        }
    }

    /// The most that may be lent to `subclients` together.
    pub(crate) fn lendable(&self, subclients: u64) -> Capacity {
        match self.source {
            LendableSource::Lease { capacity, .. } => capacity,
            LendableSource::Safe(each) if each.is_unlimited() => each,
            LendableSource::Safe(each) => {
                let all = each.as_micros().saturating_mul(subclients);
                Capacity::from_micros(all).min(self.whole)
            }
            LendableSource::Own => Capacity::UNLIMITED,
            LendableSource::Awaited | LendableSource::Nothing => Capacity::ZERO,
        }
    }
}
