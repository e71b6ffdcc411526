//! Without a coordinator a process is neither unlimited nor dead unless its operator chose so: it
//! has its lease, or standby capacity, until that expires, and then what the mode says.

use std::collections::BTreeMap;

use tollgate_core::client::{LeaseState, Mode};
use tollgate_core::units::Capacity;
use tollgate_sim::{ClientKey, ClientView};

use super::{Busy, Law};
use crate::fleet::Fleet;

#[derive(Default)]
pub(crate) struct Law7 {
    /// Clients without a lease, and the least demand of each.
    alone: BTreeMap<ClientKey, (Busy, f64)>,
}

impl Law for Law7 {
    fn name(&self) -> &'static str {
        "law 7, an unreachable coordinator is neither unlimited nor dead"
    }

    fn check(&mut self, fleet: &Fleet) -> Result<(), String> {
        for p in fleet.simulation.touched_clients() {
            if p.state() != LeaseState::NoLease || p.misses_permits() {
                self.alone.remove(&p.key());
                continue;
            }
            let (flow, _) = p.flow();
            mode_rules(&p, flow)?;
            let begin = || (Busy::begin(fleet.now(), &p, flow), f64::INFINITY);
            let (alone, demand) = self.alone.entry(p.key()).or_insert_with(begin);
            alone.flow = alone.flow.min(flow);
            *demand = demand.min(p.asked_for());
            // Less the cost of a slow start.
            alone.check(fleet.now(), &p, (*demand, 0.9, 3.0))?;
        }
        Ok(())
    }
}

/// Checks that a client passes what its mode says.
fn mode_rules(p: &ClientView<'_>, flow: f64) -> Result<(), String> {
    let passes = match p.policy().no_lease {
        _ if p.standby().is_some() => p.standby().unwrap_or_default(),
        Mode::Safe => p.safe(),
        Mode::Optimistic => p.safe().max(p.wanted()).min(p.limit()),
        Mode::Pessimistic => Capacity::ZERO,
    };
    if flow == passes.as_f64() {
        Ok(())
    } else {
        Err(format!("{} passes {flow} without a lease", p.name))
    }
}
