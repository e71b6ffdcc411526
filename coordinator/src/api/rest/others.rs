//! Reads of the books of the whole cluster: the other nodes are asked the same, once.
//!
//! The request goes on as it came, with the caller's own token, so that nobody reads at another
//! node what it may not read there. A header says that it has been passed on; who gets such a
//! request answers for itself alone.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use ureq::Agent;
use ureq::http::{Request, StatusCode};

use super::agents::Agents;
use crate::cluster::election::{Masters, Peer};
use crate::net::tls::{Credentials, Newest};

/// Says that a request has been passed on.
const HOP: &str = "tollgate-hop";

/// The longest answer, in bytes: what a page of a thousand entries with long names takes, and more.
const ANSWER_LEN_MAX: u64 = 16 << 20;

/// The other nodes; clones share the connections.
#[derive(Clone, Debug)]
pub struct Others {
    me: Peer,
    masters: watch::Receiver<Arc<Masters>>,
    agents: Agents,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    method: Method,
    path: String,
    authorization: Option<HeaderValue>,
    /// By another node; it is answered from the books of this one alone.
    pub(super) is_passed_on: bool,
}

/// What the other nodes answered.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    /// By node; null from one that has not what was asked for.
    pub(super) answers: Vec<(String, Value)>,
    /// The nodes that did not answer.
    pub(super) unanswered: Vec<String>,
}

// === impl Asked ===

impl Asked {
    /// A read of what this request is about, one segment up.
    pub(super) fn of_parent(&self) -> Self {
        let path = self.path.split('?').next().unwrap_or_default();
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        Self {
            method: Method::GET,
            path: parent.to_owned(),
            ..self.clone()
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Asked {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let path = parts.uri.path_and_query();
        Ok(Self {
            method: parts.method.clone(),
            path: path.map_or_else(String::new, |path| path.as_str().to_owned()),
            authorization: parts.headers.get(AUTHORIZATION).cloned(),
            is_passed_on: parts.headers.contains_key(HOP),
        })
    }
}

// === impl Others ===

impl Others {
    /// All nodes but `me`, whom `masters` knows, and who are asked over TLS with `credentials`.
    pub fn new(
        me: Peer,
        masters: watch::Receiver<Arc<Masters>>,
        credentials: Option<Newest<Credentials>>,
    ) -> Self {
        Self {
            me,
            masters,
            agents: Agents::new(credentials),
        }
    }

    /// Who is master of what, as this node knows.
    pub(super) fn masters(&self) -> Arc<Masters> {
        self.masters.borrow().clone()
    }

    /// This node.
    pub(super) fn me(&self) -> &Peer {
        &self.me
    }

    /// What they answer to `asked`, all at the same time; nothing if one of them has passed it on.
    pub(super) async fn ask(&self, asked: &Asked) -> Answers {
        let mut all = Answers::default();
        if asked.is_passed_on {
            return all;
        }
        let mut asking = JoinSet::new();
        for peer in &self.masters().members {
            if peer.node == self.me.node {
                continue;
            }
            // Whoever is asked over TLS sends its token to nobody in plain text.
            let tls = peer.http_tls || self.me.http_tls;
            let (agents, asked, peer) = (self.agents.clone(), asked.clone(), peer.clone());
            asking.spawn_blocking(move || {
                let agent = agents.of(&peer, tls);
                let answer = agent.and_then(|(agent, base)| ask(&agent, &asked, &base, &peer));
                (peer.node.clone(), answer)
            });
        }
        while let Some(answer) = asking.join_next().await {
            match answer {
                Ok((node, Ok(answer))) => all.answers.push((node, answer)),
                Ok((node, Err(error))) => {
                    tracing::warn!(node, error, "cluster: node did not answer");
                    all.unanswered.push(node);
                }
                Err(error) => tracing::error!(%error, "cluster: query of a node failed"),
            }
        }
        all.answers
            .sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        all.unanswered.sort_unstable();
        all
    }
}

// === free functions ===

/// What `peer` answers to `asked` at the URL that begins with `base`.
fn ask(agent: &Agent, asked: &Asked, base: &str, peer: &Peer) -> Result<Value, String> {
    let mut request = Request::builder()
        .method(asked.method.as_str())
        .uri(format!("{base}{}", asked.path))
        // It answers to an address, and not to a name that only its certificate has.
        .header(HOST.as_str(), &peer.http)
        .header(HOP, "1");
    if let Some(authorization) = &asked.authorization {
        request = request.header(AUTHORIZATION.as_str(), authorization.as_bytes());
    }
    let request = request.body(()).map_err(|error| error.to_string())?;
    let answer = agent.run(request);
    let mut answer = answer.map_err(|error| error.to_string())?;
    match answer.status() {
        StatusCode::NOT_FOUND | StatusCode::NO_CONTENT => Ok(Value::Null),
        status if status.is_success() => {
            let body = answer.body_mut().with_config().limit(ANSWER_LEN_MAX);
            body.read_json().map_err(|error| error.to_string())
        }
        status => Err(status.to_string()),
    }
}
