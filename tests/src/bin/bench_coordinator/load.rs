//! Closed-loop load: a number of concurrent calls, each followed by the next when it is answered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tollgate_proto::v1;

use crate::channel::Channel;
use crate::fleet::{Caller, Fleet};

const REFRESH: &str = "/tollgate.v1.LeaseService/Refresh";

/// Interval between two checks of the warm-up.
const LOOK: Duration = Duration::from_millis(20);

/// Callers, and the addresses that they call.
pub(crate) struct CallerGroup {
    pub(crate) callers: Vec<Caller>,
    pub(crate) to: Vec<SocketAddr>,
}

/// Running load.
pub(crate) struct Load {
    shared: Arc<Shared>,
    workers: JoinSet<Result<LoadResult>>,
}

/// Result of a load.
#[derive(Debug, Default)]
pub(crate) struct LoadResult {
    /// Latencies of the measured calls in microseconds, sorted.
    pub(crate) latencies_us: Vec<u32>,
    /// Sum of all leases at the end, in requests per second.
    pub(crate) sum_has: f64,
}

/// State shared by all workers of a load.
#[derive(Default)]
struct Shared {
    refreshed: AtomicU64,
    measured: AtomicBool,
    stopped: AtomicBool,
}

/// One concurrent call at a time.
struct Worker {
    channel: Channel,
    callers: Vec<Caller>,
    shared: Arc<Shared>,
}

// === impl Load ===

impl Load {
    /// Begins to refresh the leases of `fleet` with the callers in `groups`. Each address gets `workers`
    /// concurrent calls over `connections` connections, but never more than there are clients.
    ///
    /// # Errors
    /// When an address does not accept connections.
    pub(crate) async fn start(
        groups: Vec<CallerGroup>,
        fleet: Fleet,
        connections: usize,
        workers: usize,
    ) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut tasks = JoinSet::new();
        for group in groups {
            let mut channels = Vec::new();
            for _ in 0..connections.max(1) {
                for to in &group.to {
                    channels.push(Channel::open(*to, REFRESH).await?);
                }
            }
            let workers = workers.clamp(1, fleet.clients.max(1));
            let parts = dealt(group.callers, workers.saturating_mul(group.to.len()));
            for (callers, channel) in parts.into_iter().zip(channels.iter().cycle()) {
                let worker = Worker {
                    channel: channel.clone(),
                    callers,
                    shared: shared.clone(),
                };
                tasks.spawn(worker.run());
            }
        }
        Ok(Self {
            shared,
            workers: tasks,
        })
    }

    /// Number of leases refreshed so far.
    pub(crate) fn refreshed(&self) -> u64 {
        self.shared.refreshed.load(Ordering::Relaxed)
    }

    /// Waits until `count` leases have been refreshed.
    ///
    /// # Errors
    /// When a worker has failed.
    pub(crate) async fn until_refreshed(&mut self, count: u64) -> Result<()> {
        while self.refreshed() < count {
            if let Some(ended) = self.workers.try_join_next() {
                ended??;
                bail!("a worker ended by itself");
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// Records the latencies of the calls sent from now on.
    pub(crate) fn measure(&self) {
        self.shared.measured.store(true, Ordering::Relaxed);
    }

    /// Stops when the outstanding calls are answered.
    ///
    /// # Errors
    /// When any call failed or any scope was refused.
    pub(crate) async fn stop(mut self) -> Result<LoadResult> {
        self.shared.stopped.store(true, Ordering::Relaxed);
        let mut all = LoadResult::default();
        while let Some(done) = self.workers.join_next().await {
            let done = done??;
            all.latencies_us.extend(done.latencies_us);
            all.sum_has += done.sum_has;
        }
        all.latencies_us.sort_unstable();
        Ok(all)
    }
}

// === impl Worker ===

impl Worker {
    async fn run(mut self) -> Result<LoadResult> {
        let mut done = LoadResult::default();
        let mut next = 0;
        while !self.shared.stopped.load(Ordering::Relaxed) {
            let measured = self.shared.measured.load(Ordering::Relaxed);
            let caller = &mut self.callers[next];
            let sent = Instant::now();
            let answer: v1::RefreshResponse = self.channel.call(&caller.request()).await?;
            let took = sent.elapsed();
            caller.take(&answer)?;
            let count = caller.len() as u64;
            self.shared.refreshed.fetch_add(count, Ordering::Relaxed);
            if measured {
                let micros = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
                done.latencies_us.push(micros);
            }
            next = (next + 1) % self.callers.len();
        }
        done.sum_has = self.callers.iter().map(Caller::sum_has).sum();
        Ok(done)
    }
}

// === free functions ===

/// Deals `callers` out to the `hands` in turn, like cards.
fn dealt(callers: Vec<Caller>, hands: usize) -> Vec<Vec<Caller>> {
    let mut dealt: Vec<Vec<Caller>> = (0..hands).map(|_| Vec::new()).collect();
    for (place, caller) in callers.into_iter().enumerate() {
        dealt[place % hands].push(caller);
    }
    dealt
}
