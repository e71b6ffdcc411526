//! Transport from a limiter of this node to the lease tables of the cluster.

use std::time::Duration;

use tokio::sync::mpsc;
use tollgate_client::{ClientRun, Refresh, Refreshed, Release, ResourceId, Transport};
use tollgate_leases::nudges::Watcher;
use tollgate_leases::router::{CallContext, Router};
use tonic::Code;

/// Time for the masters of other shards, within that of the limiter's call.
const TIMEOUT: Duration = Duration::from_millis(750);

/// Calls of a limiter straight to the router, without a connection.
#[derive(Debug)]
pub(super) struct LocalTransport(Router);

// === impl LocalTransport ===

impl LocalTransport {
    pub(super) const fn new(router: Router) -> Self {
        Self(router)
    }
}

impl Transport for LocalTransport {
    async fn refresh(&self, refresh: Refresh) -> Result<Refreshed, String> {
        let count = refresh.scopes.len();
        let answers = self.0.refresh(refresh, context()).await;
        let answers = answers.map_err(|error| error.to_string())?;
        debug_assert_eq!(answers.len(), count);
        Ok(Refreshed {
            scopes: answers.into_iter().map(Ok).collect(),
        })
    }

    async fn release(&self, release: Release) {
        // A lease whose release is lost expires.
        let _ = self.0.release(release, context()).await;
    }

    async fn watch(&self, client: ClientRun, nudges: mpsc::Sender<Vec<ResourceId>>) -> u32 {
        let Ok(watch) = self.0.nudges.open(Watcher::Client(client)) else {
            return Code::ResourceExhausted as u32;
        };
        loop {
            if watch.filled().await.is_err() {
                return Code::Aborted as u32;
            }
            while let Some(nudged) = watch.take() {
                if nudges.send(nudged.resources).await.is_err() {
                    return Code::Cancelled as u32;
                }
            }
        }
    }
}

// === free functions ===

const fn context() -> CallContext {
    CallContext {
        forwarded: None,
        from_child: false,
        timeout: TIMEOUT,
    }
}
