//! Estimate of a scenario's cost, before it is played.

use super::{EnvoyGroup, Program, Scenario};

// === impl Scenario ===

impl Scenario {
    /// Returns about how many events playing the scenario takes, at most: requests at the highest rates
    /// of the demand, and ticks of workers. Refreshes are few beside them.
    pub fn expected_events(&self) -> f64 {
        let requests = self.demand.iter().map(|demand| {
            let most = |program: &Option<Program>| program.as_ref().map_or(0.0, Program::most);
            let all = self.selectable(&demand.envoys);
            let envoys = demand
                .envoys
                .count
                .map_or(all, |count| all.min(count as usize));
            most(&demand.each) * envoys as f64 + most(&demand.total)
        });
        let ticks = |group: &EnvoyGroup| {
            let workers = f64::from(group.count) * f64::from(group.workers);
            workers / group.tick.0.as_secs_f64().max(1e-3)
        };
        let ticks = self.envoys.iter().map(ticks);
        (requests.sum::<f64>() + ticks.sum::<f64>()) * self.duration.0.as_secs_f64()
    }
}

// === impl Program ===

impl Program {
    /// Returns its highest rate; of a walk its first.
    fn most(&self) -> f64 {
        match self {
            Self::Constant(rate) => rate.0,
            Self::Ramp(ramp) => ramp.from.0.max(ramp.to.0),
            Self::Spike(spike) => spike.from.0.max(spike.to.0),
            Self::OnOff(on_off) => on_off.rate.0,
            Self::Walk(walk) => walk.from.0,
            Self::Trace(trace) => {
                let rates = trace.points.iter().map(|(_, rate)| rate.0);
                rates.fold(0.0, f64::max)
            }
        }
    }
}
