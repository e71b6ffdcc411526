//! Scan of all lease tables of a node.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use tollgate_core::cluster::ShardId;
use tollgate_core::lease::ResourceId;
use tollgate_core::lease_server::LeaseServer;
use tollgate_core::resource::Resource;
use tollgate_core::units::{Capacity, Instant};
use tollgate_leases::visit::ResourceVisitor;

use super::rank::FirstResources;
use super::selection::{ResourceSelection, SortFigures};
use super::{LeaseStats, NamedScopes, ResourceStats, UnitSums};

/// Scan in progress.
#[derive(Debug)]
pub(super) struct StatsScan {
    stats: LeaseStats,
    units: UnitSums,
    shard: ShardId,
    named: NamedScopes,
    selection: ResourceSelection,
    first: FirstResources,
    /// Hashes of the clients' ids.
    clients: HashSet<u64, RandomState>,
    /// The figures of those.
    figures: BTreeMap<ResourceId, ResourceStats>,
}

// === impl StatsScan ===

impl StatsScan {
    /// A scan that remembers the first `first_max` resources of `selection`.
    pub(super) fn new(named: NamedScopes, selection: ResourceSelection, first_max: usize) -> Self {
        Self {
            stats: LeaseStats::default(),
            units: UnitSums::default(),
            shard: ShardId::default(),
            named,
            selection,
            first: FirstResources::new(first_max),
            clients: HashSet::default(),
            figures: BTreeMap::new(),
        }
    }

    pub(super) fn end(self) -> LeaseStats {
        let ids = self.first.into_ids().into_iter();
        let first = ids.map(|id| {
            let figures = self.figures.get(&id).copied().unwrap_or_default();
            (id, figures)
        });
        LeaseStats {
            units: self.units.end(),
            first: first.collect(),
            clients: self.clients.len(),
            ..self.stats
        }
    }
}

impl ResourceVisitor for StatsScan {
    fn enter(&mut self, shard: ShardId) {
        self.shard = shard;
        self.stats.learning.insert(shard, 0);
    }

    fn add(&mut self, node: &LeaseServer, id: &ResourceId, resource: &Resource, now: Instant) {
        let at_most = node.binding_limit(id).map(|binding| binding.at_most);
        let at_most = at_most.unwrap_or(Capacity::UNLIMITED);
        let figures = ResourceStats::of(resource, now, at_most);
        self.units.add(node, id, resource, &figures);
        for client in resource.clients() {
            let hash = self.clients.hasher().hash_one(client.id);
            self.clients.insert(hash);
        }
        let LeaseStats { named, other, .. } = &mut self.stats;
        if self.named.0.contains(&id.scope) {
            named.insert(id.clone(), figures);
        } else {
            other.entry(id.unit).or_default().add(&figures);
        }
        let learning = self.stats.learning.entry(self.shard).or_default();
        *learning += figures.learning;
        if let Some(loan) = node.parent_leases().and_then(|tree| tree.view(now, id)) {
            let borrowed = self.stats.borrowed.entry(id.unit).or_default();
            borrowed.add(loan, node.demand(id).as_ref());
        }
        if self.selection.admits(&id.scope, id.unit, figures.waiting) {
            self.stats.matching += 1;
            self.figures.insert(id.clone(), figures);
            let figures = SortFigures::of(resource, at_most, figures.waiting);
            let dropped = self.first.push(self.selection.rank(&figures, id.clone()));
            if let Some(dropped) = dropped {
                self.figures.remove(&dropped);
            }
        }
    }
}
