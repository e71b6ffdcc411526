//! Plan of a fleet: the scenario and the limits that a seed makes.

use std::fmt;
use std::rc::Rc;

use tollgate_sim::limits::LimitSource;
use tollgate_sim::scenario::Scenario;

/// Plan of one run.
pub(crate) struct Plan {
    pub(crate) scenario: Scenario,
    /// Limits that the scenario's events put into force, by number; the first hold at the start.
    pub(crate) limits: Vec<Rc<dyn LimitSource>>,
}

// === impl Plan ===

impl Plan {
    /// Returns the plan of `seed` where requests are counted.
    pub(crate) fn of_requests(seed: u64) -> Self {
        todo!("{seed}")
    }

    /// Returns the limits as the simulation takes them.
    pub(crate) fn limit_sources(&self) -> Vec<Box<dyn LimitSource>> {
        let sources = self.limits.iter();
        let boxed = |source: &Rc<dyn LimitSource>| Box::new(source.clone()) as Box<dyn LimitSource>;
        sources.map(boxed).collect()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#?}", self.scenario)
    }
}
