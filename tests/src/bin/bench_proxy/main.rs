//! Benchmark of rate limiters in Envoy: CPU per request and throughput of one worker.
//!
//! One Envoy has a listener for each filter under test, so that all of them share the process, its
//! one worker, its memory layout and its upstream connections. Slices of load go to one listener
//! after another, in an order that changes from round to round, and each round's filters are
//! compared with that round's listener without a filter. A few Envoys are used one after another,
//! because a process keeps its memory layout for life. Nothing is refused.

mod closed_loop;
mod rate_limit_service;
mod table;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Error, Result};
use clap::Parser;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep};
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::cores;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter;
use tollgate_tests::upstream::Upstream;

use crate::closed_loop::{ClosedLoop, HEADERS};
use crate::rate_limit_service::RateLimitService;
use crate::table::{Sample, Table};

/// Envoy's cluster for its global limiter.
const GLOBAL: &str = "global";
/// The listener that the others are compared with.
const BASE: &str = "no filter";
/// The filters that set the aims: Tollgate shall add at most 1.1 times the CPU that the filter adds which
/// reads as many headers as Tollgate has scopes.
const AIM: &str = "wasm, one header";
const AIM_OF_THREE: &str = "wasm, three headers";
const THREE: &str = "tollgate, three";

/// Every tenant's limit is above its load, so that nothing is refused. At 10 000 a second a worker caches
/// tokens for some 25 requests at once. At 600 a second, four times the load of a tenant here, 5 ms of the
/// rate are less than two tokens, and each request draws its own token: the most expensive admission.
const LIMITS: &str = "limits:\n  - match: \"slow/*\"\n    requests: {rate: 600}\n  \
                      - match: \"*\"\n    requests: {rate: 10000}\n";

/// CPU that Envoy spends on each request, with no filter and with several, in one run.
#[derive(Debug, Parser)]
struct Options {
    /// Number of Envoys, used one after another.
    #[arg(long, default_value_t = 2)]
    envoys: u32,
    /// Rounds with each Envoy; a round is one slice for each filter.
    #[arg(long, default_value_t = 8)]
    rounds: usize,
    /// Load before each slice that is not measured, in milliseconds: Tollgate's tenants get their leases
    /// back, which they release while the other filters are measured.
    #[arg(long, default_value_t = 1000)]
    settle_ms: u64,
    /// Length of a slice in milliseconds: short, so that other work of the machine disturbs all filters
    /// alike.
    #[arg(long, default_value_t = 1000)]
    slice_ms: u64,
    /// Connections that send one request after another.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Number of tenants, used in turn.
    #[arg(long, default_value_t = 100)]
    tenants: usize,
    /// Measures only the baselines, without Tollgate.
    #[arg(long)]
    baselines_only: bool,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let runtime = cores::load_runtime()?;
    let aim = |name: &str| match name {
        AIM_OF_THREE | THREE => AIM_OF_THREE,
        _ => AIM,
    };
    let mut table = Table::new(BASE, aim);
    for generation in 1..=options.envoys {
        let dir = TempDir::new()?;
        let result = measure(&runtime, dir.path(), &options, &mut table);
        result.with_context(|| format!("with Envoy {generation} of {}", options.envoys))?;
        eprintln!("Envoy {generation} of {} is measured", options.envoys);
    }
    table.print()
}

/// Measures one Envoy's rounds.
fn measure(runtime: &Runtime, dir: &Path, options: &Options, table: &mut Table) -> Result<()> {
    let fleet = cores::beside_load(|| runtime.block_on(Fleet::start(dir, options)))?;
    for name in fleet.names() {
        runtime.block_on(fleet.slice(&name, options))?; // warm-up, not counted
    }
    for round in 0..options.rounds {
        let mut names = fleet.names();
        let first = round % names.len();
        names.rotate_left(first);
        let mut samples = Vec::new();
        for name in names {
            let sample = runtime.block_on(fleet.slice(&name, options))?;
            samples.push((name, sample));
        }
        table.add_round(samples);
    }
    Ok(())
}

/// The Envoy under test and its services.
struct Fleet {
    envoy: Envoy,
    listeners: Vec<String>,
    _coordinator: Option<Coordinator>,
    _global: RateLimitService,
    _upstream: Upstream,
}

// === impl Fleet ===

impl Fleet {
    async fn start(dir: &Path, options: &Options) -> Result<Self> {
        let upstream = Upstream::start().await?;
        let global = RateLimitService::start().await?;
        let coordinator = match options.baselines_only {
            true => None,
            false => Some(Coordinator::start(dir, LIMITS).await?),
        };
        let mut spec = EnvoySpec::new("envoy", 1, upstream.address(), Vec::new());
        spec.coordinators = coordinator.iter().map(Coordinator::grpc).collect();
        spec.clusters = vec![(GLOBAL.to_owned(), global.address())];
        spec.listeners = listeners(coordinator.is_some())?;
        let envoy = Envoy::start(dir, &spec).await?;
        let listeners = spec.listeners.into_iter().map(|(name, _)| name).collect();
        Ok(Self {
            envoy,
            listeners,
            _coordinator: coordinator,
            _global: global,
            _upstream: upstream,
        })
    }

    fn names(&self) -> Vec<String> {
        self.listeners.clone()
    }

    /// Sends load through one listener, and measures once it has settled: the reports of a change of demand
    /// are a cost of the change, not of each request.
    async fn slice(&self, name: &str, options: &Options) -> Result<Sample> {
        let to: SocketAddr = self
            .envoy
            .listener(name)
            .context("a listener that was started")?;
        let load = ClosedLoop::start(to, options.connections, options.tenants).await?;
        sleep(Duration::from_millis(options.settle_ms)).await;
        let look = || Ok::<_, Error>((Instant::now(), load.answered(), self.envoy.process.cpu()?));
        let before = look()?;
        sleep(Duration::from_millis(options.slice_ms)).await;
        let after = look()?;
        load.stop()
            .await
            .with_context(|| format!("through {name}"))?;
        Ok(Sample {
            took: after.0 - before.0,
            requests: after.1 - before.1,
            cpu: after.2.saturating_sub(before.2),
        })
    }
}

/// The listeners: each filter under test in front of the same upstream.
fn listeners(with_tollgate: bool) -> Result<Vec<(String, Vec<Value>)>> {
    let mut listeners = vec![
        (BASE, vec![]),
        ("wasm, empty", vec![filter::empty_baseline()?]),
        (AIM, vec![filter::header_baseline(&HEADERS[..1])?]),
        (AIM_OF_THREE, vec![filter::header_baseline(&HEADERS)?]),
        ("local_ratelimit", vec![filter::local_rate_limit()]),
        ("global ratelimit", vec![filter::global_rate_limit(GLOBAL)]),
    ];
    if with_tollgate {
        let slow = json!({"scopes": [{"name": "slow", "key": {"header": filter::TENANT_HEADER}}]});
        let slow = filter::tollgate_in("slow", &filter::by_tenant(&slow))?;
        listeners.push((
            "tollgate",
            vec![filter::tollgate(&filter::by_tenant(&json!({})))?],
        ));
        listeners.push(("tollgate, no cache", vec![slow]));
        let three = HEADERS.map(|header| json!({"name": header, "key": {"header": header}}));
        let three = filter::by_tenant(&json!({"scopes": three}));
        listeners.push((THREE, vec![filter::tollgate_in("three", &three)?]));
    }
    Ok(listeners
        .into_iter()
        .map(|(name, filters)| (name.to_owned(), filters))
        .collect())
}
