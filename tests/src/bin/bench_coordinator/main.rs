//! Benchmark of a coordinator on one core: refreshes per second, and CPU per refresh, over real gRPC.
//!
//! Each row has a coordinator of its own, the release binary on the first core; the load comes from
//! the others. All clients together want more than the capacity, and the wants change with each refresh,
//! so each refresh is computed anew. CPU is from the coordinator process's account, the figure to trust on
//! a busy machine.

mod channel;
mod cluster;
mod decisions;
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
use crate::load::{CallerGroup, Load};
use crate::table::Row;

/// Refreshes of each lease before the measured time; then the shares have settled.
const WARM_UP_ROUNDS: usize = 4;

/// The shortest warm-up, for one-time work of the process such as growing its heap.
const WARM_UP_MIN: Duration = Duration::from_millis(500);

/// Length of the leases, as in the Doorman measurements used for comparison.
const LEASE: Duration = Duration::from_secs(300);

/// Calls that a client of the bulk row needs for all its scopes.
const BULK_CALLS: usize = 10;

/// Refreshes per second and CPU per refresh of a coordinator that has one core.
#[derive(Debug, Parser)]
struct Options {
    /// Numbers of clients of one scope, a row each.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 1_000, 8_000, 100_000])]
    clients: Vec<usize>,
    /// Scopes in a bulk call; 0 leaves the bulk row out.
    #[arg(long, default_value_t = 100)]
    scopes: usize,
    /// Clients of the bulk row; each has ten times the scopes of a call.
    #[arg(long, default_value_t = 100)]
    bulk_clients: usize,
    /// Measured time of a row, in seconds.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Connections to each coordinator.
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Concurrent calls to each coordinator; fewer if there are fewer clients.
    #[arg(long, default_value_t = 16)]
    workers: usize,
    /// Compares three coordinators with three shards with one, instead of the rows for one coordinator.
    #[arg(long)]
    cluster: bool,
    /// Measures decisions of Envoy's rate limit service, instead of refreshes.
    #[arg(long, conflicts_with = "cluster")]
    decisions: bool,
    /// Fixed rates of decisions per second, a row each: latency counts from when a call was to be sent.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 2_000],
          value_parser = clap::value_parser!(u32).range(1..))]
    rates: Vec<u32>,
    /// Rows of each fixed rate, one after another in turn.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let runtime = cores::load_runtime()?;
    if options.cluster {
        return cluster::run(&runtime, &options);
    }
    if options.decisions {
        return decisions::run(&runtime, &options);
    }
    let mut rows = Vec::new();
    for fleet in options.fleets() {
        let dir = TempDir::new()?;
        let row = measure(&runtime, dir.path(), fleet, &options);
        rows.push(row.with_context(|| format!("with {fleet:?}"))?);
    }
    table::print(&rows)
}

// === impl Options ===

impl Options {
    /// Measured time of a row.
    fn measured_time(&self) -> Result<Duration> {
        Duration::try_from_secs_f64(self.seconds).context("--seconds")
    }

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

/// Measures one row with a coordinator of its own, after a warm-up.
fn measure(runtime: &Runtime, dir: &Path, fleet: Fleet, options: &Options) -> Result<Row> {
    let coordinator =
        cores::beside_load(|| runtime.block_on(Coordinator::start(dir, &limits(LEASE))))?;
    runtime.block_on(async {
        let group = CallerGroup {
            callers: fleet.callers(),
            to: vec![coordinator.grpc()],
        };
        let mut load =
            Load::start(vec![group], fleet, options.connections, options.workers).await?;
        warm_up(&mut load, fleet).await?;
        let look = || {
            let cpu = (coordinator.process.cpu()?, cpu_of(std::process::id())?);
            anyhow::Ok((Instant::now(), load.refreshed(), cpu))
        };
        load.measure();
        let before = look()?;
        sleep(options.measured_time()?).await;
        let after = look()?;
        let memory_bytes = coordinator.process.memory_bytes()?;
        let done = load.stop().await?;
        let leased = done.sum_has / fleet.capacity();
        ensure!(
            leased < 1.0 + 1e-9,
            "the part of the capacity leased was {leased}"
        );
        Ok(Row {
            fleet,
            refreshes: after.1 - before.1,
            took: after.0 - before.0,
            cpu: after.2.0.saturating_sub(before.2.0),
            generator_cpu: after.2.1.saturating_sub(before.2.1),
            latencies_us: done.latencies_us,
            leased,
            memory_bytes,
        })
    })
}

/// Waits for the end of the warm-up.
async fn warm_up(load: &mut Load, fleet: Fleet) -> Result<()> {
    sleep(WARM_UP_MIN).await;
    load.until_refreshed((WARM_UP_ROUNDS * fleet.leases()) as u64)
        .await
}

/// Limits with leases of `lease`. The minimum interval is as short as possible: a client that refreshes
/// sooner only gets its lease repeated, which costs less.
fn limits(lease: Duration) -> String {
    let (lease, refresh) = (lease.as_millis(), lease.as_millis() / 5);
    format!(
        "limits:\n  - match: \"*\"\n    requests: {{rate: {CAPACITY}, lease: {lease}ms, refresh: {refresh}ms, \
         min_refresh: 1ms}}\n"
    )
}
