//! Visits of all lease tables of a node, in steps between which clients are answered.

use tollgate_core::cluster::ShardId;
use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::lease_server::LeaseServer;
use tollgate_core::resource::Resource;
use tollgate_core::units::Instant;

use crate::driver::{DriverError, DriverHandle};

/// Resources and clients per step: well under a millisecond. A resource is never split.
const STEP: usize = 4_000;

/// Visitor of all resources of the lease tables, one after the other.
pub trait ResourceVisitor: Send + 'static {
    /// Begins the lease table of `shard`.
    fn enter(&mut self, shard: ShardId) {
        let _ = shard;
    }

    /// Visits `resource`, called `id`, of `node`.
    fn add(&mut self, node: &LeaseServer, id: &ResourceId, resource: &Resource, now: Instant);
}

// === free functions ===

/// Shows `visitor` the whole lease table of `driver`, and returns it.
///
/// # Errors
/// If the driver cannot be reached.
pub(crate) async fn visit_resources<W: ResourceVisitor>(
    driver: &DriverHandle,
    mut visitor: W,
) -> Result<W, DriverError> {
    let mut after = Some(start());
    while let Some(from) = after.take() {
        let look = move |node: &LeaseServer, now| {
            let after = step(&mut visitor, node, now, &from, STEP);
            (after, visitor)
        };
        (after, visitor) = driver.view(look).await?;
    }
    Ok(visitor)
}

/// Id before all resources.
pub fn start() -> ResourceId {
    let [unit, ..] = Unit::ALL;
    let scope = "".into();
    ResourceId { scope, unit }
}

/// Shows `visitor` the resources after `after`, until these and their clients are `at_most`;
/// returns the id of the last one, or `None` at the end.
pub fn step(
    visitor: &mut impl ResourceVisitor,
    node: &LeaseServer,
    now: Instant,
    after: &ResourceId,
    at_most: usize,
) -> Option<ResourceId> {
    let mut looked = 0;
    for (id, resource) in node.resources_after(after) {
        visitor.add(node, id, resource, now);
        looked += 1 + resource.client_count();
        if looked >= at_most {
            return Some(id.clone());
        }
    }
    None
}
