//! Connections that stay open and answers that are not read keep no other client out.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tollgate_core::lease_server::Start;
use tollgate_net::wire::LeaseServiceClient;
use tonic::Code;
use tonic::transport::Endpoint;

use crate::certificates::{Client, Folder, Issuer};
use crate::harness::{Answer, Coordinator, request};

const LIMITS: &str = "limits: [{match: '*', requests: {rate: 100}}]";

/// Places of a listener above its bound, for probes. A connection without any request is moved
/// there before it is closed.
const PROBE_PLACES: usize = 128;

/// How often something is looked at that happens by itself, and how many times at most.
const LOOK: (Duration, usize) = (Duration::from_millis(50), 600);

/// The value of the metric `name`.
async fn metric(coordinator: &Coordinator, name: &str) -> u64 {
    let metrics = coordinator.get("/metrics").await.body;
    let value = metrics.lines().find_map(|line| line.strip_prefix(name));
    let value = value.unwrap_or_else(|| panic!("no {name} in {metrics}"));
    value.trim().parse().unwrap()
}

/// The number of connections that a listener closed for `reason`.
async fn dropped(coordinator: &Coordinator, listener: &str, reason: &str) -> u64 {
    let labels = format!("listener=\"{listener}\",reason=\"{reason}\"");
    metric(
        coordinator,
        &format!("tollgate_connections_dropped_total{{{labels}}}"),
    )
    .await
}

/// Connections to `to` on which `text` was sent.
async fn hold(to: std::net::SocketAddr, text: &str, count: usize) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(to).await.unwrap();
        // It may be closed again already.
        let _ = stream.write_all(text.as_bytes()).await;
        held.push(stream);
    }
    held
}

#[tokio::test]
async fn held_http_connections_keep_no_probe_out() {
    let yaml = format!("connections: {{max_http: 8}}\n{LIMITS}");
    let coordinator = Coordinator::with(&yaml, Start::Fresh).await;
    let body = "PUT /v1/overrides/a HTTP/1.1\r\nhost: localhost\r\n\
        content-type: application/json\r\ncontent-length: 99\r\n\r\n{";
    let mut held = Vec::new();
    for text in [
        "",
        "GET /healthz HTTP/1.1\r\nx: ",
        body,
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ] {
        held.extend(hold(coordinator.http, text, 50).await);
        assert_eq!(coordinator.get("/healthz").await.status, 200, "{text:?}");
        assert_eq!(coordinator.get("/readyz").await.status, 200, "{text:?}");
    }
    assert!(dropped(&coordinator, "http", "full").await >= 40);
    let open = metric(&coordinator, "tollgate_connections{listener=\"http\"}").await;
    assert!(open <= 8 + PROBE_PLACES as u64, "{open}");
}

#[tokio::test]
async fn requests_that_do_not_come_are_given_up() {
    let yaml = format!("connections: {{request_timeout: 100ms}}\n{LIMITS}");
    let coordinator = Coordinator::with(&yaml, Start::Fresh).await;
    for to in [coordinator.http, coordinator.grpc] {
        for mut stream in hold(to, "P", 2).await {
            let mut bytes = [0; 64];
            while stream.read(&mut bytes).await.unwrap_or(0) > 0 {}
        }
    }
    assert_eq!(dropped(&coordinator, "http", "request").await, 2);
    assert_eq!(dropped(&coordinator, "grpc", "request").await, 2);
}

#[tokio::test]
async fn idle_grpc_connections_keep_no_envoy_out() {
    let yaml = format!("connections: {{max_grpc: 4}}\n{LIMITS}");
    let coordinator = Coordinator::with(&yaml, Start::Fresh).await;
    // An Envoy stays connected: the other connections have never sent a request.
    coordinator.gets("envoy/a", "tenant/a", 1, (0.0, 1.0)).await;
    let hello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let _held = hold(coordinator.grpc, hello, 20 + PROBE_PLACES).await;
    let address = format!("http://{}", coordinator.grpc);
    let channel = Endpoint::try_from(address).unwrap().connect().await;
    let mut newcomer = LeaseServiceClient::new(channel.unwrap());
    let ask = request("envoy/b", &[("tenant/a", 1, 0.0, 1.0)]);
    newcomer.refresh(ask).await.unwrap();
    coordinator.gets("envoy/a", "tenant/a", 2, (1.0, 1.0)).await;
    assert!(dropped(&coordinator, "grpc", "full").await >= 18);
}

#[tokio::test]
async fn half_open_handshakes_keep_nobody_out() {
    let (issuer, folder) = (Issuer::new(), Folder::new());
    let door = folder.door(&issuer.issue());
    let bounds = "connections: {max_http: 8}";
    let yaml = format!("tls: {{http: {{{door}}}}}\n{bounds}\n{LIMITS}");
    let coordinator = Coordinator::with(&yaml, Start::Fresh).await;
    let _held = hold(coordinator.http, "", 40 + PROBE_PLACES).await;
    let client = Client::new(coordinator.http, "http/1.1", &issuer, None);
    let answer = Answer::over(client.connect().await.unwrap(), "/metrics").await;
    let metrics = answer.unwrap().body;
    let busy = "tollgate_tls_handshake_errors_total{listener=\"http\",reason=\"busy\"} 33\n";
    assert!(metrics.contains(busy), "{metrics}");
}

#[tokio::test]
async fn unread_answers_are_bounded_and_given_up() {
    let bounds = "connections: {max_call_bytes: 8MiB, response_timeout: 1s}";
    let coordinator = Coordinator::with(&format!("{bounds}\n{LIMITS}"), Start::Fresh).await;
    let endpoint = Endpoint::try_from(format!("http://{}", coordinator.grpc)).unwrap();
    // Not even a byte of an answer may be sent.
    let channel = endpoint.initial_stream_window_size(0).connect().await;
    let greedy = LeaseServiceClient::new(channel.unwrap());
    let ids: Vec<_> = (0..1000).map(|i| format!("tenant/{i:0>180}")).collect();
    let scopes: Vec<_> = ids.iter().map(|id| (id.as_str(), 1, 0.0, 1.0)).collect();
    let bulk = request("envoy/greedy", &scopes);
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let (mut greedy, bulk) = (greedy.clone(), bulk.clone());
        calls.spawn(async move { greedy.refresh(bulk).await.unwrap_err().code() });
    }
    // An Envoy that reads its answers is served meanwhile.
    for sequence in 1..=5 {
        coordinator
            .gets("envoy/a", "tenant/a", sequence, (0.0, 1.0))
            .await;
    }
    let codes = calls.join_all().await;
    let refused = codes
        .iter()
        .filter(|code| **code == Code::ResourceExhausted);
    assert!(refused.count() > 0, "{codes:?}");
    assert_eq!(dropped(&coordinator, "grpc", "response").await, 1);
    for _ in 0..LOOK.1 {
        if metric(&coordinator, "tollgate_call_memory_bytes").await < 1024 {
            return;
        }
        tokio::time::sleep(LOOK.0).await;
    }
    panic!("the memory of the calls is not given back");
}
