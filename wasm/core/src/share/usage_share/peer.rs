//! Broker of Pulsar's resource groups, which tells others what it uses and hears of theirs.

use alloc::collections::BTreeMap;
use core::time::Duration;

use super::QuotaRule;
use crate::limit::Part;
use crate::units::{Capacity, Instant};

/// Rules by which brokers report their usage to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportPolicy {
    /// Time between two reports, if each is sent.
    pub interval: Duration,
    /// Change of the usage, as a part of what was reported last, that is not reported by itself.
    pub tolerance: Part,
    /// Number of intervals after which a report is sent whatever it says.
    pub rounds: u32,
    /// Whether a report of others is forgotten after two times as many intervals. Before the
    /// threshold variant it never was: a broker that had gone kept its part.
    pub forgets: bool,
}

/// One of Pulsar's brokers, for one resource and unit: the reports that it has sent and heard.
///
/// A caller that drives several carries each report to all others. Nothing here keeps the sum of
/// their quotas within the limit; see [the module](super).
#[derive(Clone, Debug)]
pub struct UsagePeer<K> {
    policy: ReportPolicy,
    rule: QuotaRule,
    /// Report that it sent last.
    own: Option<UsageReport>,
    others: BTreeMap<K, UsageReport>,
}

#[derive(Clone, Copy, Debug)]
struct UsageReport {
    usage: Capacity,
    at: Instant,
}

// === impl ReportPolicy ===

impl ReportPolicy {
    /// Pulsar's constants: a minute, 5 %, five rounds; nothing is forgotten.
    pub const PULSAR: Self = Self {
        interval: Duration::from_secs(60),
        tolerance: match Part::try_from_micros(50_000) {
            Some(tolerance) => tolerance,
            None => Part::NONE,
        },
        rounds: 5,
        forgets: false,
    };

    /// Whether a broker that uses `usage` sends a report, if `last` was reported `ago`.
    ///
    /// A fall to nothing is no change: others go on counting what was reported before, until the
    /// round in which a report is sent in any case.
    pub fn is_due(&self, usage: Capacity, last: Capacity, ago: Duration) -> bool {
        if ago >= self.interval.saturating_mul(self.rounds) {
            return true;
        }
        let (usage, last) = (usage.as_micros(), last.as_micros());
        let change = u128::from(usage.abs_diff(last)).saturating_mul(WHOLE);
        let least = u128::from(last).saturating_mul(self.tolerance.as_micros().into());
        usage > 0 && change > least
    }

    /// Whether a report that was heard `ago` still counts.
    fn counts(&self, ago: Duration) -> bool {
        let longest = self
            .interval
            .saturating_mul(self.rounds)
            .saturating_mul(FORGETS_AFTER);
        !self.forgets || ago < longest
    }
}

// === impl UsagePeer ===

impl<K: Ord> UsagePeer<K> {
    /// A broker that has heard of no other.
    pub const fn new(policy: ReportPolicy, rule: QuotaRule) -> Self {
        Self {
            policy,
            rule,
            own: None,
            others: BTreeMap::new(),
        }
    }

    /// Takes what it used in the interval that ends now; returns whether that is to be sent to all
    /// others.
    pub fn report(&mut self, now: Instant, usage: Capacity) -> bool {
        let due = self.own.is_none_or(|last| {
            let ago = now.saturating_since(last.at);
            self.policy.is_due(usage, last.usage, ago)
        });
        if due {
            self.own = Some(UsageReport { usage, at: now });
        }
        due
    }

    /// Hears the report of another broker.
    pub fn handle_report(&mut self, now: Instant, other: K, usage: Capacity) {
        self.others.insert(other, UsageReport { usage, at: now });
    }

    /// Returns its part of `quota`, from what was reported last.
    pub fn quota(&self, now: Instant, quota: Capacity) -> Capacity {
        let mine = self.own.map_or(Capacity::ZERO, |own| own.usage);
        let others = self.others.values();
        let others = others.filter(|report| self.policy.counts(now.saturating_since(report.at)));
        let others = others.map(|report| u128::from(report.usage.as_micros()));
        let total = others.fold(mine.as_micros().into(), u128::saturating_add);
        self.rule.quota(quota, mine, total)
    }
}

/// Millionths of a whole.
const WHOLE: u128 = 1_000_000;

/// Number of mandatory reports that may be missed before a broker is forgotten.
const FORGETS_AFTER: u32 = 2;
