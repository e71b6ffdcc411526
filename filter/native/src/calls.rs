//! Calls to the coordinators, which Envoy carries on its main thread: HTTP streams to its clusters.
//!
//! Engines order them from any thread; the hook of a configuration on the main thread opens them, and
//! its further hooks bring the responses.

use std::collections::{HashMap, VecDeque};
use std::sync::Weak;
use std::time::Duration;

use tollgate_filter::{Level, Metric};

use crate::configuration::Configuration;
use crate::envoy::{self, ConfigPtr, StartError};
use crate::grpc::{Response, framed};
use crate::worker::WorkerCell;

/// The path of the service, before a method's name.
pub(crate) const SERVICE: &str = "/tollgate.v1.LeaseService/";
/// The most orders that wait for the main thread, such as one that is stuck.
const ORDERS_MAX: usize = 10_000;
/// gRPC's CANCELLED and UNAVAILABLE.
const CANCELLED: u32 = 1;
const UNAVAILABLE: u32 = 14;

/// Number of a call among those of all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallId {
    pub(crate) process: u64,
    /// The engine's number for it, which no other call of the process has.
    pub(crate) token: u32,
}

/// A stream of Envoy's to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StreamId {
    /// The configuration that has opened it.
    pub(crate) configuration: u64,
    /// Envoy's number for it in that configuration.
    pub(crate) number: u64,
}

/// Calls of one process.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    last_token: u32,
    ordered: VecDeque<Order>,
    open: HashMap<StreamId, Call>,
    /// The call whose stream is being opened, until its number is known.
    opening: Option<Call>,
}

/// Something that an engine wants of the main thread.
#[derive(Debug)]
pub(crate) enum Order {
    /// A call, or a stream, is to be opened.
    Start {
        call: Call,
        cluster: String,
        method: &'static str,
        message: Vec<u8>,
        timeout: Option<Duration>,
    },
    /// A stream is to be reset; nobody waits for its end.
    Cancel { token: u32 },
    /// A value is to be added to a histogram, which Envoy keeps by its own threads.
    Record { metric: Metric, value: u64 },
}

/// A call or a stream of one engine.
#[derive(Debug)]
pub(crate) struct Call {
    worker: Weak<WorkerCell>,
    id: CallId,
    /// True for a stream, of which every message counts.
    is_watch: bool,
    response: Response,
    /// The only message of a call's response.
    answer: Option<Vec<u8>>,
}

/// Part of a response.
#[derive(Debug)]
pub(crate) enum StreamEvent<'a> {
    /// Header fields or trailers.
    Headers(&'a [(&'a [u8], &'a [u8])]),
    Data(&'a [u8]),
    End,
    Reset,
}

// === impl Calls ===

impl Calls {
    /// Returns a number that no other call of the process has.
    pub(crate) fn new_token(&mut self) -> u32 {
        self.last_token = self.last_token.wrapping_add(1).max(1);
        self.last_token
    }

    /// Returns whether no more orders may wait.
    pub(crate) fn is_full(&self) -> bool {
        self.ordered.len() >= ORDERS_MAX
    }

    /// Adds an order. Returns whether the main thread has to be woken for it.
    pub(crate) fn push(&mut self, order: Order) -> bool {
        self.ordered.push_back(order);
        self.ordered.len() == 1
    }

    /// Forgets a call; returns its stream, if one is open.
    fn take_open(&mut self, token: u32) -> Option<StreamId> {
        let mut open = self.open.iter();
        let id = open
            .find(|(_, call)| call.id.token == token)
            .map(|(id, _)| *id)?;
        self.open.remove(&id);
        Some(id)
    }
}

// === impl Order ===

impl Order {
    /// Returns the order to call `method` of a cluster; without a time limit it is a stream.
    pub(crate) fn start(
        call: Call,
        cluster: &str,
        method: &'static str,
        message: &[u8],
        timeout: Option<Duration>,
    ) -> Self {
        Self::Start {
            call,
            cluster: cluster.to_owned(),
            method,
            message: framed(message),
            timeout,
        }
    }
}

// === impl Call ===

impl Call {
    /// Returns a call whose response goes to `worker`; a stream, if `is_watch`.
    pub(crate) fn new(worker: Weak<WorkerCell>, id: CallId, is_watch: bool) -> Self {
        Self {
            worker,
            id,
            is_watch,
            response: Response::default(),
            answer: None,
        }
    }

    /// Returns its number.
    pub(crate) fn id(&self) -> CallId {
        self.id
    }

    /// Hands messages of a stream over.
    pub(crate) fn nudge(&self, messages: &[Vec<u8>]) {
        hand_over(&(self.worker.clone(), self.id.token), messages);
    }

    /// Hands the answer over.
    pub(crate) fn answered(mut self, answer: Vec<u8>) {
        self.answer = Some(answer);
        self.end(0);
    }

    /// Takes a part of the response. Returns the status if the stream is over with it.
    fn take(&mut self, event: &StreamEvent<'_>) -> (Vec<Vec<u8>>, Option<u32>) {
        match event {
            StreamEvent::Headers(fields) => {
                self.response.headers(fields);
                (Vec::new(), None)
            }
            StreamEvent::Data(bytes) => match self.response.data(bytes) {
                Ok(messages) if self.is_watch => (messages, None),
                Ok(messages) => {
                    self.answer = self.answer.take().or_else(|| messages.into_iter().next());
                    (Vec::new(), None)
                }
                Err(status) => (Vec::new(), Some(status)),
            },
            StreamEvent::End => (Vec::new(), Some(self.response.status_at_end())),
            StreamEvent::Reset => (Vec::new(), Some(self.response.status_at_reset())),
        }
    }

    /// Tells the engine how the call has ended.
    pub(crate) fn end(self, status: u32) {
        let Some(worker) = self.worker.upgrade() else {
            return;
        };
        worker.run(|engine| match (self.is_watch, status, &self.answer) {
            (true, ..) => engine.handle_watch_end(self.id.token, status),
            (false, 0, Some(answer)) => engine.handle_answer(self.id.token, answer),
            // Without an answer the status cannot be OK.
            (false, status, _) => engine.handle_failure(self.id.token, status.max(1)),
        });
    }
}

// === free functions ===

/// Carries out what has been ordered, in a hook of `configuration` on the main thread.
pub(crate) fn start(configuration: &Configuration, envoy: ConfigPtr) {
    let process = &configuration.process;
    loop {
        // Hooks run while a stream is opened, so the lock is not held then.
        let order = process.calls().ordered.pop_front();
        match order {
            None => return,
            Some(Order::Cancel { token }) => {
                let open = process.calls().take_open(token);
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
                process.calls().opening = Some(call);
                let started = open(envoy, &cluster, method, &message, timeout);
                process.note_cluster(&cluster, started != Err(StartError::NoCluster));
                opened(configuration, started);
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
fn opened(configuration: &Configuration, started: Result<u64, StartError>) {
    let mut calls = configuration.process.calls();
    let Some(call) = calls.opening.take() else {
        return;
    };
    match started {
        Ok(number) => {
            calls.open.insert(configuration.stream(number), call);
        }
        Err(_) => {
            drop(calls);
            call.end(UNAVAILABLE);
        }
    }
}

/// Hands a part of a response on, in a hook of `configuration` on the main thread.
pub(crate) fn handle_event(configuration: &Configuration, number: u64, event: StreamEvent<'_>) {
    let id = configuration.stream(number);
    let (call, messages, status) = {
        let mut calls = configuration.process.calls();
        // A stream that no call has is the one that is being opened, or was cancelled.
        let Some(mut call) = calls.open.remove(&id).or_else(|| calls.opening.take()) else {
            return;
        };
        let (messages, status) = call.take(&event);
        match status {
            Some(_) => (Some(call), messages, status),
            None => {
                let target = (call.worker.clone(), call.id.token);
                calls.open.insert(id, call);
                drop(calls);
                return hand_over(&target, &messages);
            }
        }
    };
    if let (Some(call), Some(status)) = (call, status) {
        call.nudge(&messages);
        call.end(status);
    }
}

fn hand_over((worker, token): &(Weak<WorkerCell>, u32), messages: &[Vec<u8>]) {
    if let Some(worker) = worker.upgrade().filter(|_| !messages.is_empty()) {
        worker.run(|engine| {
            for message in messages {
                engine.handle_nudge(*token, message);
            }
        });
    }
}

/// Ends all calls whose streams Envoy destroys with a configuration, and leaves orders to another one.
pub(crate) fn fail_all_of(configuration: &Configuration) {
    let process = &configuration.process;
    let gone: Vec<Call> = {
        let mut calls = process.calls();
        let of_it = calls
            .open
            .extract_if(|id, _| id.configuration == configuration.id);
        of_it.map(|(_, call)| call).collect()
    };
    for call in gone {
        call.end(CANCELLED);
    }
    if process.calls().ordered.is_empty() || process.wake_main() {
        return;
    }
    let orders: Vec<Order> = process.calls().ordered.drain(..).collect();
    envoy::log(Level::Debug, "tollgate: the last configuration has gone");
    for order in orders {
        if let Order::Start { call, .. } = order {
            call.end(CANCELLED);
        }
    }
}
