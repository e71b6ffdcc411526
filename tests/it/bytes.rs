//! Bytes of bodies are charged as they pass: running streams are not cut, and the next request waits.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate_tests::conclude;
use tollgate_tests::connection::{Answer, get, get_once};
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::faulty_upstream::FaultyUpstream;
use tollgate_tests::filter::{self, TENANT_HEADER, by_tenant};

use crate::test_context::{TestContext, run_test};

const LIMITS: &str = "limits:\n  - match: \"tenant/*\"\n    requests: {rate: 1000000}\n    \
                      request_bytes: {rate: 100000}\n    response_bytes: {rate: 100000}\n";

/// Requests of the busier tenant of [`one_bucket`].
const SENT: usize = 240;

#[test]
fn what_bodies_owe_the_next_request_waits_for() {
    run_test(
        "what_bodies_owe_the_next_request_waits_for",
        async |test: &TestContext| {
            let upstream = FaultyUpstream::start().await?;
            let coordinator = test.coordinator(LIMITS).await?;
            let filters = vec![filter::tollgate(&by_tenant(&json!({})))?];
            let spec = EnvoySpec::new("envoy", 2, upstream.address(), filters);
            let envoy = Envoy::start(test.dir(), &spec.asking(coordinator.grpc())).await?;
            let to = envoy.address();
            // The first answer tells the limits on bytes; leases follow with the first bytes.
            for _ in 0..5 {
                for tenant in ["ended", "posted", "open"] {
                    ok(to, "/bytes/1000", tenant).await?;
                    post(to, tenant, 1000).await?;
                }
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            tokio::try_join!(response_ended(to), request_posted(to), response_open(to))?;
            let refused = envoy.stat("wasmcustom.tollgate.refused.tenant.response_bytes");
            ensure!(refused.await? >= 2);
            Ok(())
        },
    );
}

#[test]
fn bytes_are_counted_in_one_bucket_through_any_envoys() {
    run_test(
        "bytes_are_counted_in_one_bucket_through_any_envoys",
        one_bucket,
    );
}

/// Of 20 kB a second one tenant is sent 0.8, and another one three times as much, in responses of 2 kB and through
/// one Envoy after the other.
async fn one_bucket(test: &TestContext) -> Result<()> {
    let upstream = FaultyUpstream::start().await?;
    let coordinator = test
        .coordinator("limits: [{match: 'tenant/*', response_bytes: {rate: 20000}}]")
        .await?;
    let filters = vec![filter::tollgate(&by_tenant(&json!({})))?];
    let spec = |name| EnvoySpec::new(name, 2, upstream.address(), filters.clone());
    let specs = ["one", "two", "three"].map(|name| spec(name).asking(coordinator.grpc()));
    let envoys = Envoy::start_all(test.dir(), &specs).await?;
    let mut next = tokio::time::interval(Duration::from_secs(1) / 24);
    let (mut calm, mut busy) = (0, 0);
    let started = tokio::time::Instant::now();
    for (request, envoy) in envoys.iter().cycle().take(SENT).enumerate() {
        next.tick().await;
        let to = envoy.address();
        if request % 3 == 0 {
            let another = envoys[request % 2].address();
            calm += usize::from(ask(another, "/bytes/2000", "calm").await?.status == 200);
        }
        busy += usize::from(ask(to, "/bytes/2000", "busy").await?.status == 200);
    }
    // Of each Envoy a response may be under way that is charged when it ends.
    let most = (20.0 + 20.0 * started.elapsed().as_secs_f64()) / 2.0 + 3.0;
    eprintln!("{calm} of {}, {busy} of {most}", SENT / 3);
    ensure!(calm * 100 >= SENT / 3 * 97, "{calm} of {}", SENT / 3);
    ensure!(busy as f64 <= most, "{busy} of {most}");
    ensure!(busy as f64 >= 0.9 * most - 3.0, "{busy} of {most}");
    Ok(())
}

async fn response_ended(to: SocketAddr) -> Result<()> {
    ok(to, "/bytes/400000", "ended").await?;
    // A client can have the whole body before its worker has charged the last bytes, and the other
    // worker knows of them only then.
    tokio::time::sleep(Duration::from_millis(200)).await;
    owes(to, "ended", "tenant/response_bytes", 2700).await
}

async fn request_posted(to: SocketAddr) -> Result<()> {
    post(to, "posted", 400_000).await?;
    owes(to, "posted", "tenant/request_bytes", 2700).await
}

/// The stream goes on, and its bytes are charged.
async fn response_open(to: SocketAddr) -> Result<()> {
    let mut open = TcpStream::connect(to).await?;
    let request = get("/stall/400000", &[(TENANT_HEADER, "open")]);
    open.write_all(&request).await?;
    let mut body = vec![0; 400_000];
    open.read_exact(&mut body).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    owes(to, "open", "tenant/response_bytes", 2200).await
}

async fn ask(to: SocketAddr, path: &str, tenant: &str) -> Result<Answer> {
    get_once(to, path, &[(TENANT_HEADER, tenant)]).await
}

async fn ok(to: SocketAddr, path: &str, tenant: &str) -> Result<()> {
    let status = ask(to, path, tenant).await?.status;
    ensure!(status == 200, "{path} of {tenant}: {status}");
    Ok(())
}

async fn post(to: SocketAddr, tenant: &str, length: usize) -> Result<()> {
    let mut stream = TcpStream::connect(to).await?;
    let head = format!(
        "POST /ok HTTP/1.1\r\nhost: x\r\nx-tenant: {tenant}\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&vec![b'x'; length]).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(())
}

/// Checks that the next request is refused with a pause of at least `least_ms`, the debt at the whole rate,
/// and less than three times that, since the Envoy's lease is smaller; and that a request after the pause
/// passes.
async fn owes(to: SocketAddr, tenant: &str, reason: &str, least_ms: u64) -> Result<()> {
    let answer = ask(to, "/ok", tenant).await?;
    ensure!(answer.status == 429, "{tenant}: {}", answer.status);
    ensure!(
        answer.header("tollgate-reason") == Some(reason),
        "{:?}",
        answer.header("tollgate-reason")
    );
    let pause = answer
        .header("tollgate-pause-ms")
        .context("a refusal without a pause")?;
    let pause: u64 = pause.parse()?;
    eprintln!("{tenant}: {reason} for {pause} ms");
    conclude!((least_ms..3 * least_ms).contains(&pause), "{pause} ms");
    tokio::time::sleep(Duration::from_millis(pause + 1)).await;
    ok(to, "/ok", tenant).await
}
