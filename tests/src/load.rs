//! Open-loop load: requests fall due at a rate, independent of earlier answers.
//!
//! A closed loop would slow down with the answers and hide an overload. Here one pacer makes requests due
//! every few milliseconds, and each flow's connections take them in turn. Requests that cannot be sent at
//! once stay due, and the record counts them as waiting.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::conditions;
use crate::connection::{Connection, get};
use crate::filter::TENANT_HEADER;
use crate::record::{Record, RequestOutcome};

/// Interval at which requests fall due.
const PACE: Duration = Duration::from_millis(2);
/// Connections of a flow: enough to keep every worker of an Envoy busy, and for requests that the
/// filter makes wait.
const CONNECTIONS: usize = 32;
/// After this time without an answer a request has failed.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Pause after a failure, so that an absent Envoy is not flooded with connections.
const FAILURE_PAUSE: Duration = Duration::from_millis(50);

/// The requests of one tenant to one Envoy.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Address of the Envoy.
    pub to: SocketAddr,
    /// Their path.
    pub path: String,
    /// The tenant.
    pub tenant: String,
    /// Requests per second.
    pub rate: f64,
}

/// RunningFlow load.
#[derive(Debug)]
pub struct Load {
    started: Instant,
    flows: Vec<Arc<RunningFlow>>,
    tasks: JoinSet<()>,
}

/// A flow with its connections' shared state.
#[derive(Debug)]
struct RunningFlow {
    to: SocketAddr,
    request: Vec<u8>,
    due: Semaphore,
    state: Mutex<FlowState>,
}

/// Rate and record of a flow.
#[derive(Debug)]
struct FlowState {
    rate: f64,
    record: Record,
}

// === impl Flow ===

impl Flow {
    /// Creates the flow of a tenant to an Envoy.
    pub fn new(to: SocketAddr, tenant: &str, rate: f64) -> Self {
        Self::at(to, "/", tenant, rate)
    }

    /// Creates the flow of a tenant to one path.
    pub fn at(to: SocketAddr, path: &str, tenant: &str, rate: f64) -> Self {
        Self {
            to,
            path: path.to_owned(),
            tenant: tenant.to_owned(),
            rate,
        }
    }
}

// === impl Load ===

impl Load {
    /// Starts offering `flows`.
    pub fn start(flows: impl IntoIterator<Item = Flow>) -> Self {
        conditions::begin();
        let started = Instant::now();
        let flows: Vec<_> = flows
            .into_iter()
            .map(|flow| Arc::new(RunningFlow::new(flow)))
            .collect();
        let mut tasks = JoinSet::new();
        for flow in &flows {
            for _ in 0..CONNECTIONS {
                tasks.spawn(send(flow.clone(), started));
            }
        }
        tasks.spawn(pace(flows.clone(), started));
        Self {
            started,
            flows,
            tasks,
        }
    }

    /// Start of the load.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Lets the load run until `since` its start.
    pub async fn run_until(&self, since: Duration) {
        tokio::time::sleep_until(self.started + since).await;
    }

    /// Changes the rate of a flow, by its index.
    pub fn set_rate(&self, flow: usize, rate: f64) {
        self.flows[flow].state().rate = rate;
    }

    /// Record of a flow so far, by its index.
    pub fn record(&self, flow: usize) -> Record {
        self.flows[flow].state().record.clone()
    }

    /// Stops the load, waits for outstanding answers, and returns each flow's record.
    ///
    /// # Errors
    /// When answers are missing although every request has a time limit.
    pub async fn stop(mut self) -> Result<Vec<Record>> {
        for flow in &self.flows {
            flow.due.close();
        }
        let all = async { while self.tasks.join_next().await.is_some() {} };
        ensure!(
            timeout(2 * ANSWER_LIMIT, all).await.is_ok(),
            "the load does not end"
        );
        Ok(self
            .flows
            .iter()
            .map(|flow| flow.state().record.clone())
            .collect())
    }
}

/// Sum of several records of one load.
pub fn sum<'a>(records: impl IntoIterator<Item = &'a Record>) -> Record {
    let mut sum = Record::default();
    for record in records {
        sum.merge(record);
    }
    sum
}

// === impl RunningFlow ===

impl RunningFlow {
    fn new(flow: Flow) -> Self {
        Self {
            to: flow.to,
            request: get(&flow.path, &[(TENANT_HEADER, &flow.tenant)]),
            due: Semaphore::new(0),
            state: Mutex::new(FlowState {
                rate: flow.rate,
                record: Record::default(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, FlowState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes requests due until the load stops.
async fn pace(flows: Vec<Arc<RunningFlow>>, started: Instant) {
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut owed = vec![0.0; flows.len()];
    let mut last = started;
    while flows.iter().all(|flow| !flow.due.is_closed()) {
        let now = ticks.tick().await;
        conditions::note_late("the load generator", now.elapsed());
        let passed = now.saturating_duration_since(last).as_secs_f64();
        last = now;
        for (flow, owed) in flows.iter().zip(&mut owed) {
            let mut state = flow.state();
            *owed += state.rate * passed;
            let whole = owed.floor();
            *owed -= whole;
            let whole = whole as u64;
            state
                .record
                .add_offered(now.saturating_duration_since(started), whole);
            drop(state);
            flow.due.add_permits(usize::try_from(whole).unwrap_or(0));
        }
    }
}

/// Runs one connection of a flow: sends the due requests one at a time.
async fn send(flow: Arc<RunningFlow>, started: Instant) {
    let mut idle: Option<Connection> = None;
    while let Ok(permit) = flow.due.acquire().await {
        permit.forget();
        let outcome = match timeout(ANSWER_LIMIT, one(&flow, &mut idle)).await {
            Ok(Ok(status)) => RequestOutcome::of_status(status),
            Ok(Err(_)) | Err(_) => RequestOutcome::Failed,
        };
        flow.state().record.add(started.elapsed(), outcome);
        if outcome == RequestOutcome::Failed {
            idle = None;
            sleep(FAILURE_PAUSE).await;
        }
    }
}

async fn one(flow: &RunningFlow, idle: &mut Option<Connection>) -> Result<u16> {
    let mut connection = match idle.take() {
        Some(connection) => connection,
        None => Connection::open(flow.to).await?,
    };
    let status = connection.status_of(&flow.request).await?;
    if connection.is_reusable() {
        *idle = Some(connection);
    }
    Ok(status)
}
