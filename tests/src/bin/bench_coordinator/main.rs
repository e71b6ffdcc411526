//! What a coordinator on one core does: refreshes per second and CPU for each, over real gRPC.
//!
//! Each row has a coordinator of its own, the release binary on the first core; the load comes from
//! the others. All clients want more than there is, and what they want changes with each refresh,
//! so no refresh finds its answer ready. CPU is the coordinator process's own account: on a machine
//! that is not quiet it is the figure to trust.

mod channel;
mod cluster;
mod fleet;
mod load;
mod table;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep};
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::cores;
use tollgate_tests::process::cpu_of;

use crate::fleet::{CAPACITY, Fleet};
use crate::load::{Load, Way};
use crate::table::Row;

/// Refreshes of each lease before the measured time: what the first of them shift has settled.
const WARM_UP_ROUNDS: usize = 4;

/// The least warm-up: what a process does once, such as growing its heap, is over.
const WARM_UP_MIN: Duration = Duration::from_millis(500);

/// As long as in the measurements of Doorman that we compare with.
const LEASE: Duration = Duration::from_secs(300);

/// How many scopes the clients of the bulk row ask for in all, in units of one call.
const BULK_CALLS: usize = 10;

/// Refreshes per second and CPU per refresh of a coordinator that has one core.
#[derive(Debug, Parser)]
struct Options {
    /// Clients of one scope, a row for each number.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 1_000, 8_000, 100_000])]
    clients: Vec<usize>,
    /// Scopes in a bulk call; 0 leaves the bulk row out.
    #[arg(long, default_value_t = 100)]
    scopes: usize,
    /// Clients of the bulk row; each asks for ten times the scopes of a call.
    #[arg(long, default_value_t = 100)]
    bulk_clients: usize,
    /// Measured time of a row.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Connections that the calls go over.
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Calls at a time to each coordinator; fewer if there are fewer clients.
    #[arg(long, default_value_t = 16)]
    workers: usize,
    /// Instead of the rows for one coordinator: three coordinators with three shards against one.
    #[arg(long)]
    cluster: bool,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let seconds = Duration::try_from_secs_f64(options.seconds).context("--seconds")?;
    let runtime = cores::load_runtime()?;
    if options.cluster {
        return cluster::run(&runtime, seconds, &options);
    }
    let mut rows = Vec::new();
    for fleet in options.fleets() {
        let dir = TempDir::new()?;
        let row = measure(&runtime, dir.path(), fleet, seconds, &options);
        rows.push(row.with_context(|| format!("with {fleet:?}"))?);
    }
    table::print(&rows)
}

// === impl Options ===

impl Options {
    fn fleets(&self) -> Vec<Fleet> {
        let one_scope = |clients: &usize| Fleet {
            clients: *clients,
            scopes: 1,
            scopes_per_call: 1,
        };
        let bulk = (self.scopes > 0).then_some(Fleet {
            clients: self.bulk_clients,
            scopes: BULK_CALLS * self.scopes,
            scopes_per_call: self.scopes,
        });
        self.clients.iter().map(one_scope).chain(bulk).collect()
    }
}

// === free functions ===

/// One row: its own coordinator, warmed up and then measured.
fn measure(
    runtime: &Runtime,
    dir: &Path,
    fleet: Fleet,
    seconds: Duration,
    options: &Options,
) -> Result<Row> {
    let coordinator =
        cores::beside_load(|| runtime.block_on(Coordinator::start(dir, &limits(LEASE))))?;
    runtime.block_on(async {
        let way = Way {
            callers: fleet.callers(),
            to: vec![coordinator.grpc()],
        };
        let mut load = Load::start(vec![way], fleet, options.connections, options.workers).await?;
        warm_up(&mut load, fleet).await?;
        let look = || {
            let cpu = (coordinator.process.cpu()?, cpu_of(std::process::id())?);
            anyhow::Ok((Instant::now(), load.refreshed(), cpu))
        };
        load.measure();
        let before = look()?;
        sleep(seconds).await;
        let after = look()?;
        let memory_bytes = coordinator.process.memory_bytes()?;
        let done = load.stop().await?;
        let lent = done.sum_has / fleet.capacity();
        ensure!(lent < 1.0 + 1e-9, "more than the capacity was lent: {lent}");
        Ok(Row {
            fleet,
            refreshes: after.1 - before.1,
            took: after.0 - before.0,
            cpu: after.2.0.saturating_sub(before.2.0),
            generator_cpu: after.2.1.saturating_sub(before.2.1),
            latencies_us: done.latencies_us,
            lent,
            memory_bytes,
        })
    })
}

/// Waits until what happens at the start is over.
async fn warm_up(load: &mut Load, fleet: Fleet) -> Result<()> {
    sleep(WARM_UP_MIN).await;
    load.until_refreshed((WARM_UP_ROUNDS * fleet.leases()) as u64)
        .await
}

/// Leases of `lease`. The minimum interval is as short as can be: a client that asks sooner only gets its
/// lease repeated, which costs less.
fn limits(lease: Duration) -> String {
    let (lease, refresh) = (lease.as_millis(), lease.as_millis() / 5);
    format!(
        "limits:\n  - match: \"*\"\n    requests: {{rate: {CAPACITY}, lease: {lease}ms, refresh: {refresh}ms, \
         min_refresh: 1ms}}\n"
    )
}
