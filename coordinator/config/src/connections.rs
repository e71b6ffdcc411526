//! Section `connections`: how many are served, and how long their clients may take.

use std::time::Duration;

use serde::Deserialize;
use tollgate_core::quantity::{QuantityUnit, parse};
use tollgate_core::units::MICRO;
use tollgate_net::connections::{CALL_BYTES_MIN, ConnectionBounds, IDLE_TIMEOUT_MIN};

use super::bounds::count;
use crate::catalog::check::{Check, Rule, duration};
use crate::catalog::spec::LocatedScalar;

/// The longest deadline that can be configured; more would mean none.
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawConnections {
    max_grpc: Option<LocatedScalar>,
    max_http: Option<LocatedScalar>,
    max_call_bytes: Option<LocatedScalar>,
    handshake_timeout: Option<LocatedScalar>,
    request_timeout: Option<LocatedScalar>,
    response_timeout: Option<LocatedScalar>,
    idle_timeout: Option<LocatedScalar>,
}

// === free functions ===

/// Checks the section.
pub(super) fn connections(check: &mut Check, raw: Option<&RawConnections>) -> ConnectionBounds {
    let mut bounds = ConnectionBounds::default();
    let Some(raw) = raw else { return bounds };
    let field = |name| format!("connections.{name}");
    let counts = [
        ("max_grpc", &raw.max_grpc, &mut bounds.max_grpc),
        ("max_http", &raw.max_http, &mut bounds.max_http),
    ];
    for (name, text, bound) in counts {
        check.set(bound, text, &field(name), count);
    }
    let (name, bound) = (field("max_call_bytes"), &mut bounds.max_call_bytes);
    check.set(bound, &raw.max_call_bytes, &name, call_bytes);
    let (handshake, request) = (&mut bounds.handshake_timeout, &mut bounds.request_timeout);
    let timeouts = [
        ("handshake_timeout", &raw.handshake_timeout, handshake),
        ("request_timeout", &raw.request_timeout, request),
        (
            "response_timeout",
            &raw.response_timeout,
            &mut bounds.response_timeout,
        ),
    ];
    for (name, text, bound) in timeouts {
        check.set(bound, text, &field(name), timeout);
    }
    let (name, bound) = (field("idle_timeout"), &mut bounds.idle_timeout);
    check.set(bound, &raw.idle_timeout, &name, idle_timeout);
    bounds
}

fn call_bytes(text: &str) -> Result<usize, Rule> {
    let bytes = parse(text, QuantityUnit::Bytes)?.as_micros() / MICRO;
    let bytes = usize::try_from(bytes).ok();
    bytes
        .filter(|bytes| *bytes >= CALL_BYTES_MIN)
        .ok_or_else(|| {
            format!(
                "{text:?} is less than 8MiB ({CALL_BYTES_MIN}): one connection may hold an eighth, \
                 and a call has up to 1 MiB"
            )
            .into()
        })
}

fn timeout(text: &str) -> Result<Duration, Rule> {
    let time = duration(text)?;
    let allowed = Duration::from_millis(1)..=TIMEOUT_MAX;
    let good = allowed.contains(&time);
    good.then_some(time)
        .ok_or_else(|| format!("{text:?} is not a time from 1ms to 1h").into())
}

fn idle_timeout(text: &str) -> Result<Duration, Rule> {
    let time = timeout(text)?;
    let good = time >= IDLE_TIMEOUT_MIN;
    good.then_some(time).ok_or_else(|| {
        format!(
            "{text:?} is less than 45s: an HTTP/2 client is asked for a sign of life after 30s \
                 of silence, and has 10s to give it"
        )
        .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    const LIMITS: &str = "limits: [{match: '*', requests: {rate: 5}}]";

    #[test]
    fn connections_are_bounded_as_the_file_says_and_else_by_default() {
        let bounds = |yaml: &str| {
            let config = Config::parse(&format!("{yaml}\n{LIMITS}"));
            config.unwrap().connections
        };
        assert_eq!(bounds(""), ConnectionBounds::default());
        let yaml = "connections: {max_grpc: 5, max_http: 6, max_call_bytes: 8MiB, handshake_timeout: 1s, \
             request_timeout: 2s, response_timeout: 3s, idle_timeout: 4m}";
        let want = ConnectionBounds {
            max_grpc: 5,
            max_http: 6,
            max_call_bytes: 8 << 20,
            handshake_timeout: Duration::from_secs(1),
            request_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(3),
            idle_timeout: Duration::from_secs(240),
        };
        assert_eq!(bounds(yaml), want);
    }

    #[test]
    fn a_bound_that_is_none_is_refused_with_its_field() {
        let rows = [
            (
                "max_grpc: 0",
                "1:25: connections.max_grpc: \"0\" is not a whole number from 1 to 1000000000",
            ),
            (
                "max_call_bytes: 8388607",
                "1:31: connections.max_call_bytes: \"8388607\" is less than 8MiB (8388608): one \
                 connection may hold an eighth, and a call has up to 1 MiB",
            ),
            (
                "max_call_bytes: 64Mb",
                "1:31: connections.max_call_bytes: \"64Mb\" ends in \"Mb\", which is none of k, M, G, \
                 T, Ki, Mi, Gi, Ti, each with B after it if you like",
            ),
            (
                "idle_timeout: 2h",
                "1:29: connections.idle_timeout: \"2h\" is not a time from 1ms to 1h",
            ),
            (
                "idle_timeout: 44s",
                "1:29: connections.idle_timeout: \"44s\" is less than 45s: an HTTP/2 client is asked \
                 for a sign of life after 30s of silence, and has 10s to give it",
            ),
            (
                "idle_timeout: 5",
                "1:29: connections.idle_timeout: \"5\" is not a duration like 10s or 100ms: time \
                 unit needed, for example 5sec or 5ms",
            ),
        ];
        for (field, want) in rows {
            let yaml = format!("connections: {{{field}}}\n{LIMITS}");
            assert_eq!(Config::parse(&yaml).unwrap_err().to_string(), want);
        }
    }
}
