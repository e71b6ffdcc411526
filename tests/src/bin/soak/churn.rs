//! Tenants that come, send a few requests and never come again; they measure latencies.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::{JoinHandle, spawn};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tollgate_tests::connection::{Connection, get};
use tollgate_tests::filter::TENANT_HEADER;

/// Interval between requests: 100 per second for each Envoy.
const PACE: Duration = Duration::from_millis(10);

/// Requests of each tenant.
const REQUESTS: u64 = 4;

/// After this time without an answer a request has failed.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Requests of ever new tenants to one Envoy; they end when it is dropped.
#[derive(Debug)]
pub(crate) struct Churn {
    answers: Arc<Mutex<Answers>>,
    task: JoinHandle<()>,
}

/// Answers since the last sample.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    /// Times from request to answer.
    pub(crate) latencies: Vec<Duration>,
    /// Requests without an answer.
    pub(crate) failures: u64,
    /// Tenants so far.
    pub(crate) tenants: u64,
}

// === impl Churn ===

impl Churn {
    /// Starts to send requests to the Envoy called `name` at `to`.
    pub(crate) fn start(name: &'static str, to: SocketAddr) -> Self {
        let answers = Arc::new(Mutex::new(Answers::default()));
        let task = spawn(send(name, to, answers.clone()));
        Self { answers, task }
    }

    /// Takes the answers since the last call.
    pub(crate) fn take(&self) -> Answers {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let tenants = answers.tenants;
        let next = Answers {
            tenants,
            ..Answers::default()
        };
        std::mem::replace(&mut answers, next)
    }
}

impl Drop for Churn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === free functions ===

async fn send(name: &'static str, to: SocketAddr, answers: Arc<Mutex<Answers>>) {
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut idle = None;
    for number in 0_u64.. {
        ticks.tick().await;
        let tenant = number / REQUESTS;
        let request = get("/", &[(TENANT_HEADER, &format!("{name}-{tenant}"))]);
        let sent = Instant::now();
        let answered = timeout(ANSWER_LIMIT, one(to, &request, &mut idle)).await;
        let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.tenants = tenant + 1;
        match answered {
            Ok(Ok(())) => answers.latencies.push(sent.elapsed()),
            Ok(Err(_)) | Err(_) => {
                answers.failures += 1;
                idle = None;
            }
        }
    }
}

async fn one(to: SocketAddr, request: &[u8], idle: &mut Option<Connection>) -> anyhow::Result<()> {
    let mut connection = match idle.take() {
        Some(connection) => connection,
        None => Connection::open(to).await?,
    };
    let status = connection.status_of(request).await?;
    anyhow::ensure!(status == 200 || status == 429, "status {status}");
    *idle = connection.is_reusable().then_some(connection);
    Ok(())
}
