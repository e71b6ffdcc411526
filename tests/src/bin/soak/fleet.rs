//! Processes, load and faults of a soak.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::time::sleep;
use tollgate_tests::cluster::{Cluster, ClusterSpec};
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter;
use tollgate_tests::load::{Flow, Load, sum};
use tollgate_tests::upstream::Upstream;

use crate::churn::Churn;
use crate::fault::{Fault, LASTS};
use crate::sample::{Latencies, Sample};

/// The Envoys, by node id.
pub(crate) const ENVOYS: [&str; 2] = ["east", "west"];
/// Number of coordinators.
pub(crate) const NODES: usize = 3;
/// Capacity of each tenant, in requests per second.
pub(crate) const CAPACITY: f64 = 200.0;
/// Burst of each tenant, in tokens.
pub(crate) const BURST: f64 = 40.0;
/// Requests per second of the greedy tenant to each Envoy.
const GREEDY_RATE: f64 = 150.0;
/// Pause between the nodes of a rolling restart.
const ROLL_PAUSE: Duration = Duration::from_secs(1);

/// Together the safe capacities are below the capacity, so that it bounds the fleet also when all
/// coordinators are away.
const LIMITS: &str = "limits:\n  - match: \"*\"\n    \
                      requests: {rate: 200, burst: 40, safe: 50, lease: 5s, refresh: 500ms}\n";

/// The running processes and load.
pub(crate) struct SoakFleet {
    cluster: Cluster,
    envoys: Vec<Envoy>,
    load: Load,
    churns: Vec<Churn>,
    /// Time of the last sample, since the load's start.
    sampled: Duration,
    reloads: u64,
    _upstream: Upstream,
}

// === impl SoakFleet ===

impl SoakFleet {
    /// Starts all processes, then the load.
    pub(crate) async fn start(dir: &Path) -> Result<Self> {
        let upstream = Upstream::start().await?;
        let spec = ClusterSpec {
            members: 1,
            nodes: NODES,
            shards: 3,
            lease_s: 2,
            limits: LIMITS,
        };
        let cluster = Cluster::start(dir, &spec).await?;
        let filters = filters(0)?;
        let specs = ENVOYS.map(|name| {
            EnvoySpec::new(name, 2, upstream.address(), filters.clone())
                .asking_any_of(cluster.addresses())
        });
        let envoys = Envoy::start_all(dir, &specs).await?;
        let flow = |envoy: &Envoy| Flow::new(envoy.address(), "greedy", GREEDY_RATE);
        let load = Load::start(envoys.iter().map(flow));
        let churns = ENVOYS.iter().zip(&envoys);
        let churns = churns.map(|(name, envoy)| Churn::start(name, envoy.address()));
        Ok(Self {
            churns: churns.collect(),
            cluster,
            envoys,
            load,
            sampled: Duration::ZERO,
            reloads: 0,
            _upstream: upstream,
        })
    }

    /// Returns the time since the load's start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.load.elapsed()
    }

    /// Lets the load run until `at`.
    pub(crate) async fn run_until(&self, at: Duration) {
        self.load.run_until(at).await;
    }

    /// Samples the processes, and the load since the last sample.
    pub(crate) async fn sample(&mut self) -> Result<Sample> {
        let at = self.elapsed();
        let window = std::mem::replace(&mut self.sampled, at)..at;
        let seconds = window.end.saturating_sub(window.start).as_secs_f64();
        let records: Vec<_> = (0..self.envoys.len())
            .map(|i| self.load.record(i))
            .collect();
        let tally = sum(&records).within(window);
        let answers: Vec<_> = self.churns.iter().map(Churn::take).collect();
        let latencies = answers.iter().flat_map(|answers| &answers.latencies);
        let mut envoy_bytes = 0;
        let (mut vm_bytes, mut slots) = (0, 0);
        for envoy in &self.envoys {
            envoy_bytes = envoy.process.memory_bytes()?.max(envoy_bytes);
            vm_bytes = stat(envoy, "vm_memory_bytes").await?.max(vm_bytes);
            slots = stat(envoy, "slots_used").await?.max(slots);
        }
        let nodes = (0..self.cluster.len()).map(|node| {
            let process = &self.cluster.coordinator(node).process;
            process.memory_bytes().unwrap_or_default()
        });
        Ok(Sample {
            at,
            admitted: tally.admitted as f64 / seconds,
            failures: tally.failed + answers.iter().map(|a| a.failures).sum::<u64>(),
            latencies: Latencies::of(latencies.copied().collect()),
            tenants: answers.iter().map(|answers| answers.tenants).sum(),
            envoy_bytes,
            vm_bytes,
            slots,
            coordinator_bytes: nodes.max().unwrap_or_default(),
        })
    }

    /// Injects `fault` and waits for its end.
    pub(crate) async fn inject(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::Kill(node) => self.cluster.kill(node)?,
            Fault::Freeze(node) => self.cluster.freeze(node)?,
            Fault::FreezeEtcd => self.cluster.etcd.freeze(0)?,
            Fault::KillAll => (0..NODES).try_for_each(|node| self.cluster.kill(node))?,
            Fault::Roll => return self.cluster.roll_all(ROLL_PAUSE).await,
            Fault::Reload => return self.reload().await,
        }
        sleep(LASTS).await;
        match fault {
            Fault::Kill(node) => self.cluster.revive(node)?,
            Fault::Freeze(node) => self.cluster.thaw(node)?,
            Fault::FreezeEtcd => self.cluster.etcd.thaw(0)?,
            Fault::KillAll => (0..NODES).try_for_each(|node| self.cluster.revive(node))?,
            Fault::Roll | Fault::Reload => {}
        }
        self.cluster.wait_until_ready().await
    }

    /// Gives each Envoy a configuration that differs from the one before.
    async fn reload(&mut self) -> Result<()> {
        self.reloads += 1;
        for envoy in &mut self.envoys {
            let listener = ("main".to_owned(), filters(self.reloads)?);
            let taken = envoy.configure(&[listener]).await?;
            ensure!(taken, "reload {} is refused", self.reloads);
        }
        Ok(())
    }
}

// === free functions ===

/// The filters of an Envoy after so many reloads. What differs is nothing that the load could meet.
fn filters(reloads: u64) -> Result<Vec<Value>> {
    let plugin = filter::by_tenant(&json!({"max_pending": 1000 + reloads % 2}));
    Ok(vec![filter::tollgate(&plugin)?])
}

/// Reads a statistic of the filter.
async fn stat(envoy: &Envoy, name: &str) -> Result<u64> {
    envoy.stat(&format!("wasmcustom.tollgate.{name}")).await
}
