//! Host of the workers of one process.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tollgate_core::lease::{ClientId, ClientRun};
use tollgate_core::message::Release;
use tollgate_core::units::Instant;
use tollgate_engine::{Call, Cas, Host, HostError, Level, SharedMemory, Written};

/// Surroundings that all workers of a process share.
#[derive(Debug)]
pub(super) struct Surroundings {
    /// Time by the clock of the process.
    pub(super) clock: Cell<Instant>,
    pub(super) memory: RefCell<SharedMemory>,
    calls: RefCell<Vec<OutgoingCall>>,
    /// Whether coordinators have streams of nudges.
    nudged: bool,
    opened: RefCell<Vec<OpenedWatch>>,
    last_token: Cell<u32>,
}

/// Host of one worker.
pub(super) struct WorkerHost {
    pub(super) process: Rc<Surroundings>,
    pub(super) worker: u32,
}

/// Call to the coordinators that a worker has made.
#[derive(Debug)]
pub(crate) struct OutgoingCall {
    pub(crate) worker: u32,
    pub(crate) token: u32,
    pub(crate) call: Call,
    pub(crate) timeout: Duration,
}

/// Stream that a worker has opened, to hear what to ask for.
#[derive(Debug)]
pub(crate) struct OpenedWatch {
    pub(crate) worker: u32,
    pub(crate) token: u32,
    pub(crate) client: ClientId,
}

// === impl Surroundings ===

impl Surroundings {
    pub(super) fn new(clock: Instant, nudged: bool) -> Rc<Self> {
        Rc::new(Self {
            clock: Cell::new(clock),
            memory: RefCell::new(SharedMemory::new()),
            calls: RefCell::default(),
            nudged,
            opened: RefCell::default(),
            last_token: Cell::new(0),
        })
    }

    /// Returns the calls since the last time.
    pub(super) fn take_calls(&self) -> Vec<OutgoingCall> {
        self.calls.take()
    }

    /// Returns the streams that were opened since the last time.
    pub(super) fn take_opened(&self) -> Vec<OpenedWatch> {
        self.opened.take()
    }

    fn next_token(&self) -> u32 {
        let token = self.last_token.get() + 1;
        self.last_token.set(token);
        token
    }
}

// === impl WorkerHost ===

impl std::fmt::Debug for WorkerHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The surroundings belong to all workers.
        let mut host = f.debug_struct("WorkerHost");
        host.field("worker", &self.worker).finish_non_exhaustive()
    }
}

impl Host for WorkerHost {
    fn now(&self) -> Instant {
        self.process.clock.get()
    }

    fn log(&self, _: Level, _: &str) {}

    fn memory_bytes(&self) -> u64 {
        0
    }

    fn shared_get(&self, key: &str) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
        Ok(self.process.memory.borrow().get(key))
    }

    fn shared_set(&self, key: &str, value: &[u8], cas: Cas) -> Result<Written, HostError> {
        Ok(self.process.memory.borrow_mut().set(key, value, cas))
    }

    fn call(&self, _: &str, call: &Call, timeout: Duration) -> Result<u32, HostError> {
        let token = self.process.next_token();
        self.process.calls.borrow_mut().push(OutgoingCall {
            worker: self.worker,
            token,
            call: call.clone(),
            timeout,
        });
        Ok(token)
    }

    fn lacks_cluster(&self, _: &str, _: &Release, _: Duration) -> bool {
        false
    }

    // A stream that the engine closes is not closed here: the engine takes nothing from it any more,
    // and its next one takes the place of this one.
    fn watch(&self, _: &str, client: &ClientRun) -> Result<Option<u32>, HostError> {
        if !self.process.nudged {
            return Ok(None);
        }
        let token = self.process.next_token();
        self.process.opened.borrow_mut().push(OpenedWatch {
            worker: self.worker,
            token,
            client: client.id.clone(),
        });
        Ok(Some(token))
    }
}
