//! Workers of a process, and their shared state.
//!
//! Envoy's workers run at the same time. Here one runs at a time, and at each access to shared data
//! the seed may let another worker run a callback to its end before the access takes place, and
//! another one within that. A worker may also be lost at an access, as one whose VM traps.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::client::{LeaseState, Policy, ScopeState};
use tollgate_core::lease::ResourceId;
use tollgate_core::message::Refreshed;
use tollgate_core::units::Instant;
use tollgate_engine::codec::decode_slot;
use tollgate_engine::{Call, Cas, Written};
use tollgate_sim::random::Random;

use super::host::{CallId, OutgoingCall, WorkerHost, WorkerLost};
use super::shared_data::SharedData;
use super::work::{Tally, Work};
use super::worker::{Worker, members};
use crate::defect::Defect;

mod observations;
mod streams;

pub(super) use observations::{HandedAnswer, Observations};
use streams::Streams;

/// The most callbacks that run within each other.
const DEPTH_MAX: u32 = 3;
/// Share of reads that return an old record, in percent, with [`Defect::StaleRead`].
const STALE_READS: u64 = 10;
/// Time after which a worker of which nothing is heard counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(3);

/// Workers of one process.
pub(super) struct Workers {
    pub(super) setup: Setup,
    workers: Vec<RefCell<Worker>>,
    shared: RefCell<SharedData>,
    clock: Cell<Instant>,
    tasks: RefCell<Vec<Task>>,
    random: RefCell<Random>,
    depth: Cell<u32>,
    doom: Cell<Option<Doom>>,
    /// Answers that workers are being handed.
    handed: RefCell<BTreeMap<usize, HandedAnswer>>,
    calls: RefCell<Vec<OutgoingCall>>,
    tokens: Cell<u32>,
    streams: RefCell<Streams>,
    bulky: Cell<bool>,
    pub(super) seen: RefCell<Observations>,
}

/// Fixed properties of a process.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// The scope whose lease the process uses.
    pub(crate) scope: Arc<str>,
    pub(crate) policy: Policy,
    pub(crate) work: Work,
    pub(crate) workers: u32,
    /// Share of accesses to shared data at which another worker runs, in percent.
    pub(crate) interleaving: u64,
    pub(crate) defect: Option<Defect>,
    /// Counts the processes that were started.
    pub(crate) incarnation: u64,
    /// Whether coordinators can name resources to the process.
    pub(crate) nudged: bool,
}

/// Callback that is due in a worker.
#[derive(Debug)]
pub(super) enum Task {
    Request(usize),
    Tick(usize),
    End(usize, u32),
    Answer(CallId, Result<Refreshed, String>),
    /// A coordinator has named a resource on a worker's stream.
    Nudge(usize, u32, ResourceId),
    /// A worker's stream has ended.
    EndWatch(usize, u32),
}

/// End of a worker after so many more accesses to shared data.
#[derive(Clone, Copy, Debug)]
struct Doom {
    worker: usize,
    accesses: u64,
}

// === impl Task ===

impl Task {
    fn worker(&self) -> usize {
        match self {
            Self::Request(worker)
            | Self::Tick(worker)
            | Self::End(worker, _)
            | Self::Nudge(worker, ..)
            | Self::EndWatch(worker, _) => *worker,
            Self::Answer(id, _) => id.worker,
        }
    }
}

// === impl Workers ===

impl Workers {
    pub(super) fn new(clock: Instant, setup: Setup, mut random: Random) -> Rc<Self> {
        Rc::new_cyclic(|process| {
            let hosts = (0..setup.workers as usize).map(|worker| WorkerHost {
                process: process.clone(),
                worker,
            });
            let workers =
                hosts.map(|host| RefCell::new(Worker::new(clock, host, &setup, &mut random)));
            Self {
                workers: workers.collect(),
                setup,
                shared: RefCell::default(),
                clock: Cell::new(clock),
                tasks: RefCell::default(),
                random: RefCell::new(random),
                depth: Cell::new(0),
                doom: Cell::new(None),
                handed: RefCell::default(),
                calls: RefCell::default(),
                tokens: Cell::new(0),
                streams: RefCell::default(),
                bulky: Cell::new(true),
                seen: RefCell::default(),
            }
        })
    }

    // Actions of the process.

    pub(super) fn set_now(&self, clock: Instant) {
        self.clock.set(clock);
    }

    pub(super) fn now(&self) -> Instant {
        self.clock.get()
    }

    pub(super) fn count(&self) -> usize {
        self.workers.len()
    }

    /// Puts a request into the hands of any worker.
    pub(super) fn attempt(&self) {
        let worker = self.any();
        self.tasks.borrow_mut().push(Task::Request(worker));
    }

    /// Does what is due by the clock and what was put in, in any order.
    pub(super) fn run(self: &Rc<Self>) {
        let now = self.now();
        for (index, worker) in self.workers.iter().enumerate() {
            worker
                .borrow_mut()
                .due(now, index, &mut self.tasks.borrow_mut());
        }
        self.finish();
    }

    /// Hands a worker the answer to a call, if it is still the one that made it.
    pub(super) fn answer(self: &Rc<Self>, id: CallId, answer: Result<Refreshed, String>) {
        self.tasks.borrow_mut().push(Task::Answer(id, answer));
        self.finish();
    }

    fn finish(self: &Rc<Self>) {
        while let Some(task) = self.pick() {
            self.perform(task);
        }
    }

    /// Returns the time at which the next worker has something to do.
    pub(super) fn due_at(&self) -> Option<Instant> {
        let workers = self.workers.iter();
        workers.map(|worker| worker.borrow().due_at()).min()
    }

    pub(super) fn take_calls(&self) -> Vec<OutgoingCall> {
        self.calls.take()
    }

    /// Makes all requests alike from now on.
    pub(super) fn calm(&self) {
        self.bulky.set(false);
    }

    /// Ends a worker, at once or in the middle of a callback.
    pub(super) fn trap(self: &Rc<Self>) {
        let index = self.any();
        let (within, accesses) = {
            let mut random = self.random.borrow_mut();
            (random.chance(60), random.between(0, 30))
        };
        match within {
            true => self.doom.set(Some(Doom {
                worker: index,
                accesses,
            })),
            false => self.replace(index, &mut self.workers[index].borrow_mut()),
        }
    }

    // Services for workers.

    /// Returns a random number below `below`.
    pub(super) fn roll(&self, below: u64) -> u64 {
        self.random.borrow_mut().between(0, below - 1)
    }

    pub(super) fn is_bulky(&self) -> bool {
        self.bulky.get() && self.random.borrow_mut().chance(2)
    }

    /// Records a broken invariant; the first stays.
    pub(super) fn ensure(&self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            let broken = &mut self.seen.borrow_mut().broken;
            broken.get_or_insert_with(otherwise);
        }
    }

    /// Records that a worker is about to decide on a request.
    pub(super) fn note_request(&self) {
        let mut seen = self.seen.borrow_mut();
        let lost = seen.trapped_at.map(|at| at.saturating_add(LOST_AFTER));
        if lost.is_some_and(|lost| self.now() >= lost) {
            let now = self.now();
            seen.missed_at.get_or_insert(now);
        }
    }

    /// Records the answer for the unit under test that `worker` is being handed.
    pub(super) fn hand(&self, worker: usize, answer: Option<HandedAnswer>) {
        let mut handed = self.handed.borrow_mut();
        match answer {
            Some(answer) => {
                handed.insert(worker, answer);
            }
            None => {
                handed.remove(&worker);
            }
        }
    }

    // Services for hosts.

    pub(super) fn is_lost_now(&self, worker: usize) -> bool {
        let Some(doom) = self.doom.get().filter(|doom| doom.worker == worker) else {
            return false;
        };
        match doom.accesses.checked_sub(1) {
            Some(accesses) => self.doom.set(Some(Doom { worker, accesses })),
            None => self.doom.set(None),
        }
        doom.accesses == 0
    }

    /// Lets another worker run a callback, if the seed wants it so.
    pub(super) fn interleave(self: &Rc<Self>) {
        let depth = self.depth.get();
        if depth >= DEPTH_MAX || !self.random.borrow_mut().chance(self.setup.interleaving) {
            return;
        }
        self.depth.set(depth + 1);
        let index = self.any();
        let task = self.pick().or_else(|| {
            let free = self.workers[index].try_borrow_mut().is_ok();
            free.then_some(Task::Tick(index))
        });
        if let Some(task) = task {
            self.seen.borrow_mut().tally.interleaved += 1;
            self.perform(task);
        }
        self.depth.set(depth);
    }

    pub(super) fn read(&self, key: &str) -> Option<(Vec<u8>, Cas)> {
        let shared = self.shared.borrow();
        let (value, cas) = shared.get(key)?;
        if self.setup.defect == Some(Defect::StaleRead)
            && self.is_own(shared.before(key))
            && self.random.borrow_mut().chance(STALE_READS)
        {
            return Some((shared.before(key).to_vec(), cas));
        }
        Some((value.to_vec(), cas))
    }

    pub(super) fn write(&self, worker: usize, key: &str, value: &[u8], cas: Cas) -> Written {
        let cas = match self.setup.defect {
            Some(Defect::LostCompare) => 0,
            _ => cas,
        };
        let mut shared = self.shared.borrow_mut();
        let written = shared.set(key, value, cas);
        match written {
            Written::Stored if self.is_own(value) => {
                let is_new = !self.is_own(shared.before(key));
                let mut slots = shared.values().filter(|value| self.is_own(value));
                if is_new && slots.nth(1).is_none() {
                    // Another scope had the slot: all that the process knew is forgotten.
                    self.seen.borrow_mut().limit_sent = None;
                }
                self.see_write(worker, shared.before(key), value);
            }
            Written::Stored => {}
            Written::Lost => self.seen.borrow_mut().tally.lost_writes += 1,
        }
        written
    }

    pub(super) fn call(&self, worker: usize, call: &Call, timeout: Duration) -> u32 {
        let token = self.take_token();
        // The worker at hand is busy: its number is filled in when its callback has returned.
        let id = CallId {
            worker,
            number: 0,
            token,
        };
        let call = call.clone();
        self.calls
            .borrow_mut()
            .push(OutgoingCall { id, call, timeout });
        token
    }

    // Observations of the workers.

    /// Returns the state of the scope in shared data.
    pub(super) fn scope_state(&self) -> Option<ScopeState> {
        let shared = self.shared.borrow();
        let mut own = shared.values().filter_map(|value| self.own(value));
        own.next()
    }

    /// Returns whether all scopes that share the limit are known to do so.
    pub(super) fn members_are_known(&self) -> bool {
        let members = members(&self.setup);
        if members == 1 {
            return true;
        }
        let shared = self.shared.borrow();
        let slots = shared.values().filter_map(decode_slot);
        let canonical = |state: &ScopeState| state.canonical() == Some(&self.setup.scope);
        let known = slots.filter(|(_, state)| canonical(state));
        known.count() as u64 == members
    }

    /// Returns whether no scope that shares the limit has a limit of its own, as while the
    /// coordinators are away.
    pub(super) fn members_are_unlimited(&self) -> bool {
        if members(&self.setup) == 1 {
            return true;
        }
        let (shared, now) = (self.shared.borrow(), self.now());
        let mut slots = shared.values().filter_map(decode_slot);
        slots.all(|(scope, state)| {
            scope == &*self.setup.scope || state.requests.state(now) == LeaseState::Leased
        })
    }

    pub(super) fn tally(&self) -> Tally {
        let mut sum = self.seen.borrow().tally;
        for worker in &self.workers {
            sum += worker.borrow().tally();
        }
        sum
    }

    /// Returns the bytes that have passed and that the shared table does not know of.
    pub(super) fn owed(&self) -> f64 {
        let workers = self.workers.iter();
        workers.map(|worker| worker.borrow().owed()).sum()
    }

    /// Checks that all that workers remember adds up.
    pub(super) fn check(&self) -> Result<(), String> {
        let now = self.now();
        for worker in &self.workers {
            worker.borrow().check(now, &self.setup)?;
        }
        let all = self.tally();
        let ended = all.went + all.timed_out + all.left + all.waiting;
        if all.joined != ended {
            return Err(format!("{all:?} do not add up"));
        }
        Ok(())
    }

    /// Returns the number of permits that workers have.
    pub(super) fn permits_held(&self) -> u32 {
        let workers = self.workers.iter();
        workers.map(|worker| worker.borrow().permits_held()).sum()
    }

    fn take_token(&self) -> u32 {
        let token = self.tokens.get() + 1;
        self.tokens.set(token);
        token
    }

    fn any(&self) -> usize {
        self.roll(self.workers.len() as u64) as usize
    }

    /// Takes one of the tasks whose workers are not busy.
    fn pick(&self) -> Option<Task> {
        let mut tasks = self.tasks.borrow_mut();
        if tasks.is_empty() {
            return None;
        }
        let index = self.roll(tasks.len() as u64) as usize;
        let free = |task: &Task| self.workers[task.worker()].try_borrow_mut().is_ok();
        free(&tasks[index]).then(|| tasks.swap_remove(index))
    }

    fn perform(self: &Rc<Self>, task: Task) {
        let index = task.worker();
        let mut worker = self.workers[index].borrow_mut();
        let done = catch_unwind(AssertUnwindSafe(|| worker.perform(self, index, task)));
        if let Err(payload) = done {
            self.lose(index, &mut worker, payload);
        }
        let number = worker.number();
        for call in self.calls.borrow_mut().iter_mut() {
            if call.id.worker == index && call.id.number == 0 {
                call.id.number = number;
            }
        }
    }

    fn lose(self: &Rc<Self>, index: usize, worker: &mut Worker, payload: Box<dyn Any + Send>) {
        if !payload.is::<WorkerLost>() {
            resume_unwind(payload);
        }
        self.seen.borrow_mut().tally.traps_within += 1;
        self.replace(index, worker);
    }

    /// Replaces a worker that is lost with all its state by a new one.
    fn replace(self: &Rc<Self>, index: usize, worker: &mut Worker) {
        let host = WorkerHost {
            process: Rc::downgrade(self),
            worker: index,
        };
        let number = worker.number();
        for call in self.calls.borrow_mut().iter_mut() {
            if call.id.worker == index && call.id.number == 0 {
                call.id.number = number;
            }
        }
        self.hand(index, None);
        self.close_streams_of(index);
        let fresh = Worker::new(self.now(), host, &self.setup, &mut self.random.borrow_mut());
        let lost = std::mem::replace(worker, fresh);
        let tally = lost.tally();
        let mut seen = self.seen.borrow_mut();
        seen.forgiven += lost.owed();
        seen.tally += Tally {
            left: tally.left + tally.waiting,
            waiting: 0,
            traps: 1,
            ..tally
        };
        seen.trapped_at = Some(self.now());
        seen.missed_at = None;
    }

    fn is_own(&self, value: &[u8]) -> bool {
        tollgate_engine::codec::split_slot(value)
            .is_some_and(|(scope, _)| scope == &*self.setup.scope)
    }

    fn own(&self, value: &[u8]) -> Option<ScopeState> {
        let own = self.is_own(value).then(|| decode_slot(value))?;
        own.map(|(_, state)| state)
    }
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers")
            .field("setup", &self.setup)
            .finish_non_exhaustive()
    }
}
