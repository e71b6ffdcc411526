//! Fleet of one run: its simulation, what it was made from, and the laws that it has to keep.

use std::time::Duration;

use tollgate_core::units::Instant;
use tollgate_sim::defect::Defect;
use tollgate_sim::simulation::Simulation;

use crate::laws::{self, Law};
use crate::plan::Plan;

/// Fleet of one run.
pub(crate) struct Fleet {
    pub(crate) plan: Plan,
    pub(crate) simulation: Simulation,
}

// === impl Fleet ===

impl Fleet {
    /// Returns the fleet of `plan`, with a planted defect if there is one.
    pub(crate) fn new(plan: Plan, defect: Option<Defect>) -> Self {
        let limits = plan.limit_sources();
        let simulation = Simulation::new(plan.scenario.clone(), limits);
        let mut simulation =
            simulation.unwrap_or_else(|broken| panic!("{broken:?}\n{:#?}", plan.scenario));
        simulation.inspect(defect);
        Self { plan, simulation }
    }

    /// Runs to the end, or to the first law that is broken.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        let mut laws = laws::all();
        while self.simulation.step() {
            self.hold(&mut laws, |law, fleet| law.check(fleet))?;
        }
        self.hold(&mut laws, |law, fleet| law.finish(fleet))
    }

    /// Returns the virtual time.
    pub(crate) fn now(&self) -> Instant {
        self.simulation.now()
    }

    /// Returns the time left of the run.
    pub(crate) fn left(&self) -> Duration {
        let elapsed = self.simulation.elapsed();
        self.plan.scenario.duration.0.saturating_sub(elapsed)
    }

    fn hold(
        &self,
        laws: &mut [Box<dyn Law>],
        look: impl Fn(&mut dyn Law, &Self) -> Result<(), String>,
    ) -> Result<(), String> {
        laws.iter_mut().try_for_each(|law| {
            look(law.as_mut(), self).map_err(|broken| format!("{}: {broken}", law.name()))
        })
    }
}
