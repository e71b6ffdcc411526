//! Host of one worker: the clock, the shared data and the calls of its process.

use std::panic::resume_unwind;
use std::rc::{Rc, Weak};
use std::time::Duration;

use tollgate_core::lease::{ClientId, ClientRun};
use tollgate_core::message::Release;
use tollgate_core::units::Instant;
use tollgate_engine::{Call, Cas, Host, HostError, Level, Written};

use super::workers::Workers;

/// Host of one worker.
pub(super) struct WorkerHost {
    pub(super) process: Weak<Workers>,
    pub(super) worker: u32,
}

/// Payload of the unwinding that ends a worker in the middle of a callback.
pub(super) struct WorkerLost;

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

// === impl WorkerHost ===

impl WorkerHost {
    /// Workers end with their process, so there is one as long as a worker runs.
    fn process(&self) -> Rc<Workers> {
        self.process.upgrade().expect("a process")
    }

    /// Returns the process before an access to shared data, at which other workers may run first, or
    /// this one may end.
    fn pause(&self) -> Rc<Workers> {
        let process = self.process();
        if process.is_lost_now(self.worker) {
            resume_unwind(Box::new(WorkerLost));
        }
        process.interleave();
        process
    }
}

impl std::fmt::Debug for WorkerHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The process belongs to all workers.
        let mut host = f.debug_struct("WorkerHost");
        host.field("worker", &self.worker).finish_non_exhaustive()
    }
}

impl Host for WorkerHost {
    fn now(&self) -> Instant {
        self.process().now()
    }

    fn log(&self, _: Level, _: &str) {}

    fn memory_bytes(&self) -> u64 {
        0
    }

    fn shared_get(&self, key: &str) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
        Ok(self.pause().read(key))
    }

    fn shared_set(&self, key: &str, value: &[u8], cas: Cas) -> Result<Written, HostError> {
        Ok(self.pause().write(self.worker, key, value, cas))
    }

    fn call(&self, _: &str, call: &Call, timeout: Duration) -> Result<u32, HostError> {
        Ok(self.process().call(self.worker, call, timeout))
    }

    fn lacks_cluster(&self, _: &str, _: &Release, _: Duration) -> bool {
        false
    }

    // A stream that the engine closes is not closed here: the engine takes nothing from it any more,
    // and its next one takes the place of this one.
    fn watch(&self, _: &str, client: &ClientRun) -> Result<Option<u32>, HostError> {
        Ok(self.process().watch(self.worker, client))
    }
}
