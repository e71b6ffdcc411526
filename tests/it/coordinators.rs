//! Three coordinators, and Envoys that find them as in the examples.

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
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::etcd::Etcd;
use tollgate_tests::filter::{by_tenant, tollgate};
use tollgate_tests::load::Load;

use crate::test_context::{TestContext, s};

const LIMITS: &str = "limits:\n  - match: \"*\"\n    \
                      requests: {rate: 400, safe: 100, lease: 2s, refresh: 200ms}\n";

/// Longest wait for a condition, on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Length of a measurement of calls: some ten refreshes.
pub(crate) const MEASUREMENT: Duration = s(2.0);

/// Metric of the scopes that a coordinator answered itself.
pub(crate) const ANSWERED_LOCALLY: &str = "tollgate_answered_total{by=\"local\"}";

/// Metric of the scopes that a coordinator forwarded to others.
pub(crate) const ANSWERED_BY_PEER: &str = "tollgate_answered_total{by=\"peer\"}";

/// Three coordinators, called a, b and c.
pub(crate) struct ExampleCluster {
    pub(crate) nodes: Vec<Coordinator>,
    _etcd: Etcd,
}

// === impl ExampleCluster ===

impl ExampleCluster {
    /// Starts the coordinators with so many `shards`.
    pub(crate) async fn start(test: &TestContext, shards: u16) -> Result<Self> {
        Self::start_with(test, shards, LIMITS).await
    }

    /// The same with other `limits`.
    pub(crate) async fn start_with(test: &TestContext, shards: u16, limits: &str) -> Result<Self> {
        let etcd = Etcd::start(test.dir(), 1).await?;
        let mut nodes = Vec::new();
        for name in ["a", "b", "c"] {
            let dir = test.dir().join(name);
            fs::create_dir_all(&dir)?;
            let endpoints = etcd.endpoints_yaml();
            let cluster = format!(
                "cluster: {{node: {name}, shards: {shards}, etcd: {{endpoints: {endpoints}}}}}"
            );
            nodes.push(Coordinator::start(&dir, &format!("{limits}{cluster}\n")).await?);
        }
        Ok(Self { nodes, _etcd: etcd })
    }

    /// Starts an Envoy that finds the coordinators as in the example called `name`, with `more` in the
    /// filter's configuration.
    pub(crate) async fn envoy(
        &self,
        test: &TestContext,
        name: &str,
        more: &Value,
    ) -> Result<Envoy> {
        self.envoy_called(test, "envoy", name, more).await
    }

    /// The same of an Envoy with a name of its own.
    pub(crate) async fn envoy_called(
        &self,
        test: &TestContext,
        envoy: &str,
        name: &str,
        more: &Value,
    ) -> Result<Envoy> {
        let filter = tollgate(&by_tenant(more))?;
        let mut spec = EnvoySpec::new(envoy, 1, test.upstream.address(), vec![filter]);
        spec.clusters_file = Some(self.example(test, name)?);
        Envoy::start(test.dir(), &spec).await
    }

    /// Writes the example called `name` with the addresses of these coordinators.
    fn example(&self, test: &TestContext, name: &str) -> Result<PathBuf> {
        let file = artifact::workspace().join("envoy/examples").join(name);
        let mut text = fs::read_to_string(file)?;
        for (i, node) in self.nodes.iter().enumerate() {
            let from = format!("{{address: coordinator-{}, port_value: 7710}}", i + 1);
            ensure!(text.contains(&from), "{name} has no {from}");
            let to = format!("{{address: 127.0.0.1, port_value: {}}}", node.grpc().port());
            text = text.replace(&from, &to);
        }
        let copy = test.dir().join(name);
        fs::write(&copy, text)?;
        Ok(copy)
    }

    /// Index of the master of `shard`.
    pub(crate) async fn master(&self, shard: usize) -> Result<usize> {
        let name = format!("tollgate_master{{shard=\"{shard}\"}}");
        for (i, node) in self.nodes.iter().enumerate() {
            if node.metric(&name).await.unwrap_or(0.0) == 1.0 {
                return Ok(i);
            }
        }
        None.with_context(|| format!("shard {shard} has no master"))
    }

    /// Indexes of the masters of all `shards`.
    pub(crate) async fn masters(&self, shards: NonZeroU16) -> Result<BTreeSet<usize>> {
        let mut masters = BTreeSet::new();
        for shard in ShardId::all(shards) {
            masters.insert(self.master(shard.index()).await?);
        }
        Ok(masters)
    }

    /// Growth of the metric called `name` at each coordinator during one measurement under load.
    pub(crate) async fn growth(&self, load: &Load, name: &str) -> Result<Vec<f64>> {
        let before = self.metric(name).await?;
        load.run_until(load.elapsed() + MEASUREMENT).await;
        let after = self.metric(name).await?;
        let grown = after
            .iter()
            .zip(&before)
            .map(|(after, before)| after - before);
        Ok(grown.collect())
    }

    /// Value of the metric called `name` at each coordinator.
    pub(crate) async fn metric(&self, name: &str) -> Result<Vec<f64>> {
        let mut values = Vec::new();
        for node in &self.nodes {
            values.push(node.metric(name).await?);
        }
        Ok(values)
    }
}
