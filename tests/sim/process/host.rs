//! Host of one worker: the process's clock, its shared data and its calls.

use std::panic::resume_unwind;
use std::rc::{Rc, Weak};
use std::time::Duration;

use tollgate_core::lease::ClientRun;
use tollgate_core::message::Release;
use tollgate_core::units::Instant;
use tollgate_engine::{Call, Cas, Host, HostError, Level, Written};

use super::workers::Workers;

/// Host of the worker at an index.
#[derive(Debug)]
pub(super) struct WorkerHost {
    pub(super) process: Weak<Workers>,
    pub(super) worker: usize,
}

/// Payload of the unwinding that ends a worker in the middle of a callback.
pub(super) struct WorkerLost;

/// Call to the coordinators that a worker has made.
#[derive(Clone, Debug)]
pub(crate) struct OutgoingCall {
    pub(crate) id: CallId,
    pub(crate) call: Call,
    pub(crate) timeout: Duration,
}

/// A worker's call, to find the worker again if it still lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallId {
    pub(super) worker: usize,
    /// The number that the worker drew at its start.
    pub(super) number: u64,
    pub(super) token: u32,
}

// === impl WorkerHost ===

impl WorkerHost {
    fn process(&self) -> Rc<Workers> {
        self.process
            .upgrade()
            .expect("workers end with the process")
    }

    /// Lets other workers run before the access at hand takes place, or ends this one there.
    fn pause(&self, process: &Rc<Workers>) {
        if process.is_lost_now(self.worker) {
            resume_unwind(Box::new(WorkerLost));
        }
        process.interleave();
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
        let process = self.process();
        self.pause(&process);
        Ok(process.read(key))
    }

    fn shared_set(&self, key: &str, value: &[u8], cas: Cas) -> Result<Written, HostError> {
        let process = self.process();
        self.pause(&process);
        Ok(process.write(self.worker, key, value, cas))
    }

    fn call(&self, _: &str, call: &Call, timeout: Duration) -> Result<u32, HostError> {
        Ok(self.process().call(self.worker, call, timeout))
    }

    fn lacks_cluster(&self, _: &str, _: &Release, _: Duration) -> bool {
        false
    }

    fn watch(&self, _: &str, _: &ClientRun) -> Result<Option<u32>, HostError> {
        Ok(self.process().watch(self.worker))
    }

    fn unwatch(&self, token: u32) {
        self.process().unwatch(token);
    }
}
