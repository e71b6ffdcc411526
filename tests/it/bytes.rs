//! Bytes of bodies are charged as they pass: what goes on is not cut, and the next request waits.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate_tests::conclude;
use tollgate_tests::connection::{Answer, get, get_once};
use tollgate_tests::envoy::{Envoy, Spec};
use tollgate_tests::filter::{self, TENANT_HEADER, by_tenant};
use tollgate_tests::moody::Moody;

use crate::scene::{Scene, play};

const LIMITS: &str = "limits:\n  - match: \"tenant/*\"\n    requests: {rate: 1000000}\n    \
                      request_bytes: {rate: 100000}\n    response_bytes: {rate: 100000}\n";

#[test]
fn what_bodies_owe_the_next_request_waits_for() {
    play(
        "what_bodies_owe_the_next_request_waits_for",
        async |scene: &Scene| {
            let moody = Moody::start().await?;
            let coordinator = scene.coordinator(LIMITS).await?;
            let filters = vec![filter::tollgate(&by_tenant(&json!({})))?];
            let spec = Spec::new("envoy", 2, moody.address(), filters);
            let envoy = Envoy::start(scene.dir(), &spec.asking(coordinator.grpc())).await?;
            let to = envoy.address();
            for tenant in ["ended", "posted", "open"] {
                // Limits on bytes are learnt with the first answer, and leased with the first bytes.
                for _ in 0..5 {
                    ok(to, "/bytes/1000", tenant).await?;
                    post(to, tenant, 1000).await?;
                    tokio::time::sleep(Duration::from_millis(300)).await;
                }
            }
            ok(to, "/bytes/400000", "ended").await?;
            owes(to, "ended", "tenant/response_bytes", 2700).await?;

            post(to, "posted", 400_000).await?;
            owes(to, "posted", "tenant/request_bytes", 2700).await?;

            // It goes on, and its bytes count all the same.
            let mut open = TcpStream::connect(to).await?;
            let request = get("/stall/400000", &[(TENANT_HEADER, "open")]);
            open.write_all(&request).await?;
            let mut body = vec![0; 400_000];
            open.read_exact(&mut body).await?;
            tokio::time::sleep(Duration::from_millis(500)).await;
            owes(to, "open", "tenant/response_bytes", 2200).await?;
            let refused = envoy.stat("wasmcustom.tollgate.refused.tenant.response_bytes");
            ensure!(refused.await? >= 2);
            Ok(())
        },
    );
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

/// The next request is refused for at least `least_ms`, which is what is owed at the whole rate, and
/// at most for three times as long, since the Envoy has leased no more of it than it wanted; and a
/// request after that time passes.
async fn owes(to: SocketAddr, tenant: &str, reason: &str, least_ms: u64) -> Result<()> {
    let answer = ask(to, "/ok", tenant).await?;
    ensure!(answer.status == 429, "{tenant}: {}", answer.status);
    ensure!(
        answer.header("tollgate-reason") == Some(reason),
        "{:?}",
        answer.header("tollgate-reason")
    );
    let pause = answer.header("tollgate-pause-ms").context("no pause")?;
    let pause: u64 = pause.parse()?;
    eprintln!("{tenant}: {reason} for {pause} ms");
    conclude!((least_ms..3 * least_ms).contains(&pause), "{pause} ms");
    tokio::time::sleep(Duration::from_millis(pause + 1)).await;
    ok(to, "/ok", tenant).await
}
