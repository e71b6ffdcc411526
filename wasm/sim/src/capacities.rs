//! Capacities of a fleet by number, and which of them lie within others.
//!
//! The requests of a scope use its own capacity, and may use another scope's as well, such as its
//! group's or its tenant's. A member of a pool borrows its capacity from the pool's. So capacities
//! form trees of at most three levels, and no more can be handed out below one than fits into it.

use std::time::Duration;

use tollgate_core::lease::Unit;
use tollgate_core::quota::Quotas;
use tollgate_core::units::{Capacity, MICRO, RatePeriod, Tokens};

use crate::limits::{FleetCapacity, LimitTable};
use crate::scopes::ScopeTable;

/// Capacities in force for requests, by the numbers of a [`ScopeTable`].
#[derive(Debug)]
pub(crate) struct CapacityTree {
    nodes: Vec<CapacityNode>,
    /// Numbers of all, each before the one that it lies in.
    order: Vec<usize>,
    /// Number of those that are of scopes; the others are of pools.
    scopes: usize,
}

/// One capacity.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CapacityNode {
    pub(crate) capacity: FleetCapacity,
    /// Period for which it was written.
    pub(crate) period: Option<RatePeriod>,
    /// Tokens that may be used at once after a pause.
    pub(crate) burst: Tokens,
    /// The capacity that it lies in, if that has a bound.
    pub(crate) parent: Option<usize>,
    /// Weight beside the other members of its pool.
    pub(crate) weight: f64,
    /// Length of a lease.
    pub(crate) lease: Duration,
    /// Its quotas.
    pub(crate) quotas: Quotas,
}

/// State of one capacity in a sample: at first without those within it. Rates are requests per second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CapacitySum {
    /// Requests that come; of those within it no more than fit there.
    pub(crate) wants: f64,
    /// Leases, in millionths.
    pub(crate) has: u64,
    /// Leases without safe capacity that a coordinator lends while its parent is away: that is no part
    /// of the capacity.
    pub(crate) counted: u64,
    /// Part of the wants that fits.
    pub(crate) attainable: f64,
    /// Part of that for which there are leases.
    pub(crate) handed_out: f64,
    /// Wants that have leases as far as those within it need any.
    passed: f64,
    /// Requests that went on, and that were refused.
    pub(crate) requests: [u64; 2],
}

// === impl CapacityTree ===

impl CapacityTree {
    /// Returns the capacities of `scopes` under the limits that are in force.
    pub(crate) fn new(scopes: &ScopeTable, limits: &LimitTable) -> Self {
        let mut nodes: Vec<CapacityNode> = Vec::with_capacity(scopes.node_count());
        let mut pools = vec![CapacityNode::UNLIMITED; scopes.pools().len()];
        let mut shares_another = Vec::with_capacity(scopes.len());
        for scope in scopes.iter() {
            let of_scope = limits.of(&scope.id);
            let found = of_scope
                .units
                .iter()
                .find(|unit| unit.unit == Unit::Requests);
            let mut node = CapacityNode::UNLIMITED;
            if let Some(unit) = found {
                node.capacity = limits.capacity(&unit.limit);
                node.burst = unit.limit.burst;
                node.period = unit.limit.period;
                node.lease = unit.limit.lease;
                node.quotas = unit.limit.quotas.clone();
                if let Some(pool) = &unit.pool
                    && let Some(number) = scopes.find_pool(&pool.id.scope)
                {
                    node.weight = pool.weight.get().into();
                    node.parent = Some(number);
                    let of_pool = &mut pools[number - scopes.len()];
                    of_pool.capacity = limits.capacity(&pool.limit);
                    of_pool.burst = pool.limit.burst;
                    of_pool.quotas = pool.limit.quotas.clone();
                    of_pool.period = pool.limit.period;
                    of_pool.lease = of_pool.lease.max(unit.limit.lease).max(pool.limit.lease);
                }
            }
            let canonical = (of_scope.canonical != scope.id).then_some(&of_scope.canonical);
            let canonical = canonical.and_then(|id| scopes.find(id));
            shares_another.push(canonical.is_some());
            let canonical = canonical.map(|number| number as usize);
            node.parent = node.parent.or(canonical);
            nodes.push(node);
        }
        nodes.extend(pools);
        let mut tree = Self {
            order: order(&shares_another, nodes.len()),
            nodes,
            scopes: scopes.len(),
        };
        tree.leave_unbounded_parents();
        tree
    }

    /// Forgets parents that bound nothing, neither by themselves nor by their own parents.
    fn leave_unbounded_parents(&mut self) {
        for number in self.order.iter().rev() {
            let parent = self.nodes[*number].parent;
            self.nodes[*number].parent = parent.filter(|parent| {
                let CapacityNode {
                    capacity, parent, ..
                } = &self.nodes[*parent];
                !capacity.capacity.is_unlimited() || parent.is_some()
            });
        }
    }

    /// Returns all capacities, in the order of their numbers.
    pub(crate) fn nodes(&self) -> &[CapacityNode] {
        &self.nodes
    }

    /// Returns whether the capacity at `number` is a pool's.
    pub(crate) fn is_pool(&self, number: usize) -> bool {
        number >= self.scopes
    }

    /// Returns the pool with a bound that the capacity at `number` borrows from.
    pub(crate) fn pool_of(&self, number: usize) -> Option<usize> {
        let parent = self.nodes[number].parent;
        parent.filter(|parent| self.is_pool(*parent))
    }

    /// Adds to each capacity what is within it, and returns what is attainable and handed out.
    pub(crate) fn add_up(&self, sums: &mut [CapacitySum]) {
        for sum in sums.iter_mut() {
            sum.passed = sum.wants;
        }
        for number in self.order.iter().copied() {
            let CapacityNode {
                capacity, parent, ..
            } = &self.nodes[number];
            let is_leased = !capacity.capacity.is_unlimited() || self.pool_of(number).is_some();
            let sum = &mut sums[number];
            sum.attainable = sum.wants.min(capacity.requests().unwrap_or(f64::INFINITY));
            sum.handed_out = sum.passed.min(sum.attainable);
            if is_leased {
                sum.handed_out = sum.handed_out.min(sum.has as f64 / MICRO as f64);
            }
            let below = *sum;
            if let Some(parent) = *parent {
                let above = &mut sums[parent];
                above.wants += below.attainable;
                above.passed += below.handed_out;
                for (sum, requests) in above.requests.iter_mut().zip(below.requests) {
                    *sum += requests;
                }
                if self.is_pool(parent) {
                    above.has = above.has.saturating_add(below.has);
                    above.counted = above.counted.saturating_add(below.counted);
                }
            }
        }
    }
}

// === impl CapacityNode ===

impl CapacityNode {
    const UNLIMITED: Self = Self {
        capacity: FleetCapacity {
            capacity: Capacity::UNLIMITED,
            is_promised: false,
        },
        period: None,
        burst: Tokens::ZERO,
        parent: None,
        weight: 1.0,
        lease: Duration::ZERO,
        quotas: Quotas::NONE,
    };

    /// Returns whether figures count it: it has a bound, and lies in no other that has one.
    pub(crate) fn is_root(&self) -> bool {
        self.parent.is_none() && !self.capacity.capacity.is_unlimited()
    }
}

// === free functions ===

/// Returns the numbers of so many nodes: scopes that share another one's capacity, then all other
/// scopes, then pools.
fn order(shares_another: &[bool], count: usize) -> Vec<usize> {
    let scopes = || shares_another.iter().enumerate();
    let sharing = scopes().filter(|(_, shares)| **shares);
    let others = scopes().filter(|(_, shares)| !**shares);
    let numbers = sharing.chain(others).map(|(number, _)| number);
    numbers.chain(shares_another.len()..count).collect()
}
