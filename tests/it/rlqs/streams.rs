//! A stream that is cut, and a bucket that is idle.

use anyhow::{Context as _, Result, ensure};
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::envoy::Envoy;
use tollgate_tests::load::{Flow, Load};
use tollgate_tests::relay::{LinkQuality, Relay};
use tollgate_tests::wait;

use super::{CAPACITY, CONFIG, spec};
use crate::harness::NO_FILTER;
use crate::test_context::{TestContext, assert_near, print_course, run_wasm_test, s};

#[test]
fn a_cut_stream_keeps_its_share_and_an_idle_bucket_is_abandoned() {
    run_wasm_test(
        "a_cut_stream_keeps_its_share_and_an_idle_bucket_is_abandoned",
        NO_FILTER,
        cut_and_idle,
    );
}

async fn cut_and_idle(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(&CONFIG.replace("6s", "20s")).await?;
    let relay = Relay::to(coordinator.grpc()).await?;
    let spec = spec(test, "edge-1")?.asking(relay.address());
    let envoy = Envoy::start(test.dir(), &spec).await?;
    let load = Load::start([Flow::new(envoy.address(), "acme", 900.0)]);
    load.run_until(s(9.0)).await;
    relay.set_quality(LinkQuality::Cut);
    load.run_until(s(11.0)).await;
    relay.set_quality(LinkQuality::Whole);
    load.run_until(s(19.0)).await;
    load.set_rate(0, 0.0);
    let record = load.record(0);
    print_course("edge-1", &record);
    for from in [7.0, 9.0, 11.0, 13.0, 15.0, 17.0] {
        let rate = record.admitted_per_second(s(from)..s(from + 2.0));
        assert_near(&format!("from {from} s, admitted/s"), rate, CAPACITY, 0.06);
    }
    let streams = coordinator.metric("tollgate_rlqs_streams").await?;
    ensure!(streams == 1.0, "{streams} streams");
    // Twice if Envoy's report, which comes every five seconds, and the message cross.
    wait::until("an idle bucket to be abandoned", s(40.0), async || {
        let abandoned = abandoned(&coordinator).await?;
        ensure!([1.0, 2.0].contains(&abandoned), "{abandoned} are abandoned");
        let leases = coordinator.leases("tenant/acme").await?;
        let held = leases.map_or(0.0, |leases| leases.sum_has());
        ensure!(held == 0.0, "leases of {held}");
        Ok(())
    })
    .await?;
    // And it comes back with its next request.
    load.set_rate(0, 100.0);
    wait::until(
        "an assignment of a bucket that came back",
        s(15.0),
        async || {
            let leases = coordinator.leases("tenant/acme").await?;
            let leases = leases.context("no lease")?;
            ensure!(leases.sum_has() >= 100.0, "{leases:?}");
            ensure!(
                leases
                    .clients
                    .iter()
                    .all(|client| client.id == "rlqs/edge-1/edge")
            );
            Ok(())
        },
    )
    .await?;
    ensure!(load.stop().await?.remove(0).total().failed == 0);
    Ok(())
}

async fn abandoned(coordinator: &Coordinator) -> Result<f64> {
    let name = "tollgate_rlqs_actions_total{action=\"abandon\"}";
    coordinator.metric(name).await
}
