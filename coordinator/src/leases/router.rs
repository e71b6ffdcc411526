//! Which node answers what.
//!
//! Every node takes every call: a client need not know who is master of what, and an Envoy could not
//! follow a redirect. A call is taken apart by shard; what is of this node's shards its own books
//! answer, the rest is passed on to the masters over the same protocol, and the answers are put
//! together in the order of the call. A shard without a master costs its own scopes their answers
//! and no others.
//!
//! Two bounds keep that from going wrong: what was passed on once is never passed on again
//! ([`ForwardingHeader`]), and a master has less time than the client gave us.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tollgate_core::cluster::{ShardId, shard_of};
use tollgate_core::lease::{Epoch, Origin};
use tollgate_proto::request::{Refresh, Release, ScopeRefresh};
use tollgate_proto::response::{Refreshed, ScopeAnswer, ScopeError};
use tollgate_proto::v1;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

pub(crate) use self::remote::RemoteMaster;
pub(crate) use self::split::each;
use self::split::{CallPart, JoinedAnswers, split};
use crate::catalog::Catalog;
use crate::cluster::election::{Master, Masters, Peer};
use crate::leases::parent::AncestorPath;
use crate::leases::shards::{Mastership, MastershipError, Shards};
use crate::net::channels::Channels;
use crate::observe::metrics::{AnsweredBy, Metrics};
use crate::wire::LeaseServiceClient;

mod context;
mod remote;
mod split;

pub use self::context::ForwardingHeader;

/// What this node knows of the others; clones share it.
#[derive(Clone, Debug)]
pub struct Router {
    /// This node, as the others know it; none of one that is alone.
    pub me: Option<Peer>,
    /// The shards of this node.
    pub shards: Shards,
    /// Who is master of what.
    pub masters: watch::Receiver<Arc<Masters>>,
    /// What is configured: which scopes belong together.
    pub catalog: watch::Receiver<Arc<Catalog>>,
    /// Into how many shards the scopes are divided.
    pub count: NonZeroU16,
    /// The connections to the others.
    pub peers: Channels,
    /// Who is above this node.
    pub ancestors: AncestorPath,
    /// What is counted.
    pub metrics: Metrics,
}

/// How a call came here, and how long it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallContext {
    /// Whether another node has passed it on.
    pub forwarded: Option<ForwardingHeader>,
    /// Whether it is a coordinator's, which is told who is above it.
    pub from_child: bool,
    /// How long the masters of other shards may take.
    pub timeout: Duration,
}

/// Why nobody answered for a shard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// There is no master that this node knows of.
    #[error("shard {0} has no master now")]
    NoMaster(ShardId),
    /// Another node has taken this one for the master.
    #[error("this node is not the master of shard {0}, or not in that term")]
    NotHere(ShardId),
    /// This node's own books did not.
    #[error(transparent)]
    Mastership(#[from] MastershipError),
    /// The master did not in time.
    #[error("{node}, the master of shard {shard}, did not answer within {} ms", waited.as_millis())]
    Late {
        /// The shard.
        shard: ShardId,
        /// Its master.
        node: String,
        /// How long it had.
        waited: Duration,
    },
    /// The master could not be reached, or would not answer.
    #[error("{node}, the master of shard {shard}: {cause}")]
    Peer {
        /// The shard.
        shard: ShardId,
        /// Its master.
        node: String,
        /// What it said, or the transport.
        cause: String,
    },
}

// === impl CallContext ===

impl CallContext {
    /// What the `metadata` of a call say.
    ///
    /// # Errors
    /// If they say it wrongly.
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
    /// If nobody answered for any scope.
    pub async fn refresh(
        &self,
        refresh: Refresh,
        context: CallContext,
    ) -> Result<Vec<ScopeAnswer>, RouteError> {
        let count = refresh.scopes.len();
        if let Some(forwarded) = context.forwarded {
            let answers = self.own(forwarded)?.refresh(refresh).await?;
            self.metrics.count_answered(AnsweredBy::Books, count);
            return Ok(answers);
        }
        if self.count == NonZeroU16::MIN {
            let shard = ShardId::default();
            let answers = self.refresh_shard(shard, refresh, context).await;
            return answers.inspect_err(|_| self.metrics.count_answered(AnsweredBy::Nobody, count));
        }
        let Refresh { client, scopes } = refresh;
        let asked: Vec<Arc<str>> = scopes.iter().map(|asks| asks.scope.clone()).collect();
        let parts = self.split(scopes, |asks| &asks.scope);
        let answers = each(parts, |shard, scopes| {
            let client = client.clone();
            let router = self.clone();
            async move {
                let refresh = Refresh { client, scopes };
                router.refresh_shard(shard, refresh, context).await
            }
        });
        let mut joined = JoinedAnswers::of(count);
        let mut reason = None;
        let mut answered = false;
        for (places, answers) in answers.await {
            match answers {
                Ok(answers) => {
                    joined.put(&places, answers);
                    answered = true;
                }
                Err(error) => {
                    self.metrics
                        .count_answered(AnsweredBy::Nobody, places.len());
                    let missing = places.iter().filter_map(|place| asked.get(*place));
                    joined.put(&places, missing.map(|scope| unanswered(scope, &error)));
                    reason.get_or_insert(error);
                }
            }
        }
        match reason {
            Some(error) if !answered => Err(error),
            _ => Ok(joined.end(|place| lost(asked.get(place)))),
        }
    }

    /// Takes leases back, and says the highest term of those who did.
    ///
    /// # Errors
    /// If nobody took anything.
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
            // What was not told to a master expires there.
            (epoch, _) => Ok(epoch.unwrap_or_default()),
        }
    }

    /// The master of `shard`, to whom calls are passed on, and for how long they may take.
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

    /// The books that a call is for which another node has passed on.
    ///
    /// # Errors
    /// If this node is not the master of that shard, or of a term before the one that is meant.
    pub fn own(&self, forwarded: ForwardingHeader) -> Result<Mastership, RouteError> {
        let mastership = self.shards.get(forwarded.shard);
        mastership
            .filter(|mastership| mastership.epoch() >= forwarded.epoch)
            .ok_or(RouteError::NotHere(forwarded.shard))
    }

    /// The entries of a call by the shards of their scopes.
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
            self.metrics.count_answered(AnsweredBy::Books, count);
            return Ok(answers);
        }
        let remote = self.remote(shard, context.timeout)?;
        let mut request = remote.request(v1::RefreshRequest::from(&refresh));
        if context.from_child {
            self.ancestors.name_child(request.metadata_mut());
        }
        let mut client = LeaseServiceClient::new(remote.channel());
        let response = remote.respond(client.refresh(request)).await?;
        self.ancestors.read_master_path(response.metadata());
        let refreshed = Refreshed::try_from(response.into_inner());
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

// === free functions ===

/// What a master answered to `asks`, if it is an answer to that and of `shard`.
fn checked(
    shard: ShardId,
    asks: &ScopeRefresh,
    answer: Result<ScopeAnswer, String>,
) -> ScopeAnswer {
    let wrong = match answer {
        Ok(answer) if answer.scope != asks.scope => "the answer is for another scope".to_owned(),
        Ok(answer) if answer.outcome.is_ok() && answer.origin.shard != Some(shard) => {
            "the answer is of another shard".to_owned()
        }
        Ok(answer) => return answer,
        Err(wrong) => wrong,
    };
    without_answer(&asks.scope, Code::Internal, wrong)
}

/// What a client is told of `scope`, for which nobody answered.
fn unanswered(scope: &Arc<str>, error: &RouteError) -> ScopeAnswer {
    without_answer(scope, Code::Unavailable, error.to_string())
}

/// The same of one whose answer a bug has eaten.
fn lost(scope: Option<&Arc<str>>) -> ScopeAnswer {
    let scope = scope.cloned().unwrap_or_default();
    without_answer(&scope, Code::Internal, "the answer was lost".to_owned())
}

fn without_answer(scope: &Arc<str>, code: Code, message: String) -> ScopeAnswer {
    ScopeAnswer {
        scope: scope.clone(),
        canonical: scope.clone(),
        limited: Vec::new(),
        origin: Origin::default(),
        outcome: Err(ScopeError {
            code: code as u32,
            message,
        }),
    }
}

#[cfg(test)]
mod tests;
