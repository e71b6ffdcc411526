//! The coordinator: leases capacity to Envoys.
//!
//! All decisions are made in `tollgate-core`; the coordinator's crates carry them out. This one starts
//! listeners, election and lease tables together, and stops them in order. From top to bottom, each using
//! only those below it: `tollgate-apis` and `tollgate-admin` serve clients and operators, `tollgate-leases`
//! owns the lease tables, `tollgate-config` holds the configuration and the limits in force,
//! `tollgate-cluster` elects masters, `tollgate-observe` and `tollgate-net` carry logs, metrics and bytes.
//!
//! **Architecture invariant:** only the driver of `tollgate-leases` touches a lease table, so there is no
//! lock and no order of events but that of its queue.

#![forbid(unsafe_code)]

use std::fmt;
use std::num::NonZeroU16;
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tollgate_admin::history::History;
use tollgate_apis::grpc::StrictDecoding;
use tollgate_apis::health::{Health, HealthApi};
#[cfg(feature = "etcd")]
use tollgate_cluster::election::EtcdElection;
use tollgate_cluster::election::{
    Election, ElectionError, ElectionPublisher, ElectionUpdates, Peer, RunEpoch, SingleNode,
};
#[cfg(feature = "etcd")]
use tollgate_config::ClusterConfig;
use tollgate_config::catalog::store::Store;
use tollgate_config::reload::Reload;
use tollgate_config::writer::{self, CatalogWriter};
use tollgate_config::{Config, Listen};
use tollgate_core::lease_server::Start;
use tollgate_leases::nudges::{Nudges, follow_masters};
use tollgate_leases::parent::{AncestorPath, Parent};
use tollgate_leases::router::{Forwarder, Router};
use tollgate_leases::rules::RuleNames;
use tollgate_leases::shards::{ShardSupervisor, Shards};
use tollgate_leases::{DriverSettings, LeaseCount};
use tollgate_net::channels::Channels;
use tollgate_net::clock::Clock;
use tollgate_net::tls::{CertificateOwner, ClientFiles, Credentials, Newest};
use tonic_health::pb::health_server::HealthServer;

mod error;
mod listeners;
mod metrics;
mod services;
mod stored;

pub use self::error::ServerError;
use self::listeners::Acceptors;
pub use self::listeners::Listeners;
use self::metrics::Metrics;
use self::services::{Services, follow, serve_grpc, serve_http, until};
use self::stored::{begin, open_buckets, open_store};

/// Time that a connection to another node may take.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// Time that calls have to end after the shutdown began.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// Time that the orderly hand-over of all shards may take before that.
const HAND_OVER_GRACE: Duration = Duration::from_secs(5);

/// An election under way.
type Running = Pin<Box<dyn Future<Output = Result<(), ElectionError>> + Send>>;

/// Place of a coordinator in a cluster.
#[derive(Clone, Debug)]
pub struct Place {
    /// This node, as the others know it.
    pub peer: Peer,
    /// The number of shards.
    pub shards: NonZeroU16,
    /// TLS credentials for other nodes.
    pub tls: Option<ClientFiles>,
}

/// A coordinator that has everything it needs to serve.
pub struct Server {
    acceptors: Acceptors,
    clock: Clock,
    metrics: Metrics,
    writer: CatalogWriter,
    catalog: writer::CatalogHandle,
    place: Option<Place>,
    /// TLS credentials for other nodes.
    credentials: Option<Newest<Credentials>>,
    election: Running,
    /// Ends the election.
    resign: watch::Sender<()>,
    outcome: ElectionUpdates,
    supervisor: ShardSupervisor,
    shards: Shards,
    reloads: (mpsc::Sender<()>, mpsc::Receiver<()>),
    ancestors: AncestorPath,
    nudges: Nudges,
    parent: Option<Parent>,
}

/// Tasks that should not end before the shutdown, and say what they are when they do.
type Parts = JoinSet<Result<&'static str, ServerError>>;

// === impl Server ===

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// A coordinator that serves `config` on `listeners`, once it runs: in the cluster that `config`
    /// names, or alone and in one term, whose epoch is as `epoch` and the store say.
    ///
    /// # Errors
    /// If its store or the TLS files of a listener cannot be used, or if it has no epoch that Envoys
    /// would accept.
    pub async fn new(
        listeners: Listeners,
        config: Config,
        epoch: impl Into<RunEpoch>,
        start: Start,
    ) -> Result<Self, ServerError> {
        let listen = listeners.addresses().unwrap_or(config.listen);
        #[cfg(feature = "etcd")]
        if let Some(cluster) = config.cluster.clone() {
            return Self::elected_through_etcd(listeners, config, cluster).await;
        }
        let metrics = Metrics::register();
        let mut store = open_store(&config, &metrics.catalog)?;
        let epoch = begin(&mut *store, epoch.into()).await?;
        metrics.leases.set_epoch(epoch);
        let alone = SingleNode {
            peer: Peer {
                node: String::new(),
                grpc: listen.grpc.to_string(),
                http: listen.http.to_string(),
                grpc_tls: config.tls.grpc.is_some(),
                http_tls: config.tls.http.is_some(),
            },
            shards: NonZeroU16::MIN,
            epoch,
        };
        Self::elected(listeners, config, start, (None, store), alone, metrics).await
    }

    /// One that takes part in the elections of `cluster`.
    #[cfg(feature = "etcd")]
    async fn elected_through_etcd(
        listeners: Listeners,
        config: Config,
        cluster: ClusterConfig,
    ) -> Result<Self, ServerError> {
        let listen = listeners.addresses().unwrap_or(config.listen);
        let (metrics, election_metrics) = Metrics::register_in_cluster();
        let place = Place {
            peer: listen.peer(&cluster, &config.tls),
            shards: cluster.shards,
            tls: cluster.tls.clone(),
        };
        if place.peer.is_on_loopback() {
            let Peer { grpc, http, .. } = &place.peer;
            tracing::warn!(
                grpc,
                http,
                "cluster: other nodes are told loopback, where only this machine reaches it: set listen \
                 or cluster.advertise"
            );
        }
        let election = EtcdElection::new(&cluster, place.peer.clone(), election_metrics);
        // A node that is elected without a snapshot does not know that there are no leases, whatever is
        // said of the first start: the master before may have died.
        let start = Start::Learning;
        let store = open_store(&config, &metrics.catalog)?;
        let place = (Some(place), store);
        Self::elected(listeners, config, start, place, election, metrics).await
    }

    /// One that serves the shards for which `election` elects it, and passes on what is for others,
    /// from its `place` in a cluster.
    ///
    /// # Errors
    /// As those of [`Server::new`].
    pub async fn in_cluster(
        listeners: Listeners,
        config: Config,
        start: Start,
        place: Place,
        election: impl Election,
    ) -> Result<Self, ServerError> {
        let metrics = Metrics::register();
        let store = open_store(&config, &metrics.catalog)?;
        let place = (Some(place), store);
        Self::elected(listeners, config, start, place, election, metrics).await
    }

    async fn elected(
        listeners: Listeners,
        config: Config,
        start: Start,
        (place, store): (Option<Place>, Box<dyn Store>),
        election: impl Election,
        metrics: Metrics,
    ) -> Result<Self, ServerError> {
        let clock = Clock::start();
        let buckets = open_buckets(&config);
        if config.admin.tokens.is_empty() {
            tracing::warn!(
                "admin API: no admin.tokens, so everyone who reaches the HTTP port may read and write"
            );
        }
        let ancestors = AncestorPath::new(&name(&config, listeners.addresses().ok()));
        let acceptors = listeners.prepare(&config, &metrics)?;
        let bounds = config.bounds;
        let credentials = |owner, files: Option<&ClientFiles>| {
            let started = files.map(|files| files.start(owner, &metrics.tls));
            let started = started.transpose();
            started.map_err(|cause| ServerError::Tls { owner, cause })
        };
        let nodes = place.as_ref().and_then(|place| place.tls.as_ref());
        let credentials_of_nodes = credentials(CertificateOwner::Cluster, nodes)?;
        let parent = match &config.parent {
            Some(parent) => {
                let credentials = credentials(CertificateOwner::Parent, parent.tls.as_ref())?;
                let (ancestors, metrics) = (ancestors.clone(), metrics.leases.parent.clone());
                Some(Parent::new(parent, credentials, ancestors, metrics)?)
            }
            None => None,
        };
        let (writer, catalog) =
            CatalogWriter::new(store, config, clock, metrics.catalog.clone()).await?;
        let nudges = Nudges::new(metrics.nudges.clone());
        let settings = DriverSettings {
            bounds,
            leases: LeaseCount::default(),
            catalog: catalog.watch(),
            shards: place.as_ref().map(|place| place.shards),
            start,
            clock,
            metrics: metrics.leases.clone(),
            nudges: nudges.clone(),
            rules: RuleNames::default(),
            buckets,
        };
        let (supervisor, shards) = ShardSupervisor::new(settings, parent.clone());
        let (publisher, outcome) = ElectionPublisher::new(shard_count(place.as_ref()));
        let (resign, resigned) = watch::channel(());
        Ok(Self {
            acceptors,
            clock,
            metrics,
            writer,
            catalog,
            place,
            credentials: credentials_of_nodes,
            election: Box::pin(election.run(publisher, resigned)),
            resign,
            outcome,
            supervisor,
            shards,
            reloads: mpsc::channel(1),
            ancestors,
            nudges,
            parent,
        })
    }

    /// Returns the router from every API to the lease tables, here or at the master of a shard.
    fn router(&self) -> Router {
        let peers = Channels::new(CONNECT_TIMEOUT, self.credentials.clone());
        Router {
            me: self.place.as_ref().map(|place| place.peer.clone()),
            shards: self.shards.clone(),
            masters: self.outcome.masters.clone(),
            catalog: self.catalog.watch(),
            count: shard_count(self.place.as_ref()),
            forwarder: Forwarder::new(peers.clone()),
            peers,
            ancestors: self.ancestors.clone(),
            nudges: self.nudges.clone(),
            metrics: self.metrics.leases.clone(),
        }
    }

    /// Send to this to have the configuration file looked at now. A place that is taken says that
    /// it will be.
    pub fn reloads(&self) -> mpsc::Sender<()> {
        self.reloads.0.clone()
    }

    /// Serves until `shutdown` resolves; then gives up what it leads, stops accepting, lets calls end
    /// within five seconds, and returns.
    ///
    /// # Errors
    /// If a part fails or ends before `shutdown`.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) -> Result<(), ServerError> {
        let (stop, stopped) = watch::channel(());
        let newest = self.catalog.config();
        let alone = self.place.is_none();
        let router = self.router();
        let mut parts = JoinSet::new();
        let (supervisor, events) = (self.supervisor, self.outcome.events);
        parts.spawn(async move {
            supervisor.run(events).await;
            Ok("lease tables")
        });
        let given_up = spawn_election(&mut parts, self.election);
        parts.spawn(async move {
            self.writer.run().await;
            Ok("catalog writer")
        });
        if alone {
            // Its lease table exists before the first call.
            self.shards.wait_for(1).await;
        }
        let (close, closing) = watch::channel(());
        let health = spawn_health(&mut parts, &router, closing);
        spawn_nudges(&mut parts, &router, &stopped);
        let peers =
            |me| tollgate_admin::Peers::new(me, router.masters.clone(), router.peers.clone());
        let mut services = Services::new(&router, self.clock, &self.metrics, &newest, health);
        let app = tollgate_admin::App::new(tollgate_admin::Parts {
            history: spawn_history(&mut parts, &self.shards, self.clock, &stopped),
            shards: self.shards,
            peers: router.me.clone().map(peers),
            parent: self.parent,
            metrics: self.metrics.admin,
            leases: self.metrics.leases,
            exporter: self.metrics.exporter,
            clock: self.clock,
            writer: self.catalog.clone(),
            config: newest.clone(),
        });
        services.peer = (!alone).then(|| StrictDecoding(tollgate_admin::PeerApi::new(app.clone())));
        let mut served = JoinSet::new();
        served.spawn(serve_grpc(self.acceptors.grpc, services, stopped.clone()));
        let admin = tollgate_admin::router(app);
        served.spawn(serve_http(self.acceptors.http, admin, stopped.clone()));
        let (_asks, asked) = self.reloads;
        if let Some(reload) = Reload::new(self.catalog.clone(), self.metrics.catalog) {
            parts.spawn(follow(reload, asked, stopped));
        }
        tokio::select! {
            () = shutdown => {}
            Some(ended) = parts.join_next() => return Err(ServerError::Ended(ended??)),
            Some(ended) = served.join_next() => return Err(ServerError::Ended(ended??)),
        }
        tracing::info!("coordinator: shutting down");
        drop(close);
        if !alone {
            // First, while the listeners are open and calls can be forwarded.
            drop(std::mem::replace(&mut self.resign, watch::channel(()).0));
            let _ = tokio::time::timeout(HAND_OVER_GRACE, given_up).await;
        }
        // The parts end when all handles to them are gone.
        drop((stop, self.catalog));
        all_ended(served, parts, self.resign).await
    }
}

// === free functions ===

fn shard_count(place: Option<&Place>) -> NonZeroU16 {
    place.map_or(NonZeroU16::MIN, |place| place.shards)
}

/// Returns the name under which other coordinators know this one.
fn name(config: &Config, listen: Option<Listen>) -> String {
    let chosen = config
        .parent
        .as_ref()
        .and_then(|parent| parent.name.clone());
    let node = config.cluster.as_ref().map(|cluster| cluster.node.clone());
    chosen.or(node).unwrap_or_else(|| {
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy();
        let host = host.replace(
            |c: char| !c.is_ascii_alphanumeric() && !"._-".contains(c),
            "-",
        );
        format!("{host}:{}", listen.unwrap_or(config.listen).grpc.port())
    })
}

/// Waits, within a bound, until the listeners and then all parts have ended, which end when `resign` is
/// dropped.
async fn all_ended(
    served: Parts,
    parts: Parts,
    resign: watch::Sender<()>,
) -> Result<(), ServerError> {
    let all = async {
        ended(served).await?;
        drop(resign);
        ended(parts).await
    };
    tokio::time::timeout(SHUTDOWN_GRACE, all)
        .await
        .unwrap_or_else(|_| {
            tracing::warn!("shutdown: some calls did not end in time");
            Ok(())
        })
}

/// Records the history of `shards` until the shutdown.
fn spawn_history(
    parts: &mut Parts,
    shards: &Shards,
    clock: Clock,
    stopped: &watch::Receiver<()>,
) -> History {
    let history = History::default();
    let recording = history.clone().record(shards.clone(), clock);
    let stopped = stopped.clone();
    parts.spawn(async move {
        tokio::select! {
            () = recording => {}
            () = until(stopped) => {}
        }
        Ok("history")
    });
    history
}

/// Watches the other masters of a cluster for the clients that watch here, until the shutdown.
fn spawn_nudges(parts: &mut Parts, router: &Router, stopped: &watch::Receiver<()>) {
    let Some(me) = router.me.clone() else { return };
    let (nudges, masters) = (router.nudges.clone(), router.masters.clone());
    let following = follow_masters(nudges, me, masters, router.peers.clone());
    let stopped = stopped.clone();
    parts.spawn(async move {
        tokio::select! {
            () = following => {}
            () = until(stopped) => {}
        }
        Ok("nudges")
    });
}

/// Keeps what the health service says up to date until `closing`.
fn spawn_health(
    parts: &mut Parts,
    router: &Router,
    closing: watch::Receiver<()>,
) -> HealthServer<HealthApi> {
    let (health, service) = Health::new(router.clone());
    parts.spawn(async move {
        health.run(closing).await;
        Ok("health")
    });
    service
}

/// Takes part in the election; what is given back resolves when nothing is led any more.
fn spawn_election(parts: &mut Parts, election: Running) -> oneshot::Receiver<()> {
    let (resigned, given_up) = oneshot::channel();
    parts.spawn(async move {
        election.await?;
        let _ = resigned.send(());
        Ok("election")
    });
    given_up
}

/// Waits for all of `parts` to end.
async fn ended(mut parts: Parts) -> Result<(), ServerError> {
    while let Some(ended) = parts.join_next().await {
        ended??;
    }
    Ok(())
}

/// Serves `config` on `listeners` until `shutdown` resolves; see [`Server`].
///
/// # Errors
/// If a part cannot start, fails, or ends before `shutdown`.
pub async fn serve(
    listeners: Listeners,
    config: Config,
    epoch: impl Into<RunEpoch>,
    start: Start,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServerError> {
    let server = Server::new(listeners, config, epoch, start).await?;
    server.run(shutdown).await
}
