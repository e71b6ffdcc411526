//! Requests to the other nodes of the cluster.
//!
//! A node that an operator asks asks all others and adds up their answers. The operator's token goes
//! with each call, so that no operator reads at another node what it may not read there.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::HeaderValue;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tollgate_cluster::election::{Masters, Peer};
use tollgate_net::channels::{Channels, cause};
use tollgate_net::wire::PeerServiceClient;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::App;

mod message;
mod service;

pub(super) use self::message::{history_window, view};
pub use self::service::PeerApi;

/// Time that a node has to answer; a scan of its leases takes far less.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The largest answer, in bytes: a page of a thousand entries with long names takes less.
const ANSWER_LEN_MAX: usize = 16 << 20;

/// The other nodes of the cluster; clones share the connections.
#[derive(Clone, Debug)]
pub struct Peers {
    me: Peer,
    masters: watch::Receiver<Arc<Masters>>,
    channels: Channels,
}

/// Credentials that came with a request.
#[derive(Clone, Debug)]
pub(super) struct Caller(Option<HeaderValue>);

// === impl Caller ===

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(parts.headers.get(AUTHORIZATION).cloned()))
    }
}

impl Caller {
    /// Returns `message` as a call with these credentials.
    fn request<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        request.set_timeout(TIMEOUT);
        let token = self.0.as_ref().and_then(|value| value.to_str().ok());
        let token = token.and_then(|token| MetadataValue::try_from(token).ok());
        if let Some(token) = token {
            request.metadata_mut().insert(AUTHORIZATION.as_str(), token);
        }
        request
    }
}

// === impl App ===

impl App {
    /// Makes `call` with `message` to all other nodes, if there are any, at the same time, and reads
    /// the answers with `read`. Returns those that there are by node, and the nodes that did not answer.
    pub(super) async fn ask<M, R, T, F>(
        &self,
        caller: &Caller,
        message: M,
        call: fn(PeerServiceClient<Channel>, Request<M>) -> F,
        read: fn(R) -> Result<Option<T>, String>,
    ) -> (Vec<T>, Vec<String>)
    where
        M: Clone,
        R: Send + 'static,
        T: Send + 'static,
        F: Future<Output = Result<Response<R>, Status>> + Send + 'static,
    {
        let Some(peers) = &self.parts.peers else {
            return (Vec::new(), Vec::new());
        };
        let mut calls = JoinSet::new();
        let masters = peers.masters();
        for peer in masters
            .members
            .iter()
            .filter(|peer| peer.node != peers.me.node)
        {
            let node = peer.node.clone();
            let client = peers.client(peer);
            let answer = client.map(|client| call(client, caller.request(message.clone())));
            calls.spawn(async move { (node, in_time(answer).await.and_then(read)) });
        }
        let (mut answers, mut unanswered) = (BTreeMap::new(), Vec::new());
        while let Some(answered) = calls.join_next().await {
            match answered {
                Ok((node, Ok(answer))) => drop(answers.insert(node, answer)),
                Ok((node, Err(error))) => {
                    tracing::warn!(node, error, "peers: node did not answer");
                    unanswered.push(node);
                }
                Err(error) => tracing::error!(%error, "peers: call failed"),
            }
        }
        unanswered.sort_unstable();
        (answers.into_values().flatten().collect(), unanswered)
    }
}

// === impl Peers ===

impl Peers {
    /// All nodes but `me` that `masters` knows, reached over `channels`.
    pub fn new(me: Peer, masters: watch::Receiver<Arc<Masters>>, channels: Channels) -> Self {
        Self {
            me,
            masters,
            channels,
        }
    }

    /// Returns the masters of all shards, as far as this node knows.
    pub(super) fn masters(&self) -> Arc<Masters> {
        self.masters.borrow().clone()
    }

    /// Returns this node.
    pub(super) fn me(&self) -> &Peer {
        &self.me
    }

    fn client(&self, peer: &Peer) -> Result<PeerServiceClient<Channel>, String> {
        if self.me.http_tls && !peer.grpc_tls {
            // The caller has sent its token over TLS.
            return Err("its gRPC port does not speak TLS".to_owned());
        }
        let channel = self.channels.channel(&peer.grpc_url());
        let channel = channel.map_err(|error| error.to_string())?;
        Ok(PeerServiceClient::new(channel).max_decoding_message_size(ANSWER_LEN_MAX))
    }
}

// === free functions ===

async fn in_time<R>(
    call: Result<impl Future<Output = Result<Response<R>, Status>>, String>,
) -> Result<R, String> {
    match tokio::time::timeout(TIMEOUT, call?).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(cause(&status)),
        Err(_) => Err(format!("no answer within {TIMEOUT:?}")),
    }
}
