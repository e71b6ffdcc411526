//! A cluster of real coordinators that elect through a real etcd, over links that can be broken.
//!
//! Each node has its own relays to etcd. All other nodes reach it over one relay, because they share the
//! address that it advertises.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::time::sleep;

use crate::coordinator::Coordinator;
use crate::etcd::Etcd;
use crate::relay::{LinkQuality, Relay};
use crate::wall_clock::WallClock;
use crate::{ports, wait};

/// Longest time for an election, on a busy machine.
const ELECTION_LIMIT: Duration = Duration::from_secs(30);
/// Longest time for an orderly stop: the node hands over and lets calls end.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// Specification of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct ClusterSpec<'a> {
    /// Number of etcd members.
    pub members: usize,
    /// Number of coordinators.
    pub nodes: usize,
    /// Number of shards.
    pub shards: u16,
    /// Length of a node's lease in etcd, in seconds.
    pub lease_s: u64,
    /// Configuration that all nodes share: YAML with `limits` and any other sections.
    pub limits: &'a str,
}

/// A running cluster.
#[derive(Debug)]
pub struct Cluster {
    /// The etcd through which the nodes elect.
    pub etcd: Etcd,
    nodes: Vec<ClusterNode>,
    shards: u16,
}

/// A coordinator of a cluster.
#[derive(Debug)]
struct ClusterNode {
    coordinator: Coordinator,
    state: NodeState,
    to_etcd: Vec<Relay>,
    from_peers: Relay,
    clock: Option<WallClock>,
}

/// State of a node's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeState {
    Runs,
    Frozen,
    Dead,
}

// === impl Cluster ===

impl Cluster {
    /// Starts a cluster in `dir` and waits until each shard has a master.
    ///
    /// # Errors
    /// When a program is missing, or ends or does not serve in time.
    pub async fn start(dir: &Path, spec: &ClusterSpec<'_>) -> Result<Self> {
        let etcd = Etcd::start(dir, spec.members).await?;
        let mut nodes = Vec::new();
        for index in 0..spec.nodes {
            nodes.push(ClusterNode::spawn(dir, spec, index, &etcd).await?);
        }
        let mut cluster = Self {
            etcd,
            nodes,
            shards: spec.shards,
        };
        for node in &mut cluster.nodes {
            node.coordinator.ready().await?;
        }
        cluster.wait_for_masters().await?;
        Ok(cluster)
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether the cluster has no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The coordinator that is node `index`.
    pub fn coordinator(&self, index: usize) -> &Coordinator {
        &self.nodes[index].coordinator
    }

    /// gRPC addresses of the nodes.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let nodes = self.nodes.iter();
        nodes.map(|node| node.coordinator.grpc()).collect()
    }

    /// Waits until each shard has one master among the running nodes.
    ///
    /// # Errors
    /// When that takes too long.
    pub async fn wait_for_masters(&self) -> Result<()> {
        wait::until("masters of all shards", ELECTION_LIMIT, async || {
            let masters = self.masters().await?;
            let led = masters.iter().flatten().count();
            ensure!(
                led == usize::from(self.shards),
                "only {led} shards have one"
            );
            Ok(())
        })
        .await
    }

    /// Master of each shard, from the metrics of the running nodes.
    ///
    /// # Errors
    /// When a running node does not answer, or two are master of the same shard.
    pub async fn masters(&self) -> Result<Vec<Option<usize>>> {
        let mut masters = vec![None; usize::from(self.shards)];
        for (index, node) in self.nodes.iter().enumerate() {
            if node.state != NodeState::Runs {
                continue;
            }
            let metrics = node.coordinator.metrics().await?;
            for (shard, master) in masters.iter_mut().enumerate() {
                let name = format!("tollgate_master{{shard=\"{shard}\"}}");
                if metrics.get(&name) == Some(&1.0) {
                    let other = master.replace(index);
                    ensure!(other.is_none(), "shard {shard} has two masters");
                }
            }
        }
        Ok(masters)
    }

    /// Master of `shard`, from the metrics of the running nodes.
    ///
    /// # Errors
    /// When there is none.
    pub async fn master_of(&self, shard: u16) -> Result<usize> {
        let masters = self.masters().await?;
        let master = masters.get(usize::from(shard)).copied().flatten();
        master.context("the shard has no master")
    }

    /// Kills node `index` (SIGKILL).
    ///
    /// # Errors
    /// When it cannot be killed.
    pub fn kill(&mut self, index: usize) -> Result<()> {
        let node = &mut self.nodes[index];
        if node.state != NodeState::Dead {
            node.coordinator.process.kill()?;
            node.state = NodeState::Dead;
        }
        Ok(())
    }

    /// Starts node `index` again if it was killed, without waiting until it serves.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn revive(&mut self, index: usize) -> Result<()> {
        let node = &mut self.nodes[index];
        if node.state == NodeState::Dead {
            node.coordinator.spawn_again()?;
            node.state = NodeState::Runs;
        }
        Ok(())
    }

    /// Stops node `index` (SIGSTOP), unless it is dead.
    ///
    /// # Errors
    /// When the process has gone by itself.
    pub fn freeze(&mut self, index: usize) -> Result<()> {
        let node = &mut self.nodes[index];
        if node.state == NodeState::Runs {
            node.coordinator.process.freeze()?;
            node.state = NodeState::Frozen;
        }
        Ok(())
    }

    /// Lets node `index` go on if it was frozen.
    ///
    /// # Errors
    /// When the process has gone by itself.
    pub fn thaw(&mut self, index: usize) -> Result<()> {
        let node = &mut self.nodes[index];
        if node.state == NodeState::Frozen {
            node.coordinator.process.thaw()?;
            node.state = NodeState::Runs;
        }
        Ok(())
    }

    /// Stops node `index` in order, waits until it has gone, and starts it again, without waiting
    /// until it serves. Nothing happens to one that does not run.
    ///
    /// # Errors
    /// When it does not go.
    pub async fn roll(&mut self, index: usize) -> Result<()> {
        let node = &mut self.nodes[index];
        if node.state != NodeState::Runs {
            return Ok(());
        }
        let process = &mut node.coordinator.process;
        process.terminate()?;
        wait::until("a node to stop", STOP_LIMIT, async || {
            ensure!(process.has_ended()?, "it has not ended");
            Ok(())
        })
        .await?;
        node.coordinator.spawn_again()
    }

    /// Stops and starts each node in turn, as an upgrade would: the next one when all shards have masters
    /// again, and `pause` later.
    ///
    /// # Errors
    /// When a node does not go, or does not come back.
    pub async fn roll_all(&mut self, pause: Duration) -> Result<()> {
        for index in 0..self.len() {
            self.roll(index).await?;
            self.nodes[index].coordinator.ready().await?;
            self.wait_for_masters().await?;
            sleep(pause).await;
        }
        Ok(())
    }

    /// Waits until every node serves.
    ///
    /// # Errors
    /// When one has ended, or does not in time.
    pub async fn wait_until_ready(&mut self) -> Result<()> {
        for node in &mut self.nodes {
            node.coordinator.ready().await?;
        }
        Ok(())
    }

    /// Sets the quality of the links from node `index` to etcd.
    pub fn set_etcd_link(&self, index: usize, quality: LinkQuality) {
        for relay in &self.nodes[index].to_etcd {
            relay.set_quality(quality);
        }
    }

    /// Sets the quality of the link from the other nodes to node `index`.
    pub fn set_peer_link(&self, index: usize, quality: LinkQuality) {
        self.nodes[index].from_peers.set_quality(quality);
    }

    /// Sets the wall clock of node `index` off from the machine's by `off_by_s` seconds. Returns false
    /// without libfaketime.
    ///
    /// # Errors
    /// When libfaketime's file cannot be written.
    pub fn set_clock(&self, index: usize, off_by_s: i64) -> Result<bool> {
        match &self.nodes[index].clock {
            Some(clock) => clock.set(off_by_s).map(|()| true),
            None => Ok(false),
        }
    }
}

// === impl ClusterNode ===

impl ClusterNode {
    async fn spawn(dir: &Path, spec: &ClusterSpec<'_>, index: usize, etcd: &Etcd) -> Result<Self> {
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let (grpc, http) = (local(ports::free()?), local(ports::free()?));
        let from_peers = Relay::to(grpc).await?;
        let mut to_etcd = Vec::new();
        for member in etcd.addresses() {
            to_etcd.push(Relay::to(member).await?);
        }
        let endpoints: Vec<String> = to_etcd
            .iter()
            .map(|relay| format!("\"http://{}\"", relay.address()))
            .collect();
        let name = format!("node-{index}");
        let config = format!(
            "cluster:\n  node: {name}\n  advertise: {{grpc: \"{}\"}}\n  shards: {}\n  \
             etcd: {{endpoints: [{}], lease: {}s}}\n{}",
            from_peers.address(),
            spec.shards,
            endpoints.join(", "),
            spec.lease_s,
            spec.limits
        );
        let clock = WallClock::try_new(&dir.join(format!("{name}.clock")))?;
        let environment = clock.as_ref().map(WallClock::environment);
        let environment = environment.unwrap_or_default();
        let coordinator = Coordinator::spawn(dir, &name, &config, (grpc, http), environment)?;
        Ok(Self {
            coordinator,
            state: NodeState::Runs,
            to_etcd,
            from_peers,
            clock,
        })
    }
}
