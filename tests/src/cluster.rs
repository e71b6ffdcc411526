//! Several real coordinators that elect through a real etcd, over networks that can be broken.
//!
//! Each node reaches etcd by ways of its own, and the other nodes reach it by one way, whoever they
//! are: an address that a node advertises cannot tell who calls.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::time::sleep;

use crate::coordinator::Coordinator;
use crate::etcd::Etcd;
use crate::relay::{Quality, Relay};
use crate::wall_clock::WallClock;
use crate::{ports, wait};

/// How long an election may take, on a machine that has much else to do.
const ELECTION_LIMIT: Duration = Duration::from_secs(30);
/// How long a node that was told to stop may take: it hands over, and lets calls end.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// What a cluster is made of.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    /// Members of etcd.
    pub members: usize,
    /// Coordinators.
    pub nodes: usize,
    /// Between how many shards the scopes are divided.
    pub shards: u16,
    /// After how long of silence a node is taken for dead, in seconds.
    pub lease_s: u64,
    /// What the nodes have in common: YAML with `limits` and what else there is.
    pub limits: &'a str,
}

/// A running cluster.
#[derive(Debug)]
pub struct Cluster {
    /// Where the nodes elect.
    pub etcd: Etcd,
    nodes: Vec<Node>,
    shards: u16,
}

/// A coordinator of a cluster.
#[derive(Debug)]
struct Node {
    coordinator: Coordinator,
    condition: Condition,
    to_etcd: Vec<Relay>,
    from_peers: Relay,
    clock: Option<WallClock>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
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
    pub async fn start(dir: &Path, shape: &Shape<'_>) -> Result<Self> {
        let etcd = Etcd::start(dir, shape.members).await?;
        let mut nodes = Vec::new();
        for index in 0..shape.nodes {
            nodes.push(Node::spawn(dir, shape, index, &etcd).await?);
        }
        let mut cluster = Self {
            etcd,
            nodes,
            shards: shape.shards,
        };
        for node in &mut cluster.nodes {
            node.coordinator.ready().await?;
        }
        cluster.is_led().await?;
        Ok(cluster)
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The coordinator that is node `index`.
    pub fn coordinator(&self, index: usize) -> &Coordinator {
        &self.nodes[index].coordinator
    }

    /// Where clients reach the nodes.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let nodes = self.nodes.iter();
        nodes.map(|node| node.coordinator.grpc()).collect()
    }

    /// Waits until each shard has one master among the nodes that run.
    ///
    /// # Errors
    /// When that takes too long.
    pub async fn is_led(&self) -> Result<()> {
        wait::until("masters of all shards", ELECTION_LIMIT, async || {
            let masters = self.masters().await?;
            let led = masters.iter().flatten().count();
            ensure!(led == usize::from(self.shards), "only of {led}");
            Ok(())
        })
        .await
    }

    /// The master of each shard, as the nodes that run say of themselves.
    ///
    /// # Errors
    /// When a node that runs does not answer, or two say that they are.
    pub async fn masters(&self) -> Result<Vec<Option<usize>>> {
        let mut masters = vec![None; usize::from(self.shards)];
        for (index, node) in self.nodes.iter().enumerate() {
            if node.condition != Condition::Runs {
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

    /// The node that is master of `shard`, as it says.
    ///
    /// # Errors
    /// When none does.
    pub async fn master_of(&self, shard: u16) -> Result<usize> {
        let masters = self.masters().await?;
        let master = masters.get(usize::from(shard)).copied().flatten();
        master.context("there is no master")
    }

    /// Kills node `index` where it stands.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub fn kill(&mut self, index: usize) -> Result<()> {
        let node = &mut self.nodes[index];
        if node.condition != Condition::Dead {
            node.coordinator.process.kill()?;
            node.condition = Condition::Dead;
        }
        Ok(())
    }

    /// Starts node `index` again if it was killed, without waiting until it serves.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn revive(&mut self, index: usize) -> Result<()> {
        let node = &mut self.nodes[index];
        if node.condition == Condition::Dead {
            node.coordinator.spawn_again()?;
            node.condition = Condition::Runs;
        }
        Ok(())
    }

    /// Stops node `index` where it is, unless it is dead.
    ///
    /// # Errors
    /// When the process has gone by itself.
    pub fn freeze(&mut self, index: usize) -> Result<()> {
        let node = &mut self.nodes[index];
        if node.condition == Condition::Runs {
            node.coordinator.process.freeze()?;
            node.condition = Condition::Frozen;
        }
        Ok(())
    }

    /// Lets node `index` go on if it was frozen.
    ///
    /// # Errors
    /// When the process has gone by itself.
    pub fn thaw(&mut self, index: usize) -> Result<()> {
        let node = &mut self.nodes[index];
        if node.condition == Condition::Frozen {
            node.coordinator.process.thaw()?;
            node.condition = Condition::Runs;
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
        if node.condition != Condition::Runs {
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

    /// Stops and starts each node in turn, as an upgrade would: the next one when the cluster is as
    /// it was, and `pause` later.
    ///
    /// # Errors
    /// When a node does not go, or does not come back.
    pub async fn roll_all(&mut self, pause: Duration) -> Result<()> {
        for index in 0..self.len() {
            self.roll(index).await?;
            self.nodes[index].coordinator.ready().await?;
            self.is_led().await?;
            sleep(pause).await;
        }
        Ok(())
    }

    /// Waits until every node serves.
    ///
    /// # Errors
    /// When one has ended, or does not in time.
    pub async fn is_ready(&mut self) -> Result<()> {
        for node in &mut self.nodes {
            node.coordinator.ready().await?;
        }
        Ok(())
    }

    /// Makes the ways from node `index` to etcd so.
    pub fn make_etcd(&self, index: usize, quality: Quality) {
        for relay in &self.nodes[index].to_etcd {
            relay.make(quality);
        }
    }

    /// Makes the way from the other nodes to node `index` so.
    pub fn make_peers(&self, index: usize, quality: Quality) {
        self.nodes[index].from_peers.make(quality);
    }

    /// Sets the wall clock of node `index` off by so many seconds from the machine's. False if
    /// there is no way to do that here.
    ///
    /// # Errors
    /// When the file that says so cannot be written.
    pub fn set_clock(&self, index: usize, off_by_s: i64) -> Result<bool> {
        match &self.nodes[index].clock {
            Some(clock) => clock.set(off_by_s).map(|()| true),
            None => Ok(false),
        }
    }
}

// === impl Node ===

impl Node {
    async fn spawn(dir: &Path, shape: &Shape<'_>, index: usize, etcd: &Etcd) -> Result<Self> {
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
            shape.shards,
            endpoints.join(", "),
            shape.lease_s,
            shape.limits
        );
        let clock = WallClock::try_new(&dir.join(format!("{name}.clock")))?;
        let environment = clock.as_ref().map(WallClock::environment);
        let environment = environment.unwrap_or_default();
        let coordinator = Coordinator::spawn(dir, &name, &config, (grpc, http), environment)?;
        Ok(Self {
            coordinator,
            condition: Condition::Runs,
            to_etcd,
            from_peers,
            clock,
        })
    }
}
