//! Simulation: the world of one scenario, which goes on event by event.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tollgate_core::lease::ClientId;
use tollgate_core::limit::Algorithm;
use tollgate_core::units::{Capacity, Instant};

mod actions;
mod calls;
mod event;
mod event_queue;
pub mod exchanges;
mod inspect;
pub mod levels;
pub mod live;
pub mod masters;
mod nudges;
mod plan;
pub mod reached;
mod routing;
mod sampling;
mod setup;

use self::actions::Action;
use self::event::Event;
use self::event_queue::EventQueue;
use self::exchanges::Exchange;
use self::reached::Reached;
use crate::capacities::CapacityTree;
use crate::coordinator::Coordinator;
use crate::demand::{RequestStream, RoutedDemand};
use crate::figures::{Figures, LimitFigures};
use crate::inspection::Inspection;
use crate::limits::{LimitSource, LimitTable};
use crate::observer::{Observer, ObserverSlot};
use crate::process::{Outcomes, Process, ProcessKind, Tally};
use crate::random::Random;
use crate::recorder::Recorder;
use crate::sample::{Mark, Sample, Violation};
use crate::scenario::{EventSpec, Scenario, ScenarioError, Span};
use crate::scopes::ScopeTable;
use crate::sizes::TableSizes;
use crate::topology::Topology;

/// The most limits whose figures are kept apart.
const LIMITS_SHOWN: usize = 100;

/// Fleet of engines and their coordinators in virtual time.
#[derive(Debug)]
pub struct Simulation {
    scenario: Scenario,
    queue: EventQueue,
    /// Generators of the network, of events, and of what starts.
    network: Random,
    event_random: Random,
    start_random: Random,
    /// Generator of late copies, of failures that are reported, and of the choice between two masters.
    faults: Random,
    scopes: Rc<ScopeTable>,
    limits: LimitTable,
    /// Capacities under the limits in force.
    capacities: CapacityTree,
    kinds: Vec<Rc<ProcessKind>>,
    envoys: Vec<Envoy>,
    /// Demand that is sent to one Envoy or another.
    routed: Vec<RoutedDemand>,
    coordinators: Vec<Coordinator>,
    topology: Topology,
    tally: Tally,
    observer: ObserverSlot,
    /// Number of changes of the demand that end by themselves.
    demand_changes: u64,
    /// Capacities that were lowered, by the number of the scope or pool, and how long leases of them may last.
    lowered: BTreeMap<usize, (Capacity, Instant)>,
    recorder: Recorder,
    inspection: Option<Inspection>,
    /// Envoys whose processes did something in the last event, while they are inspected.
    touched: Vec<usize>,
    reached: Reached,
    /// Exchanges of the last event, and the number of answers so far.
    exchanges: Vec<Exchange>,
    answers: u64,
}

/// Place of one Envoy, whichever process has it.
#[derive(Debug)]
struct Envoy {
    kind: usize,
    /// Number in its group, from 1.
    number: u32,
    name: String,
    /// The coordinator that it asks.
    coordinator: usize,
    /// Counts its processes, to tell messages of a dead one and for it.
    incarnation: u32,
    /// Whether there is to be a process.
    is_wanted: bool,
    /// Whether its process ends soon, and takes no requests any more.
    is_draining: bool,
    /// Client that its last stream of nudges was opened for.
    watch: Option<ClientId>,
    process: Option<Process>,
    /// Requests that come here, while there is no process.
    streams: Vec<RequestStream>,
}

// === impl Simulation ===

impl Simulation {
    /// Returns the simulation of a scenario with `limits`, the first of which are in force.
    ///
    /// # Errors
    /// All rules that the scenario breaks.
    pub fn new(
        scenario: Scenario,
        limits: Vec<Box<dyn LimitSource>>,
    ) -> Result<Self, Vec<ScenarioError>> {
        Self::with_algorithm(scenario, limits, None)
    }

    /// Like [`Simulation::new`], with `algorithm` in place of that of each limit. Figures then take
    /// each capacity as the fleet's, whatever the algorithm makes of it.
    ///
    /// # Errors
    /// All rules that the scenario breaks.
    pub fn with_algorithm(
        scenario: Scenario,
        limits: Vec<Box<dyn LimitSource>>,
        algorithm: Option<Algorithm>,
    ) -> Result<Self, Vec<ScenarioError>> {
        let scenario = scenario.completed();
        let errors = scenario.check(limits.len());
        if errors.is_empty() {
            Ok(Self::checked(scenario, LimitTable::new(limits, algorithm)))
        } else {
            Err(errors)
        }
    }

    /// Handles the next event. False if the end has been reached.
    pub fn step(&mut self) -> bool {
        self.step_until(self.scenario.duration.0)
    }

    /// Handles all events until `elapsed` since the start, or to the end.
    pub fn run_until(&mut self, elapsed: Duration) {
        let until = elapsed.min(self.scenario.duration.0);
        while self.step_until(until) {}
    }

    fn step_until(&mut self, until: Duration) -> bool {
        self.forget_touched();
        self.exchanges.clear();
        let Some(event) = self.queue.next(until) else {
            return false;
        };
        self.handle(event);
        true
    }

    /// Lets something happen now, as someone who watches may want it; the time in `event` does not count.
    ///
    /// # Errors
    /// All rules that the event breaks.
    pub fn happen(&mut self, event: EventSpec) -> Result<(), Vec<ScenarioError>> {
        let event = EventSpec {
            at: Span(self.elapsed()),
            ..event
        };
        let scenario = Scenario {
            events: vec![event.clone()],
            ..self.scenario.clone()
        };
        let errors = scenario.check(self.limits.count());
        if !errors.is_empty() {
            return Err(errors);
        }
        self.plan_change(Duration::ZERO, &event);
        Ok(())
    }

    /// Lets `observer` hear of all that happens from now on.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observer = ObserverSlot(Some(observer));
    }

    /// Returns the virtual time since the start.
    pub fn elapsed(&self) -> Duration {
        self.queue.elapsed()
    }

    /// Returns whether the end has been reached.
    pub fn is_over(&self) -> bool {
        self.elapsed() >= self.scenario.duration.0
    }

    /// Returns the number of events that have been handled.
    pub fn events(&self) -> u64 {
        self.queue.handled()
    }

    /// Returns the scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Returns the samples so far.
    pub fn samples(&self) -> &[Sample] {
        &self.recorder.samples
    }

    /// Returns the scopes and pools that [`Sample::scopes`] are of.
    pub fn watched_scopes(&self) -> Vec<&str> {
        let watched = self.recorder.watched.iter();
        watched.map(|number| self.scopes.id(*number)).collect()
    }

    /// Returns the scopes that are asked for and have no limit now.
    pub fn unlimited_scopes(&self) -> Vec<&str> {
        let (scopes, limits) = (&self.scopes, &self.limits);
        let asked = scopes.iter().take(scopes.asked());
        let unlimited = asked.filter(|scope| limits.of(&scope.id).limited.is_empty());
        unlimited.map(|scope| &*scope.id).collect()
    }

    /// Returns the Envoys that [`Sample::clients`] are of.
    pub fn watched_envoys(&self) -> Vec<&str> {
        let watched = self.envoys.iter().take(self.recorder.watched_envoys);
        watched.map(|envoy| envoy.name.as_str()).collect()
    }

    /// Returns what happened to the fleet so far.
    pub fn marks(&self) -> &[Mark] {
        &self.recorder.marks
    }

    /// Returns the laws that were seen broken, each once for a scope.
    pub fn violations(&self) -> &[Violation] {
        &self.recorder.violations
    }

    /// Returns the figures so far.
    pub fn figures(&self) -> Figures {
        let mut figures = Figures {
            scopes: self.scopes.asked(),
            digest: format!("{:016x}", self.digest()),
            ..self.recorder.figures(self.elapsed())
        };
        self.tally.ideal.add_figures(&mut figures);
        figures
    }

    /// Returns the figures so far of each limit, of the first hundred.
    pub fn limit_figures(&self) -> Vec<LimitFigures> {
        self.tally.ideal.limit_figures(&self.scopes, LIMITS_SHOWN)
    }

    /// Returns the sizes of all tables now.
    pub fn table_sizes(&self) -> TableSizes {
        let mut sizes = TableSizes::default();
        sizes.add("planned events", self.queue.len() as u64);
        for process in self.envoys.iter().flat_map(|envoy| &envoy.process) {
            sizes.add("processes", 1);
            process.add_sizes(self.now(), &mut sizes);
        }
        for server in self.coordinators.iter().flat_map(|place| place.servers()) {
            sizes.add("resources", server.resource_count() as u64);
            sizes.add("leases", server.lease_count() as u64);
            sizes.add("pools", server.pools().count() as u64);
            sizes.add_debug("master debug output", server);
        }
        sizes
    }

    /// Returns a number that is equal for two runs of one scenario with one seed.
    pub fn digest(&self) -> u64 {
        self.queue.digest() ^ self.recorder.digest()
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.queue.now()
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Start { envoy, incarnation } => self.start(envoy as usize, incarnation),
            Event::Wake { envoy, incarnation } => self.wake(envoy as usize, incarnation),
            Event::Requests { demand } => self.route(demand as usize),
            Event::Coordinator { coordinator, shard } => {
                self.work(coordinator as usize, usize::from(shard));
            }
            Event::WatchParent { coordinator } => self.watch_parent(coordinator as usize),
            Event::Message(message) => self.deliver(*message),
            Event::Action(action) => self.act(*action),
            Event::Mishap => self.mishap(),
            Event::Sample => self.sample(),
        }
    }

    /// Starts a process at the place of an Envoy.
    fn start(&mut self, index: usize, incarnation: u32) {
        let (now, elapsed) = (self.now(), self.elapsed());
        let envoy = &mut self.envoys[index];
        if envoy.incarnation != incarnation || !envoy.is_wanted || envoy.process.is_some() {
            return;
        }
        let mut streams = std::mem::take(&mut envoy.streams);
        for stream in &mut streams {
            // Requests that came meanwhile went elsewhere.
            while stream.take(elapsed).is_some() {}
        }
        let kind = &self.kinds[envoy.kind];
        let random = self.start_random.fork();
        envoy.is_draining = false;
        let (name, shared) = ((envoy.name.as_str(), incarnation), (kind, &self.scopes));
        let inspection = self.inspection.as_ref();
        let process = Process::new(now, name, shared, streams, inspection, random);
        envoy.process = Some(process);
        self.attend(index);
    }

    fn wake(&mut self, index: usize, incarnation: u32) {
        let at = (self.now(), self.elapsed());
        let mut outcomes = Outcomes {
            tally: &mut self.tally,
            observer: &mut self.observer,
            at: at.1,
            envoy: index as u32,
        };
        let envoy = &mut self.envoys[index];
        let Some(process) = &mut envoy.process else {
            return;
        };
        if envoy.incarnation == incarnation {
            process.wake(at, &mut outcomes);
            self.attend(index);
        }
    }

    /// Plans an action of the simulation.
    fn plan_action(&mut self, after: Duration, action: Action) {
        self.queue.push(after, Event::Action(Box::new(action)));
    }
}

#[cfg(test)]
mod tests;
