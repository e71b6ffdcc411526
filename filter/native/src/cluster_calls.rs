//! Calls to the coordinators in a cluster of Envoy's, which carries them on its main thread: HTTP streams.
//!
//! Engines order them from any thread; the hook of a configuration on the main thread opens them, and
//! its further hooks bring the responses.

use std::time::Duration;

use tollgate_filter::Level;

use crate::calls::{Order, SERVICE, StreamEvent, StreamId};
use crate::envoy::{self, ConfigPtr, StartError};
use crate::process::Process;

/// gRPC's CANCELLED and UNAVAILABLE.
const CANCELLED: u32 = 1;
const UNAVAILABLE: u32 = 14;

/// Carries out the orders of engines, in a hook of `configuration` on the main thread.
pub(crate) fn start(process: &Process, configuration: u64, envoy: ConfigPtr) {
    loop {
        // Hooks run while a stream is opened, so the lock is not held then.
        let order = process.calls().next_order();
        match order {
            None => return,
            Some(Order::Cancel { token }) => {
                let open = process.calls().cancel(token);
                if let Some(id) = open {
                    process.reset_stream(id);
                }
            }
            Some(Order::Record { metric, value }) => process.record_here(metric, value),
            Some(Order::Start {
                call,
                cluster,
                method,
                message,
                timeout,
            }) => {
                process.calls().begin_opening(call);
                let started = open(envoy, &cluster, method, &message, timeout);
                process.note_cluster(&cluster, started != Err(StartError::NoCluster));
                opened(process, configuration, started);
            }
        }
    }
}

fn open(
    envoy: ConfigPtr,
    cluster: &str,
    method: &str,
    message: &[u8],
    timeout: Option<Duration>,
) -> Result<u64, StartError> {
    let path = format!("{SERVICE}{method}");
    let timeout_ms = timeout.map_or(0, |timeout| timeout.as_millis());
    let limit = format!("{timeout_ms}m");
    let mut headers = vec![
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path.as_str()),
        (":authority", tollgate_filter::authority(cluster)),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    if timeout.is_some() {
        headers.push(("grpc-timeout", &limit));
    }
    let timeout_ms = u64::try_from(timeout_ms).unwrap_or(u64::MAX);
    envoy.start_stream(cluster, &headers, message, timeout_ms)
}

/// Notes that a stream was opened, unless one of its hooks has done so, or ends its call.
fn opened(process: &Process, configuration: u64, started: Result<u64, StartError>) {
    let mut calls = process.calls();
    let Some(call) = calls.take_opening() else {
        return;
    };
    match started {
        Ok(number) => calls.insert(StreamId::new(configuration, number), call),
        Err(_) => {
            drop(calls);
            call.end(UNAVAILABLE);
        }
    }
}

/// Hands a part of a response on, in a hook of the stream's configuration on the main thread.
pub(crate) fn handle_event(process: &Process, id: StreamId, event: &StreamEvent<'_>) {
    let mut calls = process.calls();
    let Some(mut call) = calls.take(id) else {
        return;
    };
    let (messages, status) = call.take(event);
    let target = call.target();
    let ended = match status {
        Some(status) => Some((call, status)),
        None => {
            calls.insert(id, call);
            None
        }
    };
    drop(calls);
    target.nudge(&messages);
    if let Some((call, status)) = ended {
        call.end(status);
    }
}

/// Ends all calls whose streams Envoy destroys with a configuration, and leaves orders to another one.
pub(crate) fn fail_all_of(process: &Process, configuration: u64) {
    let gone = process.calls().take_all_of(configuration);
    for call in gone {
        call.end(CANCELLED);
    }
    // The lock of the calls comes after that of the configurations, so it is not held in `wake_main`.
    let is_idle = process.calls().is_idle();
    if is_idle || process.wake_main() {
        return;
    }
    let orders = process.calls().take_orders();
    envoy::log(Level::Debug, "tollgate: the last configuration has gone");
    for order in orders {
        if let Order::Start { call, .. } = order {
            call.end(CANCELLED);
        }
    }
}
