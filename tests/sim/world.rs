//! Simulated world of a cluster, and the effect of each event in it.

use std::hash::{DefaultHasher, Hash as _};
use std::time::Duration;

use tollgate_core::client::Policy;
use tollgate_core::lease::{Epoch, ResourceId};
use tollgate_core::message::{Refresh, Refreshed, Release};
use tollgate_core::pool::Pool;
use tollgate_core::resource::Resource;
use tollgate_core::units::Instant;
use tollgate_sim::event_queue::{self, EventQueue};
use tollgate_sim::random::Random;

use crate::coordinators::Coordinators;
use crate::defect::Defect;
use crate::laws::{self, Fleet, Law};
use crate::process::{CallId, Process, Setup};
use crate::reached::Reached;
use crate::scenario::{FAULTS_END, Fault, Scenario};
use crate::sources::Sources;
use crate::watches::{Stream, Watches};

mod calls;
mod nudges;

/// World of one run.
pub(crate) struct World {
    random: Random,
    /// Generator that decides which of two masters a call comes to.
    master_choice: Random,
    /// Generator that decides which requests come late and once more.
    strays: Random,
    /// Streams for nudges, if coordinators have them.
    watches: Option<Watches>,
    scenario: Scenario,
    event_queue: EventQueue<Event>,
    sources: Sources,
    coordinators: Coordinators,
    processes: Vec<Process>,
    started: u64,
    defect: Option<Defect>,
    laws: Vec<Box<dyn Law>>,
    reached: Reached,
}

#[derive(Clone, Debug)]
enum Event {
    /// A process has something to do.
    Wake {
        process: usize,
        incarnation: u64,
    },
    Fault(Fault),
    /// All requests are alike from now on.
    Calm,
    /// A shard gets a master, with a snapshot or without.
    Elected {
        shard: usize,
        snapshot: Option<Vec<u8>>,
    },
    /// The past master of a shard notices that it is none.
    Healed {
        shard: usize,
    },
    Refresh {
        /// The term of the master in whose socket it waits.
        to: Option<Epoch>,
        from: Caller,
        refresh: Refresh,
    },
    Release {
        process: usize,
        release: Release,
    },
    Answer {
        to: Caller,
        answer: Result<Refreshed, String>,
    },
    Watch(Stream),
    /// A stream ends with an error.
    WatchEnd(Stream),
    Nudge {
        to: Stream,
        resource: ResourceId,
    },
}

/// Caller: a worker of a process of an incarnation.
#[derive(Clone, Copy, Debug)]
struct Caller {
    process: usize,
    incarnation: u64,
    call: CallId,
}

impl event_queue::Event for Event {
    fn digest(&self, hasher: &mut DefaultHasher) {
        // Recurs all the time: only its time tells runs apart.
        if !matches!(self, Self::Wake { .. }) {
            format!("{self:?}").hash(hasher);
        }
    }
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self::with(seed, Scenario::new, true, None)
    }

    /// Creates a world that counts other units than requests, or in which requests wait in queues.
    pub(crate) fn of_other_units(seed: u64) -> Self {
        Self::of_other_units_with(seed, None)
    }

    /// Creates a world whose limits have algorithms that go by usage.
    pub(crate) fn of_usage(seed: u64) -> Self {
        Self::with(seed, Scenario::of_usage, true, None)
    }

    fn of_other_units_with(seed: u64, defect: Option<Defect>) -> Self {
        let mut world = Self::with(seed, Scenario::of_other_units, true, defect);
        world.event_queue.push(FAULTS_END, Event::Calm);
        world
    }

    /// Creates a world with a defect between processes and their surroundings, of any unit.
    pub(crate) fn with_defect(seed: u64, defect: Defect) -> Self {
        match seed % 2 {
            0 => Self::with(seed, Scenario::new, true, Some(defect)),
            _ => Self::of_other_units_with(seed, Some(defect)),
        }
    }

    /// Creates a world whose masters do not look at their terms.
    pub(crate) fn without_terms(seed: u64) -> Self {
        Self::with(seed, Scenario::new, false, None)
    }

    fn with(
        seed: u64,
        scenario: fn(&mut Random, u64) -> Scenario,
        terms: bool,
        defect: Option<Defect>,
    ) -> Self {
        let mut random = Random::new(seed);
        let scenario = scenario(&mut random, seed);
        let event_queue = EventQueue::new();
        let mut world = Self {
            random,
            master_choice: Random::new(seed),
            strays: Random::new(seed.rotate_left(8)),
            watches: nudges(seed).then(|| Watches::new(seed)),
            sources: Sources::new(&scenario),
            coordinators: Coordinators::new(event_queue.now(), scenario.shards, terms),
            event_queue,
            processes: Vec::new(),
            started: 0,
            defect,
            laws: laws::all(),
            reached: Reached::default(),
            scenario,
        };
        for process in 0..world.scenario.demands.len() {
            let demand = world.scenario.demands[process];
            let fresh = world.start_process(process, demand);
            world.processes.push(fresh);
            world.attend(process);
        }
        for (at, fault) in world.scenario.faults.clone() {
            world.event_queue.push(at, Event::Fault(fault));
        }
        world
    }

    /// Runs to the end of the scenario, or to the first law that is broken.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        while let Some(event) = self.event_queue.next(self.scenario.duration()) {
            self.handle(event);
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
        let lines = self.processes.iter().map(|p| {
            let (has, wants) = (p.has(self.event_queue.now()), p.wanted());
            let (id, admitted) = (p.id.as_str(), p.admitted_total);
            format!(
                "{id}: asked for {}/s, wants {wants}, has {has}, admitted {admitted}\n",
                p.demand
            )
        });
        format!("{}{:#?}", lines.collect::<String>(), self.reached)
    }

    // Observations for the laws.

    pub(crate) fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Returns the processes that use the capacity of a member.
    pub(crate) fn processes_of(&self, member: usize) -> impl Iterator<Item = &Process> {
        let processes = self.processes.iter().enumerate();
        let of = move |(i, _): &(usize, _)| self.sources.member_of(*i) == member;
        processes.filter(of).map(|(_, process)| process)
    }

    pub(crate) fn resource(&self, member: usize) -> Option<&Resource> {
        let node = self.coordinators.node(self.sources.shard_of(member))?;
        node.resource(&self.sources.members[member].own.id)
    }

    pub(crate) fn pool(&self) -> Option<&Pool> {
        let node = self.coordinators.node(self.sources.pool_shard()?)?;
        node.pool(&self.sources.pool.as_ref()?.id)
    }

    /// Returns the time of the longest snapshot transfer: leases do not age during it.
    pub(crate) fn held_up(&self) -> Duration {
        let gaps = self.scenario.faults.iter().map(|(_, fault)| match fault {
            Fault::HandOver { gap, .. } => *gap,
            _ => Duration::ZERO,
        });
        gaps.max().unwrap_or_default()
    }

    pub(crate) fn healed(&self) -> bool {
        self.elapsed() > FAULTS_END
    }

    fn check(
        &mut self,
        what: impl Fn(&mut dyn Law, &Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut laws = std::mem::take(&mut self.laws);
        let result = laws::hold(&mut laws, |law| what(law, self));
        self.laws = laws;
        for process in &mut self.processes {
            process.forget_admitted();
        }
        result
    }

    fn handle(&mut self, event: Event) {
        self.coordinators.handle_timeout(self.event_queue.now());
        match event {
            Event::Wake {
                process,
                incarnation,
            } => self.wake(process, incarnation),
            Event::Fault(fault) => self.fault(fault),
            Event::Calm => self.processes.iter_mut().for_each(Process::calm),
            Event::Elected { shard, snapshot } => {
                self.coordinators
                    .elect(self.event_queue.now(), shard, snapshot.as_deref());
            }
            Event::Healed { shard } => self.coordinators.heal(shard),
            Event::Refresh { to, from, refresh } => self.refresh(to, from, &refresh),
            Event::Release { process, release } => {
                self.reached.released += 1;
                self.release(process, &release);
            }
            Event::Answer { to, answer } => self.answer(to, answer),
            Event::Watch(stream) => self.watch(stream),
            Event::WatchEnd(stream) => self.end_watch(stream),
            Event::Nudge { to, resource } => self.nudge(to, &resource),
        }
        self.carry_nudges();
    }

    fn start_process(&mut self, process: usize, demand: u64) -> Process {
        self.started += 1;
        let incarnation = self.started;
        let name = match self.scenario.keeps_ids {
            true => process as u64 + 1,
            false => incarnation,
        };
        let Scenario {
            policy,
            work,
            workers,
            interleaving,
            priorities,
            ..
        } = &self.scenario;
        let member = self.sources.member_of(process);
        let setup = Setup {
            scope: self.sources.members[member].own.id.scope.clone(),
            policy: Policy {
                priority: priorities[process],
                ..policy.clone()
            },
            work: *work,
            workers: *workers,
            interleaving: *interleaving,
            defect: self.defect,
            incarnation,
            nudged: self.watches.is_some(),
        };
        let now = self.event_queue.now();
        Process::new(now, &mut self.random, name, setup, demand)
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
            Fault::CoordinatorCrash(down) => {
                self.end_watches(100);
                for shard in 0..self.coordinators.count() {
                    if self.coordinators.crash(shard) {
                        self.reached.coordinator_crashes += 1;
                        self.event_queue.push(
                            down,
                            Event::Elected {
                                shard,
                                snapshot: None,
                            },
                        );
                    }
                }
            }
            Fault::HandOver { shard, gap } => {
                let snapshot = self.coordinators.hand_over(now, shard);
                if snapshot.is_some() {
                    self.reached.hand_overs += 1;
                    // The node that steps down may end, or go on for its streams.
                    self.end_watches(50);
                    self.event_queue
                        .push(gap, Event::Elected { shard, snapshot });
                }
            }
            Fault::CutOff { shard, how } => {
                if self.coordinators.cut_off(now, shard, how) {
                    self.reached.cut_off += 1;
                    self.event_queue.push(
                        how.lease,
                        Event::Elected {
                            shard,
                            snapshot: None,
                        },
                    );
                    self.event_queue.push(how.lasts, Event::Healed { shard });
                }
            }
            Fault::ProcessRestart(process) => {
                let demand = self.processes[process].demand;
                self.processes[process] = self.start_process(process, demand);
                self.attend(process);
            }
            Fault::Cut {
                process,
                sends,
                receives,
                lasts,
            } => {
                let until = now.saturating_add(lasts);
                self.processes[process].cut_off(until, sends, receives);
            }
            Fault::Trap(process) => {
                self.processes[process].trap(now);
                self.reached.traps += 1;
                self.attend(process);
            }
            Fault::Demand { process, rate } => self.processes[process].demand = rate,
            Fault::Capacity(capacity) => self.sources.members[0].own.change(now, capacity),
            Fault::PoolCapacity(capacity) => {
                if let Some(pool) = &mut self.sources.pool {
                    pool.change(now, capacity);
                }
            }
            Fault::Move => self.sources.move_last(now),
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

// === free functions ===

/// Returns whether coordinators name the resources that clients should ask for, in the worlds of
/// `seed`.
pub(crate) fn nudges(seed: u64) -> bool {
    seed % 4 == 2
}
