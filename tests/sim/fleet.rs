//! Fleet of one run: its simulation, what it was made from, and the laws that it has to keep.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::lease_server::LeaseServer;
use tollgate_core::limit::{Algorithm, Limit, Part};
use tollgate_core::pool::Pool;
use tollgate_core::resource::Resource;
use tollgate_core::units::Instant;
use tollgate_sim::ClientView;
use tollgate_sim::defect::Defect;
use tollgate_sim::limits::{LimitSource, ScopeLimits};
use tollgate_sim::simulation::Simulation;

use crate::borrowing::Borrowing;
use crate::laws::{self, Law};
use crate::limits::set_capacity;
use crate::plan::Plan;

/// Fleet of one run.
pub(crate) struct Fleet {
    pub(crate) plan: Plan,
    pub(crate) simulation: Simulation,
    /// Facts about its tree of coordinators, if it has one.
    pub(crate) borrowing: Option<Borrowing>,
}

/// Limits by which coordinators with a defect divide.
struct DefectiveLimits(Rc<dyn LimitSource>, Defect);

// === impl Fleet ===

impl Fleet {
    /// Returns the fleet of `plan`, with a planted defect if there is one.
    pub(crate) fn new(plan: Plan, defect: Option<Defect>) -> Self {
        let sources = plan.sources.iter().cloned();
        let boxed = |source: Rc<dyn LimitSource>| -> Box<dyn LimitSource> {
            match defect {
                Some(defect) => Box::new(DefectiveLimits(source, defect)),
                None => Box::new(source),
            }
        };
        let limits = sources.map(boxed).collect();
        let simulation = Simulation::new(plan.scenario.clone(), limits);
        let mut simulation = simulation.unwrap_or_else(|broken| panic!("{broken:?}\n{plan}"));
        simulation.inspect(defect);
        let is_tree = plan.is_tree();
        Self {
            borrowing: is_tree.then(|| Borrowing::new(&plan, simulation.now())),
            plan,
            simulation,
        }
    }

    /// Runs to the end, or to the first law that is broken.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        let mut laws = laws::of(&self.plan);
        while self.simulation.step() {
            if let Some(borrowing) = &mut self.borrowing {
                borrowing.observe(&self.plan, &self.simulation);
            }
            self.hold(&mut laws, |law, fleet| law.check(fleet))?;
        }
        self.hold(&mut laws, |law, fleet| law.finish(fleet))
    }

    /// Returns the virtual time.
    pub(crate) fn now(&self) -> Instant {
        self.simulation.now()
    }

    /// Returns the virtual time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.simulation.elapsed()
    }

    /// Returns the time left of the run.
    pub(crate) fn left(&self) -> Duration {
        self.plan.scenario.duration.0.saturating_sub(self.elapsed())
    }

    /// Returns the processes as clients of a member.
    pub(crate) fn clients_of(&self, member: usize) -> impl Iterator<Item = ClientView<'_>> {
        let id = &self.plan.history.members[member].own.id;
        let clients = self.simulation.clients();
        clients.filter(move |client| client.resource() == id)
    }

    /// Returns a member in the lease table of the first coordinator.
    pub(crate) fn resource(&self, member: usize) -> Option<&Resource> {
        let id = &self.plan.history.members[member].own.id;
        self.master(&id.scope)?.resource(id)
    }

    /// Returns the pool in the lease table of the first coordinator.
    pub(crate) fn pool(&self) -> Option<&Pool> {
        let id = &self.plan.history.pool.as_ref()?.id;
        self.master(&id.scope)?.pool(id)
    }

    /// Returns the time of the longest snapshot transfer: leases do not age during it.
    pub(crate) fn held_up(&self) -> Duration {
        self.plan.transfers().max().unwrap_or_default()
    }

    fn master(&self, scope: &Arc<str>) -> Option<&LeaseServer> {
        self.simulation.coordinator(0)?.master(scope)
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

// === impl DefectiveLimits ===

impl LimitSource for DefectiveLimits {
    fn limits_of(&self, scope: &Arc<str>) -> ScopeLimits {
        let mut limits = self.0.limits_of(scope);
        for unit in &mut limits.units {
            self.plant(&mut unit.limit);
        }
        limits
    }
}

impl DefectiveLimits {
    fn plant(&self, limit: &mut Limit) {
        match self.1 {
            Defect::HalfCapacity => set_capacity(limit, Part::HALF.of(limit.capacity)),
            Defect::Proportional if limit.algorithm == Algorithm::FairShare => {
                limit.algorithm = Algorithm::ProportionalShare;
            }
            _ => {}
        }
    }
}
