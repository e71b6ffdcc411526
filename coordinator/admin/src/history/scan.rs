//! Scan of all lease tables for one sample.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use tollgate_core::cluster::ShardId;
use tollgate_core::lease::{ClientId, ResourceId};
use tollgate_core::lease_server::LeaseServer;
use tollgate_core::resource::Resource;
use tollgate_core::units::{Capacity, Instant};
use tollgate_leases::visit::ResourceVisitor;

use super::sample::{NodeSample, ResourceSample, Tracked};
use super::{CLIENTS_MAX, RESOURCES_MAX};
use crate::lease_view::units;
use crate::stats::{FirstResources, ResourceSelection, ResourceStats, SortFigures, UnitSums};

/// Scan in progress.
#[derive(Debug)]
pub(super) struct HistoryScan {
    tracked: Arc<Tracked>,
    shard: ShardId,
    sample: NodeSample,
    units: UnitSums,
    order: ResourceSelection,
    busiest: FirstResources,
}

// === impl HistoryScan ===

impl HistoryScan {
    /// A scan that looks at the busiest resources and at those in `tracked`.
    pub(super) fn new(tracked: Arc<Tracked>) -> Self {
        Self {
            tracked,
            shard: ShardId::default(),
            sample: NodeSample::default(),
            units: UnitSums::default(),
            order: ResourceSelection::busiest(),
            busiest: FirstResources::new(RESOURCES_MAX),
        }
    }

    pub(super) fn end(mut self) -> NodeSample {
        for id in self.busiest.into_ids() {
            if let Some(resource) = self.sample.resources.get_mut(&id) {
                resource.is_busy = true;
            }
        }
        self.sample.units = self.units.end();
        self.sample
    }

    /// Whether `id` is one of the busiest so far; forgets the one whose place it takes.
    fn is_busy(&mut self, id: &ResourceId, figures: &SortFigures) -> bool {
        // Idle resources would take the places of those that were busy a while ago.
        if figures.wants == 0 {
            return false;
        }
        let rank = self.order.rank(figures, id.clone());
        let Some(last) = self.busiest.push(rank) else {
            return true;
        };
        if last != *id && !self.tracked.contains_key(&last) {
            self.sample.resources.remove(&last);
        }
        last != *id
    }
}

impl ResourceVisitor for HistoryScan {
    fn enter(&mut self, shard: ShardId) {
        self.shard = shard;
        self.sample.shards.insert(shard);
    }

    fn add(&mut self, node: &LeaseServer, id: &ResourceId, resource: &Resource, now: Instant) {
        let at_most = node.binding_limit(id).map(|binding| binding.at_most);
        let at_most = at_most.unwrap_or(Capacity::UNLIMITED);
        let sums = ResourceStats::of(resource, now, at_most);
        self.units.add(node, id, resource, &sums);
        let figures = SortFigures::of(resource, at_most, sums.waiting);
        let is_busy = self.is_busy(id, &figures);
        let tracked = self.tracked.get(id);
        if !is_busy && tracked.is_none() {
            return;
        }
        let recorded = tracked.map(Vec::as_slice).unwrap_or_default();
        let sample = ResourceSample {
            shard: self.shard,
            is_busy: false,
            at_most: amount(at_most.as_micros().into()),
            has: amount(figures.has),
            wants: amount(figures.wants),
            waiting: sums.waiting as f32,
            clients: largest(resource, recorded),
        };
        // One that is moving from a shard to another is there twice, and the first says more.
        self.sample.resources.entry(id.clone()).or_insert(sample);
    }
}

// === free functions ===

/// Returns the clients of `resource` with the largest leases, the largest first, then the others of
/// `recorded` that have any.
fn largest(resource: &Resource, recorded: &[ClientId]) -> Vec<(ClientId, f32)> {
    let mut first: BinaryHeap<Reverse<(Capacity, Reverse<&ClientId>)>> = BinaryHeap::new();
    let mut others = Vec::new();
    let mut clients = resource.clients().peekable();
    while let Some(client) = clients.next() {
        let mut has = client.has;
        // Of one that has started again there is more than one run.
        while let Some(run) = clients.next_if(|run| run.id == client.id) {
            has = has.saturating_add(run.has);
        }
        first.push(Reverse((has, Reverse(client.id))));
        if first.len() <= CLIENTS_MAX {
            continue;
        }
        if let Some(Reverse((has, Reverse(id)))) = first.pop()
            && recorded.contains(id)
        {
            others.push((id.clone(), amount(has.as_micros().into())));
        }
    }
    let first = first.into_sorted_vec().into_iter();
    let first =
        first.map(|Reverse((has, Reverse(id)))| (id.clone(), amount(has.as_micros().into())));
    first.chain(others).collect()
}

/// `micros` millionths as a number of units; infinite if they are unlimited.
fn amount(micros: u128) -> f32 {
    if micros >= u128::from(Capacity::UNLIMITED.as_micros()) {
        return f32::INFINITY;
    }
    units(micros) as f32
}

#[cfg(test)]
mod tests;
