//! The master of a shard on another node.

use std::time::Duration;

use tollgate_core::cluster::ShardId;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::{ForwardingHeader, RouteError};
use crate::cluster::election::Master;
use crate::net::channels::cause;

/// Connection to the master of one shard.
#[derive(Clone, Debug)]
pub(crate) struct RemoteMaster {
    pub(super) shard: ShardId,
    pub(super) master: Master,
    pub(super) channel: Channel,
    pub(super) timeout: Duration,
}

// === impl RemoteMaster ===

impl RemoteMaster {
    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Wraps `message` in a request that the master answers itself or not at all.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let (shard, epoch) = (self.shard, self.master.epoch);
        ForwardingHeader { shard, epoch }.write(request.metadata_mut());
        // So that the master stops work whose answer comes too late.
        request.set_timeout(self.timeout);
        request
    }

    /// Awaits the answer to a call made with [`RemoteMaster::request`].
    ///
    /// # Errors
    /// If the master is late or refuses.
    pub(crate) async fn answer<R>(
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
        let error = match tokio::time::timeout(self.timeout, call).await {
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(status)) => self.refused(&cause(&status)),
            Err(_) => RouteError::Late {
                shard: self.shard,
                node: self.master.peer.node.clone(),
                waited: self.timeout,
            },
        };
        tracing::warn!(%error, "router: forwarded call failed");
        Err(error)
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
