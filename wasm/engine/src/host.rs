//! Surroundings of an engine: a clock, data that the workers of a process share, and calls to the
//! coordinators.

use core::time::Duration;

use tollgate_core::lease::ClientRun;
use tollgate_core::message::{Refresh, Release};
use tollgate_core::units::Instant;

use crate::own_slots::OwnSlots;
use crate::shared_memory::{Cas, Written};

/// Severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// For developers.
    Debug,
    /// Something that an operator may want to mend.
    Warn,
    /// Something that an operator must mend.
    Error,
}

/// Failure of a host to do as it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the host refused {call} with status {status}")]
pub struct HostError {
    /// The name that the host has for the call.
    pub call: &'static str,
    /// The host's number for the cause.
    pub status: u32,
}

/// A unary call to a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Leases are asked for; the answer goes to [`Engine::handle_answer`](crate::Engine::handle_answer).
    Refresh(Refresh),
    /// Leases are given back. No answer matters.
    Release(Release),
}

/// Surroundings of an engine.
pub trait Host {
    /// Reads the monotonic clock, which all workers of the process share.
    fn now(&self) -> Instant;
    /// Writes a line to the operator's log.
    fn log(&self, level: Level, message: &str);
    /// Returns the memory of this worker in bytes, for the process's statistics.
    fn memory_bytes(&self) -> u64;
    /// Reads a record that all workers of the process see, and its version.
    ///
    /// # Errors
    /// If the host fails.
    fn shared_get(&self, key: &str) -> Result<Option<(Vec<u8>, Cas)>, HostError>;
    /// Writes a record if it still has the version `cas`.
    ///
    /// # Errors
    /// If the host fails.
    fn shared_set(&self, key: &str, value: &[u8], cas: Cas) -> Result<Written, HostError>;
    /// Returns the slots for scopes that the workers of the process share in memory. A host that has none
    /// gets records of shared data instead.
    fn own_slots(&self) -> Option<&OwnSlots> {
        None
    }
    /// Starts a call to `cluster`, a name of the configuration, and returns a token, which comes back with the answer.
    ///
    /// # Errors
    /// If no call was made.
    fn call(&self, cluster: &str, call: &Call, timeout: Duration) -> Result<u32, HostError>;
    /// Returns whether there is no cluster called `name`; false where the host cannot tell. If there
    /// is one, `nothing`, a release of no resources, goes there.
    fn lacks_cluster(&self, name: &str, nothing: &Release, timeout: Duration) -> bool;
    /// Opens the stream on which a coordinator of `cluster` names resources of `client`, and returns a
    /// token. What comes on it goes to [`Engine::handle_nudge`](crate::Engine::handle_nudge), and its end
    /// to [`Engine::handle_watch_end`](crate::Engine::handle_watch_end). `None` where that cannot be done
    /// now: the engine asks again on its next tick.
    ///
    /// # Errors
    /// If the host fails.
    fn watch(&self, cluster: &str, client: &ClientRun) -> Result<Option<u32>, HostError> {
        let _ = (cluster, client);
        Ok(None)
    }
    /// Closes the stream of `token`, of which nothing more is wanted.
    fn unwatch(&self, token: u32) {
        let _ = token;
    }
}
