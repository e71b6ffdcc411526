//! Calls to coordinators at an address, for which Envoy has no cluster: on a thread of this module.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Buf, BufMut};
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;
use tollgate_filter::{Address, HostError, Level};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::calls::{Call, CallId, SERVICE};
use crate::envoy;
use crate::lock::lock;

use connections::Connections;

mod connections;

/// Time that calls have to end with the last configuration.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(1);

static CARRIER: Mutex<Carrier> = Mutex::new(Carrier {
    users: 0,
    running: None,
});

/// The thread for calls, from the first call on.
struct Carrier {
    /// Configurations that Envoy uses; without any there are no calls.
    users: usize,
    running: Option<Running>,
}

/// The thread, with its connections.
struct Running {
    runtime: Runtime,
    connections: Arc<Connections>,
    watches: BTreeMap<CallId, AbortHandle>,
}

/// A call whose engine is told of its end, also if the thread ends first.
struct Carried(Option<Call>);

// === impl Carrier ===

impl Carrier {
    /// Returns the thread, which may be new.
    fn running(&mut self) -> Result<&mut Running, HostError> {
        let failed = HostError {
            call: "thread_start",
            status: 0,
        };
        let running = match self.running.take() {
            Some(running) => running,
            None if self.users == 0 => return Err(failed),
            None => Running::start().map_err(|error| {
                let message = format!("tollgate: no thread for calls could be started: {error}");
                envoy::log(Level::Error, &message);
                failed
            })?,
        };
        Ok(self.running.insert(running))
    }
}

// === impl Running ===

impl Running {
    fn start() -> Result<Self, std::io::Error> {
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).thread_name("tollgate-grpc");
        Ok(Self {
            runtime: runtime.enable_all().build()?,
            connections: Arc::default(),
            watches: BTreeMap::new(),
        })
    }
}

// === impl Carried ===

impl Carried {
    fn nudge(&self, message: Vec<u8>) {
        if let Some(call) = &self.0 {
            call.target().nudge(&[message]);
        }
    }

    fn answered(mut self, answer: Vec<u8>) {
        if let Some(call) = self.0.take() {
            call.answered(answer);
        }
    }

    fn end(mut self, status: u32) {
        if let Some(call) = self.0.take() {
            call.end(status);
        }
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call.end(Code::Cancelled as u32);
        }
    }
}

// === free functions ===

/// Allows calls for one more configuration.
pub(crate) fn enter() {
    let mut carrier = lock(&CARRIER);
    carrier.users = carrier.users.saturating_add(1);
}

/// Leaves a configuration; with the last one the thread ends, and all calls with it.
pub(crate) fn leave() {
    let last = {
        let mut carrier = lock(&CARRIER);
        carrier.users = carrier.users.saturating_sub(1);
        (carrier.users == 0)
            .then(|| carrier.running.take())
            .flatten()
    };
    // Engines hear of the end meanwhile, and may want to call again.
    if let Some(running) = last {
        running.runtime.shutdown_timeout(SHUTDOWN_LIMIT);
    }
}

/// Carries a call or, without a time limit, a stream.
///
/// # Errors
/// If there is no thread for it.
pub(crate) fn start(
    call: Call,
    address: &Address,
    method: &'static str,
    message: &[u8],
    timeout: Option<Duration>,
) -> Result<(), HostError> {
    let mut carrier = lock(&CARRIER);
    let running = carrier.running()?;
    running.watches.retain(|_, watch| !watch.is_finished());
    let connections = Arc::clone(&running.connections);
    let (address, message) = (address.clone(), message.to_vec());
    let id = call.id();
    let call = Carried(Some(call));
    match timeout {
        Some(timeout) => {
            running.runtime.spawn(async move {
                let answer = async {
                    let channel = connections.connection(&address).await?;
                    ask(channel, method, message).await
                };
                let answer = tokio::time::timeout(timeout, answer).await;
                let late = |_| Err(Status::deadline_exceeded("no answer in time"));
                match answer.unwrap_or_else(late) {
                    Ok(answer) => call.answered(answer),
                    Err(status) => call.end(failure(&status)),
                }
            });
        }
        None => {
            let watch = running.runtime.spawn(async move {
                let ended = match connections.connection(&address).await {
                    Ok(channel) => follow(&call, channel, method, message).await,
                    Err(status) => Err(status),
                };
                call.end(ended.map_or_else(|status| failure(&status), |()| Code::Ok as u32));
            });
            running.watches.insert(id, watch.abort_handle());
        }
    }
    Ok(())
}

/// Ends the streams of a process that Envoy uses no configuration of any more. Their engines open others
/// when one comes back.
pub(crate) fn cancel_all_of(process: u64) {
    let mut carrier = lock(&CARRIER);
    let Some(running) = carrier.running.as_mut() else {
        return;
    };
    let of_it = running
        .watches
        .extract_if(.., |id, _| id.process == process);
    of_it.for_each(|(_, watch)| watch.abort());
}

/// Ends a stream; nobody waits for its end. Returns whether it was carried here.
pub(crate) fn cancel(id: CallId) -> bool {
    let mut carrier = lock(&CARRIER);
    let running = carrier.running.as_mut();
    let watch = running.and_then(|running| running.watches.remove(&id));
    watch.map(|watch| watch.abort()).is_some()
}

async fn ask(channel: Channel, method: &str, message: Vec<u8>) -> Result<Vec<u8>, Status> {
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.map_err(unavailable)?;
    let answer = grpc.unary(Request::new(message), path(method)?, RawCodec);
    Ok(answer.await?.into_inner())
}

async fn follow(
    call: &Carried,
    channel: Channel,
    method: &str,
    message: Vec<u8>,
) -> Result<(), Status> {
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.map_err(unavailable)?;
    let stream = grpc.server_streaming(Request::new(message), path(method)?, RawCodec);
    let mut stream = stream.await?.into_inner();
    while let Some(message) = stream.message().await? {
        call.nudge(message);
    }
    Ok(())
}

fn path(method: &str) -> Result<PathAndQuery, Status> {
    let path = format!("{SERVICE}{method}").parse();
    path.map_err(|_| Status::internal("the path is none"))
}

fn unavailable(error: tonic::transport::Error) -> Status {
    Status::unavailable(error.to_string())
}

/// A failed call's status. A stream that has ended without one has none that is OK.
fn failure(status: &Status) -> u32 {
    (status.code() as u32).max(1)
}

/// Messages that are bytes already.
#[derive(Clone, Copy, Debug, Default)]
struct RawCodec;

impl Codec for RawCodec {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RawCodec {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut item = vec![0; from.remaining()];
        from.copy_to_slice(&mut item);
        Ok(Some(item))
    }
}
