//! Without a coordinator a process is neither unlimited nor dead unless its operator chose so: it
//! has its lease, or standby capacity, until that expires, and then what the mode says.

use std::collections::BTreeMap;

use tollgate_core::client::{LeaseState, Mode};
use tollgate_core::units::{Capacity, Instant, MICRO};
use tollgate_sim::{ClientKey, ClientView};

use super::{Law, lingers, throughput};
use crate::fleet::Fleet;

#[derive(Default)]
pub(crate) struct Law7 {
    /// Clients without a lease.
    alone: BTreeMap<ClientKey, Alone>,
}

struct Alone {
    since: Instant,
    admitted: u64,
    /// Tokens that had to be paid first.
    owed: f64,
    /// The least flow and demand in that time.
    flow: f64,
    demand: f64,
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
            let flow = flow as f64 / MICRO as f64;
            let alone = self.alone.entry(p.key()).or_insert_with(|| Alone {
                since: fleet.now(),
                admitted: p.admitted_total(),
                owed: p.owed(),
                flow,
                demand: p.asked_for(),
            });
            alone.flow = alone.flow.min(flow);
            alone.demand = alone.demand.min(p.asked_for());
            alone.alive(&p, fleet.now())?;
        }
        Ok(())
    }
}

impl Alone {
    /// Checks that a process that wants more than it may admits that much, less the cost of a slow
    /// start.
    fn alive(&self, p: &ClientView<'_>, now: Instant) -> Result<(), String> {
        let seconds = now.saturating_since(self.since).as_secs_f64();
        let busy = seconds - 1.0 - lingers(p).as_secs_f64();
        let passes = throughput(p, self.flow).min(self.demand);
        // Requests of equal length that come at equal intervals may find the only place taken each
        // second time.
        let part = if p.unit().is_concurrency() { 0.45 } else { 0.9 };
        let expected = passes * busy * part - self.owed - 3.0 * p.largest() as f64;
        // Requests are admitted whole.
        let expected = expected.floor();
        let admitted = (p.admitted_total() - self.admitted) as f64;
        if admitted < expected {
            let name = p.name;
            return Err(format!(
                "{name} admitted {admitted} in {seconds} s alone, not {expected}"
            ));
        }
        Ok(())
    }
}

fn mode_rules(p: &ClientView<'_>, flow: u64) -> Result<(), String> {
    let wants = p.wanted().as_micros();
    let (safe, limit) = (p.safe().as_micros(), p.limit().as_micros());
    let right = match p.policy().no_lease {
        _ if p.standby().is_some() => p.standby().map(Capacity::as_micros) == Some(flow),
        Mode::Safe => flow == safe,
        Mode::Optimistic => flow == safe.max(wants).min(limit),
        Mode::Pessimistic => flow == 0,
    };
    if right {
        Ok(())
    } else {
        Err(format!("{} passes {flow} without a lease", p.name))
    }
}
