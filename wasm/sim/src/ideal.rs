//! Ideal buckets: beside each limit of the fleet one token bucket with its rate and burst, to which
//! the same requests come at the same instants.
//!
//! Leases are not admissions: a token that lies at one Envoy is of no use to a request
//! at another. So the fleet's admissions are measured beside those of one bucket that all Envoys
//! share without delay. A second bucket pays for what the fleet really admitted, if need be by going
//! into debt: its deepest debt is the most that was admitted beyond `burst + rate * t` in any window.

use std::iter;
use std::time::Duration;

use tollgate_core::bucket::TokenBucket;
use tollgate_core::units::{Instant, MICRO, Tokens};

use crate::capacities::{CapacityNode, CapacityTree};

/// Tokens that an ideal bucket must have admitted for its limit to count as the worst.
const WORST_FROM: u64 = 10;

/// Ideal buckets of all capacities, by the numbers of a [`CapacityTree`].
#[derive(Debug)]
pub(crate) struct IdealBuckets {
    buckets: Vec<IdealBucket>,
    measure_from: Duration,
}

/// Figures of all limits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct IdealFigures {
    /// Part of what ideal buckets admitted that the fleet admitted, too; none if they admitted nothing.
    pub(crate) of_ideal: Option<f64>,
    /// The same of the limit where it is least.
    pub(crate) least_of_ideal: Option<f64>,
    /// Tokens admitted beyond `burst + rate * t` in a window, of the limit where they are most.
    pub(crate) beyond: f64,
}

/// Bucket of one capacity that decides by itself, and one that pays for the fleet's decisions. With an
/// unlimited rate both let everything pass and count nothing.
#[derive(Debug)]
struct IdealBucket {
    ideal: TokenBucket,
    fleet: TokenBucket,
    /// The capacity that it lies in.
    parent: Option<usize>,
    /// Tokens that the ideal bucket admitted, and the fleet.
    admitted: [u64; 2],
    /// Tokens that the ideal bucket admitted since the last sample.
    sampled: u64,
    /// Micro-tokens of the deepest debt.
    beyond: u64,
}

// === impl IdealBuckets ===

impl IdealBuckets {
    /// Returns full buckets of `capacities`; requests count after `measure_from`.
    pub(crate) fn new(capacities: &CapacityTree, measure_from: Duration) -> Self {
        let buckets = capacities.nodes().iter().map(IdealBucket::new);
        Self {
            buckets: buckets.collect(),
            measure_from,
        }
    }

    /// Takes the capacities that hold from `at` on.
    pub(crate) fn set_capacities(&mut self, at: Duration, capacities: &CapacityTree) {
        let now = instant(at);
        for (bucket, node) in self.buckets.iter_mut().zip(capacities.nodes()) {
            let rate = node.capacity.capacity.as_rate();
            bucket.parent = node.parent;
            bucket.ideal.set(now, rate, node.burst);
            bucket.fleet.set(now, rate, node.burst);
        }
    }

    /// Lets a request for `cost` tokens of the scope at `number` come. All buckets that bound it are
    /// charged, or none.
    pub(crate) fn request(&mut self, at: Duration, number: usize, cost: u32) {
        let (now, tokens) = (instant(at), Tokens::from_whole(cost.into()));
        let passes = self.chain(number).all(|index| {
            let mut ideal = self.buckets[index].ideal;
            ideal.take(now, tokens).is_ok()
        });
        if passes {
            let measured = self.measured(at, cost);
            self.for_each(number, |bucket| {
                bucket.ideal.charge(now, tokens);
                bucket.sampled += u64::from(cost);
                bucket.admitted[0] += measured;
            });
        }
    }

    /// Notes that the fleet admitted a request for `cost` tokens of the scope at `number`.
    pub(crate) fn admit(&mut self, at: Duration, number: usize, cost: u32) {
        let (now, tokens) = (instant(at), Tokens::from_whole(cost.into()));
        let measured = self.measured(at, cost);
        self.for_each(number, |bucket| {
            bucket.fleet.charge(now, tokens);
            bucket.admitted[1] += measured;
            if measured > 0 {
                let debt = bucket.fleet.balance(now).min(0).unsigned_abs();
                bucket.beyond = bucket.beyond.max(debt);
            }
        });
    }

    /// Returns the tokens that the bucket at `number` admitted since the last sample; none if it has no
    /// bound.
    pub(crate) fn sampled(&self, number: usize) -> Option<u64> {
        let bucket = &self.buckets[number];
        bucket.is_bounded().then_some(bucket.sampled)
    }

    /// Begins a sample.
    pub(crate) fn clear_samples(&mut self) {
        for bucket in &mut self.buckets {
            bucket.sampled = 0;
        }
    }

    /// Returns the figures so far. The parts are of all limits that lie in no other.
    pub(crate) fn figures(&self) -> IdealFigures {
        let mut figures = IdealFigures::default();
        let (mut ideal, mut both) = (0, 0);
        for bucket in self.buckets.iter().filter(|bucket| bucket.is_bounded()) {
            let [of_ideal, of_fleet] = bucket.admitted;
            if bucket.parent.is_none() {
                ideal += of_ideal;
                both += of_ideal.min(of_fleet);
            }
            if let Some(part) = part(of_fleet, of_ideal).filter(|_| of_ideal >= WORST_FROM) {
                let least = figures.least_of_ideal.unwrap_or(part);
                figures.least_of_ideal = Some(least.min(part));
            }
            figures.beyond = figures.beyond.max(bucket.beyond as f64 / MICRO as f64);
        }
        figures.of_ideal = part(both, ideal);
        figures
    }

    /// Returns `cost` if requests at `at` count.
    fn measured(&self, at: Duration, cost: u32) -> u64 {
        u64::from(cost) * u64::from(at > self.measure_from)
    }

    /// Returns the numbers of the buckets that bound the scope at `number`.
    fn chain(&self, number: usize) -> impl Iterator<Item = usize> {
        iter::successors(Some(number), |index| self.buckets[*index].parent)
    }

    fn for_each(&mut self, number: usize, mut change: impl FnMut(&mut IdealBucket)) {
        let mut next = Some(number);
        while let Some(index) = next {
            let bucket = &mut self.buckets[index];
            change(bucket);
            next = bucket.parent;
        }
    }
}

// === impl IdealBucket ===

impl IdealBucket {
    fn new(node: &CapacityNode) -> Self {
        let bucket = TokenBucket::new(Instant::ZERO, node.capacity.capacity.as_rate(), node.burst);
        Self {
            ideal: bucket,
            fleet: bucket,
            parent: node.parent,
            admitted: [0; 2],
            sampled: 0,
            beyond: 0,
        }
    }

    fn is_bounded(&self) -> bool {
        !self.ideal.rate().is_unlimited()
    }
}

// === free functions ===

fn instant(at: Duration) -> Instant {
    Instant::ZERO.saturating_add(at)
}

fn part(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
