//! An Envoy that calls the master of each scope's shard directly, as in the example.

use std::num::NonZeroU16;

use anyhow::{Result, ensure};
use serde_json::json;
use tollgate_core::cluster::{ShardId, shard_of};
use tollgate_tests::conclude;
use tollgate_tests::filter::tenant_rule;
use tollgate_tests::load::{Flow, Load};
use tollgate_tests::wait;

use crate::coordinators::{ANSWERED_BY_PEER, ANSWERED_LOCALLY, ExampleCluster, LIMIT, MEASUREMENT};
use crate::test_context::run_test;

const SHARDS: NonZeroU16 = NonZeroU16::new(3).unwrap();

/// Names of two tenants of each shard.
fn tenants() -> Vec<String> {
    let names = |shard| {
        let all = (0..).map(|n| format!("t{n}"));
        let of = move |name: &String| shard_of(&format!("tenant/{name}"), SHARDS) == shard;
        all.filter(of).take(2)
    };
    ShardId::all(SHARDS).flat_map(names).collect()
}

/// Waits until no call is forwarded during a whole measurement, while each shard has a master and each node
/// answers.
async fn until_nothing_is_forwarded(cluster: &ExampleCluster, load: &Load) -> Result<()> {
    wait::until("no forwarded calls", LIMIT, async || {
        cluster.masters(SHARDS).await?;
        let before = cluster.metric(ANSWERED_BY_PEER).await?;
        let answered = cluster.growth(load, ANSWERED_LOCALLY).await?;
        let forwarded = cluster.metric(ANSWERED_BY_PEER).await?;
        ensure!(forwarded == before, "{before:?}, then {forwarded:?}");
        ensure!(
            answered.iter().all(|answered| *answered >= 3.0),
            "{answered:?}"
        );
        eprintln!(
            "answered by each in {MEASUREMENT:?}: {answered:?}, forwarded so far: {forwarded:?}"
        );
        Ok(())
    })
    .await
}

#[test]
fn an_envoy_that_knows_the_shards_asks_their_masters_and_others_when_one_dies() {
    run_test(
        "an_envoy_that_knows_the_shards_asks_their_masters_and_others_when_one_dies",
        async |test| {
            let mut cluster = ExampleCluster::start(test, SHARDS.get()).await?;
            wait::until("a shard for each", LIMIT, async || {
                let masters = cluster.masters(SHARDS).await?;
                ensure!(masters.len() == cluster.nodes.len(), "{masters:?}");
                Ok(())
            })
            .await?;
            let shards = ShardId::all(SHARDS).map(|shard| format!("tollgate-shard-{shard}"));
            // The safe capacity of the limits, which the first answer tells.
            let rule = tenant_rule(100.0);
            let more = json!({"shards": shards.collect::<Vec<_>>(), "scopes": [rule]});
            let example = "straight-to-the-shards.yaml";
            let envoy = cluster.envoy(test, example, &more).await?;
            let to = |tenant: String| Flow::new(envoy.address(), &tenant, 20.0);
            let load = Load::start(tenants().into_iter().map(to));
            until_nothing_is_forwarded(&cluster, &load).await?;
            cluster.nodes.remove(1).process.kill()?;
            until_nothing_is_forwarded(&cluster, &load).await?;
            // Each load is a fifth of the safe capacity.
            for record in load.stop().await? {
                let total = record.total();
                conclude!((total.refused, total.failed) == (0, 0), "{total:?}");
            }
            Ok(())
        },
    );
}
