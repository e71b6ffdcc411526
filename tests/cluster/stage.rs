//! A cluster, two Envoys and the ways between them, all of which can be broken.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use tokio::time::{sleep, timeout};
use tollgate_core::cluster::shard_of;
use tollgate_tests::cluster::{Cluster, Shape};
use tollgate_tests::envoy::{Envoy, Spec};
use tollgate_tests::filter::{by_tenant, tollgate};
use tollgate_tests::ports;
use tollgate_tests::relay::{Quality, Relay};

use crate::fault::{Fault, Whom};
use crate::scene::Scene;

/// Coordinators.
pub(crate) const NODES: usize = 3;
/// Envoys.
pub(crate) const ENVOYS: usize = 2;
/// Of each scope, per second.
pub(crate) const CAPACITY: f64 = 200.0;
/// Tokens, of each scope.
pub(crate) const BURST: f64 = 40.0;
/// Of each Envoy and scope, per second.
pub(crate) const SAFE: f64 = 10.0;
/// How often an Envoy asks again.
pub(crate) const REFRESH: Duration = Duration::from_millis(500);
/// After how long of silence a coordinator is taken for dead.
pub(crate) const ETCD_LEASE_S: u64 = 2;
/// Whom the faults are aimed at: the tenant that wants more than there is.
pub(crate) const GREEDY: &str = "greedy";

const LIMITS: &str = "limits:\n  - match: \"*\"\n    \
                      requests: {rate: 200, burst: 40, safe: 10, lease: 5s, refresh: 500ms}\n";

/// All that runs.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) proxies: Vec<Proxy>,
    /// The ways of the model clients to the coordinators.
    pub(crate) doors: Vec<Relay>,
    shards: u16,
}

/// An Envoy and its ways to the coordinators.
pub(crate) struct Proxy {
    pub(crate) envoy: Envoy,
    spec: Spec,
    ways: Vec<Relay>,
}

// === impl Stage ===

impl Stage {
    /// Starts all that there is, with so many shards.
    pub(crate) async fn start(scene: &Scene, shards: u16) -> Result<Self> {
        let shape = Shape {
            members: 3,
            nodes: NODES,
            shards,
            lease_s: ETCD_LEASE_S,
            limits: LIMITS,
        };
        let cluster = Cluster::start(scene.dir(), &shape).await?;
        let mut proxies = Vec::new();
        for name in ["east", "west"] {
            proxies.push(Proxy::start(scene, name, &cluster).await?);
        }
        let doors = ways(&cluster).await?;
        Ok(Self {
            cluster,
            proxies,
            doors,
            shards,
        })
    }

    /// Lets `fault` begin, and says which coordinator it is about.
    pub(crate) async fn begin(&mut self, scene: &Scene, fault: Fault) -> Result<usize> {
        let node = self.node(fault).await;
        match fault {
            Fault::Kill(_) => self.cluster.kill(node)?,
            Fault::Freeze(_) => self.cluster.freeze(node)?,
            Fault::EtcdMembers(count) => {
                for member in 0..count {
                    self.cluster.etcd.freeze(member)?;
                }
            }
            Fault::Roll => {
                for index in 0..NODES {
                    self.cluster.roll(index).await?;
                    // Hurried: the next one goes before this one is master of anything again.
                    sleep(Duration::from_millis(500)).await;
                }
            }
            Fault::RestartEnvoy(envoy) => self.proxies[envoy].restart(scene).await?,
            Fault::Clock(_, off_by_s) => {
                self.cluster.set_clock(node, off_by_s)?;
            }
            _ => self.network(fault, node, None),
        }
        Ok(node)
    }

    /// Lets `fault`, which is about `node`, end.
    pub(crate) fn end(&mut self, fault: Fault, node: usize) -> Result<()> {
        match fault {
            Fault::Kill(_) => self.cluster.revive(node)?,
            Fault::Freeze(_) => self.cluster.thaw(node)?,
            Fault::EtcdMembers(count) => {
                for member in 0..count {
                    self.cluster.etcd.thaw(member)?;
                }
            }
            Fault::Clock(..) => {
                self.cluster.set_clock(node, 0)?;
            }
            Fault::Roll | Fault::RestartEnvoy(_) => {}
            _ => self.network(fault, node, Some(Quality::Whole)),
        }
        Ok(())
    }

    /// Makes the network that `fault` is about so, or else as `fault` says.
    fn network(&self, fault: Fault, node: usize, healed: Option<Quality>) {
        match fault {
            Fault::ToEtcd(_, quality) => {
                self.cluster.make_etcd(node, healed.unwrap_or(quality));
            }
            Fault::FromPeers(_, quality) => {
                self.cluster.make_peers(node, healed.unwrap_or(quality));
            }
            Fault::FromClients(_, quality) => {
                for proxy in &self.proxies {
                    proxy.ways[node].make(healed.unwrap_or(quality));
                }
                self.doors[node].make(healed.unwrap_or(quality));
            }
            Fault::OfEnvoy(envoy, quality) => {
                for way in &self.proxies[envoy].ways {
                    way.make(healed.unwrap_or(quality));
                }
            }
            _ => {}
        }
    }

    async fn node(&self, fault: Fault) -> usize {
        match fault {
            Fault::Kill(whom)
            | Fault::Freeze(whom)
            | Fault::ToEtcd(whom, _)
            | Fault::FromPeers(whom, _)
            | Fault::FromClients(whom, _)
            | Fault::Clock(whom, _) => match whom {
                Whom::Node(index) => index,
                // Where there is no master anyhow, any node will do.
                Whom::Master => self.master().await.unwrap_or(0),
            },
            _ => 0,
        }
    }

    async fn master(&self) -> Result<usize> {
        let scope = format!("tenant/{GREEDY}");
        let shard = shard_of(&scope, self.shards.try_into()?).0;
        timeout(Duration::from_secs(1), self.cluster.master_of(shard)).await?
    }
}

// === impl Proxy ===

impl Proxy {
    async fn start(scene: &Scene, name: &str, cluster: &Cluster) -> Result<Self> {
        let ways = ways(cluster).await?;
        let filters = vec![tollgate(&by_tenant(&json!({})))?];
        let mut spec = Spec::new(name, 2, scene.upstream.address(), filters)
            .asking_any_of(ways.iter().map(Relay::address).collect());
        spec.port = ports::free()?;
        let envoy = Envoy::start(scene.dir(), &spec).await?;
        Ok(Self { envoy, spec, ways })
    }

    /// Kills it, and starts another in its place.
    async fn restart(&mut self, scene: &Scene) -> Result<()> {
        self.envoy.process.kill()?;
        let started = Envoy::start(scene.dir(), &self.spec).await;
        self.envoy = started.context("restarting an Envoy")?;
        Ok(())
    }
}

/// Ways of one client to all coordinators.
async fn ways(cluster: &Cluster) -> Result<Vec<Relay>> {
    let mut ways = Vec::new();
    for address in cluster.addresses() {
        ways.push(Relay::to(address).await?);
    }
    Ok(ways)
}
