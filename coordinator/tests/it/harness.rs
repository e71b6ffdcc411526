//! A coordinator in this process, and what speaks to it.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tollgate_config::Config;
use tollgate_coordinator::{Listeners, ServerError, serve};
use tollgate_core::lease::{ClientId, ClientRun, Epoch, Origin, ResourceId, Run, Unit};
use tollgate_core::lease_server::Start;
use tollgate_core::units::Capacity;
use tollgate_net::wire::LeaseServiceClient;
use tollgate_proto::request::Release;
use tollgate_proto::response::{Refreshed, ScopeAnswer, UnitAnswer};
use tollgate_proto::v1;
use tonic::transport::{Channel, Endpoint};

pub(crate) const EPOCH: u64 = 42;
/// Of every client, each of which runs once.
pub(crate) const INCARNATION: u64 = 7;

/// A coordinator that serves until it is stopped or dropped.
pub(crate) struct Coordinator {
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    client: LeaseServiceClient<Channel>,
    stop: oneshot::Sender<()>,
    served: JoinHandle<Result<(), ServerError>>,
}

/// HTTP response.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// One request over HTTP.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    /// Whole lines.
    pub(crate) headers: String,
    pub(crate) body: String,
}

// === impl Ask ===

impl Ask {
    pub(crate) fn new(method: &'static str, path: &str) -> Self {
        Self {
            method,
            path: path.to_owned(),
            headers: String::new(),
            body: String::new(),
        }
    }

    pub(crate) fn get(path: &str) -> Self {
        Self::new("GET", path)
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    pub(crate) fn token(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    /// Puts `body` in JSON.
    pub(crate) fn put(path: &str, body: &str) -> Self {
        let mut ask = Self::new("PUT", path).header("content-type", "application/json");
        ask.body = body.to_owned();
        ask
    }

    /// Changes fields by the merge patch `body`.
    pub(crate) fn patch(path: &str, body: &str) -> Self {
        let kind = "application/merge-patch+json";
        let mut ask = Self::new("PATCH", path).header("content-type", kind);
        ask.body = body.to_owned();
        ask
    }

    pub(crate) fn delete(path: &str) -> Self {
        Self::new("DELETE", path)
    }

    /// Posts `body` in JSON.
    pub(crate) fn post(path: &str, body: &str) -> Self {
        let put = Self::put(path, body);
        Self {
            method: "POST",
            ..put
        }
    }
}

// === impl Coordinator ===

impl Coordinator {
    /// One that lends at once what `limits` says; see [`Coordinator::with`].
    pub(crate) async fn start(limits: &str) -> Self {
        Self::with(&format!("limits:\n{limits}"), Start::Fresh).await
    }

    /// One with the configuration `yaml`, but on free ports.
    pub(crate) async fn with(yaml: &str, start: Start) -> Self {
        Self::at(0, yaml, start, Epoch(EPOCH)).await
    }

    /// One whose gRPC port is `port`, in the term `epoch`.
    pub(crate) async fn at(port: u16, yaml: &str, start: Start, epoch: Epoch) -> Self {
        let listen = format!("listen: {{grpc: '127.0.0.1:{port}', http: '127.0.0.1:0'}}");
        let config = Config::parse(&format!("{listen}\n{yaml}")).unwrap();
        let listeners = Listeners::bind(config.listen).await.unwrap();
        let addresses = listeners.addresses().unwrap();
        let (stop, stopped) = oneshot::channel();
        let shutdown = async move {
            let _ = stopped.await;
        };
        let served = tokio::spawn(serve(listeners, config, epoch, start, shutdown));
        let address = format!("http://{}", addresses.grpc);
        let channel = Endpoint::try_from(address).unwrap().connect_lazy();
        Self {
            grpc: addresses.grpc,
            http: addresses.http,
            client: LeaseServiceClient::new(channel),
            stop,
            served,
        }
    }

    /// A client on the same connection.
    pub(crate) fn client(&self) -> LeaseServiceClient<Channel> {
        self.client.clone()
    }

    /// Refreshes `scopes` for `client`; each is id, sequence, has, wants.
    pub(crate) async fn refresh(
        &self,
        client: &str,
        scopes: &[(&str, u64, f64, f64)],
    ) -> Vec<ScopeAnswer> {
        let answer = self.client().refresh(request(client, scopes)).await;
        let refreshed = Refreshed::try_from(answer.unwrap().into_inner()).unwrap();
        let answers: Vec<_> = refreshed.scopes.into_iter().map(Result::unwrap).collect();
        let origin = Origin::alone(Epoch(EPOCH));
        assert!(answers.iter().all(|answer| answer.origin == origin));
        answers
    }

    /// Returns what `client` gets of `scope`, in whole units.
    pub(crate) async fn gets(
        &self,
        client: &str,
        scope: &str,
        sequence: u64,
        (has, wants): (f64, f64),
    ) -> f64 {
        let answers = self.refresh(client, &[(scope, sequence, has, wants)]).await;
        unit(&answers[0]).answer.lease.unwrap().capacity.as_f64()
    }

    pub(crate) async fn release(&self, client: &str, scope: &str, sequence: u64) {
        let release = Release {
            client: run(client),
            resources: vec![(ResourceId::new(scope, Unit::Requests).unwrap(), sequence)],
        };
        let message = v1::ReleaseRequest::from(&release);
        let answer = self.client().release(message).await.unwrap();
        assert_eq!(answer.into_inner().epoch, EPOCH);
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        Answer::get(self.http, path).await
    }

    pub(crate) async fn ask(&self, ask: &Ask) -> Answer {
        Answer::of(self.http, ask).await
    }

    /// Stops it in order and says how that went.
    pub(crate) async fn stop(self) -> Result<(), ServerError> {
        self.stop.send(()).unwrap();
        self.served.await.unwrap()
    }
}

// === impl Answer ===

impl Answer {
    /// Gets `path`, written as it goes on the wire.
    pub(crate) async fn get(from: SocketAddr, path: &str) -> Self {
        Self::of(from, &Ask::get(path)).await
    }

    /// Returns the answer to `ask`.
    pub(crate) async fn of(from: SocketAddr, ask: &Ask) -> Self {
        let stream = TcpStream::connect(from).await.unwrap();
        Self::exchange(stream, &from.to_string(), ask)
            .await
            .unwrap()
    }

    /// Returns the answer to a GET of `path` on an open connection; an error if that is closed.
    pub(crate) async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin,
        path: &str,
    ) -> io::Result<Self> {
        Self::exchange(stream, "localhost", &Ask::get(path)).await
    }

    /// Returns the answer to `ask` on an open connection to `host`; an error if that is closed.
    pub(crate) async fn exchange(
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        host: &str,
        ask: &Ask,
    ) -> io::Result<Self> {
        let Ask {
            method,
            path,
            headers,
            body,
        } = ask;
        let mut request = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        if !headers.contains("host: ") {
            request.push_str(&format!("host: {host}\r\n"));
        }
        if !body.is_empty() {
            request.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        request.push_str(&format!("{headers}\r\n{body}"));
        // A body that is refused for its length is not read to its end.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut text = Vec::new();
        let read = stream.read_to_end(&mut text).await;
        let text = String::from_utf8(text).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            return Err(read
                .err()
                .unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()));
        };
        Ok(Self {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        })
    }

    /// The value of the header `name`; empty if it is not there.
    pub(crate) fn header(&self, name: &str) -> &str {
        let mut lines = self.head.lines();
        lines
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
            .unwrap_or_default()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

// === free functions ===

/// A call of `client` for `scopes`: id, sequence, has, wants.
pub(crate) fn request(client: &str, scopes: &[(&str, u64, f64, f64)]) -> v1::RefreshRequest {
    let scope = |&(scope, sequence, has, wants): &(&str, u64, f64, f64)| v1::ScopeRequest {
        scope: scope.to_owned(),
        units: vec![v1::UnitRequest {
            unit: v1::Unit::Requests.into(),
            sequence,
            has,
            wants,
            ..v1::UnitRequest::default()
        }],
    };
    v1::RefreshRequest {
        client_id: client.to_owned(),
        scopes: scopes.iter().map(scope).collect(),
        incarnation: INCARNATION,
        term: 0,
    }
}

/// The only run of `client` in a test.
pub(crate) fn run(client: &str) -> ClientRun {
    ClientRun {
        id: ClientId::new(client).unwrap(),
        run: Run::Incarnation(NonZeroU64::new(INCARNATION).unwrap()),
    }
}

/// The one unit of an answer that is no error.
pub(crate) fn unit(answer: &ScopeAnswer) -> UnitAnswer {
    let units = answer.outcome.as_ref().unwrap();
    assert_eq!(units.len(), 1);
    units[0]
}

pub(crate) fn whole(units: u64) -> Capacity {
    Capacity::from_whole(units)
}
