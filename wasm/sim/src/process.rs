//! Simulated Envoy process: engines as its workers, its clock, and the requests that come to it.

use std::num::NonZeroU64;
use std::rc::Rc;
use std::time::Duration;

use tollgate_core::client::{Mode, Policy, ScopeState};
use tollgate_core::lease::{ClientId, ClientRun, Priority, Run};
use tollgate_core::units::{Capacity, Instant};
use tollgate_engine::{
    Call, EngineConfig, Estimate, HostFailure, Identity, Overflow, RuleConfig, Shape,
};

mod clock;
mod host;
mod inspect;
mod memory;
mod observations;
mod outcomes;
pub(crate) mod view;
mod worker;
mod workers;

pub(crate) use self::clock::Clock;
pub(crate) use self::host::{OpenedWatch, OutgoingCall};
use self::observations::Observations;
pub use self::observations::{ResourceDemand, Spent};
pub(crate) use self::outcomes::{Outcomes, Tally};
pub(crate) use self::workers::Task;
use self::workers::Workers;
use crate::demand::{IncomingRequest, RequestStream};
use crate::inspection::Inspection;
use crate::random::{Chance, Random};
use crate::scenario::{Amount, EnvoyGroup, NoLease};
use crate::scopes::ScopeTable;
use crate::sizes::TableSizes;

/// The most requests that a worker makes wait.
const WAITING_MAX: usize = 4000;

/// One process, as of one start.
#[derive(Debug)]
pub(crate) struct Process {
    name: ProcessName,
    clock: Clock,
    workers: Rc<Workers>,
    pub(crate) streams: Vec<RequestStream>,
    /// Requests that were sent to it.
    pub(crate) inbox: Vec<IncomingRequest>,
    random: Random,
    /// Time for which it is planned to run next.
    planned: Option<Instant>,
    /// Time until which it stands still.
    pub(crate) stopped_until: Instant,
    /// Time of its first request, until it has a lease.
    pub(crate) first_request: Option<Instant>,
    pub(crate) has_asked: bool,
    pub(crate) was_leased: bool,
    /// Scopes without a lease at the last sample.
    pub(crate) without_lease: u64,
    /// Observations of its workers, if laws look at the process.
    observations: Option<Observations>,
}

/// Name of a process.
#[derive(Clone, Debug)]
pub(crate) struct ProcessName {
    node: String,
    /// Random bits that its client id is made of.
    process: u128,
    /// Client as which coordinators count it.
    run: ClientRun,
}

/// Things that processes of one group have in common.
#[derive(Debug)]
pub(crate) struct ProcessKind {
    pub(crate) config: EngineConfig,
    /// Settings of all rules.
    policy: Policy,
    pub(crate) workers: u32,
    pub(crate) drift_ppm: u32,
    /// Whether their coordinators have streams of nudges.
    pub(crate) nudged: bool,
    /// Time by which requests may be decided late, those of so long together; the shortest interval of
    /// ticks.
    pub(crate) resolution: Duration,
    /// Accesses to shared data at which another worker runs.
    pub(crate) interleaving: Chance,
    /// Ticks at which a request is given up that waits.
    pub(crate) gives_up: Chance,
    /// Whether a restarted process has the client id of the one before.
    pub(crate) keeps_id: bool,
}

// === impl ProcessKind ===

impl ProcessKind {
    /// Returns the kind of a group whose Envoys have a rule for each of `rules`, and streams of
    /// nudges if they are `nudged`. With a `final_cost` the ends of requests tell what they have cost.
    pub(crate) fn new(
        group: &EnvoyGroup,
        rules: &[String],
        nudged: bool,
        final_cost: Option<Estimate>,
    ) -> Self {
        let policy = Policy {
            no_lease: match group.no_lease {
                NoLease::Safe => Mode::Safe,
                NoLease::Optimistic => Mode::Optimistic,
                NoLease::Pessimistic => Mode::Pessimistic,
            },
            safe: capacity(group.safe),
            safe_bytes: capacity(group.safe_bytes),
            safe_concurrency: capacity(group.safe_concurrency),
            first_lease_wait: group.first_lease_wait.0,
            call_timeout: group.call_timeout.0,
            idle_after: group.idle_after.0,
            max_debt: group.max_debt.0,
            priority: Priority::nearest(group.priority.into()),
            usual: None,
        };
        let shape = (!group.max_wait.0.is_zero()).then_some(Shape {
            max_wait: group.max_wait.0,
            max_waiting: WAITING_MAX,
        });
        let rule = |name: &String| RuleConfig {
            name: name.clone(),
            policy: policy.clone(),
            enforced: 100,
            on_overflow: Overflow::Share,
            final_cost,
            shape,
            marks: false,
        };
        Self {
            config: EngineConfig {
                coordinator: "coordinators".to_owned(),
                shards: Vec::new(),
                enabled: true,
                rules: rules.iter().map(rule).collect(),
                max_scopes: group.max_scopes,
                max_pending: 1000,
                max_waiting: WAITING_MAX,
                tick: group.tick.0,
                call_timeout: group.call_timeout.0,
                host_failure: HostFailure::Closed,
                reports_limits: false,
            },
            policy,
            workers: group.workers,
            drift_ppm: group.drift_ppm,
            nudged,
            resolution: group.resolution.0,
            interleaving: Chance::share(group.interleaving.0),
            gives_up: Chance::share(group.gives_up.0),
            keeps_id: group.keeps_id,
        }
    }

    /// Returns the settings of all rules.
    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns whether requests wait in queues.
    pub(crate) fn is_shaped(&self) -> bool {
        self.config.rules.iter().any(|rule| rule.shape.is_some())
    }

    /// Returns the longest time for which a request may wait.
    fn wait_max(&self) -> Duration {
        let shapes = self.config.rules.iter().filter_map(|rule| rule.shape);
        let waits = shapes.map(|shape| shape.max_wait);
        waits.fold(self.policy().first_lease_wait, Duration::max)
    }
}

// === impl ProcessName ===

impl ProcessName {
    /// Returns the name of a process of `node`, of so many that were started in its place.
    fn new(node: &str, process: u128, kept: Option<NonZeroU64>) -> Self {
        let id = match kept {
            Some(_) => format!("{node}/0"),
            None => format!("{node}/{process:032x}"),
        };
        let own = NonZeroU64::new(process as u64).unwrap_or(NonZeroU64::MIN);
        Self {
            node: node.to_owned(),
            process,
            run: ClientRun {
                id: ClientId::new(&id)
                    .unwrap_or_else(|_| ClientId::new("envoy/0").expect("a valid id")),
                run: Run::Incarnation(kept.unwrap_or(own)),
            },
        }
    }

    /// Returns the identity of a worker.
    fn identity(&self, random: &mut Random) -> Identity {
        Identity {
            worker: random.bits().max(1),
            node: self.node.clone(),
            plugin: String::new(),
            process: self.process,
        }
    }
}

// === impl Process ===

impl Process {
    /// Returns a process called `node` that starts at `now`, after `started` others in its place.
    pub(crate) fn new(
        now: Instant,
        (node, started): (&str, u32),
        (kind, scopes): (&Rc<ProcessKind>, &Rc<ScopeTable>),
        streams: Vec<RequestStream>,
        inspection: Option<&Inspection>,
        mut random: Random,
    ) -> Self {
        let clock = Clock::new(now, kind.drift_ppm, &mut random);
        let local = clock.at(now);
        let process = u128::from(random.bits()) << 64 | u128::from(random.bits());
        let runs = NonZeroU64::MIN.saturating_add(started.into());
        let name = ProcessName::new(node, process, kind.keeps_id.then_some(runs));
        Self {
            observations: inspection.map(|inspection| Observations::new(inspection, &streams)),
            workers: Workers::new(local, (kind, scopes), name.clone(), &mut random),
            name,
            clock,
            streams,
            inbox: Vec::new(),
            random,
            planned: None,
            stopped_until: now,
            first_request: None,
            has_asked: false,
            was_leased: false,
            without_lease: 0,
        }
    }

    /// Does what is due at `now`, `elapsed` since the world's start, if that was planned.
    pub(crate) fn wake(
        &mut self,
        (now, elapsed): (Instant, Duration),
        outcomes: &mut Outcomes<'_>,
    ) {
        if self.planned.is_none_or(|at| now < at) {
            return;
        }
        self.planned = None;
        if now < self.stopped_until {
            return;
        }
        let local = self.begin(now);
        let mut requests = std::mem::take(&mut self.inbox);
        for stream in &mut self.streams {
            while let Some(scope) = stream.take(elapsed) {
                requests.push(IncomingRequest::of_stream(stream, scope));
            }
        }
        if !requests.is_empty() && !self.has_asked {
            self.has_asked = true;
            self.first_request = Some(now);
        }
        for request in requests {
            let worker = self.pick();
            let bulky = request
                .shape
                .spec
                .bulky
                .filter(|bulky| elapsed < bulky.until.0);
            let is_bulky =
                bulky.is_some_and(|bulky| self.random.happens(Chance::share(bulky.chance.0)));
            self.workers.request(worker, request, is_bulky);
        }
        self.workers.run();
        self.finish(local, outcomes);
    }

    /// Returns the time at which the process is to run, unless that was planned before.
    pub(crate) fn plan(&mut self, now: Instant, elapsed: Duration) -> Option<Instant> {
        let workers = self.workers.due_at();
        let workers = workers.map(|local| self.clock.world(local));
        let requests = self.streams.iter().filter_map(RequestStream::due);
        let requests = requests.min().map(|at| {
            let after = at.saturating_sub(elapsed);
            now.saturating_add(after.max(self.kind().resolution))
        });
        let inbox = (!self.inbox.is_empty()).then_some(now);
        let next = workers.into_iter().chain(requests).chain(inbox).min()?;
        let next = next.max(now).max(self.stopped_until);
        if self.planned.is_some_and(|planned| planned <= next) {
            return None;
        }
        self.planned = Some(next);
        Some(next)
    }

    /// Ends a worker with all that it knows; another takes its place.
    pub(crate) fn trap(&mut self, now: Instant) {
        let local = self.begin(now);
        self.workers.trap();
        self.look(local);
    }

    /// Hands a worker what has come for it.
    pub(crate) fn hand(&mut self, now: Instant, mut task: Task, outcomes: &mut Outcomes<'_>) {
        let defect = self.observations.as_ref().and_then(|seen| seen.defect);
        if let (Some(defect), Task::Answer(.., Ok(answer))) = (defect, &mut task) {
            defect.change(answer);
        }
        let local = self.begin(now);
        self.workers.hand(task);
        self.finish(local, outcomes);
    }

    /// Counts what has become of requests.
    fn finish(&mut self, local: Instant, outcomes: &mut Outcomes<'_>) {
        outcomes.count_all(&mut self.workers.outcomes.borrow_mut());
        self.look(local);
    }

    /// Returns the streams that its workers have opened.
    pub(crate) fn take_opened(&self) -> Vec<OpenedWatch> {
        let mut opened = self.workers.take_opened();
        for watch in opened.iter_mut().filter(|_| self.kind().keeps_id) {
            watch.client = self.name.run.id.clone();
        }
        opened
    }

    /// Returns the calls that its workers have made, in the name of the process.
    pub(crate) fn take_calls(&self) -> Vec<OutgoingCall> {
        let mut calls = self.workers.take_calls();
        for call in calls.iter_mut().filter(|_| self.kind().keeps_id) {
            match &mut call.call {
                Call::Refresh(refresh) => refresh.client = self.name.run.clone(),
                Call::Release(release) => release.client = self.name.run.clone(),
            }
        }
        calls
    }

    /// Calls `look` with all scopes that it knows, and the time by its clock.
    pub(crate) fn scopes(&self, now: Instant, mut look: impl FnMut(Instant, &str, &ScopeState)) {
        let local = self.clock.at(now);
        let shared = self.workers.memory.borrow();
        memory::slots(&shared, |scope, state| look(local, scope, state));
    }

    /// Returns the numbers of requests that went on and that were refused.
    pub(crate) fn requests(&self) -> [u64; 2] {
        let requests = self.workers.iter().map(|worker| worker.requests());
        requests.fold([0; 2], |sum, [admitted, refused]| {
            [sum[0] + admitted, sum[1] + refused]
        })
    }

    /// Returns the number of requests that wait.
    pub(crate) fn waiting(&self) -> usize {
        let workers = self.workers.iter();
        workers.map(|worker| worker.waiting().len()).sum()
    }

    /// Returns the number of requests that it has, decided on or not.
    pub(crate) fn load(&self) -> usize {
        let in_flight = self.workers.iter().map(|worker| worker.in_flight());
        self.inbox.len() + self.waiting() + in_flight.sum::<usize>()
    }

    /// Adds the sizes of its tables to `sizes`.
    pub(crate) fn add_sizes(&self, now: Instant, sizes: &mut TableSizes) {
        let shared = self.workers.memory.borrow();
        sizes.add("records", shared.records().count() as u64);
        sizes.add("dirty slots", memory::dirty(&shared) as u64);
        sizes.add("waiting requests", self.waiting() as u64);
        sizes.add_debug("process debug output", &self.workers);
        self.scopes(now, |local, _, state| {
            sizes.add("slots in use", u64::from(!state.is_reusable(local)));
        });
    }

    fn kind(&self) -> &ProcessKind {
        &self.workers.kind
    }

    /// Sets the workers' clock, and lends them the observations until [`Process::look`].
    fn begin(&mut self, now: Instant) -> Instant {
        let local = self.clock.at(now);
        self.workers.set_now(local);
        self.workers.observations.replace(self.observations.take());
        local
    }

    fn pick(&mut self) -> usize {
        match self.workers.count() {
            1 => 0,
            count => self.random.between(0, count as u64 - 1) as usize,
        }
    }
}

// === free functions ===

fn capacity(amount: Amount) -> Capacity {
    Capacity::try_from_f64(amount.0).unwrap_or(Capacity::MAX)
}
