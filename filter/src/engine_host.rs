//! Envoy as an engine sees it: shared data, the clock, and calls to Envoy's clusters of coordinators.

use core::time::Duration;

use prost::Message;
use tollgate_core::units::Instant;
use tollgate_engine::{Call, Cas, HostError, Level, Written};
use tollgate_proto::request::Release;
use tollgate_proto::response::Refreshed;
use tollgate_proto::{FieldError, v1};

use crate::host::Host;

/// A host of the filter, as the host of an engine.
#[derive(Debug)]
pub(crate) struct EngineHost<H>(pub(crate) H);

// === impl EngineHost ===

impl<H: Host> tollgate_engine::Host for EngineHost<H> {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn log(&self, level: Level, message: &str) {
        self.0.log(level, message);
    }

    fn memory_bytes(&self) -> u64 {
        self.0.memory_bytes()
    }

    fn shared_get(&self, key: &str) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
        self.0.shared_get(key)
    }

    fn shared_set(&self, key: &str, value: &[u8], cas: Cas) -> Result<Written, HostError> {
        self.0.shared_set(key, value, cas)
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
        self.0.call(&service(cluster), method, &message, timeout)
    }

    /// Envoy is only asked for names that it cannot take for anything else.
    fn lacks_cluster(&self, name: &str, nothing: &Release, timeout: Duration) -> bool {
        if may_be_message(name.as_bytes()) {
            return false;
        }
        let message = v1::ReleaseRequest::from(nothing).encode_to_vec();
        self.0.lacks_cluster(name, &message, timeout)
    }
}

// === free functions ===

/// Whether `bytes` may be a serialized protobuf message, known fields or not: true in doubt.
fn may_be_message(mut bytes: &[u8]) -> bool {
    let mut groups = Vec::new();
    while !bytes.is_empty() {
        let Some((tag, rest)) = varint(bytes) else {
            return false;
        };
        let rest = match tag & 7 {
            0 => varint(rest).map(|(_, rest)| rest),
            1 => rest.get(8..),
            2 => varint(rest).and_then(|(len, rest)| rest.get(usize::try_from(len).ok()?..)),
            5 => rest.get(4..),
            3 => {
                groups.push(tag >> 3);
                Some(rest)
            }
            4 if groups.pop() == Some(tag >> 3) => Some(rest),
            _ => None,
        };
        let Some(rest) = rest else { return false };
        bytes = rest;
    }
    groups.is_empty()
}

/// The number that `bytes` begin with, and what follows it.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let len = bytes.iter().take(10).position(|byte| *byte < 0x80)?;
    let (number, rest) = bytes.split_at_checked(len.saturating_add(1))?;
    let number = number.iter().rev().fold(0_u64, |number, byte| {
        number.wrapping_shl(7) | u64::from(byte & 0x7f)
    });
    Some((number, rest))
}

/// The cluster called `name` as a serialized `envoy.config.core.v3.GrpcService`
/// `{envoy_grpc: {cluster_name}}`.
///
/// Envoy takes the string of a gRPC call for such a message if it parses as one, and for a name only
/// otherwise; and some names do parse. Lengths below 128, which those of names are by far, are one
/// ASCII byte, which keeps the message a valid `str`.
fn service(name: &str) -> String {
    const ENVOY_GRPC: char = '\x0a';
    const CLUSTER_NAME: char = '\x0a';
    let length = |length: usize| char::from(u8::try_from(length).unwrap_or(0));
    let inner = length(name.len().saturating_add(2));
    format!(
        "{ENVOY_GRPC}{inner}{CLUSTER_NAME}{}{name}",
        length(name.len())
    )
}

/// The answer to a refresh.
pub(crate) fn refreshed(answer: &[u8]) -> Result<Refreshed, String> {
    let message = v1::RefreshResponse::decode(answer).map_err(|error| error.to_string())?;
    message
        .try_into()
        .map_err(|error: FieldError| error.to_string())
}

/// A gRPC status in words. Its message is not told: the SDK would trap on one that is not UTF-8.
pub(crate) fn grpc_failure(status: u32) -> String {
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
    format!("gRPC status {status} ({})", name.unwrap_or(&"unknown"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_called_as_a_grpc_service_message() {
        // A bare name that begins like a message would be taken for one.
        let service = service("authority");
        assert_eq!(service.as_bytes(), b"\x0a\x0b\x0a\x09authority");
    }

    #[test]
    fn a_name_is_bare_only_if_it_is_no_message() {
        let rows = [
            ("tollgate", true),
            ("coordinator", true),
            ("tollgate-coordinators", true),
            ("tollgate-shard-0", true),
            ("outbound|7710||tollgate.infra.svc.cluster.local", true),
            // Fields of fixed length with just so many bytes.
            ("authority", false),
            ("meshy", false),
            // A length and so many bytes, a number, and a group that ends.
            ("z\u{20}01234567890123456789012345678901", false),
            ("hX", false),
            ("cd", false),
            ("cl", true),
        ];
        for (name, bare) in rows {
            assert_eq!(may_be_message(name.as_bytes()), !bare, "{name}");
        }
    }
}
