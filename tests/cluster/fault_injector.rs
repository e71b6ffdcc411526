//! Injects faults into a cluster, two Envoys and the network between them.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use tokio::time::{sleep, timeout};
use tollgate_core::cluster::shard_of;
use tollgate_tests::cluster::{Cluster, ClusterSpec};
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{by_tenant, tollgate};
use tollgate_tests::ports;
use tollgate_tests::relay::{LinkQuality, Relay};

use crate::fault::{Fault, FaultTarget};
use crate::test_context::TestContext;

/// Number of coordinators.
pub(crate) const NODES: usize = 3;
/// Number of Envoys.
pub(crate) const ENVOYS: usize = 2;
/// Capacity of each scope, per second.
pub(crate) const CAPACITY: f64 = 200.0;
/// Burst of each scope, in tokens.
pub(crate) const BURST: f64 = 40.0;
/// Safe capacity of each Envoy and scope, per second.
pub(crate) const SAFE: f64 = 10.0;
/// Refresh interval of the Envoys.
pub(crate) const REFRESH: Duration = Duration::from_millis(500);
/// Length of a coordinator's lease in etcd.
pub(crate) const ETCD_LEASE_S: u64 = 2;
/// The watched tenant, which wants more than its capacity.
pub(crate) const GREEDY: &str = "greedy";

const LIMITS: &str = "limits:\n  - match: \"*\"\n    \
                      requests: {rate: 200, burst: 40, safe: 10, lease: 5s, refresh: 500ms}\n";

/// The running processes and the links between them.
pub(crate) struct FaultInjector {
    pub(crate) cluster: Cluster,
    pub(crate) proxies: Vec<Proxy>,
    /// The relays of the model clients to the coordinators.
    pub(crate) model_relays: Vec<Relay>,
    shards: u16,
}

/// An Envoy and its relays to the coordinators.
pub(crate) struct Proxy {
    pub(crate) envoy: Envoy,
    spec: EnvoySpec,
    relays: Vec<Relay>,
}

// === impl FaultInjector ===

impl FaultInjector {
    /// Starts all processes, with so many shards.
    pub(crate) async fn start(test: &TestContext, shards: u16) -> Result<Self> {
        let spec = ClusterSpec {
            members: 3,
            nodes: NODES,
            shards,
            lease_s: ETCD_LEASE_S,
            limits: LIMITS,
        };
        let cluster = Cluster::start(test.dir(), &spec).await?;
        let proxies = Proxy::start_all(test, ["east", "west"], &cluster).await?;
        let model_relays = relays(&cluster).await?;
        Ok(Self {
            cluster,
            proxies,
            model_relays,
            shards,
        })
    }

    /// Begins `fault`, and returns the index of the coordinator that it hits.
    pub(crate) async fn begin(&mut self, test: &TestContext, fault: Fault) -> Result<usize> {
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
                    // Too short for this node to become master of anything before the next one stops.
                    sleep(Duration::from_millis(500)).await;
                }
            }
            Fault::RestartEnvoy(envoy) => self.proxies[envoy].restart(test).await?,
            Fault::Clock(_, off_by_s) => {
                self.cluster.set_clock(node, off_by_s)?;
            }
            _ => self.network(fault, node, None),
        }
        Ok(node)
    }

    /// Ends `fault`, which hit `node`.
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
            _ => self.network(fault, node, Some(LinkQuality::Whole)),
        }
        Ok(())
    }

    /// Sets the links of `fault` to `healed`, or else to the quality that `fault` has.
    fn network(&self, fault: Fault, node: usize, healed: Option<LinkQuality>) {
        match fault {
            Fault::ToEtcd(_, quality) => {
                self.cluster.set_etcd_link(node, healed.unwrap_or(quality));
            }
            Fault::FromPeers(_, quality) => {
                self.cluster.set_peer_link(node, healed.unwrap_or(quality));
            }
            Fault::FromClients(_, quality) => {
                for proxy in &self.proxies {
                    proxy.relays[node].set_quality(healed.unwrap_or(quality));
                }
                self.model_relays[node].set_quality(healed.unwrap_or(quality));
            }
            Fault::OfEnvoy(envoy, quality) => {
                for relay in &self.proxies[envoy].relays {
                    relay.set_quality(healed.unwrap_or(quality));
                }
            }
            _ => {}
        }
    }

    async fn node(&self, fault: Fault) -> usize {
        match fault {
            Fault::Kill(target)
            | Fault::Freeze(target)
            | Fault::ToEtcd(target, _)
            | Fault::FromPeers(target, _)
            | Fault::FromClients(target, _)
            | Fault::Clock(target, _) => match target {
                FaultTarget::Node(index) => index,
                // Without a master, any node will do.
                FaultTarget::Master => self.master().await.unwrap_or(0),
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
    async fn start_all(
        test: &TestContext,
        names: [&str; ENVOYS],
        cluster: &Cluster,
    ) -> Result<Vec<Self>> {
        let (mut specs, mut links) = (Vec::new(), Vec::new());
        for name in names {
            let relays = relays(cluster).await?;
            let filters = vec![tollgate(&by_tenant(&json!({})))?];
            let mut spec = EnvoySpec::new(name, 2, test.upstream.address(), filters)
                .asking_any_of(relays.iter().map(Relay::address).collect());
            spec.port = ports::free()?;
            specs.push(spec);
            links.push(relays);
        }
        let envoys = Envoy::start_all(test.dir(), &specs).await?;
        let proxies = envoys.into_iter().zip(specs).zip(links);
        Ok(proxies
            .map(|((envoy, spec), relays)| Self {
                envoy,
                spec,
                relays,
            })
            .collect())
    }

    /// Kills it, and starts another in its place.
    async fn restart(&mut self, test: &TestContext) -> Result<()> {
        self.envoy.process.kill()?;
        let started = Envoy::start(test.dir(), &self.spec).await;
        self.envoy = started.context("restarting an Envoy")?;
        Ok(())
    }
}

/// Relays of one client to all coordinators.
async fn relays(cluster: &Cluster) -> Result<Vec<Relay>> {
    let mut relays = Vec::new();
    for address in cluster.addresses() {
        relays.push(Relay::to(address).await?);
    }
    Ok(relays)
}
