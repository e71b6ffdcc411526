//! Rows of a tree of coordinators, level by level, as the model expects them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tollgate_sim::scenario::{DemandSpec, Scenario};

use crate::units::Units;

/// The most resources in a call.
const CALL_MAX: f64 = 1000.0;
/// CPU of a whole coordinator for one resource in a bulk call, in µs (`just bench-coordinator`).
const CPU_PER_RESOURCE: f64 = 1.84;
/// CPU of a whole coordinator for one call, beside its resources, in µs: a call of one resource less
/// that resource.
const CPU_PER_CALL: f64 = 18.0;
/// The soonest that any client tells of changed wants after its last request, in seconds.
const MIN_INTERVAL: f64 = 0.1;
/// Changed wants of a coordinator that may be told before the minimum interval is over, in a row, and
/// minimum intervals after which there may be one more (`tree/parent_lease.rs` in the core).
const EARLY: f64 = 2.0;
const EARLY_EVERY: f64 = 10.0;

/// Expected load of all coordinators of one level together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) coordinators: f64,
    /// Clients: coordinators of the next level, or Envoys.
    pub(crate) clients: f64,
    pub(crate) resources: f64,
    pub(crate) leases: f64,
    /// Seconds between two refreshes of a lease.
    pub(crate) interval: f64,
    /// Whether the coordinators borrow of others.
    pub(crate) borrows: bool,
    /// Refreshes and calls per second that the clients make at most.
    pub(crate) bound: Traffic,
}

/// Messages per second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) calls: f64,
    pub(crate) refreshes: f64,
}

/// Sets of a coordinator's scopes, while a scenario is counted.
#[derive(Default)]
struct Node {
    level: usize,
    parent: Option<usize>,
    scopes: BTreeSet<String>,
    clients: f64,
    leases: f64,
    bound: Traffic,
}

// === impl Load ===

impl Load {
    /// Returns the messages of clients whose wants stand still, and that ask for all their leases
    /// together: the least.
    pub(crate) fn steady(&self) -> Traffic {
        let each = (self.leases / self.clients / CALL_MAX).ceil();
        Traffic {
            calls: self.clients * each / self.interval,
            refreshes: self.leases / self.interval,
        }
    }

    /// Returns the messages of clients whose wants change all the time, and whose leases are due at
    /// different times.
    pub(crate) fn at_most(&self) -> Traffic {
        let steady = self.steady();
        let refreshes = self.bound.refreshes.max(steady.refreshes);
        // A client that may make no more calls than it needs makes full ones.
        let full = refreshes / CALL_MAX;
        Traffic {
            calls: self.bound.calls.max(steady.calls).max(full).min(refreshes),
            refreshes,
        }
    }

    /// Returns the memory of the lease tables.
    pub(crate) fn memory(&self, units: &Units) -> f64 {
        let borrowed = if self.borrows { units.borrowed } else { 0.0 };
        self.leases * units.lease + self.resources * (units.resource + borrowed)
    }
}

// === impl Traffic ===

impl Traffic {
    pub(crate) fn bytes_up(&self, units: &Units) -> f64 {
        self.calls * units.request.head + self.refreshes * units.request.row
    }

    pub(crate) fn bytes_down(&self, units: &Units) -> f64 {
        self.calls * units.answer.head + self.refreshes * units.answer.row
    }

    pub(crate) fn cores(&self) -> f64 {
        (self.calls * CPU_PER_CALL + self.refreshes * CPU_PER_RESOURCE) / 1e6
    }
}

// === free functions ===

/// Returns the most refreshes per second of one lease of an Envoy.
pub(crate) fn envoy_refreshes() -> f64 {
    1.0 / MIN_INTERVAL
}

/// Returns the most refreshes per second of one lease of a coordinator, over `window` seconds. What
/// it gives back of lowered leases, answers to nudges and first requests come on top.
pub(crate) fn coordinator_refreshes(min_refresh: f64, window: f64) -> f64 {
    let early = 1.0 / (EARLY_EVERY * min_refresh) + EARLY / window;
    (1.0 / min_refresh + early).min(1.0 / MIN_INTERVAL)
}

/// Returns the expected load of each level of a scenario, from the roots down.
pub(crate) fn loads(scenario: &Scenario, refresh: Duration, min_refresh: Duration) -> Vec<Load> {
    let window = scenario.duration.0.saturating_sub(scenario.measure_from.0);
    let borrowed = coordinator_refreshes(min_refresh.as_secs_f64(), window.as_secs_f64());
    let mut nodes: Vec<Node> = Vec::new();
    let mut places = BTreeMap::new();
    for spec in &scenario.coordinators {
        let parent = spec.parent.as_ref().map(|name| places[name]);
        places.insert(spec.name.clone(), nodes.len());
        nodes.push(Node {
            level: parent.map_or(0, |parent: usize| nodes[parent].level + 1),
            parent,
            ..Node::default()
        });
    }
    for group in &scenario.envoys {
        let named = group.coordinator.as_ref();
        let node = &mut nodes[named.map_or(0, |name| places[name])];
        let scopes: BTreeSet<String> = scenario
            .demand
            .iter()
            .filter(|demand| {
                demand
                    .envoys
                    .group
                    .as_ref()
                    .is_none_or(|g| *g == group.name)
            })
            .flat_map(scopes)
            .collect();
        node.clients += f64::from(group.count);
        let leases = f64::from(group.count) * scopes.len() as f64;
        node.leases += leases;
        node.bound.refreshes += leases * envoy_refreshes();
        // The worker that leads asks once in a tick.
        node.bound.calls += f64::from(group.count) / group.tick.0.as_secs_f64();
        node.scopes.extend(scopes);
    }
    // Parents stand before their children.
    for index in (0..nodes.len()).rev() {
        let Some(parent) = nodes[index].parent else {
            continue;
        };
        let scopes = nodes[index].scopes.clone();
        nodes[parent].clients += 1.0;
        let leases = scopes.len() as f64;
        nodes[parent].leases += leases;
        nodes[parent].bound.refreshes += leases * borrowed;
        // Simulated coordinators do not wait for the answer before they call again.
        nodes[parent].bound.calls += leases * borrowed;
        nodes[parent].scopes.extend(scopes);
    }
    let mut loads: Vec<Load> = Vec::new();
    for node in &nodes {
        if loads.len() <= node.level {
            loads.resize(node.level + 1, Load::default());
        }
        let load = &mut loads[node.level];
        load.coordinators += 1.0;
        load.clients += node.clients;
        load.resources += node.scopes.len() as f64;
        load.leases += node.leases;
        load.interval = refresh.as_secs_f64() / f64::from(1_u32 << node.level);
        load.borrows = node.parent.is_some();
        load.bound.calls += node.bound.calls;
        load.bound.refreshes += node.bound.refreshes;
    }
    loads
}

/// Returns the name of a level of so many, from the roots down.
pub(crate) fn level_name(level: usize, levels: usize) -> String {
    match (level, levels) {
        (0, _) => "root".to_owned(),
        (1, 3) => "regions".to_owned(),
        (2, 3) => "sites".to_owned(),
        _ => format!("level {level}"),
    }
}

fn scopes(demand: &DemandSpec) -> Vec<String> {
    match &demand.scopes {
        Some(spread) => (0..spread.count)
            .map(|k| format!("{}{k}", spread.prefix))
            .collect(),
        None => demand.scope.iter().cloned().collect(),
    }
}
