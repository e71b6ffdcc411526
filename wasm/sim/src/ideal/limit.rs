//! One ideal limit, and beside it the fleet's use of the same limit.

use std::time::Duration;

use tollgate_core::bucket::TokenBucket;
use tollgate_core::lease::Unit;
use tollgate_core::quantity::rate_text;
use tollgate_core::quota::Quotas;
use tollgate_core::units::{Capacity, Instant, MICRO, RatePeriod, Tokens};

use super::part;
use super::quotas::{IdealQuotas, User};
use crate::capacities::CapacityNode;
use crate::figures::LimitFigures;

/// Ideal limit of one unit. With an unlimited capacity it lets everything pass and counts nothing.
#[derive(Debug)]
pub(super) struct IdealLimit {
    pub(super) unit: Unit,
    capacity: Capacity,
    quotas: IdealQuotas,
    /// Period for which that was written.
    pub(super) period: Option<RatePeriod>,
    meter: Meter,
    /// The capacity that it lies in.
    pub(super) parent: Option<usize>,
    /// Tokens that came first, and those that the ideal limit admitted, and the fleet.
    pub(super) asked: u64,
    pub(super) admitted: [u64; 2],
    /// Tokens that the ideal limit admitted since the last sample.
    pub(super) sampled: u64,
    /// Longest time after which a refused request was told to come again.
    pub(super) longest_pause: Duration,
    /// Micro-tokens of the fleet's deepest debt, and of its deepest debt that no cause explains.
    debts: [u64; 2],
    /// Whether requests turned out at their ends to have cost more than they took.
    has_late_costs: bool,
}

/// State of an ideal limit and of the fleet's use of it.
#[derive(Debug)]
enum Meter {
    Rate {
        ideal: TokenBucket,
        /// Pays for all that the fleet admitted.
        fleet: TokenBucket,
        /// Pays for what the fleet admitted under leases; late costs only empty it.
        explained: TokenBucket,
    },
    InFlight {
        ideal: u64,
        fleet: u64,
    },
}

/// Amount beyond `burst + rate * t` in the window where it is most, by its causes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Beyond {
    pub(super) all: f64,
    pub(super) safe: f64,
    pub(super) late: f64,
    pub(super) rest: f64,
}

/// Cost that the end of a request tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct SettledCost {
    /// Tokens that the request took.
    pub(super) taken: u32,
    /// Tokens that it has cost.
    pub(super) cost: u32,
    /// The time at which it took them.
    pub(super) taken_at: Instant,
    /// Whether it is measured.
    pub(super) counts: bool,
}

// === impl IdealLimit ===

impl IdealLimit {
    pub(super) fn of_requests(node: &CapacityNode) -> Self {
        let mut limit = Self::unlimited(Unit::Requests);
        (limit.parent, limit.period) = (node.parent, node.period);
        limit.set(Instant::ZERO, node.capacity.capacity, node.burst);
        limit.quotas.set(&node.quotas);
        limit
    }

    pub(super) fn unlimited(unit: Unit) -> Self {
        let bucket = TokenBucket::new(Instant::ZERO, Capacity::UNLIMITED.as_rate(), Tokens::ZERO);
        Self {
            unit,
            capacity: Capacity::UNLIMITED,
            quotas: IdealQuotas::default(),
            period: None,
            meter: if unit.is_concurrency() {
                Meter::InFlight { ideal: 0, fleet: 0 }
            } else {
                Meter::Rate {
                    ideal: bucket,
                    fleet: bucket,
                    explained: bucket,
                }
            },
            parent: None,
            asked: 0,
            admitted: [0; 2],
            sampled: 0,
            longest_pause: Duration::ZERO,
            debts: [0; 2],
            has_late_costs: false,
        }
    }

    pub(super) fn is_bounded(&self) -> bool {
        !self.capacity.is_unlimited()
    }

    /// Changes the limit. Higher bursts add the difference at once, lower ones take it, if it is there.
    pub(super) fn set(&mut self, now: Instant, capacity: Capacity, burst: Tokens) {
        self.capacity = capacity;
        let Meter::Rate {
            ideal,
            fleet,
            explained,
        } = &mut self.meter
        else {
            return;
        };
        let lower = ideal.burst().saturating_sub(burst);
        let left = Tokens::from_micros(ideal.balance(now).max(0).unsigned_abs());
        ideal.charge(now, lower.min(left));
        for bucket in [ideal, fleet, explained] {
            let higher = burst.saturating_sub(bucket.burst());
            bucket.set(now, capacity.as_rate(), burst);
            bucket.give_back(now, higher);
        }
    }

    /// Changes its quotas.
    pub(super) fn set_quotas(&mut self, quotas: &Quotas) {
        self.quotas.set(quotas);
    }

    /// Ends the limit.
    pub(super) fn lift(&mut self, now: Instant) {
        let burst = match &self.meter {
            Meter::Rate { ideal, .. } => ideal.burst(),
            Meter::InFlight { .. } => Tokens::ZERO,
        };
        self.set(now, Capacity::UNLIMITED, burst);
    }

    /// Returns the time until a request for `cost` tokens passes; none if that is not known.
    pub(super) fn pause(&self, now: Instant, cost: u32) -> Option<Duration> {
        match &self.meter {
            Meter::Rate { ideal, .. } => {
                let need = match self.unit {
                    Unit::Requests => whole(cost.into()),
                    // Those of a request are known when it has passed.
                    _ => Tokens::from_micros(1),
                };
                let quota = self.quotas.opens_in(now, need)?;
                Some(ideal.time_until(now, need)?.max(quota))
            }
            Meter::InFlight { ideal, .. } => (*ideal < self.permits()).then_some(Duration::ZERO),
        }
    }

    pub(super) fn admit_ideal(&mut self, now: Instant, cost: u32) {
        match &mut self.meter {
            Meter::Rate { ideal, .. } if self.unit == Unit::Requests => {
                ideal.charge(now, whole(cost.into()));
                self.quotas.charge(now, User::Ideal, whole(cost.into()));
            }
            Meter::Rate { .. } => {}
            Meter::InFlight { ideal, .. } => *ideal += 1,
        }
    }

    /// Notes that the fleet admitted a request, whether with a lease. Debts are kept if it `counts`.
    pub(super) fn admit_fleet(&mut self, now: Instant, cost: u32, is_leased: bool, counts: bool) {
        let most = self.permits();
        match &mut self.meter {
            Meter::Rate {
                fleet, explained, ..
            } if self.unit == Unit::Requests => {
                let cost = whole(cost.into());
                fleet.charge(now, cost);
                explained.charge(now, if is_leased { cost } else { Tokens::ZERO });
                let beyond = self.quotas.charge(now, User::Fleet, cost) * u64::from(counts);
                self.debts[0] = self.debts[0].max(beyond);
                self.debts[1] = self.debts[1].max(beyond * u64::from(is_leased));
            }
            Meter::Rate { .. } => {}
            Meter::InFlight { fleet, .. } => {
                *fleet += 1;
                let beyond = fleet.saturating_sub(most) * MICRO * u64::from(counts);
                self.debts = self.debts.map(|debt| debt.max(beyond));
            }
        }
        self.note_debts(now, counts);
    }

    /// Settles the cost of a request that ideal limits, or the fleet, admitted. What it is more than was taken is a
    /// late cost.
    pub(super) fn settle(&mut self, now: Instant, is_ideal: bool, settled: SettledCost) {
        let Meter::Rate {
            ideal,
            fleet,
            explained,
        } = &mut self.meter
        else {
            return;
        };
        if self.unit != Unit::Requests {
            return;
        }
        let (taken, cost) = (u64::from(settled.taken), u64::from(settled.cost));
        let (more, less) = (cost.saturating_sub(taken), taken.saturating_sub(cost));
        let user = if is_ideal {
            ideal.charge(now, whole(more));
            ideal.give_back(now, whole(less));
            User::Ideal
        } else {
            let left = Tokens::from_micros(explained.balance(now).max(0).unsigned_abs());
            explained.charge(now, whole(more).min(left));
            fleet.charge(now, whole(more));
            explained.give_back(now, whole(less));
            fleet.give_back(now, whole(less));
            User::Fleet
        };
        self.quotas.charge(now, user, whole(more));
        self.quotas.refund(now, user, settled.taken_at, whole(less));
        let admitted = &mut self.admitted[usize::from(!is_ideal)];
        if settled.counts {
            *admitted = admitted.saturating_add(more).saturating_sub(less);
        }
        self.has_late_costs |= more > 0;
        self.note_debts(now, settled.counts);
    }

    /// Charges bytes of a request that ideal limits admitted.
    pub(super) fn charge_ideal(&mut self, now: Instant, bytes: u64) {
        if let Meter::Rate { ideal, .. } = &mut self.meter {
            ideal.charge(now, whole(bytes));
        }
    }

    /// Charges bytes of a request that the fleet admitted; they are late costs if there were some left.
    pub(super) fn charge_fleet(&mut self, now: Instant, bytes: u64, is_late: bool, counts: bool) {
        if let Meter::Rate {
            fleet, explained, ..
        } = &mut self.meter
        {
            let cost = whole(bytes);
            fleet.charge(now, cost);
            let left = Tokens::from_micros(explained.balance(now).max(0).unsigned_abs());
            explained.charge(now, if is_late { cost.min(left) } else { cost });
        }
        self.note_debts(now, counts);
    }

    /// Ends a request in flight.
    pub(super) fn give_back(&mut self, is_ideal: bool) {
        if let Meter::InFlight { ideal, fleet } = &mut self.meter {
            let count = if is_ideal { ideal } else { fleet };
            *count = count.saturating_sub(1);
        }
    }

    /// Returns whether a bucket with all that the fleet admitted has anything left.
    pub(super) fn fleet_has_some(&self, now: Instant) -> bool {
        match &self.meter {
            Meter::Rate { fleet, .. } => fleet.balance(now) > 0,
            Meter::InFlight { .. } => true,
        }
    }

    pub(super) fn beyond(&self) -> Beyond {
        let [all, rest] = self.debts.map(|debt| debt as f64 / MICRO as f64);
        let explained = (all - rest).max(0.0);
        let is_safe = self.unit == Unit::Requests && !self.has_late_costs;
        Beyond {
            all,
            safe: if is_safe { explained } else { 0.0 },
            late: if is_safe { 0.0 } else { explained },
            rest,
        }
    }

    /// Returns the figures of the limit of `scope`.
    pub(super) fn figures(&self, scope: &str) -> LimitFigures {
        let ([ideal, admitted], beyond) = (self.admitted, self.beyond());
        LimitFigures {
            scope: scope.to_owned(),
            unit: self.unit.name(),
            capacity: self.capacity.as_f64(),
            written: self.written(),
            asked: self.asked,
            admitted,
            ideal,
            of_ideal: part(admitted, ideal),
            beyond: beyond.all,
            beyond_safe: beyond.safe,
            beyond_late: beyond.late,
            beyond_rest: beyond.rest,
            longest_pause: self.longest_pause.as_secs_f64(),
        }
    }

    /// Returns the capacity for the period for which it was written, if it named one.
    fn written(&self) -> Option<String> {
        let period = self.period.filter(|_| self.is_bounded());
        period.map(|_| rate_text(self.unit.name(), self.capacity.as_f64(), period))
    }

    /// Returns the most requests in flight.
    fn permits(&self) -> u64 {
        if self.is_bounded() {
            self.capacity.as_micros() / MICRO
        } else {
            u64::MAX
        }
    }

    fn note_debts(&mut self, now: Instant, counts: bool) {
        if let Meter::Rate {
            fleet, explained, ..
        } = &self.meter
            && counts
        {
            let debt = |bucket: &TokenBucket| bucket.balance(now).min(0).unsigned_abs();
            self.debts[0] = self.debts[0].max(debt(fleet));
            self.debts[1] = self.debts[1].max(debt(explained));
        }
    }
}

// === free functions ===

fn whole(tokens: u64) -> Tokens {
    Tokens::from_whole(tokens)
}
