//! Envoy as an engine sees it: shared data, the clock, and calls to Envoy's clusters of coordinators.

use core::time::Duration;

use prost::Message;
use tollgate_core::message::{Refreshed, Release};
use tollgate_core::units::Instant;
use tollgate_engine::{Call, Cas, HostError, Level, Written};
use tollgate_proto::{FieldError, v1};

use crate::host::Host;

/// The authority of calls to clusters whose names are no host's. With the longest such name the
/// message has 127 bytes, the most whose length is one byte.
const ANY_HOST: &str = "any";

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

/// Returns whether `bytes` may be a serialized protobuf message, known fields or not: true in doubt.
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
/// `{envoy_grpc: {cluster_name, authority}}`.
///
/// Envoy takes the string of a gRPC call for such a message if it parses as one, and for a name only
/// otherwise; and some names do parse. Lengths below 128, which those of names are by far, are one
/// ASCII byte, which keeps the message a valid `str`.
///
/// Without an authority Envoy sends the cluster's name in the field `:authority`, and servers refuse
/// a request with one that no host can have, such as Istio's `outbound|7710||tollgate.infra`.
fn service(name: &str) -> String {
    const ENVOY_GRPC: char = '\x0a';
    let authority = if is_host(name) { "" } else { ANY_HOST };
    let inner = format!("{}{}", text('\x0a', name), text('\x12', authority));
    text(ENVOY_GRPC, &inner)
}

/// A field of a protobuf message with `value`, shorter than 128 bytes; nothing for an empty one.
fn text(tag: char, value: &str) -> String {
    if value.is_empty() {
        return String::new();
    }
    let length = char::from(u8::try_from(value.len()).unwrap_or(0));
    format!("{tag}{length}{value}")
}

/// Returns whether `name` can be a host's, which every server accepts as an authority.
fn is_host(name: &str) -> bool {
    name.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
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
    fn a_cluster_whose_name_is_no_host_is_called_with_another_authority() {
        for name in ["outbound|7710||tollgate.infra", "httproute/a/b/rule/0"] {
            let message = service(name);
            assert!(message.ends_with("\x12\x03any"), "{message:?}");
        }
        // The longest name still makes a message whose length is one byte.
        let longest = service(&"|".repeat(120));
        assert_eq!(longest.as_bytes().get(..4), Some(&b"\x0a\x7f\x0a\x78"[..]));
        assert_eq!(longest.len(), 2 + 127);
    }

    #[test]
    fn a_status_of_any_number_is_told() {
        assert_eq!(grpc_failure(14), "gRPC status 14 (UNAVAILABLE)");
        assert_eq!(grpc_failure(u32::MAX), "gRPC status 4294967295 (unknown)");
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
