//! The master of a shard on another node.

use std::time::Duration;

use tollgate_cluster::election::Master;
use tollgate_core::cluster::ShardId;
use tollgate_net::channels::cause;
use tollgate_proto::v1;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::{ForwardingHeader, RouteError};

/// Connection to the master of one shard.
#[derive(Clone, Debug)]
pub struct RemoteMaster {
    pub(super) shard: ShardId,
    pub(super) master: Master,
    pub(super) channel: Channel,
    pub(super) timeout: Duration,
}

// === impl RemoteMaster ===

impl RemoteMaster {
    /// The connection.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Wraps `message` in a request that the master answers itself or not at all.
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let (shard, epoch) = (self.shard, self.master.epoch);
        ForwardingHeader { shard, epoch }.write(request.metadata_mut());
        // So that the master stops work whose answer comes too late.
        request.set_timeout(self.timeout);
        request
    }

    /// Wraps a refresh that the master answers itself or not at all.
    pub(super) fn forwarded(&self, refresh: v1::RefreshRequest) -> v1::ForwardedRefresh {
        v1::ForwardedRefresh {
            shard: self.shard.0.into(),
            epoch: self.master.epoch.0,
            refresh: Some(refresh),
        }
    }

    /// Awaits the answer to a call made with [`RemoteMaster::request`].
    ///
    /// # Errors
    /// If the master is late or refuses.
    pub async fn answer<R>(
        &self,
        call: impl Future<Output = Result<Response<R>, Status>>,
    ) -> Result<R, RouteError> {
        self.respond(call).await.map(Response::into_inner)
    }

    /// Awaits the answer with its metadata.
    pub(super) async fn respond<R>(
        &self,
        call: impl Future<Output = Result<Response<R>, Status>>,
    ) -> Result<Response<R>, RouteError> {
        self.checked(self.in_time(call).await?)
    }

    /// Awaits `answer` for as long as the master has time.
    ///
    /// # Errors
    /// If it is late.
    pub(super) async fn in_time<T>(
        &self,
        answer: impl Future<Output = T>,
    ) -> Result<T, RouteError> {
        let answer = tokio::time::timeout(self.timeout, answer).await;
        let late = |_| RouteError::Late {
            shard: self.shard,
            node: self.master.peer.node.clone(),
            waited: self.timeout,
        };
        answer.map_err(late).inspect_err(log)
    }

    /// Returns the answer, or the error of a master that refuses.
    pub(super) fn checked<T>(&self, answer: Result<T, Status>) -> Result<T, RouteError> {
        let refused = |status: Status| self.refused(&cause(&status));
        answer.map_err(refused).inspect_err(log)
    }

    /// The error of a master that refuses with `cause`.
    pub(super) fn refused(&self, cause: &impl ToString) -> RouteError {
        RouteError::Peer {
            shard: self.shard,
            node: self.master.peer.node.clone(),
            cause: cause.to_string(),
        }
    }
}

// === free functions ===

fn log(error: &RouteError) {
    tracing::warn!(%error, "router: forwarded call failed");
}
