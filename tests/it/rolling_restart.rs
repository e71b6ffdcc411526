//! Stopping and starting all coordinators of a cluster in turn, as in an upgrade, refuses no request.

use anyhow::{Result, ensure};
use tollgate_tests::cluster::{Cluster, ClusterSpec};
use tollgate_tests::conclude;
use tollgate_tests::load::{Flow, Load};
use tollgate_tests::wait;

use crate::test_context::{TestContext, assert_near, print_course, run_test, s};

const LIMITS: &str = "limits:\n  - match: \"*\"\n    \
                      requests: {rate: 200, burst: 40, safe: 10, lease: 4s, refresh: 500ms}\n";
/// Load on each of the two Envoys: three quarters of the capacity together.
const RATE: f64 = 75.0;

#[test]
fn a_rolling_restart_of_all_coordinators_refuses_no_request() {
    run_test(
        "a_rolling_restart_of_all_coordinators_refuses_no_request",
        restart_all,
    );
}

async fn restart_all(test: &TestContext) -> Result<()> {
    let spec = ClusterSpec {
        members: 1,
        nodes: 3,
        shards: 3,
        lease_s: 3,
        limits: LIMITS,
    };
    let mut cluster = Cluster::start(test.dir(), &spec).await?;
    let envoys = test.envoys_of(["east", "west"], &cluster).await?;
    let flows = envoys
        .iter()
        .map(|envoy| Flow::new(envoy.address(), "acme", RATE));
    let load = Load::start(flows);
    // The first masters of a cluster learn for the length of a lease.
    wait::until("both Envoys to have what they want", s(20.0), async || {
        let leases = cluster.coordinator(0).leases("tenant/acme").await?;
        let has = |node| leases.as_ref().map_or(0.0, |leases| leases.has(node));
        ensure!(has("east") >= RATE && has("west") >= RATE, "{leases:?}");
        Ok(())
    })
    .await?;
    load.run_until(load.elapsed() + s(1.0)).await;
    let from = load.elapsed();
    // Time for a few refreshes with each master.
    cluster.roll_all(s(1.0)).await?;
    let rolled = load.elapsed();
    load.run_until(rolled + s(2.0)).await;
    let records = load.stop().await?;
    eprintln!(
        "the rolling restart took {:.1} s",
        (rolled - from).as_secs_f64()
    );
    for (name, record) in ["east", "west"].iter().zip(&records) {
        print_course(name, record);
        let tally = record.within(from..rolled + s(2.0));
        conclude!((tally.refused, tally.failed) == (0, 0), "{name}: {tally:?}");
        let rate = record.admitted_per_second(from..rolled + s(2.0));
        assert_near("admitted/s", rate, RATE, 0.05);
    }
    Ok(())
}
