//! Passes refreshes on to the masters on other nodes, many in a call.
//!
//! A call costs several times what a refresh costs. So while one is under way to a node, what else
//! goes there is gathered and goes with the next one. Nothing waits for company: where no call is
//! under way, a refresh goes at once. A call that takes long does not keep the next one waiting, so
//! that a slow lease table delays its own refreshes only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate_core::message::SCOPES_MAX;
use tollgate_net::channels::Channels;
use tollgate_net::wire::ForwardServiceClient;
use tollgate_proto::v1;
use tonic::{Code, Request, Status};

/// The most refreshes in a call.
pub const REFRESHES_MAX: usize = 64;
/// The most scopes of a refresh that goes together with others. A larger one takes its time, and those
/// beside it would wait for its answer.
const SHARED_SCOPES_MAX: usize = 64;
/// The most refreshes that wait for a call to one node. Clients wait for their answers, so more than
/// this would come too late anyway.
const WAITING_MAX: usize = 4096;
/// Time after which a call does not keep the next one waiting.
const SLOW_AFTER: Duration = Duration::from_millis(20);
/// The most calls to one node under way.
const CALLS_MAX: usize = 32;
/// The most nodes; the rest of a cluster, and room for addresses that nodes have had before.
const NODES_MAX: usize = 128;

/// Queues of refreshes for other nodes; clones share them.
#[derive(Clone, Debug)]
pub struct Forwarder {
    peers: Channels,
    /// By URL. Held for a look-up only, never while anything is awaited.
    queues: Arc<Mutex<BTreeMap<String, mpsc::Sender<QueuedRefresh>>>>,
}

/// Refresh that waits for its call.
#[derive(Debug)]
struct QueuedRefresh {
    refresh: v1::ForwardedRefresh,
    timeout: Duration,
    answer: oneshot::Sender<Result<v1::RefreshResponse, Status>>,
}

/// Calls to one node.
struct NodeCalls {
    peers: Channels,
    url: String,
    refreshes: mpsc::Receiver<QueuedRefresh>,
    /// One that did not fit into the last call.
    left: Option<QueuedRefresh>,
    calls: JoinSet<()>,
}

// === impl Forwarder ===

impl Forwarder {
    /// Queues without a refresh, for nodes that `peers` leads to.
    pub fn new(peers: Channels) -> Self {
        Self {
            peers,
            queues: Arc::default(),
        }
    }

    /// Passes a refresh on to the node at `url`.
    pub(super) async fn forward(
        &self,
        url: &str,
        refresh: v1::ForwardedRefresh,
        timeout: Duration,
    ) -> Result<v1::RefreshResponse, Status> {
        let (answer, answered) = oneshot::channel();
        let queued = QueuedRefresh {
            refresh,
            timeout,
            answer,
        };
        if self.queue(url).try_send(queued).is_err() {
            let reason = "too many refreshes wait for the node";
            return Err(Status::unavailable(reason));
        }
        let gone = |_| Err(Status::unavailable("the call to the node was given up"));
        answered.await.unwrap_or_else(gone)
    }

    fn queue(&self, url: &str) -> mpsc::Sender<QueuedRefresh> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get(url).filter(|queue| !queue.is_closed()) {
            return queue.clone();
        }
        if queues.len() >= NODES_MAX {
            queues.clear();
        }
        let (queue, receiver) = mpsc::channel(WAITING_MAX);
        let calls = NodeCalls {
            peers: self.peers.clone(),
            url: url.to_owned(),
            refreshes: receiver,
            left: None,
            calls: JoinSet::new(),
        };
        tokio::spawn(calls.run());
        queues.insert(url.to_owned(), queue.clone());
        queue
    }
}

// === impl NodeCalls ===

impl NodeCalls {
    /// Runs until nobody can queue anything.
    async fn run(mut self) {
        while let Some(first) = self.next().await {
            let call = self.gather(first);
            while self.calls.try_join_next().is_some() {}
            if self.calls.len() >= CALLS_MAX {
                self.calls.join_next().await;
            }
            let (done, ended) = oneshot::channel();
            self.start(call, done);
            // Whichever comes first: its end, or that it is slow.
            let _ = timeout(SLOW_AFTER, ended).await;
        }
    }

    /// Returns the next refresh whose client has not gone meanwhile.
    async fn next(&mut self) -> Option<QueuedRefresh> {
        loop {
            let next = match self.left.take() {
                Some(left) => left,
                None => self.refreshes.recv().await?,
            };
            if !next.answer.is_closed() {
                return Some(next);
            }
        }
    }

    /// Returns `first` and those behind it that fit into one call; a large one is alone.
    fn gather(&mut self, first: QueuedRefresh) -> Vec<QueuedRefresh> {
        let (mut scopes, is_large) = (first.scopes(), first.is_large());
        let mut call = vec![first];
        while !is_large
            && call.len() < REFRESHES_MAX
            && let Ok(next) = self.refreshes.try_recv()
        {
            // Its client may have gone meanwhile.
            if next.answer.is_closed() {
                continue;
            }
            scopes = scopes.saturating_add(next.scopes());
            if scopes > SCOPES_MAX || next.is_large() {
                self.left = Some(next);
                break;
            }
            call.push(next);
        }
        call
    }

    /// Makes a call in a task of its own, which drops `done` at its end.
    fn start(&mut self, call: Vec<QueuedRefresh>, done: oneshot::Sender<()>) {
        let client = self.peers.channel(&self.url).map(ForwardServiceClient::new);
        self.calls.spawn(async move {
            let _done = done;
            let time = call.iter().map(|queued| queued.timeout).max();
            let (refreshes, waiting): (Vec<_>, Vec<_>) = call
                .into_iter()
                .map(|queued| (queued.refresh, queued.answer))
                .unzip();
            let mut request = Request::new(v1::ForwardRequest { refreshes });
            request.set_timeout(time.unwrap_or_default());
            let answers = match client {
                Ok(mut client) => client.forward(request).await,
                Err(error) => Err(Status::unavailable(error.to_string())),
            };
            hand_out(answers.map(|answers| answers.into_inner().answers), waiting);
        });
    }
}

// === impl QueuedRefresh ===

impl QueuedRefresh {
    fn scopes(&self) -> usize {
        let refresh = self.refresh.refresh.as_ref();
        refresh.map_or(0, |refresh| refresh.scopes.len())
    }

    fn is_large(&self) -> bool {
        self.scopes() > SHARED_SCOPES_MAX
    }
}

// === free functions ===

/// Gives each of those that wait its answer, or why there is none.
fn hand_out(
    answers: Result<Vec<v1::ForwardedAnswer>, Status>,
    waiting: Vec<oneshot::Sender<Result<v1::RefreshResponse, Status>>>,
) {
    let answers = answers.map(Vec::into_iter);
    let mut answers = match answers {
        Ok(answers) => answers,
        Err(status) => {
            for sender in waiting {
                // One that has gone needs none.
                let _ = sender.send(Err(status.clone()));
            }
            return;
        }
    };
    for sender in waiting {
        let answer = answers.next().unwrap_or_else(|| v1::ForwardedAnswer {
            code: Code::Internal as u32,
            error: "the node answered fewer refreshes than it was sent".to_owned(),
            response: None,
        });
        let _ = sender.send(in_words(answer));
    }
}

fn in_words(answer: v1::ForwardedAnswer) -> Result<v1::RefreshResponse, Status> {
    match (answer.code, answer.response) {
        (0, Some(response)) => Ok(response),
        (0, None) => Err(Status::internal(
            "the node answered neither leases nor an error",
        )),
        (code, _) => {
            let code = i32::try_from(code).map_or(Code::Unknown, Code::from_i32);
            Err(Status::new(code, answer.error))
        }
    }
}

#[cfg(test)]
mod tests;
