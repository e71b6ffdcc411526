//! gRPC calls, unary and streaming, are refused in gRPC's form, with the reason and the exact pause.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_stream::iter;
use tokio_stream::wrappers::ReceiverStream;
use tollgate_proto::v1::RefreshRequest;
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{TENANT_HEADER, by_tenant, tollgate};
use tollgate_tests::grpc_echo::GrpcEcho;
use tollgate_tests::wait;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt;

use crate::test_context::{TestContext, run_test, s};

const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 4, burst: 1}\n";
const METHOD: PathAndQuery = PathAndQuery::from_static("/echo.Echo/Any");

type Client = Grpc<Channel>;
type Codec = ProstCodec<RefreshRequest, RefreshRequest>;

#[test]
fn grpc_calls_are_refused_with_reason_and_pause() {
    run_test("grpc_calls_are_refused_with_reason_and_pause", refused);
}

async fn refused(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let echo = GrpcEcho::start().await?;
    let envoy = envoy(test, &coordinator, &echo).await?;
    let mut client = client(envoy.address()).await?;
    for streaming in [false, true] {
        let status = until_refused(&mut client, streaming).await?;
        check(&status)?;
        let pause = pause_of(&status)?;
        sleep(pause).await;
        let answered = call(&mut client, streaming).await;
        let answered = answered.map_err(|status| {
            anyhow::anyhow!("refused after the pause of {pause:?}, streaming {streaming}: {status}")
        })?;
        assert_eq!(answered, if streaming { 3 } else { 1 }, "messages echoed");
    }
    Ok(())
}

#[test]
fn a_grpc_call_without_a_key_is_told_so() {
    run_test("a_grpc_call_without_a_key_is_told_so", async |test| {
        let coordinator = test.coordinator(LIMITS).await?;
        let rule = json!({"name": "user", "key": {"header": "x-user"}, "missing": "deny"});
        let plugin = by_tenant(&json!({"scopes": [rule]}));
        let envoy = test.envoy("envoy", 1, &coordinator, &plugin).await?;
        let mut client = client(envoy.address()).await?;
        let Err(status) = call(&mut client, false).await else {
            bail!("a call without a key was answered");
        };
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        let info = status.get_details_error_info().context("ErrorInfo")?;
        assert_eq!(info.reason, "SCOPE_KEY_MISSING");
        assert_eq!(info.metadata["reason"], "user/missing");
        assert!(status.get_details_retry_info().is_none(), "no time helps");
        Ok(())
    });
}

#[test]
fn a_streaming_call_counts_while_it_is_open_and_its_messages_as_they_pass() {
    run_test(
        "a_streaming_call_counts_while_it_is_open_and_its_messages_as_they_pass",
        counts,
    );
}

async fn counts(test: &TestContext) -> Result<()> {
    let limits = "limits:\n  - match: \"*\"\n    requests: {rate: 1000}\n    \
                  concurrency: {max: 1}\n    request_bytes: {rate: 20000, burst: 20000}\n";
    let coordinator = test.coordinator(limits).await?;
    let echo = GrpcEcho::start().await?;
    let envoy = envoy(test, &coordinator, &echo).await?;
    let mut client = client(envoy.address()).await?;
    // The first answer tells the limits; leases follow with the next calls.
    for _ in 0..5 {
        call(&mut client, false).await?;
        sleep(Duration::from_millis(300)).await;
    }
    let (sender, receiver) = mpsc::channel(1);
    client.ready().await?;
    let request = of_acme(ReceiverStream::new(receiver));
    let answer = client.streaming(request, METHOD, Codec::default()).await?;
    let mut answers = answer.into_inner();
    let message = RefreshRequest {
        client_id: "x".repeat(10_000),
        ..RefreshRequest::default()
    };
    sender.send(message.clone()).await?;
    answers.message().await?.context("an echo")?;
    let Err(status) = call(&mut client, false).await else {
        bail!("two calls at once at a limit of one");
    };
    reason(&status, "tenant/concurrency")?;
    ensure!(
        status.get_details_retry_info().is_none(),
        "no time is known"
    );
    // The stream goes on with a negative balance.
    for _ in 0..9 {
        sender.send(message.clone()).await?;
        answers.message().await?.context("an echo")?;
    }
    drop(sender);
    ensure!(answers.message().await?.is_none(), "the stream has ended");
    let status = wait::until("the permit to be free", s(5.0), async || {
        let status = call(&mut client, false)
            .await
            .err()
            .context("the call was admitted")?;
        reason(&status, "tenant/request_bytes")?;
        Ok(status)
    })
    .await?;
    let pause = pause_of(&status)?;
    ensure!(
        pause > Duration::from_secs(1),
        "100 kB at 20 kB/s: {pause:?}"
    );
    Ok(())
}

/// Starts an Envoy in front of `echo`.
async fn envoy(test: &TestContext, coordinator: &Coordinator, echo: &GrpcEcho) -> Result<Envoy> {
    let filters = vec![tollgate(&by_tenant(&json!({})))?];
    let mut spec = EnvoySpec::new("envoy", 2, test.upstream.address(), filters);
    spec.clusters = vec![("echo".to_owned(), echo.address())];
    spec.virtual_hosts = json!([{
        "name": "all",
        "domains": ["*"],
        "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "echo"}}],
    }]);
    Envoy::start(test.dir(), &spec.asking(coordinator.grpc())).await
}

async fn client(to: SocketAddr) -> Result<Client> {
    let channel = Channel::from_shared(format!("http://{to}"))?;
    Ok(Grpc::new(channel.connect().await?))
}

/// Makes calls until one is refused, and returns its status.
async fn until_refused(client: &mut Client, streaming: bool) -> Result<Status> {
    for _ in 0..50 {
        if let Err(status) = call(client, streaming).await {
            return Ok(status);
        }
    }
    bail!("50 calls were admitted at 4 a second")
}

/// Makes a call of one or three messages; returns the number of echoes.
async fn call(client: &mut Client, streaming: bool) -> Result<usize, Status> {
    let ready = client.ready().await;
    ready.map_err(|error| Status::unknown(error.to_string()))?;
    let message = || RefreshRequest {
        client_id: "echo".to_owned(),
        ..RefreshRequest::default()
    };
    if !streaming {
        let request = of_acme(message());
        let answer = client.unary(request, METHOD, Codec::default()).await?;
        return Ok(usize::from(answer.into_inner().client_id == "echo"));
    }
    let request = of_acme(iter([message(), message(), message()]));
    let answer = client.streaming(request, METHOD, Codec::default()).await?;
    let mut answers = answer.into_inner();
    let mut count = 0;
    while answers.message().await?.is_some() {
        count += 1;
    }
    Ok(count)
}

fn of_acme<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let tenant = MetadataValue::from_static("acme");
    request.metadata_mut().insert(TENANT_HEADER, tenant);
    request
}

/// Checks that the call was refused with the reason `want`.
fn reason(status: &Status, want: &str) -> Result<()> {
    ensure!(status.code() == Code::ResourceExhausted, "{status}");
    let info = status.get_details_error_info().context("ErrorInfo")?;
    let cause = (info.domain.as_str(), info.reason.as_str());
    ensure!(cause == ("tollgate", "RATE_LIMITED"), "{info:?}");
    ensure!(info.metadata["reason"] == want, "{info:?}");
    Ok(())
}

fn check(status: &Status) -> Result<()> {
    reason(status, "tenant/requests")?;
    let metadata = status.metadata();
    let reason = metadata.get("tollgate-reason").context("tollgate-reason")?;
    assert_eq!(reason.to_str()?, "tenant/requests");
    let pushback = metadata.get("grpc-retry-pushback-ms").context("pushback")?;
    let pushback: u128 = pushback.to_str()?.parse()?;
    let pause = pause_of(status)?.as_nanos().div_ceil(1_000_000);
    ensure!(pushback == pause, "{pushback} ms and {pause} ms");
    Ok(())
}

fn pause_of(status: &Status) -> Result<Duration> {
    let retry = status.get_details_retry_info().context("RetryInfo")?;
    retry.retry_delay.context("a delay")
}
