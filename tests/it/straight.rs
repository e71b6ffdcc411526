//! An Envoy that asks the master of each scope's shard straight away, as the example has it.

use std::num::NonZeroU16;

use anyhow::{Result, ensure};
use serde_json::json;
use tollgate_core::cluster::{ShardId, shard_of};
use tollgate_tests::conclude;
use tollgate_tests::filter::tenant_rule;
use tollgate_tests::load::{Flow, Load};
use tollgate_tests::wait;

use crate::coordinators::{BY_BOOKS, BY_PEER, Cluster, LIMIT, LOOK};
use crate::scene::play;

const SHARDS: NonZeroU16 = NonZeroU16::new(3).unwrap();

/// Two tenants of each shard.
fn tenants() -> Vec<String> {
    let names = |shard| {
        let all = (0..).map(|n| format!("t{n}"));
        let of = move |name: &String| shard_of(&format!("tenant/{name}"), SHARDS) == shard;
        all.filter(of).take(2)
    };
    ShardId::all(SHARDS).flat_map(names).collect()
}

/// Waits until nothing is passed on in a whole look, while each shard has a master and each node answers.
async fn until_all_is_straight(cluster: &Cluster, load: &Load) -> Result<()> {
    wait::until("nothing passed on", LIMIT, async || {
        cluster.masters(SHARDS).await?;
        let before = cluster.metric(BY_PEER).await?;
        let answered = cluster.growth(load, BY_BOOKS).await?;
        let passed_on = cluster.metric(BY_PEER).await?;
        ensure!(passed_on == before, "{before:?}, then {passed_on:?}");
        ensure!(
            answered.iter().all(|answered| *answered >= 3.0),
            "{answered:?}"
        );
        eprintln!("answered by each in {LOOK:?}: {answered:?}, passed on so far: {passed_on:?}");
        Ok(())
    })
    .await
}

#[test]
fn an_envoy_that_knows_the_shards_asks_their_masters_and_others_when_one_dies() {
    play(
        "an_envoy_that_knows_the_shards_asks_their_masters_and_others_when_one_dies",
        async |scene| {
            let mut cluster = Cluster::start(scene, SHARDS.get()).await?;
            wait::until("a shard for each", LIMIT, async || {
                let masters = cluster.masters(SHARDS).await?;
                ensure!(masters.len() == cluster.nodes.len(), "{masters:?}");
                Ok(())
            })
            .await?;
            let shards = ShardId::all(SHARDS).map(|shard| format!("tollgate-shard-{shard}"));
            // As the limits say, which are known from the first answer on.
            let rule = tenant_rule(100.0);
            let more = json!({"shards": shards.collect::<Vec<_>>(), "scopes": [rule]});
            let example = "straight-to-the-shards.yaml";
            let envoy = cluster.envoy(scene, example, &more).await?;
            let to = |tenant: String| Flow::new(envoy.address(), &tenant, 20.0);
            let load = Load::start(tenants().into_iter().map(to));
            until_all_is_straight(&cluster, &load).await?;
            cluster.nodes.remove(1).process.kill()?;
            until_all_is_straight(&cluster, &load).await?;
            // A fifth of what each may have without a lease.
            for record in load.stop().await? {
                let total = record.total();
                conclude!((total.refused, total.failed) == (0, 0), "{total:?}");
            }
            Ok(())
        },
    );
}
