//! Nodes, and what stands in for their election.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tollgate_cluster::election::{
    Election, ElectionError, ElectionEvent, ElectionPublisher, Master, Masters, Peer, Term,
    TermDeadline,
};
use tollgate_config::Config;
use tollgate_coordinator::{Listeners, Place, Server, ServerError};
use tollgate_core::cluster::{ShardId, shard_of};
use tollgate_core::lease::{Epoch, ResourceId, Unit};
use tollgate_core::lease_server::Start;
use tollgate_net::channels::Channels;
use tollgate_net::tls::{CertificateOwner, ClientFiles, TlsMetrics};
use tollgate_net::wire::LeaseServiceClient;
use tollgate_proto::request::Release;
use tollgate_proto::response::{Refreshed, ScopeAnswer};
use tollgate_proto::v1;
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::harness::{Answer, Ask, INCARNATION, request, run};

/// See the module.
pub(super) struct Cluster {
    pub(super) nodes: Vec<Node>,
    pub(super) shards: NonZeroU16,
    masters: BTreeMap<ShardId, Master>,
}

/// A coordinator of the cluster.
pub(super) struct Node {
    pub(super) peer: Peer,
    pub(super) http: SocketAddr,
    pub(super) channel: Channel,
    updates: mpsc::Sender<ScriptedUpdate>,
    stop: oneshot::Sender<()>,
    served: JoinHandle<Result<(), ServerError>>,
}

/// One instruction to a scripted election.
enum ScriptedUpdate {
    Event(ElectionEvent),
    Masters(Arc<Masters>, oneshot::Sender<()>),
}

/// An election that says what it is told.
struct Scripted(mpsc::Receiver<ScriptedUpdate>);

// === impl Scripted ===

impl Election for Scripted {
    async fn run(
        self,
        publisher: ElectionPublisher,
        mut stop: watch::Receiver<()>,
    ) -> Result<(), ElectionError> {
        let Self(mut updates) = self;
        loop {
            let update = tokio::select! {
                update = updates.recv() => update,
                _ = stop.changed() => return Ok(()),
            };
            match update {
                Some(ScriptedUpdate::Event(event)) => publisher.events.send(event).await.unwrap(),
                Some(ScriptedUpdate::Masters(masters, seen)) => {
                    publisher.masters.send_replace(masters);
                    let _ = seen.send(());
                }
                None => std::future::pending().await,
            }
        }
    }
}

// === impl Cluster ===

impl Cluster {
    /// Three nodes and as many shards, each with its own master; the epoch of shard `i` is 100 + i.
    pub(super) async fn of_three(yaml: &str) -> Self {
        let mut cluster = Self::start(3, 3, yaml).await;
        for i in 0..3 {
            cluster
                .elect(ShardId(i), usize::from(i), Epoch(100 + u64::from(i)))
                .await;
        }
        cluster
    }

    /// Nodes that are masters of nothing.
    pub(super) async fn start(nodes: usize, shards: u16, yaml: &str) -> Self {
        Self::start_each(nodes, shards, |_| yaml.to_owned()).await
    }

    /// The same, each with what `yaml` says of it.
    pub(super) async fn start_each(
        nodes: usize,
        shards: u16,
        yaml: impl Fn(&str) -> String,
    ) -> Self {
        let shards = NonZeroU16::new(shards).unwrap();
        let mut started = Vec::new();
        for name in ["a", "b", "c"].into_iter().take(nodes) {
            started.push(Node::start(name, shards, &yaml(name)).await);
        }
        Self {
            nodes: started,
            shards,
            masters: BTreeMap::new(),
        }
    }

    /// Makes `node` the master of `shard`, and tells all.
    pub(super) async fn elect(&mut self, shard: ShardId, node: usize, epoch: Epoch) -> Term {
        self.elect_with(shard, node, epoch, None).await
    }

    /// The same with snapshot of the master before.
    pub(super) async fn elect_with(
        &mut self,
        shard: ShardId,
        node: usize,
        epoch: Epoch,
        snapshot: Option<Bytes>,
    ) -> Term {
        let term = Term::new(epoch, TermDeadline::never());
        self.nodes[node]
            .elected(shard, term.clone(), snapshot)
            .await;
        self.says_it_leads(shard, node, epoch).await;
        term
    }

    /// Tells all that `node` is the master of `shard`.
    pub(super) async fn says_it_leads(&mut self, shard: ShardId, node: usize, epoch: Epoch) {
        let peer = Arc::new(self.nodes[node].peer.clone());
        self.masters.insert(shard, Master { peer, epoch });
        for node in &self.nodes {
            node.told(self.masters()).await;
        }
    }

    /// Lets all know that `shard` has no master.
    pub(super) async fn forget(&mut self, shard: ShardId) {
        self.masters.remove(&shard);
        for node in &self.nodes {
            node.told(self.masters()).await;
        }
    }

    pub(super) fn shard_of(&self, scope: &str) -> ShardId {
        shard_of(scope, self.shards)
    }

    fn masters(&self) -> Masters {
        let masters = ShardId::all(self.shards).map(|shard| self.masters.get(&shard).cloned());
        let members = self.nodes.iter().map(|node| Arc::new(node.peer.clone()));
        Masters::new(masters, members.collect())
    }
}

// === impl Node ===

impl Node {
    async fn start(name: &str, shards: NonZeroU16, yaml: &str) -> Self {
        let (updates, script) = mpsc::channel(100);
        let scripted = |config: &mut Config, _: &Place| {
            // The scripted election needs no etcd.
            config.cluster = None;
            Scripted(script)
        };
        let node = Self::elected_by(name, shards, yaml, scripted).await;
        Self { updates, ..node }
    }

    /// One that takes part in an election, and lends at once where it is elected without snapshot.
    pub(super) async fn elected_by<E: Election>(
        name: &str,
        shards: NonZeroU16,
        yaml: &str,
        election: impl FnOnce(&mut Config, &Place) -> E,
    ) -> Self {
        let listen = "listen: {grpc: '127.0.0.1:0', http: '127.0.0.1:0'}";
        let mut config = Config::parse(&format!("{listen}\n{yaml}")).unwrap();
        let listeners = Listeners::bind(config.listen).await.unwrap();
        let listen = listeners.addresses().unwrap();
        let peer = Peer {
            node: name.to_owned(),
            grpc: listen.grpc.to_string(),
            http: listen.http.to_string(),
            grpc_tls: config.tls.grpc.is_some(),
            http_tls: config.tls.http.is_some(),
        };
        let cluster = config.cluster.as_ref();
        let place = Place {
            peer: peer.clone(),
            shards,
            tls: cluster.and_then(|cluster| cluster.tls.clone()),
        };
        let election = election(&mut config, &place);
        let tls = place.tls.clone();
        let server = Server::in_cluster(listeners, config, Start::Fresh, place, election);
        Self::of(peer, tls, server.await.unwrap())
    }

    /// `server`, spoken to as the other nodes do, with `tls`.
    pub(super) fn of(peer: Peer, tls: Option<ClientFiles>, server: Server) -> Self {
        let tls = tls.map(|files| {
            files
                .start(CertificateOwner::Cluster, &TlsMetrics::default())
                .unwrap()
        });
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(server.run(async move {
            let _ = stopped.await;
        }));
        let channels = Channels::new(Duration::from_secs(10), tls);
        Self {
            http: peer.http.parse().unwrap(),
            channel: channels.channel(&peer.grpc_url()).unwrap(),
            peer,
            updates: mpsc::channel(1).0,
            stop,
            served,
        }
    }

    /// Makes it the master of `shard`, and waits until it is.
    pub(super) async fn elected(&self, shard: ShardId, term: Term, snapshot: Option<Bytes>) {
        let holds = term.holds();
        let elected = ElectionEvent::Elected {
            shard,
            term,
            snapshot,
            vacant_for: None,
        };
        self.updates
            .send(ScriptedUpdate::Event(elected))
            .await
            .ok()
            .unwrap();
        while holds && !self.leads(shard).await {
            tokio::task::yield_now().await;
        }
    }

    /// Takes `shard` from it, and waits until it has let go.
    pub(super) async fn lost(&self, shard: ShardId) {
        self.updates
            .send(ScriptedUpdate::Event(ElectionEvent::Lost { shard }))
            .await
            .ok()
            .unwrap();
        while self.leads(shard).await {
            tokio::task::yield_now().await;
        }
    }

    /// Tells it to give `shard` up, and takes its snapshot.
    pub(super) async fn steps_down(&self, shard: ShardId) -> Option<Bytes> {
        let (reply, snapshot) = oneshot::channel();
        let event = ElectionEvent::StepDown { shard, reply };
        self.updates
            .send(ScriptedUpdate::Event(event))
            .await
            .ok()
            .unwrap();
        snapshot.await.unwrap()
    }

    /// Whether it answers a call from its own snapshot that another would pass on.
    async fn leads(&self, shard: ShardId) -> bool {
        let mut release = Request::new(v1::ReleaseRequest {
            client_id: "probe".to_owned(),
            resources: vec![v1::ReleasedResource {
                scope: "probe".to_owned(),
                unit: v1::Unit::Requests.into(),
                sequence: 0,
            }],
            incarnation: INCARNATION,
            term: 0,
        });
        passed_on(&mut release, shard, 0);
        let mut client = LeaseServiceClient::new(self.channel.clone());
        client.release(release).await.is_ok()
    }

    /// Stops it in order.
    pub(super) async fn stop(self) {
        drop(self.channel);
        self.stop.send(()).unwrap();
        self.served.await.unwrap().unwrap();
    }

    /// Tells the node the master of each shard.
    pub(super) async fn told(&self, masters: Masters) {
        let (seen, is_seen) = oneshot::channel();
        let updates = ScriptedUpdate::Masters(Arc::new(masters), seen);
        self.updates.send(updates).await.ok().unwrap();
        is_seen.await.unwrap();
    }

    pub(super) async fn try_refresh(
        &self,
        request: impl tonic::IntoRequest<v1::RefreshRequest>,
    ) -> Result<Vec<ScopeAnswer>, Status> {
        let mut client = LeaseServiceClient::new(self.channel.clone());
        let answer = client.refresh(request).await?.into_inner();
        let answers = Refreshed::try_from(answer).unwrap().scopes;
        Ok(answers.into_iter().map(Result::unwrap).collect())
    }

    /// Refreshes `scopes` for `client`, which has nothing and wants the same of each.
    pub(super) async fn refresh(
        &self,
        client: &str,
        scopes: &[String],
        wants: f64,
    ) -> Vec<ScopeAnswer> {
        self.try_refresh(asked(client, scopes, wants))
            .await
            .unwrap()
    }

    pub(super) async fn release(&self, client: &str, scopes: &[String]) {
        let resource = |scope: &String| ResourceId::new(scope, Unit::Requests).unwrap();
        let release = Release {
            client: run(client),
            resources: scopes.iter().map(|scope| (resource(scope), 9)).collect(),
        };
        let message = v1::ReleaseRequest::from(&release);
        let mut client = LeaseServiceClient::new(self.channel.clone());
        client.release(message).await.unwrap();
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        Answer::get(self.http, path).await
    }

    pub(super) async fn ask(&self, ask: &Ask) -> Answer {
        Answer::of(self.http, ask).await
    }

    /// Its metrics, by name and labels.
    pub(super) async fn metrics(&self) -> BTreeMap<String, f64> {
        let text = self.get("/metrics").await.body;
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pairs = lines.filter_map(|line| line.rsplit_once(' '));
        pairs
            .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
            .collect()
    }
}

// === free functions ===

/// A call of `client`, which has nothing and wants so much of each of `scopes`.
pub(super) fn asked(client: &str, scopes: &[String], wants: f64) -> v1::RefreshRequest {
    asked_again(client, scopes, 1, wants)
}

/// The same for the `sequence`th time.
pub(super) fn asked_again(
    client: &str,
    scopes: &[String],
    sequence: u64,
    wants: f64,
) -> v1::RefreshRequest {
    let scopes: Vec<_> = scopes
        .iter()
        .map(|scope| (scope.as_str(), sequence, 0.0, wants))
        .collect();
    request(client, &scopes)
}

/// Makes `request` one that another node has passed on.
pub(super) fn passed_on<T>(request: &mut Request<T>, shard: ShardId, epoch: u64) {
    let metadata = request.metadata_mut();
    metadata.insert("tollgate-shard", shard.0.into());
    metadata.insert("tollgate-epoch", epoch.into());
}
