//! An Envoy that is told to end does so with success, whatever its filter is about to do.

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::task::JoinSet;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::tollgate;
use tollgate_tests::http2::Http2;
use tollgate_tests::wait;

use crate::shape::{send, shaped};
use crate::test_context::{TestContext, run_test, s};

/// A token every second, with a lease that is asked for again long after the end.
const LIMITS: &str = "limits:\n  - match: \"*\"\n    \
                      requests: {rate: 1, burst: 1, lease: 60s, refresh: 20s}\n";
/// Requests of which most wait.
const REQUESTS: usize = 10;

#[test]
fn an_envoy_with_waiting_requests_and_an_open_watch_ends_with_success() {
    run_test(
        "an_envoy_with_waiting_requests_and_an_open_watch_ends_with_success",
        async |test: &TestContext| {
            let coordinator = test.coordinator(LIMITS).await?;
            let by_address = json!({"address": coordinator.grpc().to_string()});
            // Of a module, a thread of its own calls an address.
            for (name, of) in [("cluster", json!("tollgate")), ("address", by_address)] {
                let mut plugin = shaped(&json!({"max_wait_ms": 30_000}));
                plugin["coordinator"] = of;
                let filters = vec![tollgate(&plugin)?];
                let spec = EnvoySpec::new(name, 2, test.upstream.address(), filters);
                let spec = spec.asking(coordinator.grpc());
                ends(Envoy::start(test.dir(), &spec).await?).await?;
            }
            Ok(())
        },
    );
}

/// Ends an Envoy in the midst of its work.
async fn ends(mut envoy: Envoy) -> Result<()> {
    let (http2, _running) = Http2::open(envoy.address()).await?;
    let mut requests = JoinSet::new();
    for _ in 0..REQUESTS {
        requests.spawn(send(&http2, "acme", "/".to_owned()).await);
    }
    wait::until("requests to wait beside a watch", s(10.0), async || {
        let waiting = envoy.stat("wasmcustom.tollgate.waiting").await?;
        let watches = envoy.stat("wasmcustom.tollgate.watches").await?;
        ensure!(
            waiting > 0 && watches > 0,
            "{waiting} wait, {watches} watches"
        );
        Ok(())
    })
    .await?;
    envoy.process.terminate()?;
    wait::until("Envoy to end", s(10.0), async || {
        envoy.process.check_succeeded()
    })
    .await
}
