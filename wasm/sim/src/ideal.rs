//! Ideal limits: beside each limit of the fleet one token bucket with its rate and burst, or one
//! count of requests in flight, to which the same callers come at the same instants.
//!
//! Leases are not admissions: a token that lies at one Envoy is of no use to a request
//! at another. So the fleet's admissions are measured beside those of one limit that all Envoys
//! share without delay. A caller that it refuses asks it again after the time that it names, as the
//! fleet's callers do. A second bucket pays for what the fleet really admitted, if need be by going
//! into debt: its deepest debt is the most that was admitted beyond `burst + rate * t` in any window.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::iter;
use std::rc::Rc;
use std::time::Duration;

use tollgate_core::lease::Unit;
use tollgate_core::units::Instant;

use crate::capacities::CapacityTree;
use crate::demand::{DemandShape, IncomingRequest, Retries, Retry};
use crate::figures::{Figures, LimitFigures};
use crate::limits::LimitTable;
use crate::scopes::ScopeTable;

mod limit;
mod quotas;

use self::limit::{IdealLimit, SettledCost};

/// Tokens that an ideal limit must have admitted for its limit to count as the worst.
const WORST_FROM: u64 = 10;

/// Ideal limits of all capacities.
#[derive(Debug)]
pub(crate) struct IdealLimits {
    /// Those of requests by the numbers of a [`CapacityTree`], then those of other units.
    limits: Vec<IdealLimit>,
    /// Places of a scope's limits of other units.
    others: BTreeMap<usize, Vec<usize>>,
    measure_from: Duration,
    /// Requests that an ideal limit refused and that come again, and the shapes of their demand.
    again: Retries,
    shapes: BTreeMap<u32, Rc<DemandShape>>,
    /// Ends of requests that count until then.
    ends: BinaryHeap<Reverse<End>>,
    ended: u64,
}

/// End of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    at: Duration,
    number: u64,
    scope: usize,
    bytes: [u64; 2],
    /// Tokens that it took, and that its end tells it has cost, if that tells any.
    cost: (u32, Option<u32>),
    began_at: Duration,
    /// Whether an ideal limit admitted it, not the fleet.
    is_ideal: bool,
    /// Whether its bytes are late costs: it went on while there were some left.
    is_late: [bool; 2],
}

/// Request that the fleet admits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FleetAdmission {
    pub(crate) scope: usize,
    pub(crate) cost: u32,
    pub(crate) takes: Duration,
    pub(crate) bytes: [u64; 2],
    /// Tokens that its end tells it has cost, if that tells any.
    pub(crate) final_cost: Option<u32>,
    /// Whether its Envoy has a lease of the scope.
    pub(crate) is_leased: bool,
}

// === impl IdealLimits ===

impl IdealLimits {
    /// Returns full limits of `capacities` and of the other units of all scopes; requests count after
    /// `measure_from`.
    pub(crate) fn new(
        capacities: &CapacityTree,
        scopes: &ScopeTable,
        limits: &LimitTable,
        measure_from: Duration,
    ) -> Self {
        let of_requests = capacities.nodes().iter().map(IdealLimit::of_requests);
        let mut ideal = Self {
            limits: of_requests.collect(),
            others: BTreeMap::new(),
            measure_from,
            again: Retries::default(),
            shapes: BTreeMap::new(),
            ends: BinaryHeap::new(),
            ended: 0,
        };
        ideal.set_others(Instant::ZERO, scopes, limits);
        ideal
    }

    /// Takes the limits that hold from `at` on.
    pub(crate) fn set_limits(
        &mut self,
        at: Duration,
        capacities: &CapacityTree,
        scopes: &ScopeTable,
        limits: &LimitTable,
    ) {
        self.settle(at);
        let now = instant(at);
        for (limit, node) in self.limits.iter_mut().zip(capacities.nodes()) {
            (limit.parent, limit.period) = (node.parent, node.period);
            limit.set(now, node.capacity.capacity, node.burst);
            limit.set_quotas(&node.quotas);
        }
        self.set_others(now, scopes, limits);
    }

    fn set_others(&mut self, now: Instant, scopes: &ScopeTable, limits: &LimitTable) {
        for place in self.others.values().flatten() {
            self.limits[*place].lift(now);
        }
        for (number, scope) in scopes.iter().enumerate() {
            let of_scope = limits.of(&scope.id);
            let others = of_scope.units.iter();
            let others = others.filter(|other| other.unit != Unit::Requests);
            for other in others.filter(|other| other.limit.algorithm.shares()) {
                let known = self.others.entry(number).or_default();
                let mut places = known.iter().copied();
                let place = places.find(|place| self.limits[*place].unit == other.unit);
                let limit = match place {
                    Some(place) => &mut self.limits[place],
                    None => {
                        known.push(self.limits.len());
                        self.limits.push(IdealLimit::unlimited(other.unit));
                        let last = self.limits.len() - 1;
                        &mut self.limits[last]
                    }
                };
                limit.period = other.limit.period;
                limit.set(now, other.limit.capacity, other.limit.burst);
            }
        }
    }

    /// Notes that a request comes.
    pub(crate) fn request(&mut self, at: Duration, request: &IncomingRequest) {
        self.settle(at);
        if !request.is_first {
            return;
        }
        let scope = request.scope as usize;
        let measured = self.measured(at, request.shape.cost);
        self.for_each(scope, |limit| limit.asked += measured);
        if request.left > 0 {
            let shape = || request.shape.clone();
            self.shapes.entry(request.demand).or_insert_with(shape);
        }
        let attempt = Retry {
            at,
            demand: request.demand,
            scope: request.scope,
            left: request.left,
            final_cost: request.final_cost,
        };
        self.decide(attempt, &request.shape);
    }

    /// Lets an ideal limit decide on a request. All limits that bound it are charged, or none.
    fn decide(&mut self, attempt: Retry, shape: &DemandShape) {
        let Retry { at, left, .. } = attempt;
        let (now, scope, cost) = (instant(at), attempt.scope as usize, shape.cost);
        let pause = self.places(scope).map(|place| {
            let limit = &self.limits[place];
            limit.pause(now, cost)
        });
        let pause = pause.reduce(|a, b| Some(a?.max(b?))).flatten();
        match pause {
            Some(Duration::ZERO) => {
                let measured = self.measured(at, cost);
                self.for_each(scope, |limit| {
                    limit.admit_ideal(now, cost);
                    limit.sampled += u64::from(cost);
                    limit.admitted[0] += measured;
                });
                self.plan_end(
                    shape.spec.takes.0,
                    End {
                        at,
                        number: 0,
                        scope,
                        bytes: shape.spec.bytes,
                        cost: (cost, attempt.final_cost),
                        began_at: at,
                        is_ideal: true,
                        is_late: [true; 2],
                    },
                );
            }
            Some(pause) if left > 0 => self.again.push(Retry {
                at: at.saturating_add(pause),
                left: left - 1,
                ..attempt
            }),
            _ => {}
        }
    }

    /// Notes that the fleet admits a request.
    pub(crate) fn admit(&mut self, at: Duration, admission: FleetAdmission) {
        self.settle(at);
        let now = instant(at);
        let FleetAdmission {
            scope, cost, bytes, ..
        } = admission;
        let measured = self.measured(at, cost);
        let mut is_late = [false; 2];
        self.for_each(scope, |limit| {
            limit.admit_fleet(now, cost, admission.is_leased, measured > 0);
            limit.admitted[1] += measured;
            if let Some(direction) = direction(limit.unit) {
                is_late[direction] = limit.fleet_has_some(now);
            }
        });
        self.plan_end(
            admission.takes,
            End {
                at,
                number: 0,
                scope,
                bytes,
                cost: (cost, admission.final_cost),
                began_at: at,
                is_ideal: false,
                is_late,
            },
        );
    }

    /// Notes the time after which a refused request for `scope` may come again.
    pub(crate) fn note_pause(&mut self, scope: usize, pause: Duration) {
        self.for_each(scope, |limit| {
            limit.longest_pause = limit.longest_pause.max(pause)
        });
    }

    /// Remembers a request that begins now and takes so long.
    fn plan_end(&mut self, takes: Duration, end: End) {
        if !self.others.contains_key(&end.scope) && end.cost.1.is_none() {
            return;
        }
        self.ended += 1;
        self.ends.push(Reverse(End {
            at: end.began_at.saturating_add(takes),
            number: self.ended,
            ..end
        }));
    }

    /// Lets everything happen that is due until `now`.
    pub(crate) fn settle(&mut self, now: Duration) {
        loop {
            let end = self.ends.peek().map(|Reverse(end)| end.at);
            let again = self.again.due();
            let is_end = end.is_some_and(|end| again.is_none_or(|again| end <= again));
            if is_end && end <= Some(now) {
                self.end_next();
                continue;
            }
            let Some(retry) = self.again.take(now) else {
                return;
            };
            if let Some(shape) = self.shapes.get(&retry.demand).cloned() {
                self.decide(retry, &shape);
            }
        }
    }

    fn end_next(&mut self) {
        let Some(Reverse(end)) = self.ends.pop() else {
            return;
        };
        let (now, counts) = (instant(end.at), end.at > self.measure_from);
        if let (taken, Some(cost)) = end.cost {
            let settled = SettledCost {
                taken,
                cost,
                taken_at: instant(end.began_at),
                counts: self.measured(end.began_at, 1) > 0,
            };
            self.for_each(end.scope, |limit| limit.settle(now, end.is_ideal, settled));
        }
        for place in self.others.get(&end.scope).into_iter().flatten() {
            let limit = &mut self.limits[*place];
            match direction(limit.unit) {
                None => limit.give_back(end.is_ideal),
                Some(direction) if end.is_ideal => limit.charge_ideal(now, end.bytes[direction]),
                Some(direction) => {
                    let late = end.is_late[direction];
                    limit.charge_fleet(now, end.bytes[direction], late, counts);
                }
            }
        }
    }

    /// Returns the tokens that the limit of requests at `number` admitted since the last sample; none
    /// if it has no bound.
    pub(crate) fn sampled(&self, number: usize) -> Option<u64> {
        let limit = &self.limits[number];
        limit.is_bounded().then_some(limit.sampled)
    }

    /// Begins a sample at `at`.
    pub(crate) fn clear_samples(&mut self, at: Duration) {
        self.settle(at);
        for limit in &mut self.limits {
            limit.sampled = 0;
        }
    }

    /// Adds the figures so far.
    pub(crate) fn add_figures(&self, figures: &mut Figures) {
        let (mut ideal, mut both) = (0, 0);
        for limit in self.limits.iter().filter(|limit| limit.is_bounded()) {
            let [of_ideal, of_fleet] = limit.admitted;
            // A limit within another one, or of another unit, counts there.
            if limit.parent.is_none() && limit.unit == Unit::Requests {
                ideal += of_ideal;
                both += of_ideal.min(of_fleet);
            }
            if let Some(part) = part(of_fleet, of_ideal).filter(|_| of_ideal >= WORST_FROM) {
                let least = figures.least_of_ideal.unwrap_or(part);
                figures.least_of_ideal = Some(least.min(part));
            }
            let beyond = limit.beyond();
            figures.beyond_late = figures.beyond_late.max(beyond.late);
            if limit.unit == Unit::Requests {
                figures.beyond_ideal = figures.beyond_ideal.max(beyond.all);
                figures.beyond_safe = figures.beyond_safe.max(beyond.safe);
                figures.beyond_rest = figures.beyond_rest.max(beyond.rest);
            }
        }
        figures.of_ideal = part(both, ideal);
    }

    /// Returns the figures of the first `most` limits: of requests and then of other units.
    pub(crate) fn limit_figures(&self, scopes: &ScopeTable, most: usize) -> Vec<LimitFigures> {
        let others = self.others.iter();
        let others = others.flat_map(|(scope, places)| places.iter().map(|place| (*scope, *place)));
        let all = (0..scopes.node_count()).map(|number| (number, number));
        let bounded = all.chain(others);
        let bounded = bounded.filter(|(_, place)| self.limits[*place].is_bounded());
        let figures = bounded.map(|(scope, place)| self.limits[place].figures(scopes.id(scope)));
        figures.take(most).collect()
    }

    /// Returns `cost` if requests at `at` count.
    fn measured(&self, at: Duration, cost: u32) -> u64 {
        u64::from(cost) * u64::from(at > self.measure_from)
    }

    /// Returns the places of all limits that bound the scope at `number`.
    fn places(&self, number: usize) -> impl Iterator<Item = usize> {
        let chain = iter::successors(Some(number), |index| self.limits[*index].parent);
        let others = self.others.get(&number).into_iter().flatten();
        chain.chain(others.copied())
    }

    fn for_each(&mut self, number: usize, mut change: impl FnMut(&mut IdealLimit)) {
        let mut next = Some(number);
        while let Some(index) = next {
            change(&mut self.limits[index]);
            next = self.limits[index].parent;
        }
        for place in self.others.get(&number).into_iter().flatten() {
            change(&mut self.limits[*place]);
        }
    }
}

// === free functions ===

/// Returns the place of a unit of bytes among the bytes of a request.
fn direction(unit: Unit) -> Option<usize> {
    match unit {
        Unit::RequestBytes => Some(0),
        Unit::ResponseBytes => Some(1),
        Unit::Requests | Unit::Concurrency => None,
    }
}

fn instant(at: Duration) -> Instant {
    Instant::ZERO.saturating_add(at)
}

fn part(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
