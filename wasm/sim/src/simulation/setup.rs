//! The beginning of a simulation.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tollgate_core::units::Instant;
use tollgate_engine::Estimate;

use super::event::Event;
use super::event_queue::EventQueue;
use super::plan::select;
use super::reached::Reached;
use super::{Envoy, Simulation};
use crate::capacities::CapacityTree;
use crate::coordinator::Coordinator;
use crate::demand::{Course, DemandShape, RequestStream, RoutedDemand};
use crate::ideal::IdealLimits;
use crate::limits::LimitTable;
use crate::observer::ObserverSlot;
use crate::process::{ProcessKind, Tally};
use crate::random::Random;
use crate::recorder::Recorder;
use crate::scenario::{DemandSpec, Program, Scenario};
use crate::scopes::ScopeTable;
use crate::topology::Topology;

/// Numbers of regions, by their names.
#[derive(Debug, Default)]
pub(super) struct Regions(BTreeMap<String, u32>);

// === impl Regions ===

impl Regions {
    pub(super) fn number(&mut self, name: &str) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(name.to_owned()).or_insert(next)
    }

    pub(super) fn of_all(scenario: &Scenario) -> Self {
        let mut regions = Self::default();
        for group in &scenario.envoys {
            regions.number(&group.region);
        }
        for coordinator in &scenario.coordinators {
            regions.number(&coordinator.region);
        }
        regions
    }
}

// === impl Simulation ===

impl Simulation {
    /// Returns the simulation of a scenario that breaks no rule.
    pub(super) fn checked(scenario: Scenario, limits: LimitTable) -> Self {
        let queue = EventQueue::new();
        let mut random = Random::new(scenario.seed);
        let mut start_random = random.fork();
        let mut scopes = ScopeTable::new();
        let shapes = scenario.demand.iter();
        let shapes = shapes.map(|demand| {
            let numbers = scopes.add_all(demand);
            Rc::new(DemandShape::new(numbers, demand.clone()))
        });
        let shapes: Vec<_> = shapes.collect();
        let coordinators = coordinators(&queue, &scenario, &mut start_random);
        let settles = scenario
            .demand
            .iter()
            .any(|demand| demand.settles.is_some());
        let final_cost = settles.then_some(Estimate::Request);
        let kinds = scenario.envoys.iter();
        let kinds = kinds.map(|group| {
            let kind = ProcessKind::new(group, scopes.rules(), scenario.nudges, final_cost);
            Rc::new(kind)
        });
        let kinds = kinds.collect();
        scopes.add_shared(&limits);
        let capacities = CapacityTree::new(&scopes, &limits);
        let from = scenario.measure_from.0;
        let ideal = IdealLimits::new(&capacities, &scopes, &limits, from);
        let tally = Tally::new(scopes.asked(), ideal);
        let mut regions = Regions::of_all(&scenario);
        let mut simulation = Self {
            network: random.fork(),
            event_random: random.fork(),
            faults: random.fork(),
            start_random,
            kinds,
            recorder: Recorder::new(&scenario, scopes.watched()),
            capacities,
            limits,
            scopes: Rc::new(scopes),
            envoys: envoys(&scenario),
            routed: Vec::new(),
            topology: topology(&scenario, queue.now(), &mut regions),
            coordinators,
            lowered: BTreeMap::new(),
            inspection: None,
            touched: Vec::new(),
            reached: Reached::default(),
            exchanges: Vec::new(),
            answers: 0,
            demand_changes: 0,
            tally,
            observer: ObserverSlot::default(),
            queue,
            scenario,
        };
        simulation.distribute(&shapes);
        simulation.begin();
        simulation
    }

    /// Gives the Envoys their parts of all demand.
    fn distribute(&mut self, shapes: &[Rc<DemandShape>]) {
        let demands = self.scenario.demand.clone();
        for (demand, shape) in demands.iter().zip(shapes) {
            let selected = select(
                &self.scenario,
                &self.envoys,
                &demand.envoys,
                &mut self.event_random,
            );
            match (&demand.each, &demand.total) {
                (Some(each), _) => self.give_each(shape, each, selected),
                (None, Some(total)) => self.give_router(shape, total, (demand, selected)),
                (None, None) => {}
            }
        }
    }

    /// Gives each of some Envoys its own stream of requests.
    fn give_each(&mut self, shape: &Rc<DemandShape>, program: &Program, envoys: Vec<usize>) {
        let course = Course::new(Rc::new(program.clone()));
        for envoy in envoys {
            let (shape, course) = (shape.clone(), course.clone());
            let random = self.start_random.fork();
            let stream = RequestStream::new(Duration::ZERO, shape, course, random);
            self.envoys[envoy].streams.push(stream);
        }
    }

    /// Adds a stream whose requests a router sends to one of some Envoys each.
    fn give_router(
        &mut self,
        shape: &Rc<DemandShape>,
        program: &Program,
        (demand, envoys): (&DemandSpec, Vec<usize>),
    ) {
        let (course, shape) = (Course::new(Rc::new(program.clone())), shape.clone());
        let (random, router) = (self.start_random.fork(), self.start_random.fork());
        let stream = RequestStream::new(Duration::ZERO, shape, course, random);
        let calls = (demand.routing, demand.retries);
        let number = self.routed.len() as u32;
        let routed = RoutedDemand::new(number, stream, calls, envoys, router);
        self.routed.push(routed);
    }

    /// Plans the first events.
    fn begin(&mut self) {
        for demand in 0..self.routed.len() {
            self.plan_requests(demand, Duration::ZERO);
        }
        for index in 0..self.envoys.len() {
            let over = self.scenario.envoys[self.envoys[index].kind].start_over.0;
            let after = self.start_random.between(0, over.as_micros() as u64);
            let envoy = index as u32;
            let start = Event::Start {
                envoy,
                incarnation: 0,
            };
            self.queue.push(Duration::from_micros(after), start);
        }
        for index in 0..self.coordinators.len() {
            self.watch_parent(index);
        }
        for event in self.scenario.events.clone() {
            self.plan_change(event.at.0, &event);
        }
        if let Some(mishaps) = &self.scenario.mishaps {
            self.queue.push(mishaps.from.0, Event::Mishap);
        }
        self.queue.push(self.scenario.sample.0, Event::Sample);
    }
}

// === free functions ===

fn coordinators(queue: &EventQueue, scenario: &Scenario, random: &mut Random) -> Vec<Coordinator> {
    let mut all: Vec<Coordinator> = Vec::new();
    for spec in &scenario.coordinators {
        let parent = spec.parent.as_ref();
        let mut names = scenario.coordinators.iter();
        let parent = parent.and_then(|parent| names.position(|known| known.name == *parent));
        let parent = parent.and_then(|index| Some((index, all.get(index)?)));
        let coordinator = Coordinator::new(queue.now(), spec, parent, random);
        all.push(coordinator);
    }
    all
}

fn envoys(scenario: &Scenario) -> Vec<Envoy> {
    let mut envoys = Vec::new();
    for (kind, group) in scenario.envoys.iter().enumerate() {
        let named = group.coordinator.as_ref();
        let mut coordinators = scenario.coordinators.iter();
        let coordinator =
            named.and_then(|named| coordinators.position(|known| known.name == *named));
        envoys.extend((1..=scenario.places(group)).map(|number| Envoy {
            kind,
            number,
            is_wanted: number <= group.count,
            is_draining: false,
            name: format!("{}-{number}", group.name),
            coordinator: coordinator.unwrap_or(0),
            incarnation: 0,
            watch: None,
            process: None,
            streams: Vec::new(),
        }));
    }
    envoys
}

fn topology(scenario: &Scenario, started: Instant, regions: &mut Regions) -> Topology {
    let mut of_envoys = Vec::new();
    for group in &scenario.envoys {
        let region = regions.number(&group.region);
        of_envoys.extend((0..scenario.places(group)).map(|_| region));
    }
    let coordinators = scenario.coordinators.iter();
    let of_coordinators = coordinators.map(|spec| regions.number(&spec.region));
    let of_coordinators = of_coordinators.collect();
    Topology::new(
        scenario.network.clone(),
        started,
        of_envoys,
        of_coordinators,
    )
}
