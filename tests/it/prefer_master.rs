//! Two ways in which an Envoy finds its coordinators, as in the examples: any that serves, or the master if
//! there is one.

use anyhow::{Result, ensure};
use serde_json::json;
use tollgate_tests::load::{Flow, Load};
use tollgate_tests::wait;

use crate::coordinators::{ANSWERED_BY_PEER, ExampleCluster, LIMIT, MEASUREMENT};
use crate::test_context::run_test;

/// Metric of the calls to a coordinator, including calls forwarded by other nodes.
const CALLS: &str = "tollgate_refresh_calls_total";

/// Waits until only the master is called, during a whole measurement.
async fn until_only_the_master_is_called(cluster: &ExampleCluster, load: &Load) -> Result<()> {
    wait::until("calls to the master alone", LIMIT, async || {
        let master = cluster.master(0).await?;
        let calls = cluster.growth(load, CALLS).await?;
        let others = calls.iter().sum::<f64>() - calls[master];
        ensure!(
            calls[master] >= 3.0 && others == 0.0,
            "{calls:?}, master {master}"
        );
        eprintln!("calls to each in {MEASUREMENT:?}: {calls:?}, master {master}");
        Ok(())
    })
    .await
}

#[test]
fn an_envoy_that_prefers_the_master_asks_it_and_the_next_when_it_dies() {
    run_test(
        "an_envoy_that_prefers_the_master_asks_it_and_the_next_when_it_dies",
        async |test| {
            let mut cluster = ExampleCluster::start(test, 1).await?;
            wait::until("a master", LIMIT, async || cluster.master(0).await).await?;
            let envoy = cluster
                .envoy(test, "prefer-master.yaml", &json!({}))
                .await?;
            let load = Load::start([Flow::new(envoy.address(), "acme", 50.0)]);
            until_only_the_master_is_called(&cluster, &load).await?;
            let master = cluster.master(0).await?;
            cluster.nodes.remove(master).process.kill()?;
            until_only_the_master_is_called(&cluster, &load).await?;
            assert_eq!(load.stop().await?[0].total().failed, 0);
            Ok(())
        },
    );
}

#[test]
fn an_envoy_that_asks_any_coordinator_spreads_its_calls() {
    run_test(
        "an_envoy_that_asks_any_coordinator_spreads_its_calls",
        async |test| {
            let cluster = ExampleCluster::start(test, 1).await?;
            wait::until("a master", LIMIT, async || cluster.master(0).await).await?;
            let envoy = cluster
                .envoy(test, "any-coordinator.yaml", &json!({}))
                .await?;
            let load = Load::start([Flow::new(envoy.address(), "acme", 50.0)]);
            wait::until("calls to all", LIMIT, async || {
                let calls = cluster.growth(&load, CALLS).await?;
                ensure!(calls.iter().all(|calls| *calls > 0.0), "{calls:?}");
                eprintln!("calls to each in {MEASUREMENT:?}: {calls:?}");
                Ok(())
            })
            .await?;
            let master = cluster.master(0).await?;
            let by_peer = cluster.metric(ANSWERED_BY_PEER).await?;
            for (i, by_peer) in by_peer.into_iter().enumerate() {
                assert_eq!(
                    by_peer > 0.0,
                    i != master,
                    "{i}: {by_peer}, master {master}"
                );
            }
            assert_eq!(load.stop().await?[0].total().failed, 0);
            Ok(())
        },
    );
}
