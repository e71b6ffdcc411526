//! Host of the filter: the only place that names the SDK's host calls.
//!
//! Everything else in this crate is generic over [`Host`], so that its logic runs natively: as
//! Envoy's dynamic module, and in tests against a fake host. The SDK panics on a status that it does not expect; each call here says which
//! statuses the host can give and why no other can occur, so that a panic, which would cost every
//! stream of the worker its filter, stays out of reach. What can fail returns a [`HostError`];
//! requests then follow `host_failure` of the configuration.

use core::time::Duration;

use tollgate_core::units::Instant;

use tollgate_engine::OwnSlots;
pub use tollgate_engine::{Cas, HostError, Level, Written};

use crate::grpc_service::Destination;
use crate::notes::Notes;

#[cfg(target_os = "wasi")]
mod raw;

#[cfg(target_os = "wasi")]
pub(crate) use envoy::{Envoy, configuration, grpc_message};

/// A number in Envoy's statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Metric(pub u32);

/// Behaviour of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A count that only grows.
    Counter,
    /// A level that is set.
    Gauge,
    /// A distribution of values.
    Histogram,
}

/// Proxy that runs the filter.
pub trait Host {
    /// The monotonic clock, which all workers of the process share.
    fn now(&self) -> Instant;
    /// Writes a line to Envoy's log.
    fn log(&self, level: Level, message: &str);
    /// The memory of this worker's VM, in bytes; it grows and never shrinks.
    fn memory_bytes(&self) -> u64;
    /// The first value of a header of the request at hand.
    ///
    /// # Errors
    /// As all calls here: if the host fails.
    fn request_header(&self, name: &str) -> Result<Option<Vec<u8>>, HostError>;
    /// A property that Envoy has of the stream at hand, or of itself, by its path.
    fn property(&self, path: &[&str]) -> Result<Option<Vec<u8>>, HostError>;
    /// The same of a property that is a number most of the time, which not every host tells by itself.
    fn number_property(&self, path: &[&str]) -> Result<Option<Vec<u8>>, HostError> {
        self.property(path)
    }
    /// Makes an expression in CEL ready for this context's streams; none if it is not one.
    fn compile(&self, expression: &str) -> Result<Option<u32>, HostError>;
    /// Evaluates an expression on the request at hand; none where it fails, such as for a header
    /// that the request does not have.
    fn evaluate(&self, expression: u32) -> Result<Option<Vec<u8>>, HostError>;
    /// Leaves values to the access log and the response, as the filter state of the stream at hand, with
    /// those that are [there already](crate::joined). That of [`MARK`](crate::MARK) is left to the upstream as well, as
    /// the request's header [`MARK_HEADER`](crate::MARK_HEADER); none if it is empty.
    fn note(&self, notes: Notes);
    /// Reads a record of all workers, and its version.
    fn shared_get(&self, key: &str) -> Result<Option<(Vec<u8>, Cas)>, HostError>;
    /// Writes a record if it still has the version `cas`.
    fn shared_set(&self, key: &str, value: &[u8], cas: Cas) -> Result<Written, HostError>;
    /// The slots for scopes in memory that all workers share, if the proxy lets them share any.
    fn own_slots(&self) -> Option<&OwnSlots> {
        None
    }
    /// Starts a unary call of `LeaseService`; the answer comes to the root context with the token.
    fn call(
        &self,
        to: Destination<'_>,
        method: &'static str,
        message: &[u8],
        timeout: Duration,
    ) -> Result<u32, HostError>;
    /// Returns whether there is no cluster called `name`. If there is one, `message`, a `Release`,
    /// goes there.
    fn lacks_cluster(&self, name: &str, message: &[u8], timeout: Duration) -> bool;
    /// Opens a stream of `LeaseService` with the only message from this side; it belongs to the root
    /// context at hand, to which messages and the end come with the token.
    fn open_stream(
        &self,
        to: Destination<'_>,
        method: &'static str,
        message: &[u8],
    ) -> Result<u32, HostError>;
    /// Cancels a stream of the root context at hand; nothing more comes of it.
    fn cancel_stream(&self, token: u32);
    /// Makes ticks of the root context at hand come so often.
    fn set_tick_period(&self, period: Duration) -> Result<(), HostError>;
    /// Makes a metric known, and returns its number.
    fn define(&self, kind: Kind, name: &str) -> Result<Metric, HostError>;
    /// Adds to a counter.
    fn increment(&self, metric: Metric, by: i64) -> Result<(), HostError>;
    /// Sets a gauge, or adds a value to a histogram.
    fn record(&self, metric: Metric, value: u64) -> Result<(), HostError>;
    /// Makes the stream `context` the one that the following calls speak of.
    fn select(&self, context: u32) -> Result<(), HostError>;
    /// Lets the request at hand, which waited, go on.
    fn resume_request(&self) -> Result<(), HostError>;
    /// Answers the request at hand, with [`RESPONSE_DETAILS`](crate::RESPONSE_DETAILS); at most once per stream.
    fn reply(&self, status: u32, headers: Vec<(&str, &str)>, body: &[u8]) -> Result<(), HostError>;
}

#[cfg(target_os = "wasi")]
mod envoy {
    use super::*;
    use crate::grpc_service;
    use crate::notes::{MARK, MARK_HEADER, joined, state_name};
    use proxy_wasm::hostcalls;
    use proxy_wasm::types::{LogLevel, MapType, MetricType, Status};

    /// The proxy that loaded this module.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Envoy;

    /// The service of the coordinators.
    const SERVICE: &str = "tollgate.v1.LeaseService";

    fn failed(call: &'static str) -> impl Fn(Status) -> HostError {
        move |status| HostError {
            call,
            status: status as u32,
        }
    }

    impl Host for Envoy {
        fn now(&self) -> Instant {
            crate::clock::now()
        }

        /// The host accepts every level.
        fn log(&self, level: Level, message: &str) {
            let level = match level {
                Level::Debug => LogLevel::Debug,
                Level::Warn => LogLevel::Warn,
                Level::Error => LogLevel::Error,
            };
            // A log line that is lost is no reason to treat a request differently.
            let _ = hostcalls::log(level, message);
        }

        fn memory_bytes(&self) -> u64 {
            let pages = core::arch::wasm32::memory_size::<0>() as u64;
            pages.saturating_mul(64 * 1024)
        }

        /// Only asked for in the header callback, where the map exists; then it is found or not.
        fn request_header(&self, name: &str) -> Result<Option<Vec<u8>>, HostError> {
            hostcalls::get_map_value_bytes(MapType::HttpRequestHeaders, name)
                .map_err(failed("get_header_map_value"))
        }

        /// Only asked for paths that exist in every phase, from a root context.
        fn property(&self, path: &[&str]) -> Result<Option<Vec<u8>>, HostError> {
            hostcalls::get_property(path.to_vec()).map_err(failed("get_property"))
        }

        /// Not found, if this Envoy was built without CEL; a bad argument, if it is no expression.
        /// Compiled expressions go with the root context.
        fn compile(&self, expression: &str) -> Result<Option<u32>, HostError> {
            match hostcalls::call_foreign_function("expr_create", Some(expression.as_bytes())) {
                Ok(token) => Ok(token
                    .as_deref()
                    .and_then(|token| Some(u32::from_le_bytes(token.try_into().ok()?)))),
                Err(Status::BadArgument) => Ok(None),
                Err(status) => Err(failed("expr_create")(status)),
            }
        }

        /// An internal failure where the expression fails, and a failure to serialize null; not
        /// found, only for what was not compiled in this context.
        fn evaluate(&self, expression: u32) -> Result<Option<Vec<u8>>, HostError> {
            let token = expression.to_le_bytes();
            match hostcalls::call_foreign_function("expr_evaluate", Some(&token)) {
                Ok(value) => Ok(value),
                Err(Status::InternalFailure | Status::SerializationFailure) => Ok(None),
                Err(status) => Err(failed("expr_evaluate")(status)),
            }
        }

        /// Accepted for a stream that lives: the value is bytes, of which nothing is demanded.
        fn note(&self, notes: Notes) {
            let earlier = |name: &str| {
                let value = self.property(&["filter_state", &state_name(name)]);
                String::from_utf8(value.ok().flatten()?).ok()
            };
            for (name, value) in joined(notes, earlier) {
                if name == MARK {
                    let _ = raw::set_request_header(MARK_HEADER, &value);
                }
                // As with log lines.
                let _ = hostcalls::set_property(vec![name], Some(value.as_bytes()));
            }
        }

        /// Found or not; there is nothing else.
        fn shared_get(&self, key: &str) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
            let (value, cas) =
                hostcalls::get_shared_data(key).map_err(failed("get_shared_data"))?;
            Ok(value.map(|value| (value, cas.unwrap_or(0))))
        }

        /// Stored, or lost to another writer.
        fn shared_set(&self, key: &str, value: &[u8], cas: Cas) -> Result<Written, HostError> {
            let cas = (cas != 0).then_some(cas);
            match hostcalls::set_shared_data(key, Some(value), cas) {
                Ok(()) => Ok(Written::Stored),
                Err(Status::CasMismatch) => Ok(Written::Lost),
                Err(status) => Err(failed("set_shared_data")(status)),
            }
        }

        /// The cluster goes as a serialized GrpcService: Envoy tries to parse the string as one
        /// before it takes it for a name. In this form an unknown cluster is an internal failure,
        /// which the SDK hands on, and never a bad argument, on which it panics.
        fn call(
            &self,
            to: Destination<'_>,
            method: &'static str,
            message: &[u8],
            timeout: Duration,
        ) -> Result<u32, HostError> {
            let to = grpc_service::of(to, self.now());
            hostcalls::dispatch_grpc_call(&to, SERVICE, method, vec![], Some(message), timeout)
                .map_err(failed("grpc_call"))
        }

        /// A bare name that is no cluster's is a parse failure, and one without a healthy host an
        /// internal failure: a serialized GrpcService gives the same status for both. Only for names
        /// that cannot be taken for a message, which could be a bad argument.
        fn lacks_cluster(&self, name: &str, message: &[u8], timeout: Duration) -> bool {
            if grpc_service::may_be_message(name.as_bytes()) {
                return false;
            }
            let result = hostcalls::dispatch_grpc_call(
                name,
                SERVICE,
                "Release",
                vec![],
                Some(message),
                timeout,
            );
            result == Err(Status::ParseFailure)
        }

        /// The cluster as in [`Host::call`], for the same reason. The stream is known when it has been
        /// opened, so sending and closing succeed.
        ///
        /// This side is closed by a call of its own and not together with the message: otherwise Envoy
        /// keeps a stream that the other side has closed, and resets it, freed, with the root context.
        fn open_stream(
            &self,
            to: Destination<'_>,
            method: &'static str,
            message: &[u8],
        ) -> Result<u32, HostError> {
            let to = grpc_service::of(to, self.now());
            let token = hostcalls::open_grpc_stream(&to, SERVICE, method, vec![])
                .map_err(failed("grpc_stream"))?;
            let sent = hostcalls::send_grpc_stream_message(token, Some(message), false)
                .map_err(failed("grpc_send"));
            let closed = hostcalls::close_grpc_stream(token).map_err(failed("grpc_close"));
            match sent.and(closed) {
                Ok(()) => Ok(token),
                Err(error) => {
                    self.cancel_stream(token);
                    Err(error)
                }
            }
        }

        /// Found or not; one that is not there has ended already.
        fn cancel_stream(&self, token: u32) {
            let _ = hostcalls::cancel_grpc_stream(token);
        }

        /// Always accepted.
        fn set_tick_period(&self, period: Duration) -> Result<(), HostError> {
            hostcalls::set_tick_period(period).map_err(failed("set_tick_period"))
        }

        /// Always accepted after the VM's start.
        fn define(&self, kind: Kind, name: &str) -> Result<Metric, HostError> {
            let kind = match kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            hostcalls::define_metric(kind, name)
                .map(Metric)
                .map_err(failed("define_metric"))
        }

        fn increment(&self, metric: Metric, by: i64) -> Result<(), HostError> {
            hostcalls::increment_metric(metric.0, by).map_err(failed("increment_metric"))
        }

        fn record(&self, metric: Metric, value: u64) -> Result<(), HostError> {
            hostcalls::record_metric(metric.0, value).map_err(failed("record_metric"))
        }

        /// A bad argument, for a stream that has gone, is handed on.
        fn select(&self, context: u32) -> Result<(), HostError> {
            hostcalls::set_effective_context(context).map_err(failed("set_effective_context"))
        }

        /// Only after `select` succeeded; then the host accepts it.
        fn resume_request(&self) -> Result<(), HostError> {
            hostcalls::resume_http_request().map_err(failed("continue_stream"))
        }

        fn reply(
            &self,
            status: u32,
            headers: Vec<(&str, &str)>,
            body: &[u8],
        ) -> Result<(), HostError> {
            raw::send_reply(status, &headers, body)
        }
    }

    /// The plugin's configuration as Envoy has it; empty if there is none.
    pub(crate) fn configuration() -> Result<Vec<u8>, HostError> {
        use proxy_wasm::types::BufferType::PluginConfiguration;
        hostcalls::get_buffer(PluginConfiguration, 0, usize::MAX)
            .map(Option::unwrap_or_default)
            .map_err(failed("get_buffer"))
    }

    /// The largest message that is read: ten times an honest coordinator's answer for all scopes of a
    /// call, and as much as a VM's memory can be expected to hold beside its scopes.
    const MESSAGE_LEN_MAX: usize = 4 << 20;

    /// The message of the gRPC call or stream whose callback is running. One that is too large is
    /// empty: it lacks what was asked for.
    pub(crate) fn grpc_message(size: usize) -> Result<Vec<u8>, HostError> {
        if size > MESSAGE_LEN_MAX {
            return Ok(Vec::new());
        }
        hostcalls::get_buffer(proxy_wasm::types::BufferType::GrpcReceiveBuffer, 0, size)
            .map(Option::unwrap_or_default)
            .map_err(failed("get_buffer"))
    }
}
