//! The two ways in which an Envoy finds its coordinators, as the examples have them: any that is there, or
//! the master if there is one.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::envoy::{Envoy, Spec};
use tollgate_tests::etcd::Etcd;
use tollgate_tests::filter::{by_tenant, tollgate};
use tollgate_tests::load::{Flow, Load};
use tollgate_tests::{artifact, wait};

use crate::scene::{Scene, play, s};

const LIMITS: &str = "limits:\n  - match: \"*\"\n    \
                      requests: {rate: 400, safe: 100, lease: 2s, refresh: 200ms}\n";

/// How long anything here may take on a machine that has much else to do.
const LIMIT: Duration = Duration::from_secs(60);

/// Over how long it is looked who is asked: some ten refreshes.
const LOOK: Duration = s(2.0);

/// Calls that came to a coordinator, with those that other nodes have passed on.
const CALLS: &str = "tollgate_refresh_calls_total";

/// Three coordinators with one shard.
struct Cluster {
    nodes: Vec<Coordinator>,
    _etcd: Etcd,
}

// === impl Cluster ===

impl Cluster {
    async fn start(scene: &Scene) -> Result<Self> {
        let etcd = Etcd::start(scene.dir(), 1).await?;
        let mut nodes = Vec::new();
        for name in ["a", "b", "c"] {
            let dir = scene.dir().join(name);
            fs::create_dir_all(&dir)?;
            let endpoints = etcd.endpoints_yaml();
            let cluster = format!("cluster: {{node: {name}, etcd: {{endpoints: {endpoints}}}}}");
            nodes.push(Coordinator::start(&dir, &format!("{LIMITS}{cluster}\n")).await?);
        }
        Ok(Self { nodes, _etcd: etcd })
    }

    /// An Envoy that finds them as the example called `name` says.
    async fn envoy(&self, scene: &Scene, name: &str) -> Result<Envoy> {
        let mut spec = Spec::new(
            "envoy",
            1,
            scene.upstream.address(),
            vec![tollgate(&by_tenant(&json!({})))?],
        );
        spec.clusters_file = Some(self.example(scene, name)?);
        Envoy::start(scene.dir(), &spec).await
    }

    /// The example called `name`, with the addresses of these.
    fn example(&self, scene: &Scene, name: &str) -> Result<PathBuf> {
        let file = artifact::workspace().join("envoy/examples").join(name);
        let mut text = fs::read_to_string(file)?;
        for (i, node) in self.nodes.iter().enumerate() {
            let from = format!("{{address: coordinator-{}, port_value: 7710}}", i + 1);
            ensure!(text.contains(&from), "{name} has no {from}");
            let to = format!("{{address: 127.0.0.1, port_value: {}}}", node.grpc().port());
            text = text.replace(&from, &to);
        }
        let copy = scene.dir().join(name);
        fs::write(&copy, text)?;
        Ok(copy)
    }

    /// The one that says that it is master.
    async fn master(&self) -> Result<usize> {
        for (i, node) in self.nodes.iter().enumerate() {
            if node
                .metric("tollgate_master{shard=\"0\"}")
                .await
                .unwrap_or(0.0)
                == 1.0
            {
                return Ok(i);
            }
        }
        None.context("nobody is master")
    }

    /// How many calls come to each while the load goes on for a look.
    async fn calls(&self, load: &Load) -> Result<Vec<f64>> {
        let mut calls = Vec::new();
        for node in &self.nodes {
            calls.push(node.metric(CALLS).await?);
        }
        load.run_until(load.elapsed() + LOOK).await;
        for (node, calls) in self.nodes.iter().zip(&mut calls) {
            *calls = node.metric(CALLS).await? - *calls;
        }
        Ok(calls)
    }

    /// Waits until only the master is asked, in a whole look.
    async fn until_only_the_master_is_asked(&self, load: &Load) -> Result<()> {
        wait::until("calls to the master alone", LIMIT, async || {
            let master = self.master().await?;
            let calls = self.calls(load).await?;
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
}

#[test]
fn an_envoy_that_prefers_the_master_asks_it_and_the_next_when_it_dies() {
    play(
        "an_envoy_that_prefers_the_master_asks_it_and_the_next_when_it_dies",
        async |scene| {
            let mut cluster = Cluster::start(scene).await?;
            wait::until("a master", LIMIT, async || cluster.master().await).await?;
            let envoy = cluster.envoy(scene, "prefer-master.yaml").await?;
            let load = Load::start([Flow::new(envoy.address(), "acme", 50.0)]);
            cluster.until_only_the_master_is_asked(&load).await?;
            let master = cluster.master().await?;
            cluster.nodes.remove(master).process.kill()?;
            cluster.until_only_the_master_is_asked(&load).await?;
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
            let cluster = Cluster::start(scene).await?;
            wait::until("a master", LIMIT, async || cluster.master().await).await?;
            let envoy = cluster.envoy(scene, "any-coordinator.yaml").await?;
            let load = Load::start([Flow::new(envoy.address(), "acme", 50.0)]);
            wait::until("calls to all", LIMIT, async || {
                let calls = cluster.calls(&load).await?;
                ensure!(calls.iter().all(|calls| *calls > 0.0), "{calls:?}");
                eprintln!("calls to each in {LOOK:?}: {calls:?}");
                Ok(())
            })
            .await?;
            let master = cluster.master().await?;
            for (i, node) in cluster.nodes.iter().enumerate() {
                let by_peer = node.metric("tollgate_answered_total{by=\"peer\"}").await?;
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
