//! Workers of one process, and what they share.
//!
//! Envoy's workers run at the same time. Here one runs at a time. Where a scenario wants workers to
//! interleave, the seed may let another one run a callback to its end before an access to shared
//! data takes place, and another one within that. A worker may also be lost at an access, as one
//! whose VM traps.

use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::{Rc, Weak};
use std::time::Duration;

use tollgate_core::lease::{ClientRun, ResourceId};
use tollgate_core::message::Refreshed;
use tollgate_core::units::Instant;
use tollgate_engine::{Call, Cas, SharedMemory, Written};

use super::host::{OpenedWatch, OutgoingCall, WorkerHost, WorkerLost};
use super::observations::Observations;
use super::outcomes::{LoggedOutcome, OutcomeLog};
use super::worker::Worker;
use super::{ProcessKind, ProcessName};
use crate::defect::Defect;
use crate::demand::IncomingRequest;
use crate::random::{Chance, Random};
use crate::scopes::ScopeTable;
use crate::simulation::reached::Case;

/// The most callbacks that run within each other.
const DEPTH_MAX: u32 = 3;
/// Reads that return an old record with [`Defect::StaleRead`].
const STALE_READS: Chance = Chance::percent(10);
/// Workers that are lost in the middle of a callback, of all that are lost.
const LOST_WITHIN: Chance = Chance::percent(60);
/// The most accesses to shared data until then.
const ACCESSES_MAX: u64 = 30;

/// Workers of one process.
pub(super) struct Workers {
    pub(super) kind: Rc<ProcessKind>,
    pub(super) scopes: Rc<ScopeTable>,
    workers: Vec<RefCell<Worker>>,
    name: ProcessName,
    /// Time by the clock of the process.
    clock: Cell<Instant>,
    pub(super) memory: RefCell<SharedMemory>,
    /// Records before their latest writes, if reads may return these.
    before: RefCell<BTreeMap<String, Vec<u8>>>,
    tasks: RefCell<Vec<Task>>,
    random: RefCell<Random>,
    depth: Cell<u32>,
    doom: Cell<Option<Doom>>,
    calls: RefCell<Vec<OutgoingCall>>,
    opened: RefCell<Vec<OpenedWatch>>,
    last_token: Cell<u32>,
    pub(super) outcomes: RefCell<OutcomeLog>,
    /// Observations for laws, while workers run.
    pub(super) observations: RefCell<Option<Observations>>,
}

/// Callback that is due in a worker.
#[derive(Debug)]
pub(crate) enum Task {
    /// A request has come, which may have bulky bodies.
    Request(u32, IncomingRequest, bool),
    Tick(u32),
    End(u32, u32),
    Answer(u32, u32, Result<Refreshed, String>),
    /// A coordinator has named a resource on a worker's stream.
    Nudge(u32, u32, ResourceId),
    /// A worker's stream has ended.
    EndWatch(u32, u32),
}

/// End of a worker after so many more accesses to shared data.
#[derive(Clone, Copy, Debug)]
struct Doom {
    worker: u32,
    accesses: u64,
}

// === impl Task ===

impl Task {
    fn worker(&self) -> usize {
        let worker = match self {
            Self::Request(worker, ..)
            | Self::Tick(worker)
            | Self::End(worker, _)
            | Self::Answer(worker, ..)
            | Self::Nudge(worker, ..)
            | Self::EndWatch(worker, _) => worker,
        };
        *worker as usize
    }
}

// === impl Workers ===

impl Workers {
    /// Returns the workers of a process that starts at `clock`, by its own clock.
    pub(super) fn new(
        clock: Instant,
        (kind, scopes): (&Rc<ProcessKind>, &Rc<ScopeTable>),
        name: ProcessName,
        random: &mut Random,
    ) -> Rc<Self> {
        // Of its own, so that what workers draw changes nothing of the demand.
        let own_random = Random::new(name.process as u64);
        let tick = kind.config.tick.as_micros() as u64;
        Rc::new_cyclic(|process| {
            let worker = |number| {
                let identity = name.identity(random);
                let first_tick = Duration::from_micros(random.between(0, tick));
                let tick_at = clock.saturating_add(first_tick);
                let host = host(process, number);
                RefCell::new(Worker::new(tick_at, host, identity, kind))
            };
            Self {
                workers: (0..kind.workers).map(worker).collect(),
                kind: kind.clone(),
                scopes: scopes.clone(),
                name,
                clock: Cell::new(clock),
                memory: RefCell::new(SharedMemory::new()),
                before: RefCell::default(),
                tasks: RefCell::default(),
                random: RefCell::new(own_random),
                depth: Cell::new(0),
                doom: Cell::new(None),
                calls: RefCell::default(),
                opened: RefCell::default(),
                last_token: Cell::new(0),
                outcomes: RefCell::default(),
                observations: RefCell::default(),
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

    /// Lets a worker decide on a request, now or among all that is due.
    pub(super) fn request(
        self: &Rc<Self>,
        worker: usize,
        request: IncomingRequest,
        is_bulky: bool,
    ) {
        let task = Task::Request(worker as u32, request, is_bulky);
        if self.interleaves() {
            self.tasks.borrow_mut().push(task)
        } else {
            self.perform(task)
        }
    }

    /// Does what is due by the clock and what was put in; in any order if workers interleave.
    pub(super) fn run(self: &Rc<Self>) {
        for worker in 0..self.workers.len() {
            let mut due = self.workers[worker].borrow_mut().due(self.now());
            if self.interleaves() {
                self.tasks.borrow_mut().append(&mut due)
            } else {
                due.into_iter().for_each(|task| self.perform(task))
            }
        }
        self.finish();
    }

    /// Hands a worker what has come for it.
    pub(super) fn hand(self: &Rc<Self>, task: Task) {
        self.tasks.borrow_mut().push(task);
        self.finish();
    }

    fn finish(self: &Rc<Self>) {
        while let Some(task) = self.pick() {
            self.perform(task);
        }
    }

    /// Returns the time at which the next worker has something to do.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.iter().map(|worker| worker.due_at()).min()
    }

    /// Returns the calls since the last time.
    pub(super) fn take_calls(&self) -> Vec<OutgoingCall> {
        self.calls.take()
    }

    /// Returns the streams that were opened since the last time.
    pub(super) fn take_opened(&self) -> Vec<OpenedWatch> {
        self.opened.take()
    }

    /// Ends a worker, at once or in the middle of a callback; at once where nothing unwinds.
    pub(super) fn trap(self: &Rc<Self>) {
        let worker = self.any();
        let (within, accesses) = {
            let mut random = self.random.borrow_mut();
            (random.happens(LOST_WITHIN), random.between(0, ACCESSES_MAX))
        };
        if within && cfg!(panic = "unwind") {
            self.doom.set(Some(Doom {
                worker: worker as u32,
                accesses,
            }))
        } else {
            self.replace(worker, &mut self.workers[worker].borrow_mut())
        }
    }

    /// Returns all workers.
    pub(super) fn iter(&self) -> impl Iterator<Item = Ref<'_, Worker>> {
        self.workers.iter().map(RefCell::borrow)
    }

    // Services for workers.

    pub(super) fn happens(&self, chance: Chance) -> bool {
        !chance.is_never() && self.random.borrow_mut().happens(chance)
    }

    /// Returns a random number below `below`.
    pub(super) fn roll(&self, below: usize) -> usize {
        self.random.borrow_mut().between(0, below as u64 - 1) as usize
    }

    /// Notes what has become of a request.
    pub(super) fn log(&self, outcome: LoggedOutcome) {
        self.outcomes.borrow_mut().push(outcome);
    }

    /// Calls `note` with the observations for laws, if there are any.
    pub(super) fn observe(&self, note: impl FnOnce(&mut Observations)) {
        if let Some(observations) = &mut *self.observations.borrow_mut() {
            note(observations);
        }
    }

    /// Records a broken invariant, which only laws look for.
    pub(super) fn ensure(&self, holds: impl FnOnce() -> bool, otherwise: impl FnOnce() -> String) {
        self.observe(|seen| {
            if !holds() {
                seen.broken.get_or_insert_with(otherwise);
            }
        });
    }

    // Services for hosts.

    /// Returns whether a worker is lost at the access at hand.
    pub(super) fn is_lost_now(&self, worker: u32) -> bool {
        let Some(doom) = self.doom.get().filter(|doom| doom.worker == worker) else {
            return false;
        };
        let left = doom.accesses.checked_sub(1);
        self.doom
            .set(left.map(|accesses| Doom { worker, accesses }));
        left.is_none()
    }

    /// Lets another worker run a callback, if the seed wants it so.
    pub(super) fn interleave(self: &Rc<Self>) {
        let depth = self.depth.get();
        if !self.interleaves() || depth >= DEPTH_MAX || !self.happens(self.kind.interleaving) {
            return;
        }
        self.depth.set(depth + 1);
        let index = self.any();
        let task = self.pick().or_else(|| {
            let free = self.workers[index].try_borrow_mut().is_ok();
            free.then_some(Task::Tick(index as u32))
        });
        if let Some(task) = task {
            self.observe(|seen| seen.tally.count(Case::Interleaved));
            self.perform(task);
        }
        self.depth.set(depth);
    }

    pub(super) fn read(&self, key: &str) -> Option<(Vec<u8>, Cas)> {
        let found = self.memory.borrow().get(key);
        let before = self.before.borrow();
        match (found, before.get(key)) {
            (Some((_, cas)), Some(before)) if self.happens(STALE_READS) => {
                Some((before.clone(), cas))
            }
            (found, _) => found,
        }
    }

    pub(super) fn write(&self, worker: u32, key: &str, value: &[u8], cas: Cas) -> Written {
        let mut seen = self.observations.borrow_mut();
        let Some(seen) = &mut *seen else {
            return self.memory.borrow_mut().set(key, value, cas);
        };
        let cas = match seen.defect {
            Some(Defect::LostCompare) => 0,
            _ => cas,
        };
        let mut memory = self.memory.borrow_mut();
        let before = memory.get(key).map(|(before, _)| before);
        let before = before.unwrap_or_default();
        let written = memory.set(key, value, cas);
        match written {
            Written::Stored => {
                let at = (self.now(), worker);
                seen.see_write(at, &self.kind, &memory, (&before, value));
                if seen.defect == Some(Defect::StaleRead) && seen.is_observed(&before) {
                    self.before.borrow_mut().insert(key.to_owned(), before);
                }
            }
            Written::Lost => seen.tally.count(Case::WriteLost),
        }
        written
    }

    pub(super) fn call(&self, worker: u32, call: &Call, timeout: Duration) -> u32 {
        let token = self.next_token();
        self.calls.borrow_mut().push(OutgoingCall {
            worker,
            token,
            call: call.clone(),
            timeout,
        });
        token
    }

    /// Opens a stream of a worker, if coordinators have streams.
    pub(super) fn watch(&self, worker: u32, client: &ClientRun) -> Option<u32> {
        self.kind.nudged.then(|| {
            let token = self.next_token();
            self.opened.borrow_mut().push(OpenedWatch {
                worker,
                token,
                client: client.id.clone(),
            });
            token
        })
    }

    fn next_token(&self) -> u32 {
        let token = self.last_token.get() + 1;
        self.last_token.set(token);
        token
    }

    fn interleaves(&self) -> bool {
        !self.kind.interleaving.is_never()
    }

    fn any(&self) -> usize {
        self.roll(self.workers.len())
    }

    /// Takes one of the tasks whose workers are not busy.
    fn pick(&self) -> Option<Task> {
        let mut tasks = self.tasks.borrow_mut();
        let index = match tasks.len() {
            0 => return None,
            1 => 0,
            count => self.roll(count),
        };
        let worker = &self.workers[tasks[index].worker()];
        let is_free = worker.try_borrow_mut().is_ok();
        is_free.then(|| tasks.swap_remove(index))
    }

    fn perform(self: &Rc<Self>, task: Task) {
        let index = task.worker();
        let mut worker = self.workers[index].borrow_mut();
        if self.doom.get().is_none() {
            return worker.perform(self, task);
        }
        let done = catch_unwind(AssertUnwindSafe(|| worker.perform(self, task)));
        if let Err(payload) = done {
            if !payload.is::<WorkerLost>() {
                resume_unwind(payload);
            }
            self.observe(|seen| seen.tally.count(Case::TrappedWithin));
            self.replace(index, &mut worker);
        }
    }

    /// Replaces a worker that is lost with all its state by a new one. What comes for the lost one is
    /// for calls and streams with lower tokens.
    fn replace(self: &Rc<Self>, index: usize, worker: &mut Worker) {
        let random = &mut self.random.borrow_mut();
        let identity = self.name.identity(random);
        let host = host(&Rc::downgrade(self), index as u32);
        let tick_at = self.now().saturating_add(self.kind.config.tick);
        let fresh = Worker::new(tick_at, host, identity, &self.kind);
        let lost = std::mem::replace(worker, fresh);
        worker.take_place_of(&lost, self.last_token.get());
        self.observe(|seen| seen.lose(self.now(), index as u32, &lost, &self.scopes));
    }
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.workers).finish()
    }
}

// === free functions ===

fn host(process: &Weak<Workers>, worker: u32) -> WorkerHost {
    WorkerHost {
        process: process.clone(),
        worker,
    }
}
