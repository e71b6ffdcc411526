//! Simulated world of a tree, and the effect of each event in it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _};
use std::time::Duration;

use tollgate_core::client::Policy;
use tollgate_core::lease::{ClientRun, Epoch, ResourceId};
use tollgate_core::lease_server::Start;
use tollgate_core::limit::Algorithm;
use tollgate_core::message::{Refresh, Refreshed, Release};
use tollgate_core::units::{Capacity, Instant};
use tollgate_sim::event_queue::{self, EventQueue};
use tollgate_sim::random::Random;

use super::coordinator::Coordinator;
use super::laws;
use super::reached::Reached;
use super::scenario::{FAULTS_END, Fault, Scenario};
use crate::defect::Defect;
use crate::laws::{Fleet, Law};
use crate::process::{CallId, Process, Setup};
use crate::watches::{Stream, Watches};
use crate::world::nudges;

mod calls;
mod nudges;

/// Interval at which coordinators do the work that is due.
const TICK: Duration = Duration::from_millis(10);

/// World of one run.
pub(crate) struct World {
    random: Random,
    /// Generator that decides which requests come late and once more.
    strays: Random,
    /// Streams for nudges at each coordinator, if they have them.
    watches: Vec<Watches>,
    scenario: Scenario,
    resource: ResourceId,
    event_queue: EventQueue<Event>,
    coordinators: Vec<Coordinator>,
    processes: Vec<Process>,
    /// Whether each process has safe capacity, lent by a coordinator without a lease.
    safe: Vec<bool>,
    /// The last lease of each client of each coordinator.
    last_leases: BTreeMap<(usize, ClientRun), LastLease>,
    started: u64,
    defect: Option<Defect>,
    /// Capacities of the root, with the times at which they came into force.
    capacities: Vec<(Instant, Capacity)>,
    laws: Vec<Box<dyn Law<Self>>>,
    reached: Reached,
}

#[derive(Clone, Copy, Debug)]
struct LastLease {
    capacity: Capacity,
    until: Instant,
    safe: bool,
}

/// Sender of a request.
#[derive(Clone, Copy, Debug)]
enum RequestSender {
    /// A worker of the process at an index, of an incarnation.
    Process(usize, u64, CallId),
    /// The coordinator at an index, in a term.
    Coordinator(usize, Epoch),
}

#[derive(Clone, Debug)]
enum Event {
    Tick,
    Fault(Fault),
    /// All requests are alike from now on.
    Calm,
    /// A coordinator is there again, with the snapshot that was left if there is one.
    Up {
        coordinator: usize,
        snapshot: Option<Vec<u8>>,
    },
    /// A process has something to do.
    Wake {
        process: usize,
        incarnation: u64,
    },
    Refresh {
        sender: RequestSender,
        sent_at: Instant,
        refresh: Refresh,
    },
    Release {
        /// Receiver of the release.
        to: usize,
        release: Release,
    },
    Answer {
        sender: RequestSender,
        sent_at: Instant,
        answer: Refreshed,
        safe: bool,
    },
    Failure {
        sender: RequestSender,
        /// Sequence number of a coordinator's request.
        sequence: u64,
    },
    Watch(Stream),
    /// A stream ends with an error.
    WatchEnd(Stream),
    Nudge(Stream),
    /// The parent of a coordinator names the resource to it.
    NudgeCoordinator(usize),
}

impl event_queue::Event for Event {
    fn digest(&self, hasher: &mut DefaultHasher) {
        // Recurs all the time: only its time tells runs apart.
        if !matches!(self, Self::Tick | Self::Wake { .. }) {
            format!("{self:?}").hash(hasher);
        }
    }
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self::with(seed, None, None)
    }

    /// Creates a world with a defect between processes and their surroundings.
    pub(crate) fn with_defect(seed: u64, defect: Defect) -> Self {
        Self::with(seed, None, Some(defect))
    }

    /// Creates a world where shares depend on what processes use, at every level.
    pub(crate) fn of_usage(seed: u64) -> Self {
        let algorithm = match seed % 2 {
            0 => Algorithm::UsageShare,
            _ => Algorithm::MaxRate,
        };
        Self::with(seed, Some(algorithm), None)
    }

    fn with(seed: u64, algorithm: Option<Algorithm>, defect: Option<Defect>) -> Self {
        let mut random = Random::new(seed);
        let mut scenario = Scenario::new(&mut random, seed);
        if let Some(algorithm) = algorithm {
            scenario.limit.algorithm = algorithm;
            for coordinator in &mut scenario.coordinators {
                coordinator.limit.algorithm = algorithm;
            }
        }
        let event_queue = EventQueue::new();
        let coordinators = scenario.coordinators.iter().enumerate().map(|(i, spec)| {
            let offset = Duration::from_nanos(random.bits() >> 8);
            Coordinator::new(
                event_queue.now(),
                i,
                spec.clone(),
                offset,
                scenario.held_up(),
            )
        });
        let coordinators: Vec<Coordinator> = coordinators.collect();
        let watched = coordinators.iter().zip(0..).filter(|_| nudges(seed));
        let mut world = Self {
            watches: watched.map(|(_, i)| Watches::new(seed + i)).collect(),
            coordinators,
            random,
            strays: Random::new(seed.rotate_left(8)),
            resource: ResourceId::new("tenant/acme", scenario.work.unit()).expect("a valid id"),
            event_queue,
            processes: Vec::new(),
            safe: Vec::new(),
            last_leases: BTreeMap::new(),
            started: 0,
            defect,
            capacities: vec![(Instant::ZERO, scenario.limit.capacity)],
            laws: laws::all(),
            reached: Reached::default(),
            scenario,
        };
        for process in 0..world.scenario.processes.len() {
            let fresh = world.start_process(process);
            world.processes.push(fresh);
            world.safe.push(false);
            world.attend(process);
        }
        world.event_queue.push(TICK, Event::Tick);
        world.event_queue.push(FAULTS_END, Event::Calm);
        for (at, fault) in world.scenario.faults.clone() {
            world.event_queue.push(at, Event::Fault(fault));
        }
        world.reached.three_levels +=
            u64::from(world.coordinators.iter().any(|p| p.spec.level == 2));
        if let [first, .., last] = world.scenario.processes.as_slice() {
            world.reached.bands += u64::from(first.2 != last.2);
        }
        world
    }

    /// Runs to the end of the scenario, or to the first law that is broken.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        while let Some(event) = self.event_queue.next(self.scenario.duration()) {
            self.handle(event);
            self.note_safe();
            self.check(|law, world| law.check(world))?;
        }
        self.check(|law, world| law.finish(world))
    }

    pub(crate) fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.event_queue.elapsed()
    }

    pub(crate) fn reached(&self) -> Reached {
        self.reached
    }

    /// Returns a digest that is equal for two runs of one seed.
    pub(crate) fn digest(&self) -> u64 {
        self.event_queue.digest()
    }

    /// Returns the state of every process at the end, for people.
    pub(crate) fn summary(&self) -> String {
        let lines = self.processes.iter().enumerate().map(|(i, p)| {
            let (has, wants) = (p.has(self.event_queue.now()), p.wanted());
            let (id, admitted) = (p.id.as_str(), p.admitted_total);
            let at = self.coordinators[self.at(i)].id.as_str();
            let demand = p.demand;
            format!("{id} at {at}: {demand}/s, wants {wants}, has {has}, admitted {admitted}\n")
        });
        format!("{}{:#?}", lines.collect::<String>(), self.reached)
    }

    // Observations for the laws.

    pub(crate) fn coordinators(&self) -> &[Coordinator] {
        &self.coordinators
    }

    pub(crate) fn resource(&self) -> &ResourceId {
        &self.resource
    }

    /// Returns the coordinator that a process asks.
    pub(crate) fn at(&self, process: usize) -> usize {
        self.scenario.processes[process].0
    }

    /// Returns the processes that ask at `coordinator`, and whether each has safe capacity.
    pub(crate) fn processes_at(
        &self,
        coordinator: usize,
    ) -> impl Iterator<Item = (&Process, bool)> {
        let processes = self.processes.iter().zip(&self.safe).enumerate();
        let at = move |(i, _): &(usize, _)| self.at(*i) == coordinator;
        processes.filter(at).map(|(_, (p, safe))| (p, *safe))
    }

    /// Returns the coordinators right below `coordinator`.
    pub(crate) fn below(&self, coordinator: usize) -> impl Iterator<Item = usize> {
        let all = 0..self.coordinators.len();
        all.filter(move |i| self.coordinators[*i].spec.parent == Some(coordinator))
    }

    /// Returns the use of the root's capacity by the processes at `coordinator` and below it.
    pub(crate) fn used_below(&self, coordinator: usize) -> u128 {
        let lent = self.processes_at(coordinator).filter(|(_, safe)| !safe);
        let own: u128 = lent
            .map(|(p, _)| u128::from(p.has(self.event_queue.now()).as_micros()))
            .sum();
        let below = self.below(coordinator).map(|child| self.used_below(child));
        own + below.sum::<u128>()
    }

    /// Returns the largest capacity in force at the root within the last lease, and `longer`.
    pub(crate) fn capacity_max(&self, longer: Duration) -> Capacity {
        let since = self
            .event_queue
            .now()
            .saturating_sub(self.scenario.limit.lease + longer);
        let ends = self.capacities.iter().skip(1).map(|(at, _)| *at);
        let ends = ends.chain([Instant::from_nanos(u64::MAX)]);
        let in_force = self
            .capacities
            .iter()
            .zip(ends)
            .filter(|(_, end)| *end >= since);
        in_force
            .map(|((_, capacity), _)| *capacity)
            .max()
            .unwrap_or_default()
    }

    /// Returns the capacity lent at `coordinator` by leases that last, as far as it knows.
    pub(crate) fn lent_at(&self, coordinator: usize) -> u128 {
        let lent = self
            .last_leases
            .iter()
            .filter(|((at, _), _)| *at == coordinator);
        let last = lent.filter(|(_, lent)| lent.until > self.event_queue.now());
        last.map(|(_, lent)| u128::from(lent.capacity.as_micros()))
            .sum()
    }

    /// Returns whether a client may claim safe capacity of `coordinator` as if it were the root's: a
    /// coordinator that knows nothing believes it, and confirms it for as long as a lease.
    pub(crate) fn claims_safe(&self, coordinator: usize) -> bool {
        let until = self.coordinators[coordinator].safe_until;
        self.event_queue.now() < until.saturating_add(self.scenario.limit.lease)
    }

    /// Returns the number of processes that have ever asked a coordinator.
    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    fn check(
        &mut self,
        what: impl Fn(&mut dyn Law<Self>, &Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut laws = std::mem::take(&mut self.laws);
        let result = crate::laws::hold(&mut laws, |law| what(law, self));
        self.laws = laws;
        for process in &mut self.processes {
            process.forget_admitted();
        }
        result
    }

    /// Records the times since which coordinators have lent safe capacity.
    fn note_safe(&mut self) {
        let now = self.event_queue.now();
        for coordinator in &mut self.coordinators {
            let away = coordinator.node.is_some()
                && coordinator.borrowed_capacity(now, &self.resource).is_none();
            let safe = away && coordinator.safe().is_some();
            coordinator.safe_since = match safe {
                true => Some(coordinator.safe_since.unwrap_or(now)),
                false => None,
            };
        }
    }

    fn handle(&mut self, event: Event) {
        for coordinator in &mut self.coordinators {
            coordinator.handle_timeout(self.event_queue.now());
        }
        match event {
            Event::Tick => self.tick(),
            Event::Fault(fault) => self.fault(fault),
            Event::Calm => self.processes.iter_mut().for_each(Process::calm),
            Event::Up {
                coordinator,
                snapshot,
            } => {
                self.coordinators[coordinator].start(
                    self.event_queue.now(),
                    snapshot.as_deref(),
                    Start::Learning,
                );
            }
            Event::Wake {
                process,
                incarnation,
            } => self.wake(process, incarnation),
            Event::Refresh {
                sender,
                sent_at,
                refresh,
            } => self.refresh(sender, sent_at, &refresh),
            Event::Release { to, release } => self.release(to, &release),
            Event::Answer {
                sender,
                sent_at,
                answer,
                safe,
            } => self.answer(sender, sent_at, answer, safe),
            Event::Failure { sender, sequence } => self.fail(sender, sequence),
            Event::Watch(stream) => self.watch(stream),
            Event::WatchEnd(stream) => self.end_watch(stream),
            Event::Nudge(to) => self.nudge(to),
            Event::NudgeCoordinator(coordinator) => self.nudge_coordinator(coordinator),
        }
        self.carry_nudges();
    }

    fn start_process(&mut self, process: usize) -> Process {
        self.started += 1;
        let name = match self.scenario.keeps_ids {
            true => process as u64 + 1,
            false => self.started,
        };
        let (_, demand, priority) = self.scenario.processes[process];
        let policy = Policy {
            priority,
            ..self.scenario.policy.clone()
        };
        let setup = Setup {
            scope: self.resource.scope.clone(),
            policy,
            work: self.scenario.work,
            workers: self.scenario.workers,
            interleaving: self.scenario.interleaving,
            defect: self.defect,
            incarnation: self.started,
            nudged: !self.watches.is_empty(),
        };
        Process::new(
            self.event_queue.now(),
            &mut self.random,
            name,
            setup,
            demand,
        )
    }

    /// Lets coordinators do the work that is due.
    fn tick(&mut self) {
        self.event_queue.push(TICK, Event::Tick);
        for i in 0..self.coordinators.len() {
            let coordinator = &mut self.coordinators[i];
            for (_, todo) in coordinator.ask(self.event_queue.now()) {
                self.send_to_parent(i, todo);
            }
        }
    }

    fn wake(&mut self, process: usize, incarnation: u64) {
        let p = &mut self.processes[process];
        if p.incarnation == incarnation {
            p.wake(self.event_queue.now());
            self.attend(process);
        }
    }

    fn fault(&mut self, fault: Fault) {
        let now = self.event_queue.now();
        match fault {
            Fault::Crash { coordinator, down } => {
                if self.coordinators[coordinator].node.take().is_some() {
                    self.reached.crashes += 1;
                    self.end_watches(coordinator, 100);
                    self.event_queue.push(
                        down,
                        Event::Up {
                            coordinator,
                            snapshot: None,
                        },
                    );
                }
            }
            Fault::HandOver { coordinator, gap } => {
                let snapshot = self.coordinators[coordinator].hand_over(now);
                if snapshot.is_some() {
                    self.reached.hand_overs += 1;
                    self.end_watches(coordinator, 50);
                    self.event_queue.push(
                        gap,
                        Event::Up {
                            coordinator,
                            snapshot,
                        },
                    );
                }
            }
            Fault::CutCoordinator { coordinator, cut } => {
                self.reached.cuts += 1;
                let until = now.saturating_add(cut.lasts);
                let coordinator = &mut self.coordinators[coordinator];
                coordinator.mute_until = if cut.sends {
                    until
                } else {
                    coordinator.mute_until
                };
                coordinator.deaf_until = if cut.receives {
                    until
                } else {
                    coordinator.deaf_until
                };
            }
            Fault::CutProcess { process, cut } => {
                let until = now.saturating_add(cut.lasts);
                self.processes[process].cut_off(until, cut.sends, cut.receives);
            }
            Fault::ProcessRestart(process) => {
                self.processes[process] = self.start_process(process);
                self.safe[process] = false;
                self.attend(process);
            }
            Fault::Trap(process) => {
                self.processes[process].trap(now);
                self.attend(process);
            }
            Fault::Demand { process, rate } => self.processes[process].demand = rate,
            Fault::Capacity(capacity) => {
                let root = &mut self.coordinators[0].spec.limit;
                self.reached.lowered += u64::from(capacity < root.capacity);
                crate::sources::set_capacity(root, capacity);
                self.capacities.push((now, capacity));
            }
        }
    }
}

impl Fleet for World {
    fn now(&self) -> Instant {
        self.event_queue.now()
    }

    fn processes(&self) -> &[Process] {
        &self.processes
    }

    fn left(&self) -> Duration {
        self.scenario.duration().saturating_sub(self.elapsed())
    }
}
