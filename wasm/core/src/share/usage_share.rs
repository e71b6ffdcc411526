//! Usage share: capacity in proportion to what each client used. Pulsar's resource groups (PIP-82).
//!
//! Pulsar's brokers tell each other what they use of a quota, and each computes its own part:
//! `mine + (quota − total) · mine / total`, which is `quota · mine / total`. So
//!
//! - **a split freezes**: a client that is held to its part uses its part, and gets the same again.
//!
//!   ```text
//!   quota 100 · both want 70 · parts 70, 30 · for ever 70, 30
//!   ```
//! - **the quota is not kept**: each rises as soon as it computes, without regard to what others
//!   still use; a client that uses nothing gets one all the same, and where nobody uses anything,
//!   each gets the whole.
//!
//! Here are the calculator as it is in Pulsar, for comparison ([`QuotaRule`], with [`UsagePeer`]
//! around it), and the share of the algorithm that a limit may name (`UsageTotals`). That one
//! says only who is entitled to what: it never sums to more than the capacity, and the allocation
//! waits until others have given back.

mod peer;

pub use self::peer::{ReportPolicy, UsagePeer};
use crate::limit::Part;
use crate::units::{Capacity, mul_div};

/// Pulsar's calculator of a broker's part of a quota, by its version.
///
/// Pulsar computes in 32-bit floats and cuts to whole numbers; this is exact to the millionth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaRule {
    /// Version 2.8.0: a broker that uses nothing gets nothing, also if nobody does.
    Zero,
    /// From 2.8.1 on: at least one, because the limiter reads zero as "no limit"; and the whole
    /// quota while nobody uses any.
    AtLeastOne,
    /// The variant with a threshold: also the whole quota for a broker that uses nothing, and for
    /// all while they use at most this part of it together.
    Threshold(Part),
}

/// Usage of all clients of a resource, among which its capacity is divided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsageTotals {
    /// Sum of what they use, in millionths.
    pub(crate) usage: u128,
    /// Weights of those that want something.
    pub(crate) weight: u64,
}

/// Part of the capacity that is divided equally: a hundredth.
const EVEN: Option<Part> = Part::try_from_micros(10_000);

// === impl QuotaRule ===

impl QuotaRule {
    /// Returns a broker's part of `quota` that uses `mine` of the `total` that all use, in
    /// millionths.
    pub fn quota(self, quota: Capacity, mine: Capacity, total: u128) -> Capacity {
        if quota.is_unlimited() {
            return quota;
        }
        let part = Capacity::from_micros(mul_div(quota.as_micros(), mine.as_micros(), total));
        match self {
            Self::Zero => part,
            _ if total == 0 => quota,
            Self::AtLeastOne => part.max(Capacity::from_whole(1)),
            Self::Threshold(_) if mine == Capacity::ZERO => quota,
            Self::Threshold(least) if total <= least.of(quota).as_micros().into() => quota,
            Self::Threshold(_) => part.max(Capacity::from_whole(1)),
        }
    }
}

// === impl UsageTotals ===

impl UsageTotals {
    /// Returns the share in `capacity` of a client that uses `mine` and has this `weight`: of
    /// ninety-nine hundredths in proportion to its usage, of the rest by weight.
    ///
    /// The rest lets newcomers in, and thaws a frozen split: clients that use all that they get
    /// come nearer to equal shares by a hundredth with each refresh. Over all clients the shares
    /// sum to at most `capacity`, and fall short of it by rounding only.
    pub(crate) fn share(self, capacity: Capacity, mine: Capacity, weight: u64) -> Capacity {
        if capacity.is_unlimited() {
            return capacity;
        }
        let even = match (self.usage, EVEN) {
            (0, _) | (_, None) => capacity,
            (_, Some(even)) => even.of(capacity),
        };
        let rest = capacity.saturating_sub(even).as_micros();
        let by_usage = mul_div(rest, mine.as_micros(), self.usage);
        let by_weight = mul_div(even.as_micros(), weight, self.weight.into());
        Capacity::from_micros(by_usage.saturating_add(by_weight))
    }
}

#[cfg(test)]
mod tests;
