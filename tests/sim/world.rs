//! The virtual clock, the queue of events, and what each event does.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use tollgate_core::client::{Policy, Todo};
use tollgate_core::lease::{Answer, Ask, ClientId, Epoch};
use tollgate_core::node::{Bounds, Node, Start};
use tollgate_core::units::{Capacity, Instant};

use crate::laws::{self, Law};
use crate::process::Process;
use crate::random::Random;
use crate::reached::Reached;
use crate::scenario::{FAULTS_END, Fault, Scenario};
use crate::sources::Sources;

/// How often a process's workers tick.
const TICK: Duration = Duration::from_millis(10);
/// The world's clock at the start; its epoch is arbitrary too.
const START: Instant = Instant::from_nanos(1_000_000_000);
const BOUNDS: Bounds = Bounds {
    max_resources: 10,
    max_clients_per_resource: 100,
};

/// One run.
pub(crate) struct World {
    random: Random,
    scenario: Scenario,
    now: Instant,
    queue: BTreeMap<(Instant, u64), Event>,
    events: u64,
    sources: Sources,
    coordinator: Option<Node>,
    epoch: u64,
    processes: Vec<Process>,
    started: u64,
    laws: Vec<Box<dyn Law>>,
    digest: DefaultHasher,
    reached: Reached,
}

#[derive(Clone, Debug)]
enum Event {
    Tick {
        process: usize,
        incarnation: u64,
    },
    Fault(Fault),
    CoordinatorStart,
    Request {
        process: usize,
        incarnation: u64,
        client: ClientId,
        ask: Ask,
    },
    Release {
        process: usize,
        client: ClientId,
        sequence: u64,
    },
    Answer {
        process: usize,
        incarnation: u64,
        sequence: u64,
        epoch: Epoch,
        answer: Answer,
    },
    Failure {
        process: usize,
        incarnation: u64,
        sequence: u64,
    },
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let scenario = Scenario::new(&mut random, &mut Random::new(!seed));
        let mut world = Self {
            random,
            now: START,
            queue: BTreeMap::new(),
            events: 0,
            sources: Sources::new(&scenario),
            coordinator: Some(Node::new(START, Epoch(1), BOUNDS, Start::Fresh)),
            epoch: 1,
            processes: Vec::new(),
            started: 0,
            laws: laws::all(),
            digest: DefaultHasher::new(),
            reached: Reached::default(),
            scenario,
        };
        for process in 0..world.scenario.demands.len() {
            let demand = world.scenario.demands[process];
            let fresh = world.start_process(process, demand);
            world.processes.push(fresh);
        }
        for (at, fault) in world.scenario.faults.clone() {
            world.push(at, Event::Fault(fault));
        }
        world
    }

    /// Runs to the end of the scenario, or to the first law that is broken.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        let end = START.saturating_add(self.scenario.duration());
        while let Some(((at, _), event)) = self.queue.pop_first() {
            if at > end {
                break;
            }
            self.now = at;
            at.as_nanos().hash(&mut self.digest);
            if !matches!(event, Event::Tick { .. }) {
                format!("{event:?}").hash(&mut self.digest);
            }
            self.handle(event);
            self.check(|law, world| law.check(world))?;
        }
        self.now = end;
        self.check(|law, world| law.finish(world))
    }

    pub(crate) fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.now.saturating_since(START)
    }

    pub(crate) fn reached(&self) -> Reached {
        self.reached
    }

    /// Equal for two runs of one seed.
    pub(crate) fn digest(&self) -> u64 {
        self.digest.finish()
    }

    /// What every process has at the end, for people.
    pub(crate) fn summary(&self) -> String {
        let lines = self.processes.iter().map(|p| {
            let now = p.clock(self.now);
            let (has, wants) = (p.holder.has(now), p.holder.wants());
            let (id, admitted) = (p.id.as_str(), p.admitted_total);
            format!(
                "{id}: asked for {}/s, wants {wants}, has {has}, admitted {admitted}\n",
                p.demand
            )
        });
        format!("{}{:#?}", lines.collect::<String>(), self.reached)
    }

    // What the laws look at.

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    pub(crate) fn sources(&self) -> &Sources {
        &self.sources
    }

    /// The processes that use the capacity of a member.
    pub(crate) fn processes_of(&self, member: usize) -> impl Iterator<Item = &Process> {
        let processes = self.processes.iter().enumerate();
        let of = move |(i, _): &(usize, _)| self.sources.member_of(*i) == member;
        processes.filter(of).map(|(_, process)| process)
    }

    pub(crate) fn processes(&self) -> &[Process] {
        &self.processes
    }

    pub(crate) fn node(&self) -> Option<&Node> {
        self.coordinator.as_ref()
    }

    pub(crate) fn books(&self, member: usize) -> Option<&tollgate_core::resource::Resource> {
        self.node()?.resource(&self.sources.members[member].own.id)
    }

    pub(crate) fn healed(&self) -> bool {
        self.elapsed() > FAULTS_END
    }

    fn check(
        &mut self,
        what: impl Fn(&mut dyn Law, &Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut laws = std::mem::take(&mut self.laws);
        let result = laws.iter_mut().try_for_each(|law| {
            what(law.as_mut(), self).map_err(|broken| format!("{}: {broken}", law.name()))
        });
        self.laws = laws;
        for process in &mut self.processes {
            process.admitted = 0;
        }
        result
    }

    fn push(&mut self, after: Duration, event: Event) {
        self.events += 1;
        self.queue
            .insert((self.now.saturating_add(after), self.events), event);
    }

    fn handle(&mut self, event: Event) {
        if let Some(node) = &mut self.coordinator {
            node.handle_timeout(self.now);
        }
        match event {
            Event::Tick {
                process,
                incarnation,
            } => self.tick(process, incarnation),
            Event::Fault(fault) => self.fault(fault),
            Event::CoordinatorStart => {
                self.epoch += 1;
                let epoch = Epoch(self.epoch);
                self.coordinator = Some(Node::new(self.now, epoch, BOUNDS, Start::Learning));
            }
            Event::Request {
                process,
                incarnation,
                client,
                ask,
            } => {
                self.request(process, incarnation, &client, &ask);
            }
            Event::Release {
                process,
                client,
                sequence,
            } => {
                self.reached.released += 1;
                if let Some(node) = &mut self.coordinator {
                    let member = &self.sources.members[self.sources.member_of(process)];
                    node.handle_release(&client, &member.own.id, sequence);
                }
            }
            Event::Answer {
                process,
                incarnation,
                sequence,
                epoch,
                answer,
            } => {
                self.answer(process, incarnation, sequence, epoch, &answer);
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
                    p.holder.handle_failure(p.clock(self.now), sequence, seed);
                }
            }
        }
    }

    fn start_process(&mut self, process: usize, demand: u64) -> Process {
        self.started += 1;
        let incarnation = self.started;
        self.push(
            TICK,
            Event::Tick {
                process,
                incarnation,
            },
        );
        let Scenario {
            policy,
            workers,
            priorities,
            ..
        } = &self.scenario;
        let policy = Policy {
            priority: priorities[process],
            ..policy.clone()
        };
        Process::new(
            self.now,
            &mut self.random,
            incarnation,
            &policy,
            *workers,
            demand,
        )
    }

    fn tick(&mut self, process: usize, incarnation: u64) {
        let p = &mut self.processes[process];
        if p.incarnation != incarnation {
            return;
        }
        let todo = p.tick(self.now, &mut self.random, TICK);
        let client = p.id.clone();
        self.push(
            TICK,
            Event::Tick {
                process,
                incarnation,
            },
        );
        match todo {
            Todo::Nothing => {}
            Todo::Release { sequence } => self.send(
                process,
                Event::Release {
                    process,
                    client,
                    sequence,
                },
            ),
            Todo::Refresh(ask) => {
                // Sometimes the transport tells that a call failed, sometimes nobody does.
                if self.random.chance(50) {
                    let sequence = ask.sequence;
                    let timeout = self.scenario.policy.call_timeout;
                    self.push(
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
                        process,
                        incarnation,
                        client,
                        ask,
                    },
                );
            }
        }
    }

    fn send(&mut self, process: usize, event: Event) {
        if self.processes[process].mute_until > self.now {
            self.reached.lost += 1;
            return;
        }
        self.carry(event);
    }

    fn carry(&mut self, event: Event) {
        let network = self.scenario.network;
        let network = if self.healed() {
            network.healed()
        } else {
            network
        };
        let deliveries = network.deliveries(&mut self.random);
        self.reached.lost += u64::from(deliveries.is_empty());
        for delay in deliveries {
            self.push(delay, event.clone());
        }
    }

    fn request(&mut self, process: usize, incarnation: u64, client: &ClientId, ask: &Ask) {
        let Some(node) = &mut self.coordinator else {
            self.reached.lost += 1;
            return;
        };
        let Ask { sequence, has, .. } = *ask;
        let member = self.sources.member_of(process);
        let (resource, terms) = (
            &self.sources.members[member].own.id,
            self.sources.terms(member),
        );
        match node.handle_refresh(self.now, client, resource, ask, &terms) {
            Ok(answer) => {
                let gets = answer.lease.map_or(Capacity::ZERO, |lease| lease.capacity);
                self.reached.answers += 1;
                self.reached.shrunk += u64::from(gets < has);
                self.reached.learned += u64::from(answer.lease.is_none());
                let epoch = node.epoch();
                self.carry(Event::Answer {
                    process,
                    incarnation,
                    sequence,
                    epoch,
                    answer,
                });
            }
            Err(_) => {
                self.reached.stale += 1;
                self.carry(Event::Failure {
                    process,
                    incarnation,
                    sequence,
                });
            }
        }
    }

    fn answer(
        &mut self,
        process: usize,
        incarnation: u64,
        sequence: u64,
        epoch: Epoch,
        answer: &Answer,
    ) {
        let now = self.now;
        let p = &mut self.processes[process];
        if p.incarnation != incarnation || p.deaf_until > now {
            self.reached.lost += 1;
            return;
        }
        let clock = p.clock(now);
        let applied = p
            .holder
            .handle_answer(clock, &p.policy, sequence, epoch, answer);
        if applied {
            p.safe_sent = answer.safe;
        }
        self.reached.dropped += u64::from(!applied);
        self.reached.without_lease += u64::from(p.holder.lease_expiry().is_none());
    }

    fn fault(&mut self, fault: Fault) {
        let now = self.now;
        match fault {
            Fault::CoordinatorCrash(down) => {
                if self.coordinator.take().is_some() {
                    self.reached.coordinator_crashes += 1;
                    self.push(down, Event::CoordinatorStart);
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
                let p = &mut self.processes[process];
                p.mute_until = if sends { until } else { p.mute_until };
                p.deaf_until = if receives { until } else { p.deaf_until };
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
