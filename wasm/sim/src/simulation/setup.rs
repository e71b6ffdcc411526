//! The beginning of a simulation.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tollgate_core::units::Instant;

use super::event::Event;
use super::levels::Traffic;
use super::plan::select;
use super::reached::Reached;
use super::{Envoy, Simulation};
use crate::capacities::CapacityTree;
use crate::coordinator::Coordinator;
use crate::demand::{BulkyBodies, Course, DemandShape, RequestStream, Turn, Zipf};
use crate::event_queue::EventQueue;
use crate::ideal::IdealBuckets;
use crate::limits::LimitTable;
use crate::observer::ObserverSlot;
use crate::process::{ProcessKind, Tally};
use crate::random::{Chance, Random};
use crate::recorder::Recorder;
use crate::scenario::{DemandSpec, Program, Routing, Scenario};
use crate::scopes::ScopeTable;
use crate::topology::Topology;
use crate::windows::Windows;

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
        let shapes = shapes.map(|demand| Rc::new(shape(&mut scopes, demand)));
        let shapes: Vec<_> = shapes.collect();
        let coordinators = coordinators(&queue, &scenario, &mut start_random);
        let kinds = scenario.envoys.iter();
        let kinds = kinds.map(|group| {
            let kind = ProcessKind::new(group, scopes.rules(), scenario.nudges);
            Rc::new(kind)
        });
        let kinds = kinds.collect();
        scopes.add_shared(&limits);
        let capacities = CapacityTree::new(&scopes, &limits);
        let ideal = IdealBuckets::new(&capacities, scenario.measure_from.0);
        let tally = Tally::new(scopes.asked(), ideal);
        let windows = Windows::new(scopes.node_count(), scenario.sample.0);
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
            topology: topology(&scenario, queue.now(), &mut regions),
            coordinators,
            lowered: BTreeMap::new(),
            inspection: None,
            touched: Vec::new(),
            reached: Reached::default(),
            exchanges: Vec::new(),
            answers: 0,
            windows,
            demand_changes: 0,
            tally,
            traffic: Traffic::default(),
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
        let demands: Vec<_> = self.scenario.demand.iter().zip(shapes).collect();
        for (demand, shape) in demands {
            let selected = select(
                &self.scenario,
                &self.envoys,
                &demand.envoys,
                &mut self.event_random,
            );
            let count = selected.len().max(1) as f64;
            let (program, scale) = match (&demand.each, &demand.total) {
                (Some(each), _) => (each, 1.0),
                (None, Some(total)) => (total, 1.0 / count),
                (None, None) => (&Program::Constant(crate::scenario::Amount(0.0)), 0.0),
            };
            let program = Rc::new(program.clone());
            let takes_turns = demand.routing == Routing::RoundRobin;
            let shared = takes_turns.then(|| self.start_random.fork());
            let of = selected.len() as u32;
            for (place, envoy) in (0..).zip(selected) {
                let (scale, random, turn) = match &shared {
                    Some(shared) => (scale * count, shared.clone(), Turn { place, of }),
                    None => (scale, self.start_random.fork(), Turn::ALWAYS),
                };
                let course = Course::new(program.clone(), scale);
                let shape = shape.clone();
                let stream = RequestStream::new(Duration::ZERO, shape, course, random, turn);
                self.envoys[envoy].streams.push(stream);
            }
        }
    }

    /// Plans the first events.
    fn begin(&mut self) {
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
        for (at, action) in self.planned_actions() {
            self.plan_action(at, action);
        }
        if let Some(mishaps) = &self.scenario.mishaps {
            self.queue.push(mishaps.from.0, Event::Mishap);
        }
        self.queue.push(self.scenario.sample.0, Event::Sample);
    }
}

// === free functions ===

fn shape(scopes: &mut ScopeTable, demand: &DemandSpec) -> DemandShape {
    let numbers = scopes.add_all(demand);
    let spread = demand.scopes.as_ref();
    DemandShape {
        zipf: spread.map(|spread| Zipf::new(numbers.len(), spread.zipf.0)),
        scopes: numbers,
        arrivals: demand.arrivals,
        takes: demand.takes.0,
        bytes: demand.bytes,
        cost: demand.cost.unwrap_or(1),
        bulky: demand.bulky.map(|bulky| BulkyBodies {
            chance: Chance::share(bulky.chance.0),
            until: bulky.until.0,
        }),
    }
}

fn coordinators(
    queue: &EventQueue<Event>,
    scenario: &Scenario,
    random: &mut Random,
) -> Vec<Coordinator> {
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
        envoys.extend((1..=group.count).map(|number| Envoy {
            kind,
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
        of_envoys.extend((0..group.count).map(|_| region));
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
