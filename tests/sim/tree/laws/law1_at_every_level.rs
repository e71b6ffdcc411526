//! The processes never have more of the root's capacity in all than there is. Those below a
//! coordinator never have more than it was lent by a lease that lasts. A capacity that was lowered
//! at the root may be exceeded for one lease.
//!
//! Safe capacity, which coordinators lend whose parents are away, is not the root's; see law 7.

use std::time::Duration;

use tollgate_core::units::Capacity;

use crate::laws::{Fleet as _, Law};
use crate::tree::World;
use crate::tree::coordinator::Coordinator;
use crate::tree::scenario::Fault;

pub(crate) struct Law1;

impl Law<World> for Law1 {
    fn name(&self) -> &'static str {
        "law 1, never more than the capacity at any level"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        let capacity = world.capacity_max(hearsay(world));
        within(
            world.used_below(0),
            capacity.saturating_add(safe(world)),
            "in use",
        )?;
        let capacity = world.capacity_max(hearsay(world) + counted_longer(world));
        if let Some(root) = &world.coordinators()[0].node
            && let Some(resource) = root.resource(world.resource())
        {
            let lent = resource.clients().map(|c| u128::from(c.has.as_micros()));
            within(lent.sum(), capacity, "lent by the root")?;
        }
        let coordinators = world.coordinators().iter().enumerate().skip(1);
        for (i, coordinator) in coordinators {
            if world.claims_safe(i) {
                continue;
            }
            within(
                world.used_below(i),
                borrowed(coordinator),
                coordinator.id.as_str(),
            )?;
            self.counted(world, i, coordinator)?;
        }
        Ok(())
    }
}

impl Law1 {
    /// Checks that the parent of a coordinator counts the use below it, unless either has started
    /// without a snapshot and is in learning mode.
    fn counted(&self, world: &World, i: usize, coordinator: &Coordinator) -> Result<(), String> {
        let (resource, now) = (world.resource(), world.now());
        let Some(parent) = coordinator
            .spec
            .parent
            .map(|parent| &world.coordinators()[parent])
        else {
            return Ok(());
        };
        let (Some(above), Some(node)) = (&parent.node, &coordinator.node) else {
            return Ok(());
        };
        let lease = coordinator.spec.limit.lease;
        let learned =
            |coordinator: &Coordinator| now >= coordinator.learning_until.saturating_add(lease);
        let resources = [above, node].map(|node| node.resource(resource));
        let learns = |coordinator: &Coordinator,
                      resource: Option<&tollgate_core::resource::Resource>| {
            resource.is_some_and(|resource| coordinator.clock(now) < resource.learning_until())
        };
        if !learned(coordinator)
            || !learned(parent)
            || learns(parent, resources[0])
            || learns(coordinator, resources[1])
        {
            return Ok(());
        }
        let client =
            resources[0].and_then(|resource| resource.clients().find(|c| *c.id == coordinator.id));
        let counted = client.map_or(Capacity::ZERO, |client| client.has);
        within(
            world.used_below(i),
            counted,
            &format!("counted for {}", coordinator.id.as_str()),
        )
    }
}

/// Returns the capacity in use that may be safe capacity although it is counted for the root's.
fn safe(world: &World) -> Capacity {
    let claimed = (1..world.coordinators().len()).any(|i| world.claims_safe(i));
    let most = world
        .coordinators()
        .iter()
        .filter_map(Coordinator::safe)
        .max();
    let most = most.filter(|_| claimed).unwrap_or_default().as_micros();
    Capacity::from_micros(most.saturating_mul(world.processes().len() as u64))
}

/// Returns the most that a coordinator was lent by a lease that lasts.
fn borrowed(coordinator: &Coordinator) -> Capacity {
    let lent = coordinator
        .borrowed
        .iter()
        .filter(|borrowed| !borrowed.safe);
    lent.map(|lent| lent.capacity).max().unwrap_or_default()
}

/// Returns the time beyond a lease for which the root counts more than a lowered capacity. The use
/// that clients reported is counted until they report another, or their lease ends. A coordinator
/// that has started without a snapshot reports, as long as it learns, that more may be in use than
/// it knows; it has started before the lease of its predecessor ended.
fn counted_longer(world: &World) -> Duration {
    let (now, scenario) = (world.now(), world.scenario());
    let lease = scenario.limit.lease;
    let learned =
        |coordinator: &Coordinator| now >= coordinator.learning_until.saturating_add(lease * 2);
    if world.coordinators().iter().skip(1).all(learned) {
        return lease;
    }
    let faults = scenario.faults.iter();
    let crashes =
        faults.filter(|(_, f)| matches!(f, Fault::Crash { coordinator, .. } if *coordinator > 0));
    lease * (1 + 2 * crashes.count() as u32)
}

/// Returns the time beyond a lease for which use above a lowered capacity may last. At each level,
/// a coordinator that has started again counts a reported lease from when it hears of it. The
/// leases of a snapshot do not age during its transfer.
fn hearsay(world: &World) -> Duration {
    let scenario = world.scenario();
    let heard = scenario.faults.iter().map(|(_, fault)| match fault {
        Fault::Crash { .. } => scenario.network.delay_max * 2,
        _ => Duration::ZERO,
    });
    scenario.held_up() + heard.sum::<Duration>()
}

fn within(sum: u128, capacity: Capacity, what: &str) -> Result<(), String> {
    let capacity = capacity.as_micros();
    match sum > capacity.into() {
        true => Err(format!("{sum} of {capacity} millionths: {what}")),
        false => Ok(()),
    }
}
