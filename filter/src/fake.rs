//! A host for tests: shared data with the real one's rules, a clock that tests move, and a record
//! of what was asked of it.

use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use prost::Message;
use tollgate_core::units::Instant;
use tollgate_proto::v1;

use crate::grpc_service;
use crate::grpc_service::Destination;
use crate::host::{Cas, Host, HostError, Kind, Level, Metric, Written};
use crate::notes::{Notes, joined};

/// State that the workers of a process share, and the fate of their streams.
#[derive(Default)]
pub(crate) struct Process {
    pub(crate) now: Cell<u64>,
    records: RefCell<BTreeMap<String, (Vec<u8>, Cas)>>,
    next_cas: Cell<Cas>,
    metrics: RefCell<BTreeMap<String, i64>>,
    pub(crate) names: RefCell<Vec<String>>,
    pub(crate) logs: RefCell<Vec<(Level, String)>>,
    /// Calls without an answer so far, by token.
    pub(crate) calls: RefCell<BTreeMap<u32, Call>>,
    /// Streams that are open, by token, with their root contexts.
    pub(crate) streams: RefCell<BTreeMap<u32, (u32, Call)>>,
    next_token: Cell<u32>,
    /// The names of clusters that Envoy does not have.
    pub(crate) missing_clusters: RefCell<BTreeSet<String>>,
}

/// A call to the coordinator.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// The cluster that it goes to.
    pub(crate) to: String,
    pub(crate) method: String,
    pub(crate) message: Vec<u8>,
}

/// An answer to a stream: its context, the status and the headers.
pub(crate) type Reply = (u32, u32, BTreeMap<String, String>);

/// The host of one worker.
#[derive(Clone)]
pub(crate) struct Fake {
    pub(crate) process: Rc<Process>,
    headers: Rc<RefCell<BTreeMap<String, Vec<u8>>>>,
    /// Properties of the request, by path, with dots between.
    pub(crate) properties: Rc<RefCell<BTreeMap<String, Vec<u8>>>>,
    expressions: Rc<RefCell<Vec<String>>>,
    selected: Rc<Cell<u32>>,
    /// Streams that went on, and streams that were answered with which status and headers.
    pub(crate) resumed: Rc<RefCell<Vec<u32>>>,
    pub(crate) replies: Rc<RefCell<Vec<Reply>>>,
    /// Values for the access log, by stream and name.
    pub(crate) notes: Rc<RefCell<BTreeMap<(u32, String), String>>>,
    pub(crate) gone: Rc<RefCell<Vec<u32>>>,
    pub(crate) memory_bytes: Rc<Cell<u64>>,
    /// Bytes of bodies that have passed in each stream, of the "request" and the "response".
    pub(crate) sizes: Rc<RefCell<BTreeMap<(u32, String), i64>>>,
}

// === impl Process ===

impl Process {
    /// A process whose clock stands at one hour.
    pub(crate) fn new() -> Rc<Self> {
        let process = Self::default();
        process.now.set(3_600_000_000_000);
        process.next_cas.set(1);
        Rc::new(process)
    }

    pub(crate) fn advance(&self, duration: Duration) {
        self.now.set(self.now.get() + duration.as_nanos() as u64);
    }

    pub(crate) fn set(&self, key: &str, value: &[u8], cas: Cas) -> Written {
        let mut records = self.records.borrow_mut();
        if let Some((_, current)) = records.get(key)
            && cas != 0
            && cas != *current
        {
            return Written::Lost;
        }
        let next = self.next_cas.get();
        self.next_cas.set(next + 1);
        records.insert(key.to_owned(), (value.to_vec(), next));
        Written::Stored
    }

    pub(crate) fn metric(&self, name: &str) -> i64 {
        self.metrics
            .borrow()
            .get(&format!("tollgate.{name}"))
            .copied()
            .unwrap_or(0)
    }

    /// The oldest call that is not answered.
    pub(crate) fn take_call(&self) -> Option<(u32, Call)> {
        self.calls.borrow_mut().pop_first()
    }
}

// === impl Call ===

impl Call {
    pub(crate) fn refresh(&self) -> v1::RefreshRequest {
        assert_eq!(self.method, "Refresh");
        v1::RefreshRequest::decode(&self.message[..]).unwrap()
    }

    /// An answer that lends `capacity` of each scope asked for, for ten seconds.
    pub(crate) fn lend(&self, capacity: f64) -> Vec<u8> {
        let unit = |asked: &v1::UnitRequest| v1::UnitResponse {
            unit: asked.unit,
            sequence: asked.sequence,
            lease: Some(v1::Lease {
                capacity,
                duration_ms: 10_000,
                burst: capacity,
                unlimited: false,
                fingerprint: 1,
            }),
            refresh_interval_ms: 1000,
            safe_capacity: None,
            capacity,
            unlimited: false,
            burst: Some(capacity),
            draw: None,
            period_s: 0,
        };
        let scope = |asked: &v1::ScopeRequest| v1::ScopeResponse {
            scope: asked.scope.clone(),
            canonical_scope: asked.scope.clone(),
            units: asked.units.iter().map(unit).collect(),
            error: None,
            limited: asked.units.iter().map(|unit| unit.unit).collect(),
            epoch: 0,
            shard: 0,
            usual: None,
        };
        let response = v1::RefreshResponse {
            epoch: 1,
            scopes: self.refresh().scopes.iter().map(scope).collect(),
        };
        response.encode_to_vec()
    }
}

// === impl Fake ===

impl Fake {
    pub(crate) fn new(process: &Rc<Process>) -> Self {
        Self {
            process: Rc::clone(process),
            headers: Rc::default(),
            properties: Rc::default(),
            expressions: Rc::default(),
            selected: Rc::default(),
            resumed: Rc::default(),
            replies: Rc::default(),
            notes: Rc::default(),
            gone: Rc::default(),
            memory_bytes: Rc::default(),
            sizes: Rc::default(),
        }
    }

    /// The headers of the request at hand.
    pub(crate) fn set_headers(&self, headers: &[(&str, &str)]) {
        let pairs = headers.iter();
        let pairs: Vec<_> = pairs
            .map(|(name, value)| (*name, value.as_bytes()))
            .collect();
        self.set_raw_headers(&pairs);
    }

    /// The same with values that need not be text.
    pub(crate) fn set_raw_headers(&self, headers: &[(&str, &[u8])]) {
        let pairs = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.to_vec()));
        *self.headers.borrow_mut() = pairs.collect();
    }

    /// Begins a call or a stream, and returns its token.
    fn begin(
        &self,
        name: &'static str,
        to: Destination<'_>,
        method: &str,
        message: &[u8],
    ) -> Result<(u32, Call), HostError> {
        let to = match to {
            Destination::Cluster(name) => name,
            Destination::Address(_) => "address",
        };
        if self.lacks_cluster(to, message, Duration::ZERO) {
            return Err(HostError {
                call: name,
                status: 10,
            });
        }
        let token = self.process.next_token.get() + 1;
        self.process.next_token.set(token);
        let call = Call {
            to: to.to_owned(),
            method: method.to_owned(),
            message: message.to_vec(),
        };
        Ok((token, call))
    }

    fn replied(&self, status: u32, headers: Vec<(&str, &str)>) {
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let headers = headers.into_iter().map(owned).collect();
        let stream = self.selected.get();
        let mut replies = self.replies.borrow_mut();
        let twice = stream != 0 && replies.iter().any(|(other, ..)| *other == stream);
        assert!(
            !twice,
            "stream {stream} was answered twice, which traps in Envoy"
        );
        replies.push((stream, status, headers));
    }
}

impl Host for Fake {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.process.now.get())
    }

    fn log(&self, level: Level, message: &str) {
        self.process
            .logs
            .borrow_mut()
            .push((level, message.to_owned()));
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes.get()
    }

    fn request_header(&self, name: &str) -> Result<Option<Vec<u8>>, HostError> {
        Ok(self.headers.borrow().get(name).cloned())
    }

    fn property(&self, path: &[&str]) -> Result<Option<Vec<u8>>, HostError> {
        let sizes = self.sizes.borrow();
        let size = match path {
            [whose, "size"] => sizes.get(&(self.selected.get(), (*whose).to_owned())),
            _ => None,
        };
        let known = self.properties.borrow().get(&path.join(".")).cloned();
        Ok(size.map(|size| size.to_le_bytes().to_vec()).or(known))
    }

    /// Expressions that end with an operator are none.
    fn compile(&self, expression: &str) -> Result<Option<u32>, HostError> {
        let mut expressions = self.expressions.borrow_mut();
        expressions.push(expression.to_owned());
        Ok((!expression.ends_with('+')).then_some(expressions.len() as u32 - 1))
    }

    /// Expressions are properties.
    fn evaluate(&self, expression: u32) -> Result<Option<Vec<u8>>, HostError> {
        let text = self.expressions.borrow()[expression as usize].clone();
        Ok(self.properties.borrow().get(&text).cloned())
    }

    fn note(&self, notes: Notes) {
        let key = |name: &str| (self.selected.get(), name.to_owned());
        let notes = joined(notes, |name| self.notes.borrow().get(&key(name)).cloned());
        let notes = notes.into_iter();
        let notes = notes.map(|(name, value)| (key(name), value));
        self.notes.borrow_mut().extend(notes);
    }

    fn shared_get(&self, key: &str) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
        let records = self.process.records.borrow();
        // The SDK cannot tell an empty value from none.
        Ok(records
            .get(key)
            .filter(|(value, _)| !value.is_empty())
            .cloned())
    }

    fn shared_set(&self, key: &str, value: &[u8], cas: Cas) -> Result<Written, HostError> {
        Ok(self.process.set(key, value, cas))
    }

    fn call(
        &self,
        to: Destination<'_>,
        method: &'static str,
        message: &[u8],
        _: Duration,
    ) -> Result<u32, HostError> {
        let (token, call) = self.begin("grpc_call", to, method, message)?;
        self.process.calls.borrow_mut().insert(token, call);
        Ok(token)
    }

    fn open_stream(
        &self,
        to: Destination<'_>,
        method: &'static str,
        message: &[u8],
    ) -> Result<u32, HostError> {
        let (token, call) = self.begin("grpc_stream", to, method, message)?;
        let stream = (self.selected.get(), call);
        self.process.streams.borrow_mut().insert(token, stream);
        Ok(token)
    }

    fn cancel_stream(&self, token: u32) {
        let mut streams = self.process.streams.borrow_mut();
        let (root, _) = streams.remove(&token).expect("an open stream");
        assert_eq!(root, self.selected.get(), "it belongs to another root");
    }

    fn lacks_cluster(&self, name: &str, _: &[u8], _: Duration) -> bool {
        let known_to_lack = self.process.missing_clusters.borrow().contains(name);
        known_to_lack && !grpc_service::may_be_message(name.as_bytes())
    }

    fn set_tick_period(&self, _: Duration) -> Result<(), HostError> {
        Ok(())
    }

    fn define(&self, _: Kind, name: &str) -> Result<Metric, HostError> {
        let mut names = self.process.names.borrow_mut();
        names.push(name.to_owned());
        Ok(Metric(names.len() as u32 - 1))
    }

    fn increment(&self, metric: Metric, by: i64) -> Result<(), HostError> {
        let name = self.process.names.borrow()[metric.0 as usize].clone();
        *self.process.metrics.borrow_mut().entry(name).or_default() += by;
        Ok(())
    }

    fn record(&self, metric: Metric, value: u64) -> Result<(), HostError> {
        let name = self.process.names.borrow()[metric.0 as usize].clone();
        self.process.metrics.borrow_mut().insert(name, value as i64);
        Ok(())
    }

    fn select(&self, context: u32) -> Result<(), HostError> {
        if self.gone.borrow().contains(&context) {
            return Err(HostError {
                call: "set_effective_context",
                status: 2,
            });
        }
        self.selected.set(context);
        Ok(())
    }

    fn resume_request(&self) -> Result<(), HostError> {
        self.resumed.borrow_mut().push(self.selected.get());
        Ok(())
    }

    fn reply(&self, status: u32, headers: Vec<(&str, &str)>, _: &[u8]) -> Result<(), HostError> {
        self.replied(status, headers);
        Ok(())
    }
}
