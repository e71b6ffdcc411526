//! Closed-loop load: each connection sends its next request when it has the last one's answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tollgate_tests::connection::{Connection, get};
use tollgate_tests::filter::TENANT_HEADER;

/// Connections that are open and warm.
pub(crate) struct ClosedLoop {
    connections: Vec<Connection>,
    requests: Arc<Vec<Vec<u8>>>,
}

// === impl ClosedLoop ===

impl ClosedLoop {
    /// Opens the connections and sends every tenant's request once, so that no slice pays for what
    /// happens only once.
    ///
    /// # Errors
    /// When a request is not admitted.
    pub(crate) async fn open(to: SocketAddr, connections: usize, tenants: usize) -> Result<Self> {
        let requests: Vec<_> = (0..tenants)
            .map(|tenant| get("/", &[(TENANT_HEADER, &format!("tenant-{tenant:03}"))]))
            .collect();
        let mut open = Vec::new();
        for _ in 0..connections {
            open.push(Connection::open(to).await?);
        }
        for (place, request) in requests.iter().enumerate() {
            send(&mut open[place % connections], request).await?;
        }
        Ok(Self {
            connections: open,
            requests: Arc::new(requests),
        })
    }

    /// Sends for `length`; gives how many requests were answered, and in what time.
    ///
    /// # Errors
    /// When any request is not admitted: a refusal would cost less and spoil the comparison.
    pub(crate) async fn run(self, length: Duration) -> Result<(u64, Duration)> {
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        let step = self.requests.len() / self.connections.len().max(1) + 1;
        for (place, mut connection) in self.connections.into_iter().enumerate() {
            let requests = self.requests.clone();
            tasks.spawn(async move {
                let mut sent = 0;
                let mut turn = requests.iter().cycle().skip(place * step);
                while let Some(request) = turn.next()
                    && started.elapsed() < length
                {
                    send(&mut connection, request).await?;
                    sent += 1;
                }
                Ok::<u64, anyhow::Error>(sent)
            });
        }
        let mut sent = 0;
        while let Some(done) = tasks.join_next().await {
            sent += done??;
        }
        Ok((sent, started.elapsed()))
    }
}

async fn send(connection: &mut Connection, request: &[u8]) -> Result<()> {
    let status = connection.status_of(request).await?;
    ensure!(status == 200, "a request was answered {status}");
    Ok(())
}
