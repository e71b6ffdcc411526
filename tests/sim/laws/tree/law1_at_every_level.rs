//! The processes never have more of the root's capacity in all than there is. Those below a
//! coordinator never have more than it was lent by a lease that lasts. A capacity that was lowered
//! at the root may be exceeded for one lease.
//!
//! Safe capacity, which coordinators lend whose parents are away, is not the root's; see law 7.

use std::time::Duration;

use tollgate_core::resource::Resource;
use tollgate_core::units::Capacity;

use super::super::{Law, law1_never_more_than_the_capacity};
use super::facts;
use crate::borrowing::Place;
use crate::fleet::Fleet;

pub(crate) struct Law1;

// === impl Law1 ===

impl Law for Law1 {
    fn name(&self) -> &'static str {
        "law 1, never more than the capacity at any level"
    }

    fn check(&mut self, fleet: &Fleet) -> Result<(), String> {
        let own = &fleet.plan.history.members[0].own;
        let capacity = own.capacity_max(fleet.elapsed(), hearsay(fleet));
        within(
            facts(fleet).place(0).used,
            capacity.saturating_add(safe(fleet)),
            "in use",
        )?;
        let longer = hearsay(fleet) + counted_longer(fleet);
        let capacity = own.capacity_max(fleet.elapsed(), longer);
        if let Some(resource) = fleet.resource(0) {
            let lent = resource.clients().map(|c| u128::from(c.has.as_micros()));
            within(lent.sum(), capacity, "lent by the root")?;
        }
        for (i, coordinator) in facts(fleet).places().iter().enumerate().skip(1) {
            if !facts(fleet).claims_safe(fleet.now(), i) {
                let name = &fleet.plan.scenario.coordinators[i].name;
                within(facts(fleet).place(i).used, borrowed(coordinator), name)?;
                counted(fleet, i)?;
            }
        }
        Ok(())
    }
}

// === free functions ===

/// Checks that the parent of a coordinator counts the use below it, unless either has started
/// without a snapshot and is in learning mode.
fn counted(fleet: &Fleet, i: usize) -> Result<(), String> {
    let id = &fleet.plan.history.members[0].own.id;
    let Some(coordinator) = fleet.simulation.coordinator(i) else {
        return Ok(());
    };
    let Some(parent) = coordinator.parent() else {
        return Ok(());
    };
    let Some(above) = fleet.simulation.coordinator(parent) else {
        return Ok(());
    };
    let (Some(above_master), Some(master)) =
        (above.master(&id.scope), coordinator.master(&id.scope))
    else {
        return Ok(());
    };
    let lease = facts(fleet).place(i).limit.lease;
    let learned = |i| {
        let until = facts(fleet).place(i).learning_until;
        fleet.now() >= until.saturating_add(lease)
    };
    let learns = |clock, resource: Option<&Resource>| {
        resource.is_some_and(|resource| clock < resource.learning_until())
    };
    let (counting, lending) = (above_master.resource(id), master.resource(id));
    if !learned(i)
        || !learned(parent)
        || learns(above.clock(), counting)
        || learns(coordinator.clock(), lending)
    {
        return Ok(());
    }
    let client =
        counting.and_then(|resource| resource.clients().find(|c| c.id == coordinator.id()));
    let counted = client.map_or(Capacity::ZERO, |client| client.has);
    let name = coordinator.id().as_str();
    within(
        facts(fleet).place(i).used,
        counted,
        &format!("counted for {name}"),
    )
}

/// Returns the capacity in use that may be safe capacity although it is counted for the root's.
fn safe(fleet: &Fleet) -> Capacity {
    let places = facts(fleet).places();
    let claimed = (1..places.len()).any(|i| facts(fleet).claims_safe(fleet.now(), i));
    let most = places.iter().filter_map(Place::safe).max();
    let most = most.filter(|_| claimed).unwrap_or_default().as_micros();
    Capacity::from_micros(most.saturating_mul(fleet.plan.scenario.envoys.len() as u64))
}

/// Returns the most that a coordinator was lent by a lease that lasts.
fn borrowed(coordinator: &Place) -> Capacity {
    let lent = coordinator.borrowed.iter();
    let lent = lent.filter(|borrowed| !borrowed.safe);
    lent.map(|lent| lent.capacity).max().unwrap_or_default()
}

/// Returns the time beyond a lease for which the root counts more than a lowered capacity. The use
/// that clients reported is counted until they report another, or their lease ends. A coordinator
/// that has started without a snapshot reports, as long as it learns, that more may be in use than
/// it knows; it has started before the lease of its predecessor ended.
fn counted_longer(fleet: &Fleet) -> Duration {
    let places = facts(fleet).places();
    let lease = places[0].limit.lease;
    let learned = |place: &Place| fleet.now() >= place.learning_until.saturating_add(lease * 2);
    if places.iter().skip(1).all(learned) {
        return lease;
    }
    let [_, below_root] = facts(fleet).crashes;
    lease * (1 + 2 * below_root)
}

/// Returns the time beyond a lease for which use above a lowered capacity may last. At each level,
/// a coordinator that has started again counts a reported lease from when it hears of it. The
/// leases of a snapshot do not age during its transfer.
fn hearsay(fleet: &Fleet) -> Duration {
    let network = &fleet.plan.scenario.network;
    let delay_max = network.latency.0 + network.jitter.0;
    let [crashes, _] = facts(fleet).crashes;
    facts(fleet).held_up + delay_max * 2 * crashes
}

fn within(sum: u128, capacity: Capacity, use_of: &str) -> Result<(), String> {
    law1_never_more_than_the_capacity::within(sum, capacity.as_micros().into(), use_of)
}
