//! Rows of a tree of coordinators, level by level, as the model expects them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tollgate_sim::scenario::{DemandSpec, Scenario};

use crate::units::Units;

/// The most resources in a call.
const CALL_MAX: f64 = 1000.0;

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
}

/// Sets of a coordinator's scopes, while a scenario is counted.
#[derive(Default)]
struct Node {
    level: usize,
    parent: Option<usize>,
    scopes: BTreeSet<String>,
    clients: f64,
    leases: f64,
}

// === impl Load ===

impl Load {
    pub(crate) fn resources_per_second(&self) -> f64 {
        self.leases / self.interval
    }

    /// Returns the calls per second, if each client asks for all its leases together.
    pub(crate) fn calls_per_second(&self) -> f64 {
        let each = (self.leases / self.clients / CALL_MAX).ceil();
        self.clients * each / self.interval
    }

    pub(crate) fn bytes_up_per_second(&self, units: &Units) -> f64 {
        self.calls_per_second() * units.request.head
            + self.resources_per_second() * units.request.row
    }

    pub(crate) fn bytes_down_per_second(&self, units: &Units) -> f64 {
        self.calls_per_second() * units.answer.head + self.resources_per_second() * units.answer.row
    }

    /// Returns the memory of the lease tables.
    pub(crate) fn memory(&self, units: &Units) -> f64 {
        let borrowed = if self.borrows { units.borrowed } else { 0.0 };
        self.leases * units.lease + self.resources * (units.resource + borrowed)
    }
}

// === free functions ===

/// Returns the expected load of each level of a scenario, from the roots down.
pub(crate) fn loads(scenario: &Scenario, refresh: Duration) -> Vec<Load> {
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
        node.leases += f64::from(group.count) * scopes.len() as f64;
        node.scopes.extend(scopes);
    }
    // Parents stand before their children.
    for index in (0..nodes.len()).rev() {
        let Some(parent) = nodes[index].parent else {
            continue;
        };
        let scopes = nodes[index].scopes.clone();
        nodes[parent].clients += 1.0;
        nodes[parent].leases += scopes.len() as f64;
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
    }
    loads
}

fn scopes(demand: &DemandSpec) -> Vec<String> {
    match &demand.scopes {
        Some(spread) => (0..spread.count)
            .map(|k| format!("{}{k}", spread.prefix))
            .collect(),
        None => demand.scope.iter().cloned().collect(),
    }
}
