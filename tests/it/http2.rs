//! Streams that share an HTTP/2 connection are decided one by one.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use tokio::task::{JoinHandle, JoinSet, spawn};
use tokio::time::sleep;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::faulty_upstream::FaultyUpstream;
use tollgate_tests::filter::{TENANT_HEADER, by_tenant, tollgate};
use tollgate_tests::http2::{Http2, Http2Answer};
use tollgate_tests::wait;

use crate::test_context::{TestContext, run_test, s};

const LIMITS: &str = "limits:\n  - match: tenant/acme\n    requests: {rate: 4, burst: 1}\n  \
                      - match: tenant/flight\n    requests: {rate: 1000}\n    concurrency: {max: 3}\n";

#[test]
fn over_http2_a_refusal_is_told_in_full_and_other_streams_go_on() {
    run_test(
        "over_http2_a_refusal_is_told_in_full_and_other_streams_go_on",
        async |test: &TestContext| {
            let coordinator = test.coordinator(LIMITS).await?;
            let plugin = by_tenant(&json!({}));
            let envoy = test.envoy("envoy", 2, &coordinator, &plugin).await?;
            let (http2, _running) = Http2::open(envoy.address()).await?;
            // Concurrent streams of one connection: each tenant's first request waits for its lease.
            let mut first = JoinSet::new();
            for tenant in ["acme", "beta", "beta", "beta"] {
                let http2 = http2.clone();
                first.spawn(async move { of(&http2, "/", tenant).await });
            }
            while let Some(answer) = first.join_next().await {
                assert_eq!(answer??.status, 200);
            }
            for _ in 0..3 {
                let refused = until_refused(&http2, "acme").await?;
                let header = |name| refused.header(name).context(name);
                assert_eq!(header("tollgate-reason")?, "tenant/requests");
                assert_eq!(header("retry-after")?, "1");
                assert!(header("ratelimit")?.starts_with('"'));
                assert_eq!(header("content-type")?, "application/problem+json");
                let pause: u64 = header("tollgate-pause-ms")?.parse()?;
                for _ in 0..10 {
                    assert_eq!(of(&http2, "/", "beta").await?.status, 200);
                }
                sleep(Duration::from_millis(pause + 1)).await;
                assert_eq!(
                    of(&http2, "/", "acme").await?.status,
                    200,
                    "after {pause} ms"
                );
            }
            Ok(())
        },
    );
}

#[test]
fn streams_of_one_connection_count_until_each_has_ended() {
    run_test(
        "streams_of_one_connection_count_until_each_has_ended",
        async |test: &TestContext| {
            let upstream = FaultyUpstream::start().await?;
            let coordinator = test.coordinator(LIMITS).await?;
            let filters = vec![tollgate(&by_tenant(&json!({})))?];
            let spec = EnvoySpec::new("envoy", 1, upstream.address(), filters);
            let envoy = Envoy::start(test.dir(), &spec.asking(coordinator.grpc())).await?;
            let (http2, _running) = Http2::open(envoy.address()).await?;
            // The first request waits until the limit is known.
            assert_eq!(of(&http2, "/ok", "flight").await?.status, 200);
            wait::until("the limit to be leased", s(10.0), async || {
                of(&http2, "/ok", "flight").await?;
                let leases = coordinator.leases("tenant/flight").await?;
                leases.context("the scope is unknown")?;
                ensure!(envoy.stat("wasmcustom.tollgate.safe_mode").await? == 0);
                Ok(())
            })
            .await?;
            let mut open = Vec::new();
            for _ in 0..3 {
                open.push(endless(&http2, &upstream, "flight").await?);
            }
            let refused = of(&http2, "/ok", "flight").await?;
            assert_eq!(refused.status, 429);
            assert_eq!(
                refused.header("tollgate-reason"),
                Some("tenant/concurrency")
            );
            assert_eq!(
                refused.header("tollgate-pause-ms"),
                None,
                "no time is known"
            );
            // Resetting one stream leaves the connection and the others alone.
            open.remove(0).abort();
            wait::until("a permit to be free", s(5.0), async || {
                let status = of(&http2, "/ok", "flight").await?.status;
                ensure!(status == 200, "{status}");
                Ok(())
            })
            .await?;
            assert!(open.iter().all(|stream| !stream.is_finished()));
            Ok(())
        },
    );
}

/// Opens a stream without an end; retries until it is admitted, because a lease grows with the wants.
pub(crate) async fn endless(
    http2: &Http2,
    upstream: &FaultyUpstream,
    tenant: &'static str,
) -> Result<JoinHandle<Result<Http2Answer>>> {
    let before = upstream.unanswered();
    wait::until("a stream to be admitted", s(10.0), async || {
        let http2 = http2.clone();
        let stream = spawn(async move { of(&http2, "/never", tenant).await });
        while upstream.unanswered() == before && !stream.is_finished() {
            sleep(Duration::from_millis(5)).await;
        }
        ensure!(!stream.is_finished(), "the stream was refused");
        Ok(stream)
    })
    .await
}

async fn of(http2: &Http2, path: &str, tenant: &str) -> Result<Http2Answer> {
    http2.get(path, &[(TENANT_HEADER, tenant)]).await
}

async fn until_refused(http2: &Http2, tenant: &str) -> Result<Http2Answer> {
    for _ in 0..50 {
        let answer = of(http2, "/", tenant).await?;
        if answer.status == 429 {
            return Ok(answer);
        }
    }
    bail!("50 requests were admitted at 4 a second")
}
