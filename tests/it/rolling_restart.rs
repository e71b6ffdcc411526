//! All coordinators of a cluster are stopped and started in turn, as in an upgrade: nobody is
//! refused for that.

use anyhow::{Result, ensure};
use tollgate_tests::cluster::{Cluster, Shape};
use tollgate_tests::conclude;
use tollgate_tests::load::{Flow, Load};
use tollgate_tests::wait;

use crate::scene::{Scene, assert_near, play, print_course, s};

const LIMITS: &str = "limits:\n  - match: \"*\"\n    \
                      requests: {rate: 200, burst: 40, safe: 10, lease: 4s, refresh: 500ms}\n";
/// Of each of the two Envoys: three quarters of the capacity together.
const RATE: f64 = 75.0;

#[test]
fn a_rolling_restart_of_all_coordinators_refuses_nobody() {
    play(
        "a_rolling_restart_of_all_coordinators_refuses_nobody",
        restart_all,
    );
}

async fn restart_all(scene: &Scene) -> Result<()> {
    let shape = Shape {
        members: 1,
        nodes: 3,
        shards: 3,
        lease_s: 3,
        limits: LIMITS,
    };
    let mut cluster = Cluster::start(scene.dir(), &shape).await?;
    let envoys = [
        scene.envoy_of("east", &cluster).await?,
        scene.envoy_of("west", &cluster).await?,
    ];
    let flows = envoys
        .iter()
        .map(|envoy| Flow::new(envoy.address(), "acme", RATE));
    let load = Load::start(flows);
    // The first masters of a cluster learn for one lease.
    wait::until("both Envoys to have what they want", s(20.0), async || {
        let books = cluster.coordinator(0).books("tenant/acme").await?;
        let has = |node| books.as_ref().map_or(0.0, |books| books.has(node));
        ensure!(has("east") >= RATE && has("west") >= RATE, "{books:?}");
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
    eprintln!("it took {:.1} s", (rolled - from).as_secs_f64());
    for (name, record) in ["east", "west"].iter().zip(&records) {
        print_course(name, record);
        let tally = record.within(from..rolled + s(2.0));
        conclude!((tally.refused, tally.failed) == (0, 0), "{name}: {tally:?}");
        let rate = record.admitted_per_second(from..rolled + s(2.0));
        assert_near("admitted/s", rate, RATE, 0.05);
    }
    Ok(())
}
