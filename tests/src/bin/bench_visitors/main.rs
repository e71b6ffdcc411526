//! Benchmark of a site with many visitors: rare tenants at random, by default each with a limit far above
//! what it sends, through real Envoys and a coordinator in their default configurations.
//!
//! Nothing should be refused that a bucket for each tenant would admit. Beside the visitors a hundred
//! known tenants send a twentieth of the requests, and the same load without the filter goes before.

mod table;
mod visits;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::Instant;
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::cores;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{self, Build};

use crate::table::{Cost, Row};
use crate::visits::{Load, Visits};

const LIMITS: &str = "limits:\n  - match: \"tenant/*\"\n    requests: {rate: 100}\n";
/// The listener without a filter.
const PLAIN: &str = "plain";
/// Part of the time for which the load goes through the listener without a filter.
const PLAIN_PART: u32 = 6;

/// Visitors that are refused, their latency, and what they cost, a row for each combination.
#[derive(Debug, Parser)]
struct Options {
    /// Length of a run in seconds.
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u32).range(6..))]
    seconds: u32,
    /// Requests per second, over all Envoys.
    #[arg(long, value_delimiter = ',', default_values_t = [500, 2000, 12_000])]
    rates: Vec<u32>,
    /// Numbers of tenants that come at random.
    #[arg(long, value_delimiter = ',', default_values_t = [200_000, 10_000_000])]
    tenants: Vec<u64>,
    /// Numbers of Envoys, with a worker each.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2])]
    envoys: Vec<u32>,
    /// Builds of the filter: wasm, native.
    #[arg(long, value_delimiter = ',', default_values = ["wasm", "native"])]
    builds: Vec<String>,
    /// Configuration of the coordinator, YAML without `listen`.
    #[arg(long, default_value = LIMITS)]
    config: String,
}

/// Real processes of one run.
struct Site {
    envoys: Vec<Envoy>,
    coordinator: Coordinator,
}

// === impl Site ===

impl Site {
    async fn start(dir: &Path, config: &str, build: Build, envoys: u32) -> Result<Self> {
        let coordinator = Coordinator::start(dir, config).await?;
        let plugin = filter::by_tenant(&json!({}));
        let tollgate = match build {
            Build::Wasm => filter::tollgate_wasm("tollgate", &plugin)?,
            Build::Native => filter::tollgate_native(&plugin)?,
        };
        let specs = (0..envoys).map(|number| {
            let name = format!("envoy-{number}");
            let filters = vec![tollgate.clone()];
            let mut spec = EnvoySpec::new(&name, 1, coordinator.grpc(), filters);
            spec.listeners.push((PLAIN.to_owned(), Vec::new()));
            spec.virtual_hosts = json!([{
                "name": "all",
                "domains": ["*"],
                "routes": [{"match": {"prefix": "/"}, "direct_response": {"status": 200}}],
            }]);
            spec.asking(coordinator.grpc())
        });
        let specs: Vec<_> = specs.collect();
        Ok(Self {
            envoys: Envoy::start_all(dir, &specs).await?,
            coordinator,
        })
    }

    /// Sends a load through one listener of each Envoy.
    async fn visit(&self, listener: &str, load: Load) -> Result<Visits> {
        let to = self.envoys.iter().map(|envoy| envoy.listener(listener));
        let to: Option<Vec<_>> = to.collect();
        visits::send(&to.context("a listener that was started")?, load).await
    }

    /// CPU time so far of all Envoys, and of the coordinator.
    fn cpu(&self) -> Result<[Duration; 2]> {
        let envoys = self.envoys.iter().map(|envoy| envoy.process.cpu());
        let envoys = envoys.sum::<Result<Duration>>()?;
        Ok([envoys, self.coordinator.process.cpu()?])
    }

    async fn cost(&self, from: Instant, cpu_before: [Duration; 2]) -> Result<Cost> {
        let (cpu, time) = (self.cpu()?, from.elapsed().as_secs_f64());
        let part = |index: usize| (cpu[index] - cpu_before[index]).as_secs_f64() / time;
        let mut cost = Cost {
            envoys_cpu: part(0),
            coordinator_cpu: part(1),
            coordinator_bytes: self.coordinator.process.memory_bytes()?,
            ..Cost::default()
        };
        for envoy in &self.envoys {
            let stat = async |name: &str| envoy.stat(&format!("wasmcustom.tollgate.{name}")).await;
            cost.overflow += stat("overflow").await?;
            cost.slots = cost.slots.max(stat("slots_used").await?);
            cost.vm_bytes = cost.vm_bytes.max(stat("vm_memory_bytes").await?);
            cost.envoy_bytes = cost.envoy_bytes.max(envoy.process.memory_bytes()?);
        }
        Ok(cost)
    }
}

// === free functions ===

fn main() -> Result<()> {
    let options = Options::parse();
    let runtime = cores::load_runtime()?;
    let mut rows = Vec::new();
    for build in &options.builds {
        for envoys in &options.envoys {
            for tenants in &options.tenants {
                for rate in &options.rates {
                    let load = Load {
                        rate: *rate,
                        tenants: *tenants,
                        time: Duration::from_secs(options.seconds.into()),
                    };
                    let run = run(&options.config, build.parse()?, *envoys, load);
                    let row = cores::on_first(2, || runtime.block_on(run))
                        .with_context(|| format!("{build}, {envoys} Envoys, {load:?}"))?;
                    eprintln!("{}", row.course());
                    rows.push(row);
                }
            }
        }
    }
    table::print(&rows)
}

/// Measures one row.
async fn run(config: &str, build: Build, envoys: u32, load: Load) -> Result<Row> {
    let dir = TempDir::new()?;
    let site = Site::start(dir.path(), config, build, envoys).await?;
    let time = load.time / PLAIN_PART;
    let plain = site.visit(PLAIN, Load { time, ..load }).await?;
    let (from, cpu) = (Instant::now(), site.cpu()?);
    let visits = site.visit("main", load).await?;
    Ok(Row {
        build,
        envoys,
        load,
        plain,
        visits,
        cost: site.cost(from, cpu).await?,
    })
}
