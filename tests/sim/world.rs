//! What each event does.

use std::time::Duration;

use tollgate_core::client::{LeaseMessage, Policy};
use tollgate_core::lease::{Answer, ClientRun, Epoch, LeaseRequest, Origin};
use tollgate_core::pool::Pool;
use tollgate_core::resource::Resource;
use tollgate_core::units::Instant;

use crate::agenda::{self, Agenda};
use crate::coordinators::Coordinators;
use crate::laws::{self, Fleet, Law};
use crate::process::Process;
use crate::random::Random;
use crate::reached::Reached;
use crate::scenario::{FAULTS_END, Fault, Scenario};
use crate::sources::Sources;

mod calls;

/// How often a process's workers tick.
const TICK: Duration = Duration::from_millis(10);

/// One run.
pub(crate) struct World {
    random: Random,
    /// Decides which of two masters a call comes to.
    luck: Random,
    /// Decides which requests come late and once more.
    strays: Random,
    scenario: Scenario,
    agenda: Agenda<Event>,
    sources: Sources,
    coordinators: Coordinators,
    processes: Vec<Process>,
    started: u64,
    laws: Vec<Box<dyn Law>>,
    reached: Reached,
}

#[derive(Clone, Debug)]
enum Event {
    Tick {
        process: usize,
        incarnation: u64,
    },
    Fault(Fault),
    /// From now on all requests are alike.
    Calm,
    /// A shard gets a master, with books or without.
    Elected {
        shard: usize,
        books: Option<Vec<u8>>,
    },
    /// The past master of a shard notices that it is none.
    Healed {
        shard: usize,
    },
    Request {
        /// The term of the master in whose socket it waits.
        to: Option<Epoch>,
        process: usize,
        incarnation: u64,
        client: ClientRun,
        ask: LeaseRequest,
    },
    Release {
        process: usize,
        client: ClientRun,
        sequence: u64,
    },
    Answer {
        process: usize,
        incarnation: u64,
        sequence: u64,
        origin: Origin,
        answer: Answer,
    },
    Failure {
        process: usize,
        incarnation: u64,
        sequence: u64,
    },
}

impl agenda::Event for Event {
    fn is_tick(&self) -> bool {
        matches!(self, Self::Tick { .. })
    }
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self::with(seed, Scenario::new, true)
    }

    /// A world in which other things than requests are counted, or requests wait for their turn.
    pub(crate) fn of_other_units(seed: u64) -> Self {
        let mut world = Self::with(seed, Scenario::of_other_units, true);
        world.agenda.push(FAULTS_END, Event::Calm);
        world
    }

    /// A world whose masters do not look at their terms.
    pub(crate) fn without_terms(seed: u64) -> Self {
        Self::with(seed, Scenario::new, false)
    }

    fn with(seed: u64, scenario: fn(&mut Random, u64) -> Scenario, terms: bool) -> Self {
        let mut random = Random::new(seed);
        let scenario = scenario(&mut random, seed);
        let agenda = Agenda::new();
        let mut world = Self {
            random,
            luck: Random::new(seed),
            strays: Random::new(seed.rotate_left(8)),
            sources: Sources::new(&scenario),
            coordinators: Coordinators::new(agenda.now(), scenario.shards, terms),
            agenda,
            processes: Vec::new(),
            started: 0,
            laws: laws::all(),
            reached: Reached::default(),
            scenario,
        };
        for process in 0..world.scenario.demands.len() {
            let demand = world.scenario.demands[process];
            let fresh = world.start_process(process, demand);
            world.processes.push(fresh);
        }
        for (at, fault) in world.scenario.faults.clone() {
            world.agenda.push(at, Event::Fault(fault));
        }
        world
    }

    /// Runs to the end of the scenario, or to the first law that is broken.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        while let Some(event) = self.agenda.next(self.scenario.duration()) {
            self.handle(event);
            self.check(|law, world| law.check(world))?;
        }
        self.check(|law, world| law.finish(world))
    }

    pub(crate) fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.agenda.elapsed()
    }

    pub(crate) fn reached(&self) -> Reached {
        self.reached
    }

    /// Equal for two runs of one seed.
    pub(crate) fn digest(&self) -> u64 {
        self.agenda.digest()
    }

    /// What every process has at the end, for people.
    pub(crate) fn summary(&self) -> String {
        let lines = self.processes.iter().map(|p| {
            let (has, wants) = (p.has(self.agenda.now()), p.wanted());
            let (id, admitted) = (p.id.as_str(), p.admitted_total);
            format!(
                "{id}: asked for {}/s, wants {wants}, has {has}, admitted {admitted}\n",
                p.demand
            )
        });
        format!("{}{:#?}", lines.collect::<String>(), self.reached)
    }

    // What the laws look at.

    pub(crate) fn sources(&self) -> &Sources {
        &self.sources
    }

    /// The processes that use the capacity of a member.
    pub(crate) fn processes_of(&self, member: usize) -> impl Iterator<Item = &Process> {
        let processes = self.processes.iter().enumerate();
        let of = move |(i, _): &(usize, _)| self.sources.member_of(*i) == member;
        processes.filter(of).map(|(_, process)| process)
    }

    pub(crate) fn books(&self, member: usize) -> Option<&Resource> {
        let node = self.coordinators.node(self.sources.shard_of(member))?;
        node.resource(&self.sources.members[member].own.id)
    }

    pub(crate) fn pool_books(&self) -> Option<&Pool> {
        let node = self.coordinators.node(self.sources.pool_shard()?)?;
        node.pool(&self.sources.pool.as_ref()?.id)
    }

    /// How long the longest hand-over takes: nobody counts down what is in the books meanwhile.
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
        self.coordinators.handle_timeout(self.agenda.now());
        match event {
            Event::Tick {
                process,
                incarnation,
            } => self.tick(process, incarnation),
            Event::Fault(fault) => self.fault(fault),
            Event::Calm => self.processes.iter_mut().for_each(Process::calm),
            Event::Elected { shard, books } => {
                self.coordinators
                    .elect(self.agenda.now(), shard, books.as_deref());
            }
            Event::Healed { shard } => self.coordinators.heal(shard),
            Event::Request {
                to,
                process,
                incarnation,
                client,
                ask,
            } => {
                self.request(to, process, incarnation, &client, &ask);
            }
            Event::Release {
                process,
                client,
                sequence,
            } => {
                self.reached.released += 1;
                self.release(process, &client, sequence);
            }
            Event::Answer {
                process,
                incarnation,
                sequence,
                origin,
                answer,
            } => {
                self.answer(process, incarnation, sequence, origin, &answer);
            }
            Event::Failure {
                process,
                incarnation,
                sequence,
            } => {
                let seed = self.random.next();
                if let Some(p) = self
                    .processes
                    .get_mut(process)
                    .filter(|p| p.incarnation == incarnation)
                {
                    p.fail(self.agenda.now(), sequence, seed);
                }
            }
        }
    }

    fn start_process(&mut self, process: usize, demand: u64) -> Process {
        self.started += 1;
        let incarnation = self.started;
        let name = match self.scenario.keeps_ids {
            true => process as u64 + 1,
            false => incarnation,
        };
        self.agenda.push(
            TICK,
            Event::Tick {
                process,
                incarnation,
            },
        );
        let Scenario {
            policy,
            work,
            workers,
            priorities,
            ..
        } = &self.scenario;
        let policy = Policy {
            priority: priorities[process],
            ..policy.clone()
        };
        Process::new(
            self.agenda.now(),
            &mut self.random,
            (name, incarnation),
            &policy,
            *work,
            *workers,
            demand,
        )
    }

    fn tick(&mut self, process: usize, incarnation: u64) {
        let p = &mut self.processes[process];
        if p.incarnation != incarnation {
            return;
        }
        let todo = p.tick(self.agenda.now(), &mut self.random, TICK);
        let client = p.run();
        self.agenda.push(
            TICK,
            Event::Tick {
                process,
                incarnation,
            },
        );
        match todo {
            LeaseMessage::Nothing => {}
            LeaseMessage::Release { sequence } => self.send(
                process,
                Event::Release {
                    process,
                    client,
                    sequence,
                },
            ),
            LeaseMessage::Refresh(ask) => {
                // Sometimes the transport tells that a call failed, sometimes nobody does.
                if self.random.chance(50) {
                    let sequence = ask.sequence;
                    let timeout = self.scenario.policy.call_timeout;
                    self.agenda.push(
                        timeout,
                        Event::Failure {
                            process,
                            incarnation,
                            sequence,
                        },
                    );
                }
                self.send(
                    process,
                    Event::Request {
                        to: None,
                        process,
                        incarnation,
                        client,
                        ask,
                    },
                );
            }
        }
    }

    fn fault(&mut self, fault: Fault) {
        let now = self.agenda.now();
        match fault {
            Fault::CoordinatorCrash(down) => {
                for shard in 0..self.coordinators.count() {
                    if self.coordinators.crash(shard) {
                        self.reached.coordinator_crashes += 1;
                        self.agenda
                            .push(down, Event::Elected { shard, books: None });
                    }
                }
            }
            Fault::HandOver { shard, gap } => {
                let books = self.coordinators.hand_over(now, shard);
                if books.is_some() {
                    self.reached.hand_overs += 1;
                    self.agenda.push(gap, Event::Elected { shard, books });
                }
            }
            Fault::CutOff { shard, how } => {
                if self.coordinators.cut_off(now, shard, how) {
                    self.reached.cut_off += 1;
                    self.agenda
                        .push(how.lease, Event::Elected { shard, books: None });
                    self.agenda.push(how.lasts, Event::Healed { shard });
                }
            }
            Fault::ProcessRestart(process) => {
                let demand = self.processes[process].demand;
                self.processes[process] = self.start_process(process, demand);
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
                self.processes[process].trap(&mut self.random);
                self.reached.traps += 1;
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
        self.agenda.now()
    }

    fn processes(&self) -> &[Process] {
        &self.processes
    }

    fn left(&self) -> Duration {
        self.scenario.duration().saturating_sub(self.elapsed())
    }
}
