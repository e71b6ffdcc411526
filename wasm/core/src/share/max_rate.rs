//! Max-rate: capacity moves from clients that are not busy to those that are. Hermes' balancer.
//!
//! Hermes' leader knows of each member its max-rate and the part of it that it used. It takes from
//! those that are not busy, by `(1 − used)/(1 + used)` of their max-rate, and from busy ones that
//! have more than their equal part; and gives it to the other busy ones, in proportion to what they
//! have. When a member comes or goes or the limit changes, all start anew with equal parts.
//!
//! - **It oscillates**: a member loses what it does not use until it uses more than nine tenths of
//!   its max-rate. Then it is busy, and takes the same from others.
//!
//!   ```text
//!   limit 100 · wants 57, 42 · max-rates 50, 50 → 54.3, 45.7 → 50, 50 → …
//!   ```
//! - **It is slow**: two busy members at 99.9 and 0.1 need 17 rounds, of 30 s in Hermes.
//! - **Small limits are exceeded**: each member has at least one, so three of a limit of 1 have 3.
//!
//! Here are the balancer as it is in Hermes, for comparison ([`MaxRateRule::balance`], with
//! [`MaxRateMember`]), and a round of the algorithm that a limit may name
//! (`MaxRateRule::rebalance`), which is the same but for what exceeds the limit or starts all anew.
//! A round costs O(n).

use alloc::vec::Vec;

use crate::limit::Part;
use crate::units::{Capacity, MICRO, mul_div};

/// Rules of the balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxRateRule {
    /// Part of its max-rate beyond which a member is busy.
    pub busy_above: Part,
    /// The least max-rate.
    pub floor: Capacity,
    /// The least change, as a part of the limit.
    pub least_change: Part,
    /// The least difference that a member reports.
    pub least_report: Part,
}

/// Member of a limit, as the leader knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaxRateMember {
    /// Max-rate; none before the first round.
    pub max: Option<Capacity>,
    /// Part of it that the member used, as it reported last; none if it has not.
    pub used: Option<Part>,
}

// === impl MaxRateRule ===

impl MaxRateRule {
    /// Hermes' defaults.
    pub const HERMES: Self = Self {
        busy_above: part(900_000),
        floor: Capacity::from_whole(1),
        least_change: part(10_000),
        least_report: part(90_000),
    };

    /// One round of Hermes' leader: changes the max-rates of `members` of `limit`, and returns
    /// whether it did.
    pub fn balance(&self, limit: Capacity, members: &mut [MaxRateMember]) -> bool {
        if !self.starts_anew(limit, members) {
            return self.shift(limit, self.floor, members);
        }
        let each = limit.divided_by(members.len() as u64).max(self.floor);
        for member in members {
            member.max = Some(each);
        }
        true
    }

    /// One round of the algorithm of a limit: as [`Self::balance`], but when a member has come or
    /// gone or the capacity has changed, all are scaled to it. The floor is at most a tenth of an
    /// equal part. So the max-rates sum to at most `capacity`.
    pub(crate) fn rebalance(&self, capacity: Capacity, members: &mut [MaxRateMember]) {
        let each = capacity.divided_by(members.len() as u64);
        let floor = self.floor.min(each.divided_by(10));
        for member in members.iter_mut() {
            member.max = Some(member.max.unwrap_or(each).max(floor));
        }
        let sum = sum_max(members.iter());
        for member in members.iter_mut() {
            let scaled = mul_div(member.max().as_micros(), capacity.as_micros(), sum);
            let none = sum == 0;
            member.max = Some(if none {
                each
            } else {
                Capacity::from_micros(scaled)
            });
        }
        self.shift(capacity, floor, members);
    }

    /// Whether a member has come or gone or the limit has changed, or it is too low for the floor.
    fn starts_anew(&self, limit: Capacity, members: &[MaxRateMember]) -> bool {
        let each = limit.divided_by(members.len() as u64);
        let lent = sum_max(members.iter());
        let off = lent.abs_diff(limit.as_micros().into());
        members.iter().any(|member| member.max.is_none())
            || each <= Capacity::from_whole(1)
            || off > MICRO.into()
    }

    /// Moves capacity from members that are not busy, and from the greedy, to the other busy ones.
    fn shift(&self, limit: Capacity, floor: Capacity, members: &mut [MaxRateMember]) -> bool {
        let is_busy = |member: &&mut MaxRateMember| {
            let used = member.used.map_or(0, Part::as_micros);
            used > self.busy_above.as_micros()
        };
        let (busy, idle): (Vec<_>, Vec<_>) = members.iter_mut().partition(is_busy);
        if busy.is_empty() {
            return false;
        }
        let least = self.least_change.of(limit);
        let mut freed = Capacity::ZERO;
        for member in idle {
            freed = freed.saturating_add(member.yield_unused(floor, least));
        }
        let sum = sum_max(busy.iter().map(|member| &**member));
        let equal = Capacity::from_sum(sum).divided_by(busy.len() as u64);
        let is_greedy = |member: &&mut MaxRateMember| member.max() > equal.saturating_add(least);
        let (greedy, others): (Vec<_>, Vec<_>) = busy.into_iter().partition(is_greedy);
        for member in greedy {
            freed = freed.saturating_add(member.yield_excess(equal, least, sum));
        }
        let sum = sum_max(others.iter().map(|member| &**member));
        for member in others {
            let more = mul_div(freed.as_micros(), member.max().as_micros(), sum);
            let max = member.max().saturating_add(Capacity::from_micros(more));
            member.max = Some(max);
        }
        true
    }
}

// === impl MaxRateMember ===

impl MaxRateMember {
    /// A member that has this max-rate, and of it wants so much.
    pub fn wanting(wants: Capacity, max: Capacity) -> Self {
        Self {
            max: Some(max),
            used: Some(used(wants, max)),
        }
    }

    /// Takes what the member attempts, and returns whether it reports that: for the first time, or
    /// because it differs by more than `rule` asks for.
    pub fn report(&mut self, rule: &MaxRateRule, attempts: Capacity) -> bool {
        let used = used(attempts, self.max().max(Capacity::from_whole(1)));
        let differs = |last: Part| {
            let off = last.as_micros().abs_diff(used.as_micros());
            off > rule.least_report.as_micros()
        };
        let due = self.used.is_none_or(differs);
        if due {
            self.used = Some(used);
        }
        due
    }

    fn max(&self) -> Capacity {
        self.max.unwrap_or_default()
    }

    /// Gives back some of what it does not use; nothing if it has not reported.
    fn yield_unused(&mut self, floor: Capacity, least: Capacity) -> Capacity {
        let Some(used) = self.used else {
            return Capacity::ZERO;
        };
        // 2/(used + 1) − 1
        let (whole, used) = (Part::ALL.as_micros(), used.as_micros());
        let free = whole.saturating_sub(used).into();
        let divisor = whole.saturating_add(used).into();
        let part = mul_div(self.max().as_micros(), free, divisor);
        let part = Capacity::from_micros(part);
        let part = if part > least { part } else { Capacity::ZERO };
        self.give_back(part, floor)
    }

    /// Gives back some of what it has beyond the `equal` part of busy members, which have `sum`.
    fn yield_excess(&mut self, equal: Capacity, least: Capacity, sum: u128) -> Capacity {
        // The half of 2/(share + 1) − 1, with a share of max/sum.
        let max = self.max().as_micros();
        let others = sum.saturating_sub(max.into());
        let others = u64::try_from(others).unwrap_or(u64::MAX);
        let part = mul_div(max / 2, others, sum.saturating_add(max.into()));
        self.give_back(Capacity::from_micros(part).max(least), equal)
    }

    /// Lowers the max-rate by `part`, but not below `least`; returns by how much.
    fn give_back(&mut self, part: Capacity, least: Capacity) -> Capacity {
        let part = part.min(self.max().saturating_sub(least));
        self.max = Some(self.max().saturating_sub(part));
        part
    }
}

// === free functions ===

/// Part of the max-rate `max` that a member uses that wants `wants`: at most all of it.
fn used(wants: Capacity, max: Capacity) -> Part {
    if wants == Capacity::ZERO {
        return Part::NONE;
    }
    if wants >= max {
        return Part::ALL;
    }
    let used = mul_div(wants.as_micros(), MICRO, max.as_micros().into());
    part(u32::try_from(used).unwrap_or(u32::MAX))
}

fn sum_max<'a>(members: impl Iterator<Item = &'a MaxRateMember>) -> u128 {
    let max = members.map(|member| u128::from(member.max().as_micros()));
    max.fold(0, u128::saturating_add)
}

/// The part of so many millionths, at most the whole.
const fn part(micros: u32) -> Part {
    match Part::try_from_micros(micros) {
        Some(part) => part,
        None => Part::ALL,
    }
}

#[cfg(test)]
mod tests;
