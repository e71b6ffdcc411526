//! How much may be lent of what is borrowed.

use crate::units::{Capacity, Instant, Tokens, mul_div};

/// What a coordinator with a parent may lend of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LendableCapacity {
    pub(crate) source: LendableSource,
    /// The capacity of the whole resource, as the parent says.
    pub(crate) whole: Capacity,
    /// What the parent says that each client falls back to.
    pub(crate) safe: Option<Capacity>,
    /// How many coordinators are above.
    pub(crate) level: u32,
}

/// Where what may be lent comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LendableSource {
    /// It is borrowed.
    Lease {
        /// So much.
        capacity: Capacity,
        /// Until then.
        until: Instant,
        /// With it, so much at once after a pause.
        burst: Tokens,
    },
    /// The parent is away: this for each client.
    Safe(Capacity),
    /// The parent is away, and had no limit when it was there.
    Own,
    /// The parent has not answered yet, or is away and nobody has said what is safe.
    Nothing,
}

// === impl LendableCapacity ===

impl LendableCapacity {
    /// Of a resource that the parent has said nothing of.
    pub(super) fn pending(level: u32) -> Self {
        Self {
            source: LendableSource::Nothing,
            whole: Capacity::UNLIMITED,
            safe: None,
            level,
        }
    }

    /// The part of the borrowed burst that goes with `gets`: in proportion, as of a limit's. None
    /// where nothing is borrowed that it could be a part of.
    pub(crate) fn burst_for(&self, gets: Capacity) -> Option<Tokens> {
        let LendableSource::Lease {
            capacity, burst, ..
        } = self.source
        else {
            return None;
        };
        let part = match gets >= capacity {
            true => burst.as_micros(),
            false => mul_div(
                burst.as_micros(),
                gets.as_micros(),
                capacity.as_micros().into(),
            ),
        };
        Some(Tokens::from_micros(part).max(Tokens::ONE))
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
            LendableSource::Nothing => Capacity::ZERO,
        }
    }
}
