//! Three coordinators, and Envoys that find them as the examples say.

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tollgate_core::cluster::ShardId;
use tollgate_tests::artifact;
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::envoy::{Envoy, Spec};
use tollgate_tests::etcd::Etcd;
use tollgate_tests::filter::{by_tenant, tollgate};
use tollgate_tests::load::Load;

use crate::scene::{Scene, s};

const LIMITS: &str = "limits:\n  - match: \"*\"\n    \
                      requests: {rate: 400, safe: 100, lease: 2s, refresh: 200ms}\n";

/// How long anything here may take on a machine that has much else to do.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Over how long it is looked who is asked: some ten refreshes.
pub(crate) const LOOK: Duration = s(2.0);

/// Scopes that a coordinator's own books have answered.
pub(crate) const BY_BOOKS: &str = "tollgate_answered_total{by=\"local\"}";

/// Scopes that it has passed on to others.
pub(crate) const BY_PEER: &str = "tollgate_answered_total{by=\"peer\"}";

/// Three coordinators, called a, b and c.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Coordinator>,
    _etcd: Etcd,
}

// === impl Cluster ===

impl Cluster {
    /// Starts them with so many `shards`.
    pub(crate) async fn start(scene: &Scene, shards: u16) -> Result<Self> {
        let etcd = Etcd::start(scene.dir(), 1).await?;
        let mut nodes = Vec::new();
        for name in ["a", "b", "c"] {
            let dir = scene.dir().join(name);
            fs::create_dir_all(&dir)?;
            let endpoints = etcd.endpoints_yaml();
            let cluster = format!(
                "cluster: {{node: {name}, shards: {shards}, etcd: {{endpoints: {endpoints}}}}}"
            );
            nodes.push(Coordinator::start(&dir, &format!("{LIMITS}{cluster}\n")).await?);
        }
        Ok(Self { nodes, _etcd: etcd })
    }

    /// An Envoy that finds them as the example called `name` says, with `more` in the filter's
    /// configuration.
    pub(crate) async fn envoy(&self, scene: &Scene, name: &str, more: &Value) -> Result<Envoy> {
        let filter = tollgate(&by_tenant(more))?;
        let mut spec = Spec::new("envoy", 1, scene.upstream.address(), vec![filter]);
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

    /// Which of them says that it is master of `shard`.
    pub(crate) async fn master(&self, shard: usize) -> Result<usize> {
        let name = format!("tollgate_master{{shard=\"{shard}\"}}");
        for (i, node) in self.nodes.iter().enumerate() {
            if node.metric(&name).await.unwrap_or(0.0) == 1.0 {
                return Ok(i);
            }
        }
        None.with_context(|| format!("nobody is master of {shard}"))
    }

    /// Those who are master of any of so many `shards`, each of which has one.
    pub(crate) async fn masters(&self, shards: NonZeroU16) -> Result<BTreeSet<usize>> {
        let mut masters = BTreeSet::new();
        for shard in ShardId::all(shards) {
            masters.insert(self.master(shard.index()).await?);
        }
        Ok(masters)
    }

    /// By how much the metric called `name` grows at each while the load goes on for a look.
    pub(crate) async fn growth(&self, load: &Load, name: &str) -> Result<Vec<f64>> {
        let before = self.metric(name).await?;
        load.run_until(load.elapsed() + LOOK).await;
        let after = self.metric(name).await?;
        let grown = after
            .iter()
            .zip(&before)
            .map(|(after, before)| after - before);
        Ok(grown.collect())
    }

    /// The metric called `name` of each.
    pub(crate) async fn metric(&self, name: &str) -> Result<Vec<f64>> {
        let mut values = Vec::new();
        for node in &self.nodes {
            values.push(node.metric(name).await?);
        }
        Ok(values)
    }
}
