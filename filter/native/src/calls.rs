//! Calls to the coordinators, and the orders of engines for the main thread.

use std::collections::{HashMap, VecDeque};
use std::sync::Weak;
use std::time::Duration;

use tollgate_filter::Metric;

use crate::engine::{CallEvent, Engine};
use crate::grpc::{Response, framed};

/// The path of the service, before a method's name.
pub(crate) const SERVICE: &str = "/tollgate.v1.LeaseService/";
/// The most orders that wait for the main thread, such as one that is stuck.
const ORDERS_MAX: usize = 10_000;

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
    /// None if nobody waits for the answer.
    engine: Option<Weak<dyn Engine>>,
    id: CallId,
    /// True for a stream, of which every message counts.
    is_watch: bool,
    response: Response,
    /// The only message of a call's response.
    answer: Option<Vec<u8>>,
}

/// Engine that waits for a call, with the call's token.
#[derive(Debug)]
pub(crate) struct CallTarget(Option<Weak<dyn Engine>>, u32);

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

    /// Returns whether no orders wait.
    pub(crate) fn is_idle(&self) -> bool {
        self.ordered.is_empty()
    }

    /// Adds an order. Returns whether the main thread has to be woken for it.
    pub(crate) fn push(&mut self, order: Order) -> bool {
        self.ordered.push_back(order);
        self.ordered.len() == 1
    }

    /// Removes the order that has waited longest.
    pub(crate) fn next_order(&mut self) -> Option<Order> {
        self.ordered.pop_front()
    }

    /// Removes all orders.
    pub(crate) fn take_orders(&mut self) -> VecDeque<Order> {
        core::mem::take(&mut self.ordered)
    }

    /// Notes that the stream of `call` is being opened.
    pub(crate) fn begin_opening(&mut self, call: Call) {
        self.opening = Some(call);
    }

    /// Removes the call whose stream is being opened, unless a hook of the stream has done so.
    pub(crate) fn take_opening(&mut self) -> Option<Call> {
        self.opening.take()
    }

    /// Adds a call whose stream is open.
    pub(crate) fn insert(&mut self, id: StreamId, call: Call) {
        self.open.insert(id, call);
    }

    /// Removes the call of a stream. A stream that no call has is the one that is being opened, or was
    /// cancelled.
    pub(crate) fn take(&mut self, id: StreamId) -> Option<Call> {
        self.open.remove(&id).or_else(|| self.opening.take())
    }

    /// Removes a call; returns its stream, if one is open.
    pub(crate) fn cancel(&mut self, token: u32) -> Option<StreamId> {
        let mut open = self.open.iter();
        let id = open
            .find(|(_, call)| call.id.token == token)
            .map(|(id, _)| *id)?;
        self.open.remove(&id);
        Some(id)
    }

    /// Removes the calls with streams of a configuration.
    pub(crate) fn take_all_of(&mut self, configuration: u64) -> Vec<Call> {
        let of_it = self
            .open
            .extract_if(|id, _| id.configuration == configuration);
        of_it.map(|(_, call)| call).collect()
    }
}

// === impl StreamId ===

impl StreamId {
    /// Returns the stream that Envoy calls `number` in a configuration.
    pub(crate) fn new(configuration: u64, number: u64) -> Self {
        Self {
            configuration,
            number,
        }
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
    /// Returns a call whose response goes to `engine`; a stream, if `is_watch`.
    pub(crate) fn new(engine: Option<Weak<dyn Engine>>, id: CallId, is_watch: bool) -> Self {
        Self {
            engine,
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

    /// Returns the engine, for messages of a stream, with the call's token.
    pub(crate) fn target(&self) -> CallTarget {
        CallTarget(self.engine.clone(), self.id.token)
    }

    /// Hands the answer over.
    pub(crate) fn answered(mut self, answer: Vec<u8>) {
        self.answer = Some(answer);
        self.end(0);
    }

    /// Takes a part of the response. Returns the status if the stream is over with it.
    pub(crate) fn take(&mut self, event: &StreamEvent<'_>) -> (Vec<Vec<u8>>, Option<u32>) {
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
        let event = match (self.is_watch, status, &self.answer) {
            (true, ..) => CallEvent::StreamEnd(status),
            (false, 0, Some(answer)) => CallEvent::Answer(answer),
            // Without an answer the status cannot be OK.
            (false, status, _) => CallEvent::Failure(status.max(1)),
        };
        self.target().hand_over(event);
    }
}

// === impl CallTarget ===

impl CallTarget {
    /// Hands messages of a stream over.
    pub(crate) fn nudge(&self, messages: &[Vec<u8>]) {
        if !messages.is_empty() {
            self.hand_over(CallEvent::Messages(messages));
        }
    }

    fn hand_over(&self, event: CallEvent<'_>) {
        if let Some(engine) = self.0.as_ref().and_then(Weak::upgrade) {
            engine.handle_call(self.1, event);
        }
    }
}
