//! Benchmark of rate limiters in Envoy: CPU per request and throughput of one worker.
//!
//! One Envoy has a listener for each filter under test, so that all of them share the process, its
//! one worker, its memory layout and its upstream connections. Slices of load go to one listener
//! after another, in an order that changes from round to round, and each round's filters are
//! compared with that round's listener without a filter. A few Envoys are used one after another,
//! because a process keeps its memory layout for life. Nothing is refused.
//!
//! A listener has several copies of its filter, one behind another: what a single one costs is less than
//! the noise of a busy machine.

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
/// The filters that set the aims: Tollgate in wasm shall add at most the CPU that the filter adds which
/// reads as many headers as Tollgate has scopes, and the dynamic module 0.7 times that of Envoy's own local
/// limiter.
const AIM: &str = "wasm, one header";
const AIM_OF_THREE: &str = "wasm, three headers";
const THREE: &str = "tollgate, three";
const AIM_OF_MODULE: &str = "local_ratelimit";
const MODULE: &str = "tollgate, module";

/// Every tenant's limit is above its load, so that nothing is refused. At 10 000 a second a worker caches
/// tokens for some 25 requests at once. At 600 a second, four times the load of a tenant here, 5 ms of the
/// rate are less than two tokens, and each request draws its own token: the most expensive admission.
const LIMITS: &str = "limits:\n  - match: \"slow/*\"\n    requests: {rate: 600}\n  \
                      - match: \"*\"\n    requests: {rate: 10000}\n";

/// CPU that Envoy spends on each request, with no filter and with several, in one run.
#[derive(Debug, Parser)]
struct Options {
    /// Copies of a filter in its listener, each of which decides on every request. The filters that call a
    /// service for each request, or draw a token for it, are only measured with one.
    #[arg(long, default_value_t = 10)]
    copies: usize,
    /// Number of Envoys, used one after another.
    #[arg(long, default_value_t = 2)]
    envoys: u32,
    /// Rounds with each Envoy; a round is one slice for each filter.
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// Load before each slice that is not measured, in milliseconds: Tollgate's tenants get their leases
    /// back, which they release while the other filters are measured.
    #[arg(long, default_value_t = 1000)]
    settle_ms: u64,
    /// Length of a slice in milliseconds: short, so that other work of the machine disturbs all filters
    /// alike.
    #[arg(long, default_value_t = 500)]
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
        AIM_OF_MODULE | MODULE => AIM_OF_MODULE,
        _ => AIM,
    };
    let mut table = Table::new(BASE, aim, options.copies);
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
        spec.listeners = listeners(coordinator.is_some(), options.copies)?;
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

/// The listeners: copies of each filter under test in front of the same upstream.
fn listeners(with_tollgate: bool, copies: usize) -> Result<Vec<(String, Vec<Value>)>> {
    let mut filters = vec![
        ("wasm, empty", filter::empty_baseline()?),
        (AIM, filter::header_baseline(&HEADERS[..1])?),
        (AIM_OF_THREE, filter::header_baseline(&HEADERS)?),
        (AIM_OF_MODULE, filter::local_rate_limit()),
    ];
    if with_tollgate {
        let plain = filter::by_tenant(&json!({}));
        let three = HEADERS.map(|header| json!({"name": header, "key": {"header": header}}));
        let three = filter::by_tenant(&json!({"scopes": three}));
        filters.push(("tollgate", filter::tollgate_wasm("tollgate", &plain)?));
        filters.push((THREE, filter::tollgate_wasm("three", &three)?));
        filters.push((MODULE, filter::tollgate_native(&plain)?));
    }
    if copies == 1 {
        filters.push(("global ratelimit", filter::global_rate_limit(GLOBAL)));
    }
    if copies == 1 && with_tollgate {
        let slow = json!({"scopes": [{"name": "slow", "key": {"header": filter::TENANT_HEADER}}]});
        let slow = filter::tollgate_wasm("slow", &filter::by_tenant(&slow))?;
        filters.push(("tollgate, no cache", slow));
    }
    let several = filters
        .into_iter()
        .map(|(name, filter)| (name, vec![filter; copies]));
    let all = [(BASE, Vec::new())].into_iter().chain(several);
    Ok(all
        .map(|(name, filters)| (name.to_owned(), filters))
        .collect())
}
