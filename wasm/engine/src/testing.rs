//! Host for tests: shared data with a real one's rules, and a clock that tests move.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use tollgate_core::lease::ClientRun;
use tollgate_core::message::Release;
use tollgate_core::units::Instant;

use crate::host::{Call, Host, HostError, Level};
use crate::own_slots::OwnSlots;
use crate::shared_memory::{Cas, Written};

/// Something that happens at an awkward moment.
pub(crate) type Intruder = Box<dyn FnOnce(&FakeProcess)>;

/// State that the workers of a process share, and what happened to it.
#[derive(Default)]
pub(crate) struct FakeProcess {
    /// The clock, in nanoseconds.
    pub(crate) now: Cell<u64>,
    records: RefCell<BTreeMap<String, (Vec<u8>, Cas)>>,
    /// Slots in memory, if the process has any.
    pub(crate) own_slots: Option<OwnSlots>,
    next_cas: Cell<Cas>,
    /// The lines of the log.
    pub(crate) logs: RefCell<Vec<(Level, String)>>,
    /// Calls without an answer so far, by token, with the cluster that each goes to.
    pub(crate) calls: RefCell<BTreeMap<u32, (String, Call)>>,
    next_token: Cell<u32>,
    /// True if calls fail at once.
    pub(crate) calls_fail: Cell<bool>,
    /// The names of clusters that there are not.
    pub(crate) missing_clusters: RefCell<BTreeSet<String>>,
    /// Streams that are open, by token, with the cluster and the client.
    pub(crate) watches: RefCell<BTreeMap<u32, (String, ClientRun)>>,
    /// True if a stream cannot be opened now.
    pub(crate) has_no_streams: Cell<bool>,
    /// Looks for a cluster so far.
    pub(crate) looks: Cell<u64>,
    /// Run before the next write to shared data, as another worker would.
    pub(crate) intruder: RefCell<Option<Intruder>>,
    /// Writes to shared data so far.
    pub(crate) writes: Cell<u64>,
    /// Reads of shared data so far.
    pub(crate) reads: Cell<u64>,
}

/// Host of one worker of a [`FakeProcess`].
#[derive(Clone, Debug)]
pub(crate) struct FakeHost {
    /// The process.
    pub(crate) process: Rc<FakeProcess>,
    /// True if shared data fails for this worker.
    pub(crate) shared_data_fails: Rc<Cell<bool>>,
    /// The memory that the worker says it has.
    pub(crate) memory_bytes: Rc<Cell<u64>>,
}

// === impl FakeProcess ===

impl FakeProcess {
    /// Returns a process whose clock stands at one hour.
    pub(crate) fn new() -> Rc<Self> {
        Self::with(None)
    }

    /// Returns such a process with slots in memory.
    pub(crate) fn with_own_slots() -> Rc<Self> {
        Self::with(Some(OwnSlots::default()))
    }

    fn with(own_slots: Option<OwnSlots>) -> Rc<Self> {
        Rc::new(Self {
            now: Cell::new(3_600_000_000_000),
            next_cas: Cell::new(1),
            own_slots,
            ..Self::default()
        })
    }

    /// Moves the clock.
    pub(crate) fn advance(&self, duration: Duration) {
        self.now.set(self.now.get() + duration.as_nanos() as u64);
    }

    /// Writes a record if it still has the version `cas`; zero writes whatever is there.
    pub(crate) fn set(&self, key: &str, value: &[u8], cas: Cas) -> Written {
        let mut records = self.records.borrow_mut();
        if let Some((_, current)) = records.get(key)
            && cas != 0
            && cas != *current
        {
            return Written::Lost;
        }
        let next = self.next_cas.get();
        self.next_cas.set(next + 1);
        self.writes.set(self.writes.get() + 1);
        records.insert(key.to_owned(), (value.to_vec(), next));
        Written::Stored
    }

    /// Returns the record under `key`.
    pub(crate) fn get(&self, key: &str) -> Option<Vec<u8>> {
        let records = self.records.borrow();
        records.get(key).map(|(value, _)| value.clone())
    }

    fn take_token(&self) -> u32 {
        self.next_token.set(self.next_token.get() + 1);
        self.next_token.get()
    }

    /// Returns the keys of all records.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.records.borrow().keys().cloned().collect()
    }

    fn read(&self, key: &str) -> Option<(Vec<u8>, Cas)> {
        self.reads.set(self.reads.get() + 1);
        // A real host cannot tell an empty value from none.
        let records = self.records.borrow();
        let record = records.get(key).filter(|(value, _)| !value.is_empty());
        record.cloned()
    }
}

impl fmt::Debug for FakeProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut process = f.debug_struct("FakeProcess");
        process.field("now", &self.now).finish_non_exhaustive()
    }
}

// === impl FakeHost ===

impl FakeHost {
    /// Returns a worker's host.
    pub(crate) fn new(process: &Rc<FakeProcess>) -> Self {
        Self {
            process: Rc::clone(process),
            shared_data_fails: Rc::default(),
            memory_bytes: Rc::default(),
        }
    }

    fn shared_data(&self, call: &'static str) -> Result<(), HostError> {
        if self.shared_data_fails.get() {
            Err(HostError { call, status: 10 })
        } else {
            Ok(())
        }
    }
}

impl Host for FakeHost {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.process.now.get())
    }

    fn log(&self, level: Level, message: &str) {
        let line = (level, message.to_owned());
        self.process.logs.borrow_mut().push(line);
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes.get()
    }

    fn shared_get(&self, key: &str) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
        self.shared_data("get_shared_data")?;
        Ok(self.process.read(key))
    }

    fn shared_set(&self, key: &str, value: &[u8], cas: Cas) -> Result<Written, HostError> {
        self.shared_data("set_shared_data")?;
        let intruder = self.process.intruder.borrow_mut().take();
        if let Some(intruder) = intruder {
            intruder(&self.process);
        }
        Ok(self.process.set(key, value, cas))
    }

    fn own_slots(&self) -> Option<&OwnSlots> {
        self.process.own_slots.as_ref()
    }

    fn call(&self, cluster: &str, call: &Call, _: Duration) -> Result<u32, HostError> {
        let process = &self.process;
        let is_missing = process.missing_clusters.borrow().contains(cluster);
        if process.calls_fail.get() || is_missing {
            let call = "call";
            return Err(HostError { call, status: 10 });
        }
        let token = process.take_token();
        let call = (cluster.to_owned(), call.clone());
        process.calls.borrow_mut().insert(token, call);
        Ok(token)
    }

    fn lacks_cluster(&self, name: &str, _: &Release, _: Duration) -> bool {
        self.process.looks.set(self.process.looks.get() + 1);
        self.process.missing_clusters.borrow().contains(name)
    }

    fn watch(&self, cluster: &str, client: &ClientRun) -> Result<Option<u32>, HostError> {
        let process = &self.process;
        if process.calls_fail.get() {
            let call = "watch";
            return Err(HostError { call, status: 10 });
        }
        if process.has_no_streams.get() {
            return Ok(None);
        }
        let token = process.take_token();
        let stream = (cluster.to_owned(), client.clone());
        process.watches.borrow_mut().insert(token, stream);
        Ok(Some(token))
    }

    fn unwatch(&self, token: u32) {
        let known = self.process.watches.borrow_mut().remove(&token);
        assert!(known.is_some(), "stream {token} was closed twice");
    }
}

/// Generator of random numbers for tests; splitmix64.
pub(crate) struct Random(pub(crate) u64);

// === impl Random ===

impl Random {
    /// Returns a number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % bound
    }
}
