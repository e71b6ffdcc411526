//! Closed-loop load: each connection sends its next request when it has the last one's answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Result, ensure};
use tokio::task::JoinSet;
use tollgate_tests::connection::{Connection, get};
use tollgate_tests::filter::TENANT_HEADER;

/// Headers with the same tenant in each request; filters read one or all of them.
pub(crate) const HEADERS: [&str; 3] = [TENANT_HEADER, "x-namespace", "x-user"];

/// Running load.
pub(crate) struct ClosedLoop {
    shared: Arc<Shared>,
    tasks: JoinSet<Result<()>>,
}

/// State shared by all connections.
struct Shared {
    requests: Vec<Vec<u8>>,
    answered: AtomicU64,
    stopped: AtomicBool,
    failed: AtomicBool,
}

// === impl ClosedLoop ===

impl ClosedLoop {
    /// Opens the connections and begins to send; each connection starts at another tenant.
    ///
    /// # Errors
    /// When the address does not accept connections.
    pub(crate) async fn start(to: SocketAddr, connections: usize, tenants: usize) -> Result<Self> {
        let requests: Vec<_> = (0..tenants).map(request).collect();
        let shared = Arc::new(Shared {
            requests,
            answered: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        });
        let mut tasks = JoinSet::new();
        for place in 0..connections {
            let first = place * tenants / connections.max(1);
            let connection = Connection::open(to).await?;
            let shared = shared.clone();
            tasks.spawn(async move {
                let done = send(connection, &shared, first).await;
                shared.failed.fetch_or(done.is_err(), Ordering::Relaxed);
                done
            });
        }
        Ok(Self { shared, tasks })
    }

    /// Number of requests answered so far.
    pub(crate) fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// Whether a connection has ended before it was told to.
    pub(crate) fn has_failed(&self) -> bool {
        self.shared.failed.load(Ordering::Relaxed)
    }

    /// Stops sending, and closes the connections.
    ///
    /// # Errors
    /// When any request was not admitted: a refusal would cost less and distort the comparison.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.shared.stopped.store(true, Ordering::Relaxed);
        while let Some(done) = self.tasks.join_next().await {
            done??;
        }
        Ok(())
    }
}

/// A request of a tenant.
pub(crate) fn request(tenant: usize) -> Vec<u8> {
    let name = format!("name-{tenant:03}");
    get("/", &HEADERS.map(|header| (header, name.as_str())))
}

async fn send(mut connection: Connection, shared: &Shared, first: usize) -> Result<()> {
    for request in shared.requests.iter().cycle().skip(first) {
        if shared.stopped.load(Ordering::Relaxed) {
            break;
        }
        let status = connection.status_of(request).await?;
        ensure!(status == 200, "a request was answered {status}");
        shared.answered.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
