use core::time::Duration;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::units::Instant;

fn whole(units: u64) -> Capacity {
    Capacity::from_whole(units)
}

/// As Pulsar, which cuts to whole numbers.
fn cut(capacity: Capacity) -> u64 {
    capacity.as_micros() / 1_000_000
}

/// Vectors of `ResourceQuotaCalculatorImplTest`, with the values that its code gives.
#[test]
fn calculator_vectors() {
    // Quota, usage of one and of all; its part by 2.8.0 and by 2.8.1.
    let rows = [
        (100, 20, &[40][..], 50, 50),
        (100, 20, &[100], 20, 20),
        (100, 20, &[150], 13, 13),
        (100, 20, &[60], 33, 33),
        (100, 40, &[60], 66, 66),
        (10, 0, &[0], 0, 10),
        (100, 10, &[10, 50, 30], 11, 11),
        (100, 50, &[10, 50, 30], 55, 55),
        (100, 30, &[10, 50, 30], 33, 33),
        (100, 80, &[80, 20], 80, 80),
        (100, 20, &[80, 20], 20, 20),
        (100, 0, &[0, 100], 0, 1),
        (0, 5, &[5, 5], 0, 1),
        // In 32-bit floats this is 333333344.
        (
            1_000_000_007,
            333_333_333,
            &[1_000_000_000],
            333_333_335,
            333_333_335,
        ),
    ];
    for (quota, mine, all, zero, at_least_one) in rows {
        let total: u128 = all
            .iter()
            .map(|usage| u128::from(whole(*usage).as_micros()))
            .sum();
        let part = |rule: QuotaRule| cut(rule.quota(whole(quota), whole(mine), total));
        assert_eq!(part(QuotaRule::Zero), zero, "{quota}, {mine} of {all:?}");
        assert_eq!(
            part(QuotaRule::AtLeastOne),
            at_least_one,
            "{quota}, {mine} of {all:?}"
        );
    }
    // A quota that is not configured, which Pulsar writes as -1.
    let none = QuotaRule::AtLeastOne.quota(Capacity::UNLIMITED, Capacity::ZERO, 0);
    assert_eq!(none, Capacity::UNLIMITED);
}

/// Vectors of `needToReportLocalUsage`.
#[test]
fn report_vectors() {
    let rows = [
        (1040, 1000, false),
        (950, 1000, false),
        (1060, 1000, true),
        (940, 1000, true),
        (1050, 1000, false),
        (1051, 1000, true),
        (10, 0, true),
        (0, 0, false),
        (0, 1000, false),
    ];
    let policy = ReportPolicy::PULSAR;
    for (usage, last, want) in rows {
        let due = |secs| policy.is_due(whole(usage), whole(last), Duration::from_secs(secs));
        assert_eq!(due(299), want, "{usage} after {last}");
        assert!(due(300), "{usage} after {last}, in the fifth round");
    }
}

/// Brokers that report to each other each minute, and use what they want of what they get.
struct Brokers {
    now: Instant,
    peers: Vec<UsagePeer<usize>>,
    quotas: Vec<Capacity>,
}

impl Brokers {
    fn new(policy: ReportPolicy, rule: QuotaRule, quotas: &[u64]) -> Self {
        Self {
            now: Instant::ZERO,
            peers: vec![UsagePeer::new(policy, rule); quotas.len()],
            quotas: quotas.iter().map(|quota| whole(*quota)).collect(),
        }
    }

    /// One round; returns what each gets after it, cut to whole numbers.
    fn round(&mut self, wants: &[u64]) -> Vec<u64> {
        let interval = ReportPolicy::PULSAR.interval;
        self.now = self.now.saturating_add(interval);
        for (i, wants) in wants.iter().enumerate() {
            let usage = whole(*wants).min(self.quotas[i]);
            if self.peers[i].report(self.now, usage) {
                for other in (0..self.peers.len()).filter(|other| *other != i) {
                    self.peers[other].handle_report(self.now, i, usage);
                }
            }
        }
        for (quota, peer) in self.quotas.iter_mut().zip(&self.peers) {
            // Pulsar's limiters count whole messages.
            *quota = whole(cut(peer.quota(self.now, whole(100))));
        }
        self.quotas.iter().copied().map(cut).collect()
    }

    fn rounds(&mut self, rounds: usize, wants: &[u64]) -> Vec<u64> {
        let last = (0..rounds).map(|_| self.round(wants)).last();
        last.unwrap_or_default()
    }
}

/// Reports that are all sent: the calculator by itself.
const EACH: ReportPolicy = ReportPolicy {
    rounds: 1,
    ..ReportPolicy::PULSAR
};

#[test]
fn an_unfair_split_is_frozen() {
    // Parts at first, wants, parts after an hour.
    let rows = [
        (&[70, 30][..], &[70, 70][..], &[70, 30][..]),
        (&[99, 1], &[80, 60], &[98, 1]),
        (&[98, 1, 1], &[100, 100, 100], &[98, 1, 1]),
    ];
    for (quotas, wants, want) in rows {
        let mut brokers = Brokers::new(EACH, QuotaRule::AtLeastOne, quotas);
        assert_eq!(brokers.rounds(60, wants), want, "{quotas:?}");
    }
    let mut brokers = Brokers::new(EACH, QuotaRule::AtLeastOne, &[50, 50]);
    assert_eq!(brokers.round(&[200, 20]), [71, 28]);
    assert_eq!(brokers.round(&[200, 20]), [78, 21]);
    assert_eq!(brokers.round(&[200, 20]), [79, 20]);
}

#[test]
fn all_get_the_whole_quota_at_once() {
    let threshold = QuotaRule::Threshold(Part::HALF);
    let rows = [
        (QuotaRule::AtLeastOne, [0, 0, 0], "while nobody uses any"),
        (threshold, [10, 10, 10], "below the threshold"),
    ];
    for (rule, wants, when) in rows {
        let mut brokers = Brokers::new(EACH, rule, &[100, 100, 100]);
        assert_eq!(brokers.round(&wants), [100, 100, 100], "{when}");
    }
    // A broker that is idle gets all that another uses.
    let mut brokers = Brokers::new(EACH, threshold, &[100, 100]);
    assert_eq!(brokers.round(&[100, 0]), [100, 100]);
}

#[test]
fn an_end_of_usage_is_reported_late() {
    let mut brokers = Brokers::new(ReportPolicy::PULSAR, QuotaRule::AtLeastOne, &[50, 50]);
    assert_eq!(brokers.round(&[60, 60]), [50, 50]);
    for minute in 1..5 {
        let parts = brokers.round(&[0, 60]);
        assert_eq!(
            parts[1], 50,
            "minute {minute}: the half of the other is not used"
        );
    }
    assert_eq!(brokers.round(&[0, 60]), [1, 100]);
}

#[test]
fn a_broker_that_is_gone_is_forgotten_after_ten_intervals_or_never() {
    for (forgets, want) in [(false, 50), (true, 100)] {
        let policy = ReportPolicy {
            forgets,
            ..ReportPolicy::PULSAR
        };
        let mut peer = UsagePeer::new(policy, QuotaRule::AtLeastOne);
        peer.handle_report(Instant::ZERO, 1, whole(50));
        let at = |secs| Instant::ZERO.saturating_add(Duration::from_secs(secs));
        assert!(peer.report(at(599), whole(50)));
        assert_eq!(cut(peer.quota(at(599), whole(100))), 50);
        assert_eq!(cut(peer.quota(at(600), whole(100))), want);
    }
}

#[test]
fn shares_of_a_limit_are_by_usage_but_for_a_hundredth() {
    // Usage of each client, shares in thousandths.
    let rows = [
        (&[70, 30][..], &[69_800, 30_200][..]),
        (&[100, 0], &[99_500, 500]),
        (&[10, 50, 30], &[11_333, 55_333, 33_333]),
        (&[0, 0], &[50_000, 50_000]),
        (&[1000, 3000], &[25_250, 74_750]),
    ];
    for (usages, want) in rows {
        let totals = UsageTotals {
            usage: usages
                .iter()
                .map(|usage| u128::from(whole(*usage).as_micros()))
                .sum(),
            weight: usages.len() as u64,
        };
        let shares = usages
            .iter()
            .map(|usage| totals.share(whole(100), whole(*usage), 1));
        let shares: Vec<_> = shares.map(|share| share.as_micros() / 1000).collect();
        assert_eq!(shares, want, "{usages:?}");
    }
}

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
mod laws {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn shares_sum_to_the_capacity_but_for_rounding(
            clients in prop::collection::vec((0..=Capacity::MAX.as_micros(), 1..9_u64), 1..40),
            capacity in prop_oneof![0..2000_u64, 0..=Capacity::MAX.as_micros()],
        ) {
            let totals = UsageTotals {
                usage: clients.iter().map(|(usage, _)| u128::from(*usage)).sum(),
                weight: clients.iter().map(|(_, weight)| weight).sum(),
            };
            let capacity = Capacity::from_micros(capacity);
            let share = |(usage, weight): &(u64, u64)| {
                totals.share(capacity, Capacity::from_micros(*usage), *weight).as_micros()
            };
            let sum: u64 = clients.iter().map(share).sum();
            prop_assert!(sum <= capacity.as_micros());
            prop_assert!(sum + 2 * clients.len() as u64 >= capacity.as_micros());
        }
    }
}
