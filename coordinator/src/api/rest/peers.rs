//! Requests to the other nodes of the cluster.
//!
//! A node that an operator asks asks all others and adds up their answers. The operator's token goes
//! with each call, so that no operator reads at another node what it may not read there.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::HeaderValue;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::App;
use crate::cluster::election::{Masters, Peer};
use crate::net::channels::{Channels, cause};
use crate::wire::PeerServiceClient;

mod message;
mod service;

pub(super) use self::message::{client_detail, scope_detail};
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

/// Answers of the other nodes.
#[derive(Debug)]
pub(super) struct PeerAnswers<R> {
    /// By node.
    pub(super) answers: Vec<(String, R)>,
    /// The nodes that did not answer.
    pub(super) unanswered: Vec<String>,
}

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
    /// Makes `call` with `message` to all other nodes, if there are any, at the same time.
    pub(super) async fn ask<M, R, F>(
        &self,
        caller: &Caller,
        message: M,
        call: fn(PeerServiceClient<Channel>, Request<M>) -> F,
    ) -> PeerAnswers<R>
    where
        M: Clone,
        R: Send + 'static,
        F: Future<Output = Result<Response<R>, Status>> + Send + 'static,
    {
        let mut all = PeerAnswers::default();
        let Some(peers) = &self.parts.peers else {
            return all;
        };
        let mut calls = JoinSet::new();
        for peer in &peers.masters().members {
            if peer.node == peers.me.node {
                continue;
            }
            let node = peer.node.clone();
            match peers.client(peer) {
                Ok(client) => {
                    let answer = call(client, caller.request(message.clone()));
                    calls.spawn(async move { (node, in_time(answer).await) });
                }
                Err(error) => all.add(node, Err(error)),
            }
        }
        while let Some(answer) = calls.join_next().await {
            match answer {
                Ok((node, answer)) => all.add(node, answer),
                Err(error) => tracing::error!(%error, "peers: call failed"),
            }
        }
        all.answers
            .sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        all.unanswered.sort_unstable();
        all
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

// === impl PeerAnswers ===

impl<R> Default for PeerAnswers<R> {
    fn default() -> Self {
        Self {
            answers: Vec::new(),
            unanswered: Vec::new(),
        }
    }
}

impl<R> PeerAnswers<R> {
    fn add(&mut self, node: String, answer: Result<R, String>) {
        match answer {
            Ok(answer) => self.answers.push((node, answer)),
            Err(error) => {
                tracing::warn!(node, error, "peers: node did not answer");
                self.unanswered.push(node);
            }
        }
    }

    /// Returns the answers without their nodes, and the nodes that did not answer.
    pub(super) fn parts(self) -> (impl Iterator<Item = R>, Vec<String>) {
        let answers = self.answers.into_iter().map(|(_, answer)| answer);
        (answers, self.unanswered)
    }
}

// === free functions ===

async fn in_time<R>(call: impl Future<Output = Result<Response<R>, Status>>) -> Result<R, String> {
    match tokio::time::timeout(TIMEOUT, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(cause(&status)),
        Err(_) => Err(format!("no answer within {TIMEOUT:?}")),
    }
}
