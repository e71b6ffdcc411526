//! Limits of the scopes in a simulation.

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::lease_server::{PoolTerms, Terms};
use tollgate_core::limit::{Algorithm, Limit};
use tollgate_core::units::Capacity;

/// Source of limits, such as the configuration of a coordinator.
pub trait LimitSource {
    /// Returns the limits of `scope`.
    fn limits_of(&self, scope: &Arc<str>) -> ScopeLimits;
}

/// Limits of one scope.
#[derive(Clone, Debug)]
pub struct ScopeLimits {
    /// Scope whose capacity its requests use as well; itself if there is none.
    pub canonical: Arc<str>,
    /// Scope that decides about its shard; itself unless it is in a pool.
    pub home: Arc<str>,
    /// Limits of its units.
    pub units: Vec<UnitLimit>,
    /// Units that are limited, here or by the canonical scope.
    pub limited: Vec<Unit>,
}

/// Limit of one unit of a scope.
#[derive(Clone, Debug)]
pub struct UnitLimit {
    /// The unit.
    pub unit: Unit,
    /// Its limit.
    pub limit: Limit,
    /// Pool that it borrows from.
    pub pool: Option<PoolOfUnit>,
}

/// Pool of a unit of a scope.
#[derive(Clone, Debug)]
pub struct PoolOfUnit {
    /// The pool.
    pub id: ResourceId,
    /// Its limit.
    pub limit: Limit,
    /// Weight of this member.
    pub weight: NonZeroU32,
}

/// Limits by the starts of scopes' names, for tests and playgrounds.
#[derive(Clone, Debug, Default)]
pub struct FixedLimits(Vec<(String, Limit)>);

/// Limits in force, each looked up once.
pub(crate) struct LimitTable {
    sources: Vec<Box<dyn LimitSource>>,
    /// Algorithm in place of that of each limit.
    algorithm: Option<Algorithm>,
    current: usize,
    /// Limits that were looked up, by the numbers of their sources.
    known: RefCell<Vec<KnownLimits>>,
}

type KnownLimits = HashMap<Arc<str>, Rc<ScopeLimits>, FixedState>;

/// Capacity for the whole fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FleetCapacity {
    pub(crate) capacity: Capacity,
    /// Whether its leases may never sum to more: law 1.
    pub(crate) is_promised: bool,
}

// === impl ScopeLimits ===

impl ScopeLimits {
    /// Returns the limits of a scope that shares nothing.
    pub fn own(scope: &Arc<str>, limits: impl IntoIterator<Item = (Unit, Limit)>) -> Self {
        let units = limits.into_iter().map(|(unit, limit)| UnitLimit {
            unit,
            limit,
            pool: None,
        });
        let units: Vec<_> = units.collect();
        let limited = units.iter();
        let limited = limited.filter(|unit| !unit.limit.capacity.is_unlimited());
        Self {
            canonical: scope.clone(),
            home: scope.clone(),
            limited: limited.map(|unit| unit.unit).collect(),
            units,
        }
    }

    /// Returns the terms of a lease of `unit`; none if it has no limit.
    pub(crate) fn terms(&self, unit: Unit) -> Option<Terms<'_>> {
        let found = self.units.iter().find(|limit| limit.unit == unit)?;
        let pool = found.pool.as_ref().map(|pool| PoolTerms {
            pool: &pool.id,
            limit: &pool.limit,
            weight: pool.weight,
        });
        Some(Terms {
            limit: &found.limit,
            pool,
        })
    }

    /// Has `algorithm` divide all rates. One that goes by usage divides no concurrency.
    fn divide_by(&mut self, algorithm: Algorithm) {
        for UnitLimit { unit, limit, pool } in &mut self.units {
            if unit.is_concurrency() && algorithm.goes_by_usage() {
                continue;
            }
            limit.algorithm = algorithm;
            if let Some(pool) = pool {
                pool.limit.algorithm = algorithm;
            }
        }
    }
}

// === impl FleetCapacity ===

impl FleetCapacity {
    /// Returns the requests per second; none if there is no bound.
    pub(crate) fn requests(&self) -> Option<f64> {
        (!self.capacity.is_unlimited()).then(|| self.capacity.as_f64())
    }
}

// === impl LimitSource ===

impl<T: LimitSource + ?Sized> LimitSource for Rc<T> {
    fn limits_of(&self, scope: &Arc<str>) -> ScopeLimits {
        (**self).limits_of(scope)
    }
}

// === impl FixedLimits ===

impl FixedLimits {
    /// Returns limits on the requests of scopes whose names start so; the first that does counts.
    pub fn new(limits: impl IntoIterator<Item = (String, Limit)>) -> Self {
        Self(limits.into_iter().collect())
    }
}

impl LimitSource for FixedLimits {
    fn limits_of(&self, scope: &Arc<str>) -> ScopeLimits {
        let mut limits = self.0.iter();
        let found = limits.find(|(start, _)| scope.starts_with(start.as_str()));
        let found = found.map(|(_, limit)| (Unit::Requests, limit.clone()));
        ScopeLimits::own(scope, found)
    }
}

// === impl LimitTable ===

impl LimitTable {
    /// Returns the table of `sources`, the first of which is in force, with `algorithm` in place of
    /// that of each limit.
    pub(crate) fn new(sources: Vec<Box<dyn LimitSource>>, algorithm: Option<Algorithm>) -> Self {
        let known = || HashMap::with_hasher(FixedState::with_seed(0));
        Self {
            known: RefCell::new(sources.iter().map(|_| known()).collect()),
            sources,
            algorithm,
            current: 0,
        }
    }

    /// Returns the number of sources.
    pub(crate) fn count(&self) -> usize {
        self.sources.len()
    }

    /// Puts another source into force.
    pub(crate) fn switch(&mut self, source: usize) {
        self.current = source;
        if let Some(known) = self.known.get_mut().get_mut(source) {
            known.clear();
        }
    }

    /// Returns the limits of `scope` that are in force.
    pub(crate) fn of(&self, scope: &Arc<str>) -> Rc<ScopeLimits> {
        self.of_source(None, scope)
    }

    /// Returns the limits of `scope` by the source of a number; by the one in force without any.
    pub(crate) fn of_source(&self, source: Option<usize>, scope: &Arc<str>) -> Rc<ScopeLimits> {
        let number = source.unwrap_or(self.current);
        let mut known = self.known.borrow_mut();
        let (Some(source), Some(known)) = (self.sources.get(number), known.get_mut(number)) else {
            return Rc::new(ScopeLimits::own(scope, []));
        };
        if let Some(known) = known.get(scope) {
            return known.clone();
        }
        let mut limits = source.limits_of(scope);
        if let Some(algorithm) = self.algorithm {
            limits.divide_by(algorithm);
        }
        let limits = Rc::new(limits);
        known.insert(scope.clone(), limits.clone());
        limits
    }

    /// Returns the capacity of `limit` that figures measure the fleet by: a capacity that each client
    /// has for itself is none of the fleet's. With another algorithm in place of the configured one each
    /// is, because the excess is what a comparison shows.
    pub(crate) fn capacity(&self, limit: &Limit) -> FleetCapacity {
        let shares = limit.algorithm.shares();
        FleetCapacity {
            capacity: if shares || self.algorithm.is_some() {
                limit.capacity
            } else {
                Capacity::UNLIMITED
            },
            is_promised: shares && !limit.capacity.is_unlimited(),
        }
    }

    /// Calls `look` with the limits of all `scopes` under each of the sources.
    pub(crate) fn look_at_all(&self, scopes: &[Arc<str>], mut look: impl FnMut(&ScopeLimits)) {
        for scope in scopes {
            look(&self.of(scope));
        }
        for (_, source) in self
            .sources
            .iter()
            .enumerate()
            .filter(|(i, _)| *i != self.current)
        {
            for scope in scopes {
                look(&source.limits_of(scope));
            }
        }
    }
}

impl std::fmt::Debug for LimitTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut table = f.debug_struct("LimitTable");
        table
            .field("current", &self.current)
            .finish_non_exhaustive()
    }
}
