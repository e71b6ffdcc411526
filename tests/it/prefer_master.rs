//! The two ways in which an Envoy finds its coordinators, as the examples have them: any that is there, or
//! the master if there is one.

use anyhow::{Result, ensure};
use serde_json::json;
use tollgate_tests::load::{Flow, Load};
use tollgate_tests::wait;

use crate::coordinators::{BY_PEER, Cluster, LIMIT, LOOK};
use crate::scene::play;

/// Calls that came to a coordinator, with those that other nodes have passed on.
const CALLS: &str = "tollgate_refresh_calls_total";

/// Waits until only the master is asked, in a whole look.
async fn until_only_the_master_is_asked(cluster: &Cluster, load: &Load) -> Result<()> {
    wait::until("calls to the master alone", LIMIT, async || {
        let master = cluster.master(0).await?;
        let calls = cluster.growth(load, CALLS).await?;
        let others = calls.iter().sum::<f64>() - calls[master];
        ensure!(
            calls[master] >= 3.0 && others == 0.0,
            "{calls:?}, master {master}"
        );
        eprintln!("calls to each in {LOOK:?}: {calls:?}, master {master}");
        Ok(())
    })
    .await
}

#[test]
fn an_envoy_that_prefers_the_master_asks_it_and_the_next_when_it_dies() {
    play(
        "an_envoy_that_prefers_the_master_asks_it_and_the_next_when_it_dies",
        async |scene| {
            let mut cluster = Cluster::start(scene, 1).await?;
            wait::until("a master", LIMIT, async || cluster.master(0).await).await?;
            let envoy = cluster
                .envoy(scene, "prefer-master.yaml", &json!({}))
                .await?;
            let load = Load::start([Flow::new(envoy.address(), "acme", 50.0)]);
            until_only_the_master_is_asked(&cluster, &load).await?;
            let master = cluster.master(0).await?;
            cluster.nodes.remove(master).process.kill()?;
            until_only_the_master_is_asked(&cluster, &load).await?;
            assert_eq!(load.stop().await?[0].total().failed, 0);
            Ok(())
        },
    );
}

#[test]
fn an_envoy_that_asks_any_coordinator_spreads_its_calls() {
    play(
        "an_envoy_that_asks_any_coordinator_spreads_its_calls",
        async |scene| {
            let cluster = Cluster::start(scene, 1).await?;
            wait::until("a master", LIMIT, async || cluster.master(0).await).await?;
            let envoy = cluster
                .envoy(scene, "any-coordinator.yaml", &json!({}))
                .await?;
            let load = Load::start([Flow::new(envoy.address(), "acme", 50.0)]);
            wait::until("calls to all", LIMIT, async || {
                let calls = cluster.growth(&load, CALLS).await?;
                ensure!(calls.iter().all(|calls| *calls > 0.0), "{calls:?}");
                eprintln!("calls to each in {LOOK:?}: {calls:?}");
                Ok(())
            })
            .await?;
            let master = cluster.master(0).await?;
            let by_peer = cluster.metric(BY_PEER).await?;
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
