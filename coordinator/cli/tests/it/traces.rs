//! Traces of calls, as a collector receives them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::TcpListenerStream;
use tollgate_net::wire::LeaseServiceClient;
use tonic::{Request, Response, Status};

use crate::binary::{GOOD, Serve, file};
use crate::harness::{Answer, request};

/// Hands on what it receives.
struct Collector(mpsc::UnboundedSender<ExportTraceServiceRequest>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.send(request.into_inner()).unwrap();
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// A collector's address and what it receives.
async fn collector() -> (String, mpsc::UnboundedReceiver<ExportTraceServiceRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (sender, receiver) = mpsc::unbounded_channel();
    let server = tonic::transport::Server::builder()
        .add_service(TraceServiceServer::new(Collector(sender)))
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(server);
    (endpoint, receiver)
}

/// A coordinator that traces the part `sample` of its calls.
fn traced(endpoint: &str, sample: &str) -> Serve {
    let config = file(GOOD);
    let args = ["--otlp-endpoint", endpoint, "--otlp-sample", sample];
    Serve::start(config.path().to_str().unwrap(), &args)
}

/// One good call and one bad one of each kind.
async fn call(grpc: SocketAddr, http: SocketAddr) {
    let client = LeaseServiceClient::connect(format!("http://{grpc}")).await;
    let mut client = client.unwrap();
    let good = request("envoy-1/a", &[("a", 1, 0.0, 1.0), ("b", 1, 0.0, 1.0)]);
    client.refresh(good).await.unwrap();
    client.refresh(request("", &[])).await.unwrap_err();
    assert_eq!(Answer::get(http, "/v1/scopes/a").await.status, 200);
    assert_eq!(Answer::get(http, "/nowhere").await.status, 404);
}

/// Each attribute as text.
fn attributes(attributes: &[KeyValue]) -> BTreeMap<&str, String> {
    let text = |attribute: &KeyValue| match attribute.value.clone().unwrap().value.unwrap() {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let pairs = attributes.iter().map(|one| (one.key.as_str(), text(one)));
    pairs.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_traced_and_the_last_traces_are_sent_at_the_end() {
    let (endpoint, mut received) = collector().await;
    let serve = traced(&endpoint, "1");
    call(serve.address("grpc"), serve.address("http")).await;
    let (code, log) = tokio::task::spawn_blocking(|| serve.end("TERM"))
        .await
        .unwrap();
    assert_eq!(code, 0, "{log}");

    let mut spans: Vec<Span> = Vec::new();
    while let Ok(export) = received.try_recv() {
        for resource in export.resource_spans {
            let about = resource.resource.unwrap();
            assert_eq!(attributes(&about.attributes)["service.name"], "tollgate");
            spans.extend(
                resource
                    .scope_spans
                    .into_iter()
                    .flat_map(|scope| scope.spans),
            );
        }
    }
    let named = |name: &str| {
        spans
            .iter()
            .filter(|span| span.name == name)
            .collect::<Vec<_>>()
    };
    let refreshes = named("tollgate.v1.LeaseService/Refresh");
    assert_eq!(refreshes.len(), 2, "{spans:#?}");
    let good = attributes(&refreshes[0].attributes);
    assert_eq!(good["tollgate.client"], "envoy-1/a");
    assert_eq!(good["tollgate.scopes"], "2");
    assert_eq!(good["rpc.system.name"], "grpc");
    assert!(
        refreshes[0]
            .status
            .as_ref()
            .is_none_or(|status| status.code == 0)
    );
    assert_eq!(refreshes[1].status.as_ref().unwrap().code, 2);
    let scope = named("GET /v1/scopes/{*scope}");
    assert_eq!(scope.len(), 1, "{spans:#?}");
    let scope = attributes(&scope[0].attributes);
    assert_eq!(scope["http.response.status_code"], "200");
    assert_eq!(scope["url.path"], "/v1/scopes/a");
    assert_eq!(named("GET _OTHER").len(), 1, "{spans:#?}");
    assert_eq!(spans.len(), 4, "{spans:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_is_traced_when_none_is_sampled() {
    let (endpoint, mut received) = collector().await;
    let serve = traced(&endpoint, "0");
    call(serve.address("grpc"), serve.address("http")).await;
    let (code, log) = tokio::task::spawn_blocking(|| serve.end("TERM"))
        .await
        .unwrap();
    assert_eq!(code, 0, "{log}");
    assert!(received.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_never_answers_holds_up_neither_calls_nor_the_end() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let serve = traced(&endpoint, "1");
    call(serve.address("grpc"), serve.address("http")).await;
    let (code, log) = tokio::task::spawn_blocking(|| serve.end("TERM"))
        .await
        .unwrap();
    assert_eq!(code, 0, "{log}");
    assert!(
        log.contains("traces: last spans were not delivered"),
        "{log}"
    );
    drop(silent);
}
