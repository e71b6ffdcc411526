//! Envoy as an engine sees it: shared data, the clock, and calls to Envoy's clusters of coordinators.

use core::cell::Cell;
use core::time::Duration;

use prost::Message;
use tollgate_core::lease::{ClientRun, ResourceId};
use tollgate_core::message::{Refreshed, Release};
use tollgate_core::units::Instant;
use tollgate_engine::{Call, Cas, HostError, Level, OwnSlots, Written};
use tollgate_proto::nudge::{Nudged, Watch};
use tollgate_proto::{FieldError, v1};

use crate::grpc_service::{Address, Destination};
use crate::host::Host;

/// gRPC's INTERNAL.
const INTERNAL: u32 = 13;

/// A host of the filter, as the host of an engine.
#[derive(Debug)]
pub(crate) struct EngineHost<H> {
    host: H,
    /// The coordinators' address with the name that the engine has for it, if they have no cluster.
    address: Option<(String, Address)>,
    /// The root context whose tick is running, or ran last.
    root: Cell<u32>,
    /// True if a stream may be opened in it.
    may_watch: Cell<bool>,
    /// The root context of the stream that was opened last.
    watch_root: Cell<u32>,
}

// === impl EngineHost ===

impl<H> EngineHost<H> {
    /// Returns the host of an engine whose coordinators are at `address`, if that is known.
    pub(crate) fn new(host: H, address: Option<&Address>) -> Self {
        let address = address.map(|address| (address.name(), address.clone()));
        Self {
            host,
            address,
            root: Cell::new(0),
            may_watch: Cell::new(true),
            watch_root: Cell::new(0),
        }
    }

    /// Sets the root context at hand, and whether a stream may be opened in it.
    pub(crate) fn set_root(&self, context: u32, may_watch: bool) {
        self.root.set(context);
        self.may_watch.set(may_watch);
    }

    /// Returns the root context of the stream that was opened last.
    pub(crate) fn watch_root(&self) -> u32 {
        self.watch_root.get()
    }

    /// Returns the coordinators that the engine calls `name`.
    fn destination<'a>(&'a self, name: &'a str) -> Destination<'a> {
        match &self.address {
            Some((known, address)) if known == name => Destination::Address(address),
            _ => Destination::Cluster(name),
        }
    }
}

impl<H: Host> tollgate_engine::Host for EngineHost<H> {
    fn now(&self) -> Instant {
        self.host.now()
    }

    fn log(&self, level: Level, message: &str) {
        self.host.log(level, message);
    }

    fn memory_bytes(&self) -> u64 {
        self.host.memory_bytes()
    }

    fn shared_get(&self, key: &str) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
        self.host.shared_get(key)
    }

    fn shared_set(&self, key: &str, value: &[u8], cas: Cas) -> Result<Written, HostError> {
        self.host.shared_set(key, value, cas)
    }

    fn own_slots(&self) -> Option<&OwnSlots> {
        self.host.own_slots()
    }

    fn call(&self, cluster: &str, call: &Call, timeout: Duration) -> Result<u32, HostError> {
        let (method, message) = match call {
            Call::Refresh(refresh) => {
                ("Refresh", v1::RefreshRequest::from(refresh).encode_to_vec())
            }
            Call::Release(release) => {
                ("Release", v1::ReleaseRequest::from(release).encode_to_vec())
            }
        };
        self.host
            .call(self.destination(cluster), method, &message, timeout)
    }

    fn lacks_cluster(&self, name: &str, nothing: &Release, timeout: Duration) -> bool {
        if let Destination::Address(_) = self.destination(name) {
            return false;
        }
        let message = v1::ReleaseRequest::from(nothing).encode_to_vec();
        self.host.lacks_cluster(name, &message, timeout)
    }

    fn watch(&self, cluster: &str, client: &ClientRun) -> Result<Option<u32>, HostError> {
        if !self.may_watch.get() {
            return Ok(None);
        }
        let watch = v1::WatchRequest::from(&Watch::Client(client.clone()));
        let message = watch.encode_to_vec();
        let to = self.destination(cluster);
        let token = self.host.open_stream(to, "Watch", &message)?;
        self.watch_root.set(self.root.get());
        Ok(Some(token))
    }

    /// A root context that has gone has taken its stream along.
    fn unwatch(&self, token: u32) {
        let (owner, root) = (self.watch_root.get(), self.root.get());
        if owner == root {
            self.host.cancel_stream(token);
        } else if self.host.select(owner).is_ok() {
            self.host.cancel_stream(token);
            // The rest of this callback is the root's at hand again, which lives.
            let _ = self.host.select(root);
        }
    }
}

// === free functions ===

/// The answer to a refresh.
pub(crate) fn refreshed(answer: &[u8]) -> Result<Refreshed, String> {
    let message = v1::RefreshResponse::decode(answer).map_err(|error| error.to_string())?;
    message
        .try_into()
        .map_err(|error: FieldError| error.to_string())
}

/// The resources that a message of a stream names.
pub(crate) fn nudged(message: &[u8]) -> Result<Vec<ResourceId>, String> {
    let message = v1::WatchResponse::decode(message).map_err(|error| error.to_string())?;
    let nudged = Nudged::try_from(message).map_err(|error| error.to_string())?;
    match nudged.client {
        None => Ok(nudged.resources),
        Some(client) => Err(format!("it is for the client {:?}", client.as_str())),
    }
}

/// A gRPC status in words. Its message is not told: the SDK would trap on one that is not UTF-8. From
/// an address Envoy tells nothing but one status.
pub(crate) fn grpc_failure(status: u32, from_address: bool) -> String {
    let names = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    let name = usize::try_from(status).ok().and_then(|at| names.get(at));
    let hint = if from_address && status == INTERNAL {
        ": the address cannot be reached, or TLS fails; Envoy does not tell which"
    } else {
        ""
    };
    format!(
        "gRPC status {status} ({}){hint}",
        name.unwrap_or(&"unknown")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_of_any_number_is_told() {
        let failure = |status| grpc_failure(status, false);
        assert_eq!(failure(14), "gRPC status 14 (UNAVAILABLE)");
        assert_eq!(failure(13), "gRPC status 13 (INTERNAL)");
        assert_eq!(failure(u32::MAX), "gRPC status 4294967295 (unknown)");
        let hint = "gRPC status 13 (INTERNAL): the address cannot be reached, or TLS fails; Envoy";
        assert!(grpc_failure(13, true).starts_with(hint));
    }
}
