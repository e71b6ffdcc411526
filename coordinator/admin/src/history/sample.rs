//! Sample of all lease tables of a node.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::cluster::ShardId;
use tollgate_core::lease::{ClientId, ResourceId, Unit};

use crate::stats::ResourceStats;

/// Sums and resources of a node at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeSample {
    /// The shards of the node.
    pub(super) shards: BTreeSet<ShardId>,
    /// Sums by unit.
    pub(super) units: BTreeMap<Unit, ResourceStats>,
    /// The busiest resources, and those that are recorded already.
    pub(super) resources: BTreeMap<ResourceId, ResourceSample>,
}

/// Figures of a resource at one time.
#[derive(Clone, Debug)]
pub(super) struct ResourceSample {
    pub(super) shard: ShardId,
    /// Whether it is one of the busiest.
    pub(super) is_busy: bool,
    /// The most that the binding limit lets clients have; infinite without a limit.
    pub(super) at_most: f32,
    pub(super) has: f32,
    pub(super) wants: f32,
    pub(super) waiting: f32,
    /// The clients with the largest leases, the largest first, and those that are recorded already.
    pub(super) clients: Vec<(ClientId, f32)>,
}

/// Resources that are recorded, with their clients.
pub(super) type Tracked = BTreeMap<ResourceId, Vec<ClientId>>;
