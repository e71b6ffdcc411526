//! Law F4: no window of a quota gives more than its amount, whatever is killed; and what it has left can be used.
//!
//! No process has safe capacity, which comes on top.

use tollgate_sim::scenario::DemandSpec;
use tollgate_sim::tokens;

use super::Law;
use crate::fleet::Fleet;

/// Length of the quotas' windows, which begin with the simulated wall clock's minutes.
const MINUTE: u64 = 60;

#[derive(Default)]
pub(crate) struct LawF4 {
    minute: u64,
    /// Tokens that were spent in this minute.
    spent: u64,
    /// Tokens of the last whole minute.
    before: u64,
}

// === impl LawF4 ===

impl Law for LawF4 {
    fn name(&self) -> &'static str {
        "law F4, no window gives more than its amount"
    }

    fn check(&mut self, fleet: &Fleet) -> Result<(), String> {
        let minute = fleet.elapsed().as_secs() / MINUTE;
        if minute > self.minute {
            (self.before, self.spent) = (self.spent, 0);
            self.minute = minute;
        }
        for client in fleet.simulation.touched_clients() {
            self.spent += client.spent().admitted;
            for (age, tokens) in client.came_back() {
                let spent_at = fleet.elapsed().saturating_sub(*age);
                if spent_at.as_secs() / MINUTE == minute {
                    self.spent -= tokens;
                }
            }
        }
        let amount = amount(fleet);
        if self.spent as f64 > amount {
            return Err(format!("{} of {amount} passed in a window", self.spent));
        }
        Ok(())
    }

    /// The last whole minute was without faults.
    fn finish(&mut self, fleet: &Fleet) -> Result<(), String> {
        let plan = &fleet.plan;
        let demand = fleet.simulation.clients().map(|client| client.asked_for());
        let offered = demand.sum::<f64>() * MINUTE as f64;
        let limit = plan.limit_of(0);
        let earned = limit.capacity.as_f64() * MINUTE as f64;
        // Each Envoy may hold a token that it does not need.
        let lost = plan.scenario.envoys.len() as f64;
        // Surpluses of a window's first seconds do not come back, and its requests may use up a small quota then; and of
        // what is offered a part is not used.
        let settles = |demand: &DemandSpec| demand.settles.is_some();
        let (used, part) = if plan.scenario.demand.iter().any(settles) {
            (offered * 0.4, 0.5)
        } else {
            (offered, 0.99)
        };
        let least = amount(fleet).min(used).min(earned) * part - lost;
        if (self.before as f64) < least {
            return Err(format!("{} passed in a minute, not {least}", self.before));
        }
        Ok(())
    }
}

fn amount(fleet: &Fleet) -> f64 {
    fleet
        .plan
        .limit_of(0)
        .quotas
        .least()
        .map_or(f64::MAX, tokens)
}
