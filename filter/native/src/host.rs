//! Envoy as the filter sees it: the streams' headers and properties, what workers share, and calls.

use core::time::Duration;
use std::sync::{Arc, Weak};

use tollgate_core::units::Instant;
use tollgate_engine::OwnSlots;
use tollgate_filter::{
    Cas, Destination, Host, HostError, Kind, Level, MetadataKind, Metric, Notes, Written, now,
};

use crate::address_calls;
use crate::at_hand::{self, AtHand};
use crate::calls::{Call, Order};
use crate::engine::Engine;
use crate::envoy;
use crate::lock::lock;
use crate::mailbox::{LocalReply, Verdict};
use crate::metrics::NOT_SHOWN;
use crate::process::Process;
use crate::property;

/// Names of the stream's sizes, each at the index that a mailbox counts them by.
const SIZES: [&[&str]; 2] = [&["request", "size"], &["response", "size"]];

/// Failure of a call to a cluster that Envoy does not have.
const NO_CLUSTER: HostError = HostError {
    call: "start_http_stream",
    status: 2,
};

/// The host of one worker.
#[derive(Clone, Debug)]
pub(crate) struct NativeHost {
    /// None for a look at the stream at hand only.
    process: Option<Arc<Process>>,
    /// None without a worker.
    engine: Option<Weak<dyn Engine>>,
}

// === impl NativeHost ===

impl NativeHost {
    /// Returns the host of a worker with this engine.
    pub(crate) fn new(process: &Arc<Process>, engine: Weak<dyn Engine>) -> Self {
        Self {
            process: Some(Arc::clone(process)),
            engine: Some(engine),
        }
    }

    /// Returns a host without a worker, which can make metrics known.
    pub(crate) fn detached(process: &Arc<Process>) -> Self {
        Self {
            process: Some(Arc::clone(process)),
            engine: None,
        }
    }

    /// Returns a host that only knows the stream at hand.
    pub(crate) fn at_hand() -> Self {
        Self {
            process: None,
            engine: None,
        }
    }

    fn process(&self, call: &'static str) -> Result<&Arc<Process>, HostError> {
        self.process.as_ref().ok_or(HostError { call, status: 0 })
    }

    /// Makes a call, or without a time limit opens a stream.
    fn start(
        &self,
        to: Destination<'_>,
        method: &'static str,
        message: &[u8],
        timeout: Option<Duration>,
    ) -> Result<u32, HostError> {
        let process = self.process("start_http_stream")?;
        let is_stream = timeout.is_none();
        let call = |token| Call::new(self.engine.clone(), process.call_id(token), is_stream);
        match to {
            // Envoy would tell so only later.
            Destination::Cluster(cluster) if process.lacks_cluster(cluster) => Err(NO_CLUSTER),
            Destination::Cluster(cluster) => {
                process.order(|token| Order::start(call(token), cluster, method, message, timeout))
            }
            // A process without configurations makes no calls; its leases expire.
            Destination::Address(_) if !process.is_used() => Err(HostError {
                call: "start_http_stream",
                status: 0,
            }),
            Destination::Address(address) => {
                let token = process.calls().new_token();
                address_calls::start(call(token), address, method, message, timeout)?;
                Ok(token)
            }
        }
    }

    /// Answers the request at hand: at once in its own hook, else when its thread wakes.
    fn answer(&self, reply: LocalReply) -> Result<(), HostError> {
        const CALL: &str = "send_response";
        let reply = Box::new(reply);
        let answered = at_hand::look(|subject| match subject {
            AtHand::Stream(stream) => {
                stream.answer = Some(reply);
                true
            }
            AtHand::Mailbox(mailbox) => mailbox.decide(Verdict::Reply(reply)),
            AtHand::Nothing | AtHand::Configuration(..) => false,
        });
        done(CALL, answered)
    }
}

impl Host for NativeHost {
    fn now(&self) -> Instant {
        now()
    }

    fn log(&self, level: Level, message: &str) {
        envoy::log(level, message);
    }

    /// A module's memory is Envoy's.
    fn memory_bytes(&self) -> u64 {
        0
    }

    #[inline]
    fn request_header(&self, name: &str) -> Result<Option<Vec<u8>>, HostError> {
        Ok(at_hand::look(|subject| match subject {
            AtHand::Stream(stream) => stream.envoy.request_header(name, <[u8]>::to_vec),
            _ => None,
        })
        .flatten())
    }

    fn property(&self, path: &[&str]) -> Result<Option<Vec<u8>>, HostError> {
        let size = SIZES.iter().position(|size| *size == path);
        if let Some(of) = size {
            return Ok(self.counted(of).map(|size| size.to_le_bytes().to_vec()));
        }
        Ok(self.read(path, MetadataKind::Text))
    }

    fn number_property(&self, path: &[&str]) -> Result<Option<Vec<u8>>, HostError> {
        Ok(self.read(path, MetadataKind::Number))
    }

    /// Envoy evaluates no expressions for dynamic modules.
    fn compile(&self, _: &str) -> Result<Option<u32>, HostError> {
        Err(HostError {
            call: "expr_create, which dynamic modules do not have,",
            status: 0,
        })
    }

    fn evaluate(&self, _: u32) -> Result<Option<Vec<u8>>, HostError> {
        Ok(None)
    }

    /// The names in the filter state are those which Envoy gives the values of wasm filters, so that
    /// access logs are the same.
    fn note(&self, notes: Notes) {
        at_hand::look(|subject| match subject {
            AtHand::Stream(stream) => stream.envoy.note(notes),
            AtHand::Mailbox(mailbox) => mailbox.note(notes),
            AtHand::Nothing | AtHand::Configuration(..) => {}
        });
    }

    fn shared_get(&self, key: &str) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
        Ok(lock(&self.process("shared_get")?.records).get(key))
    }

    fn shared_set(&self, key: &str, value: &[u8], cas: Cas) -> Result<Written, HostError> {
        Ok(lock(&self.process("shared_set")?.records).set(key, value, cas))
    }

    fn own_slots(&self) -> Option<&OwnSlots> {
        self.process.as_ref().map(|process| &process.slots)
    }

    fn call(
        &self,
        to: Destination<'_>,
        method: &'static str,
        message: &[u8],
        timeout: Duration,
    ) -> Result<u32, HostError> {
        self.start(to, method, message, Some(timeout))
    }

    /// Known from earlier calls; the one that is made now tells for the next time.
    fn lacks_cluster(&self, name: &str, message: &[u8], timeout: Duration) -> bool {
        let Some(process) = &self.process else {
            return false;
        };
        let nobodys = |token| Call::new(None, process.call_id(token), false);
        // Without a configuration nothing can be found out.
        let _ = process
            .order(|token| Order::start(nobodys(token), name, "Release", message, Some(timeout)));
        process.lacks_cluster(name)
    }

    fn open_stream(
        &self,
        to: Destination<'_>,
        method: &'static str,
        message: &[u8],
    ) -> Result<u32, HostError> {
        self.start(to, method, message, None)
    }

    fn cancel_stream(&self, token: u32) {
        if let Some(process) = &self.process
            && !address_calls::cancel(process.call_id(token))
        {
            // A stream of a process without configurations has been cancelled by Envoy.
            let _ = process.order(|_| Order::Cancel { token });
        }
    }

    /// The thread for ticks asks each worker.
    fn set_tick_period(&self, _: Duration) -> Result<(), HostError> {
        Ok(())
    }

    fn define(&self, kind: Kind, name: &str) -> Result<Metric, HostError> {
        let metric = self.process("define_metric")?.metric(kind, name);
        at_hand::look(|subject| {
            if let AtHand::Configuration(envoy, ids) = subject
                && metric != NOT_SHOWN
                && let Some(id) = envoy.define(kind, name)
            {
                ids.insert(metric, id);
            }
        });
        Ok(metric)
    }

    fn increment(&self, metric: Metric, by: i64) -> Result<(), HostError> {
        let by = u64::try_from(by).unwrap_or_default();
        self.process("increment_metric")?.add(metric, by);
        Ok(())
    }

    fn record(&self, metric: Metric, value: u64) -> Result<(), HostError> {
        self.process("record_metric")?.record(metric, value);
        Ok(())
    }

    fn select(&self, stream: u32) -> Result<(), HostError> {
        let engine = self.engine.as_ref().and_then(Weak::upgrade);
        let mailbox = engine.and_then(|engine| engine.mailbox(stream));
        let mailbox = mailbox.ok_or(HostError {
            call: "scheduler_new",
            status: 0,
        })?;
        at_hand::select(mailbox);
        Ok(())
    }

    fn resume_request(&self) -> Result<(), HostError> {
        let resumed = at_hand::look(|subject| match subject {
            AtHand::Mailbox(mailbox) => mailbox.decide(Verdict::Resume),
            _ => false,
        });
        done("continue_decoding", resumed)
    }

    fn reply(&self, status: u32, headers: Vec<(&str, &str)>, body: &[u8]) -> Result<(), HostError> {
        self.answer(LocalReply {
            status,
            headers: owned(headers),
            body: body.to_vec(),
        })
    }
}

impl NativeHost {
    /// A property of the stream at hand; metadata is most likely of the kind `likely`.
    fn read(&self, path: &[&str], likely: MetadataKind) -> Option<Vec<u8>> {
        at_hand::look(|subject| match subject {
            AtHand::Stream(stream) => property::read(stream.envoy, path, likely),
            _ => None,
        })
        .flatten()
    }

    /// The bytes of a body of the stream at hand that have passed.
    fn counted(&self, of: usize) -> Option<u64> {
        at_hand::look(|subject| match subject {
            AtHand::Mailbox(mailbox) => Some(mailbox.counted(of)),
            AtHand::Stream(stream) => Some(stream.mailbox.as_ref()?.counted(of)),
            AtHand::Nothing | AtHand::Configuration(..) => None,
        })
        .flatten()
    }
}

// === free functions ===

fn done(call: &'static str, is_done: Option<bool>) -> Result<(), HostError> {
    match is_done {
        Some(true) => Ok(()),
        _ => Err(HostError { call, status: 0 }),
    }
}

fn owned(headers: Vec<(&str, &str)>) -> Vec<(String, String)> {
    let headers = headers.into_iter();
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
    headers.collect()
}
