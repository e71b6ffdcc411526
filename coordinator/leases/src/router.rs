//! Routes each call to the masters of its scopes.
//!
//! Every node takes every call: a client need not know the masters, and an Envoy could not follow a
//! redirect. A call is split by shard. This node's lease tables answer for its own shards, the rest
//! is forwarded to the masters over the same protocol, and the answers are joined in the order of
//! the call. A shard without a master costs only its own scopes their answers.
//!
//! Two rules bound that: a forwarded call is never forwarded again ([`ForwardingHeader`]), and a
//! master has less time than the client gave.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tollgate_core::cluster::{ShardId, shard_of};
use tollgate_core::lease::Epoch;
use tollgate_proto::request::{Refresh, Release};
use tollgate_proto::response::{Refreshed, ScopeAnswer};
use tollgate_proto::v1;
use tonic::Status;
use tonic::metadata::MetadataMap;

pub use self::remote::RemoteMaster;
pub use self::split::{PartResults, answered};
use tollgate_cluster::election::{Master, Masters, Peer};
use tollgate_config::catalog::Catalog;
use tollgate_net::channels::Channels;
use tollgate_net::wire::LeaseServiceClient;

use self::split::{CallPart, JoinedAnswers, each, split};
use crate::metrics::{AnsweredBy, LeaseMetrics};
use crate::nudges::Nudges;
use crate::parent::AncestorPath;
use crate::shards::{Mastership, Shards};

mod context;
mod error;
mod forwarder;
mod remote;
mod split;

pub use self::context::ForwardingHeader;
pub use self::error::RouteError;
use self::error::{checked, lost, unanswered};
pub use self::forwarder::{Forwarder, REFRESHES_MAX};

/// This node's knowledge of the cluster; clones share it.
#[derive(Clone, Debug)]
pub struct Router {
    /// This node, as its peers know it; `None` for a node alone.
    pub me: Option<Peer>,
    /// The shards of this node.
    pub shards: Shards,
    /// Masters of all shards.
    pub masters: watch::Receiver<Arc<Masters>>,
    /// Configuration, which says which scopes belong together.
    pub catalog: watch::Receiver<Arc<Catalog>>,
    /// Number of shards.
    pub count: NonZeroU16,
    /// Connections to peers.
    pub peers: Channels,
    /// Refreshes that go to peers.
    pub forwarder: Forwarder,
    /// Coordinators above this node.
    pub ancestors: AncestorPath,
    /// Watches that are open here.
    pub nudges: Nudges,
    /// Metrics.
    pub metrics: LeaseMetrics,
}

/// Origin of a call, and its time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallContext {
    /// Set if another node forwarded it.
    pub forwarded: Option<ForwardingHeader>,
    /// Whether a coordinator made it, which needs the names of those above it.
    pub from_child: bool,
    /// Time for the masters of other shards.
    pub timeout: Duration,
}

// === impl CallContext ===

impl CallContext {
    /// Reads `metadata` of a call.
    ///
    /// # Errors
    /// If a forwarding header is malformed.
    pub fn read(metadata: &MetadataMap) -> Result<Self, Status> {
        Ok(Self {
            forwarded: ForwardingHeader::read(metadata)?,
            from_child: AncestorPath::is_from_child(metadata),
            timeout: context::forward_timeout(metadata),
        })
    }
}

// === impl Router ===

impl Router {
    /// Answers a client, one answer for each scope in order.
    ///
    /// # Errors
    /// If no shard answered.
    pub async fn refresh(
        &self,
        refresh: Refresh,
        context: CallContext,
    ) -> Result<Vec<ScopeAnswer>, RouteError> {
        let count = refresh.scopes.len();
        if let Some(forwarded) = context.forwarded {
            return self.refresh_own(refresh, forwarded).await;
        }
        if self.count == NonZeroU16::MIN {
            let answers = self.refresh_whole(refresh, context).await;
            return answers.inspect_err(|_| self.metrics.count_answered(AnsweredBy::None, count));
        }
        let Refresh { client, scopes } = refresh;
        let ids: Vec<Arc<str>> = scopes.iter().map(|asks| asks.scope.clone()).collect();
        let part = |scopes| {
            let client = client.clone();
            (self.clone(), Refresh { client, scopes })
        };
        let own = |mastership: Mastership, scopes| {
            let (router, refresh) = part(scopes);
            async move { router.refresh_here(&mastership, refresh).await }
        };
        let pass_on = |remote: RemoteMaster, scopes| {
            let (router, refresh) = part(scopes);
            async move { router.refresh_there(&remote, refresh, context).await }
        };
        let answers = self.route(scopes, |asks| &asks.scope, context, own, pass_on);
        self.join(&ids, answers.await)
    }

    /// Answers a client whose call another node has passed on.
    ///
    /// # Errors
    /// If this node is not the master that it is meant for.
    pub async fn refresh_own(
        &self,
        refresh: Refresh,
        forwarded: ForwardingHeader,
    ) -> Result<Vec<ScopeAnswer>, RouteError> {
        let mastership = self.own(forwarded)?;
        self.refresh_here(&mastership, refresh).await
    }

    /// Joins the answers of the shards to a call for the scopes `ids`.
    ///
    /// # Errors
    /// If no shard answered.
    fn join(
        &self,
        ids: &[Arc<str>],
        answers: PartResults<Vec<ScopeAnswer>>,
    ) -> Result<Vec<ScopeAnswer>, RouteError> {
        let mut joined = JoinedAnswers::of(ids.len());
        let (mut reason, mut answered) = (None, false);
        for (places, answers) in answers {
            match answers {
                Ok(answers) => {
                    joined.put(&places, answers);
                    answered = true;
                }
                Err(error) => {
                    self.metrics.count_answered(AnsweredBy::None, places.len());
                    let missing = places.iter().filter_map(|place| ids.get(*place));
                    joined.put(&places, missing.map(|scope| unanswered(scope, &error)));
                    reason.get_or_insert(error);
                }
            }
        }
        match reason {
            Some(error) if !answered => Err(error),
            _ => Ok(joined.end(|place| lost(ids.get(place)))),
        }
    }

    /// Takes leases back, and returns the highest term among the masters that did.
    ///
    /// # Errors
    /// If no shard answered.
    pub async fn release(
        &self,
        release: Release,
        context: CallContext,
    ) -> Result<Epoch, RouteError> {
        let Release { client, resources } = release;
        let part = |resources| {
            let client = client.clone();
            Release { client, resources }
        };
        let own = |mastership: Mastership, resources| {
            let release = part(resources);
            async move {
                mastership.release(release).await?;
                Ok(mastership.epoch())
            }
        };
        let pass_on = |remote: RemoteMaster, resources| {
            let release = part(resources);
            async move { release_there(&remote, &release).await }
        };
        let epochs = self
            .route(
                resources,
                |(resource, _)| &resource.scope,
                context,
                own,
                pass_on,
            )
            .await;
        // A lease whose master did not hear of this expires there.
        Ok(answered(epochs)?.into_iter().max().unwrap_or_default())
    }

    /// Has each part of a call answered by the master of its shard.
    ///
    /// `own` answers a part whose master is this node, `pass_on` has a peer answer. A call that another
    /// node has forwarded is for one shard, whose master has to be this node.
    pub async fn route<T, A, L, P>(
        &self,
        entries: Vec<T>,
        scope: impl Fn(&T) -> &Arc<str>,
        context: CallContext,
        own: impl Fn(Mastership, Vec<T>) -> L,
        pass_on: impl Fn(RemoteMaster, Vec<T>) -> P,
    ) -> PartResults<A>
    where
        A: Send + 'static,
        L: Future<Output = Result<A, RouteError>> + Send + 'static,
        P: Future<Output = Result<A, RouteError>> + Send + 'static,
    {
        if let Some(forwarded) = context.forwarded {
            let places = (0..entries.len()).collect();
            let answer = match self.own(forwarded) {
                Ok(mastership) => own(mastership, entries).await,
                Err(error) => Err(error),
            };
            return vec![(places, answer)];
        }
        each(self.split(entries, scope), |shard, entries| {
            let answer = match self.shards.get(shard) {
                Some(mastership) => Ok(own(mastership, entries)),
                None => Err(self
                    .remote(shard, context.timeout)
                    .map(|remote| pass_on(remote, entries))),
            };
            async move {
                match answer {
                    Ok(here) => here.await,
                    Err(there) => there?.await,
                }
            }
        })
        .await
    }

    /// Returns the master of `shard` if it is a peer, with the time limit of calls to it.
    ///
    /// # Errors
    /// If this node knows of none other than itself.
    fn remote(&self, shard: ShardId, timeout: Duration) -> Result<RemoteMaster, RouteError> {
        let master = self.masters.borrow().of(shard).cloned();
        let ours = |master: &Master| Some(&*master.peer) == self.me.as_ref();
        let master = master.filter(|master| !ours(master));
        let master = master.ok_or(RouteError::NoMaster(shard))?;
        let channel = self.peers.channel(&master.peer.grpc_url());
        let channel = channel.map_err(|error| RouteError::Peer {
            shard,
            node: master.peer.node.clone(),
            cause: error.to_string(),
        })?;
        Ok(RemoteMaster {
            shard,
            master,
            channel,
            timeout,
        })
    }

    /// Returns the mastership that a forwarded call is meant for.
    ///
    /// # Errors
    /// If this node is not the master of that shard, or only in an earlier term.
    fn own(&self, forwarded: ForwardingHeader) -> Result<Mastership, RouteError> {
        let mastership = self.shards.get(forwarded.shard);
        mastership
            .filter(|mastership| mastership.epoch() >= forwarded.epoch)
            .ok_or(RouteError::NotHere(forwarded.shard))
    }

    /// Splits the entries of a call by the shards of their scopes.
    fn split<T>(
        &self,
        entries: Vec<T>,
        scope: impl Fn(&T) -> &Arc<str>,
    ) -> Vec<(ShardId, CallPart<T>)> {
        let catalog = self.catalog.borrow().clone();
        split(entries, |entry| {
            shard_of(&catalog.home(scope(entry)), self.count)
        })
    }

    /// Has the master of the only shard answer.
    async fn refresh_whole(
        &self,
        refresh: Refresh,
        context: CallContext,
    ) -> Result<Vec<ScopeAnswer>, RouteError> {
        let shard = ShardId::default();
        if let Some(mastership) = self.shards.get(shard) {
            return self.refresh_here(&mastership, refresh).await;
        }
        let remote = self.remote(shard, context.timeout)?;
        self.refresh_there(&remote, refresh, context).await
    }

    /// Answers from a lease table of this node.
    async fn refresh_here(
        &self,
        mastership: &Mastership,
        refresh: Refresh,
    ) -> Result<Vec<ScopeAnswer>, RouteError> {
        let count = refresh.scopes.len();
        let answers = mastership.refresh(refresh).await?;
        self.metrics.count_answered(AnsweredBy::Local, count);
        Ok(answers)
    }

    /// Has a peer answer.
    async fn refresh_there(
        &self,
        remote: &RemoteMaster,
        refresh: Refresh,
        context: CallContext,
    ) -> Result<Vec<ScopeAnswer>, RouteError> {
        let response = self.forward(remote, &refresh, context).await?;
        let refreshed = Refreshed::try_from(response);
        let refreshed = refreshed.map_err(|error| remote.refused(&error))?;
        let count = refresh.scopes.len();
        self.metrics.count_answered(AnsweredBy::Peer, count);
        let mut answers = refreshed.scopes.into_iter();
        let checked = refresh.scopes.iter().map(|asks| {
            let answer = match answers.next() {
                Some(answer) => answer.map_err(|error| error.to_string()),
                None => Err("the answer lacks scopes".to_owned()),
            };
            checked(remote.shard, asks, answer)
        });
        Ok(checked.collect())
    }

    /// Has the master of a shard on another node answer.
    async fn forward(
        &self,
        remote: &RemoteMaster,
        refresh: &Refresh,
        context: CallContext,
    ) -> Result<v1::RefreshResponse, RouteError> {
        if context.from_child {
            return self.forward_for_child(remote, refresh).await;
        }
        let url = remote.master.peer.grpc_url();
        let forwarded = remote.forwarded(refresh.into());
        let answer = self.forwarder.forward(&url, forwarded, context.timeout);
        remote.checked(remote.in_time(answer).await?)
    }

    /// Makes a call for one refresh of a child, which needs the names of those above it.
    async fn forward_for_child(
        &self,
        remote: &RemoteMaster,
        refresh: &Refresh,
    ) -> Result<v1::RefreshResponse, RouteError> {
        let mut request = remote.request(v1::RefreshRequest::from(refresh));
        self.ancestors.name_child(request.metadata_mut());
        let mut client = LeaseServiceClient::new(remote.channel());
        let response = remote.respond(client.refresh(request)).await?;
        self.ancestors.read_master_path(response.metadata());
        Ok(response.into_inner())
    }
}

// === free functions ===

/// Has a peer take leases back, and returns its term.
async fn release_there(remote: &RemoteMaster, release: &Release) -> Result<Epoch, RouteError> {
    let message = v1::ReleaseRequest::from(release);
    let mut client = LeaseServiceClient::new(remote.channel());
    let call = client.release(remote.request(message));
    Ok(Epoch(remote.answer(call).await?.epoch))
}

#[cfg(test)]
mod tests;
