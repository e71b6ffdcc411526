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

pub(crate) use self::remote::RemoteMaster;
pub(crate) use self::split::each;
use self::split::{CallPart, JoinedAnswers, PartResults, split};
use crate::catalog::Catalog;
use crate::cluster::election::{Master, Masters, Peer};
use crate::leases::metrics::{AnsweredBy, LeaseMetrics};
use crate::leases::nudges::Nudges;
use crate::leases::parent::AncestorPath;
use crate::leases::shards::{Mastership, Shards};
use crate::net::channels::Channels;
use crate::wire::LeaseServiceClient;

mod context;
mod error;
mod forwarder;
mod remote;
mod split;

pub use self::context::ForwardingHeader;
pub use self::error::RouteError;
use self::error::{checked, lost, unanswered};
pub use self::forwarder::Forwarder;
pub(crate) use self::forwarder::REFRESHES_MAX;

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
            let shard = ShardId::default();
            let answers = self.refresh_shard(shard, refresh, context).await;
            return answers.inspect_err(|_| self.metrics.count_answered(AnsweredBy::None, count));
        }
        let Refresh { client, scopes } = refresh;
        let ids: Vec<Arc<str>> = scopes.iter().map(|asks| asks.scope.clone()).collect();
        let parts = self.split(scopes, |asks| &asks.scope);
        let answers = each(parts, |shard, scopes| {
            let client = client.clone();
            let router = self.clone();
            async move {
                let refresh = Refresh { client, scopes };
                router.refresh_shard(shard, refresh, context).await
            }
        });
        self.join(&ids, answers.await)
    }

    /// Answers a client whose call another node has passed on.
    ///
    /// # Errors
    /// If this node is not the master that it is meant for.
    pub(crate) async fn refresh_own(
        &self,
        refresh: Refresh,
        forwarded: ForwardingHeader,
    ) -> Result<Vec<ScopeAnswer>, RouteError> {
        let count = refresh.scopes.len();
        let answers = self.own(forwarded)?.refresh(refresh).await?;
        self.metrics.count_answered(AnsweredBy::Local, count);
        Ok(answers)
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
        if let Some(forwarded) = context.forwarded {
            let mastership = self.own(forwarded)?;
            mastership.release(release).await?;
            return Ok(mastership.epoch());
        }
        let Release { client, resources } = release;
        let parts = self.split(resources, |(resource, _)| &resource.scope);
        let epochs = each(parts, |shard, resources| {
            let client = client.clone();
            let router = self.clone();
            async move {
                let release = Release { client, resources };
                router.release_shard(shard, release, context.timeout).await
            }
        });
        let mut reason = None;
        let mut latest = None;
        for (_, epoch) in epochs.await {
            match epoch {
                Ok(epoch) => latest = latest.max(Some(epoch)),
                Err(error) => reason = Some(error),
            }
        }
        match (latest, reason) {
            (None, Some(error)) => Err(error),
            // A lease whose master did not hear of this expires there.
            (epoch, _) => Ok(epoch.unwrap_or_default()),
        }
    }

    /// Returns the master of `shard` if it is a peer, with the time limit of calls to it.
    ///
    /// # Errors
    /// If this node knows of none other than itself.
    pub(crate) fn remote(
        &self,
        shard: ShardId,
        timeout: Duration,
    ) -> Result<RemoteMaster, RouteError> {
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
    pub fn own(&self, forwarded: ForwardingHeader) -> Result<Mastership, RouteError> {
        let mastership = self.shards.get(forwarded.shard);
        mastership
            .filter(|mastership| mastership.epoch() >= forwarded.epoch)
            .ok_or(RouteError::NotHere(forwarded.shard))
    }

    /// Splits the entries of a call by the shards of their scopes.
    pub(crate) fn split<T>(
        &self,
        entries: Vec<T>,
        scope: impl Fn(&T) -> &Arc<str>,
    ) -> Vec<(ShardId, CallPart<T>)> {
        let catalog = self.catalog.borrow().clone();
        split(entries, |entry| {
            shard_of(&catalog.home(scope(entry)), self.count)
        })
    }

    async fn refresh_shard(
        &self,
        shard: ShardId,
        refresh: Refresh,
        context: CallContext,
    ) -> Result<Vec<ScopeAnswer>, RouteError> {
        let count = refresh.scopes.len();
        if let Some(mastership) = self.shards.get(shard) {
            let answers = mastership.refresh(refresh).await?;
            self.metrics.count_answered(AnsweredBy::Local, count);
            return Ok(answers);
        }
        let remote = self.remote(shard, context.timeout)?;
        let response = self.forward(&remote, &refresh, context).await?;
        let refreshed = Refreshed::try_from(response);
        let refreshed = refreshed.map_err(|error| remote.refused(&error))?;
        self.metrics.count_answered(AnsweredBy::Peer, count);
        let mut answers = refreshed.scopes.into_iter();
        let checked = refresh.scopes.iter().map(|asks| {
            let answer = match answers.next() {
                Some(answer) => answer.map_err(|error| error.to_string()),
                None => Err("the answer lacks scopes".to_owned()),
            };
            checked(shard, asks, answer)
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

    async fn release_shard(
        &self,
        shard: ShardId,
        release: Release,
        timeout: Duration,
    ) -> Result<Epoch, RouteError> {
        if let Some(mastership) = self.shards.get(shard) {
            mastership.release(release).await?;
            return Ok(mastership.epoch());
        }
        let remote = self.remote(shard, timeout)?;
        let message = v1::ReleaseRequest::from(&release);
        let mut client = LeaseServiceClient::new(remote.channel());
        let call = client.release(remote.request(message));
        Ok(Epoch(remote.answer(call).await?.epoch))
    }
}

#[cfg(test)]
mod tests;
