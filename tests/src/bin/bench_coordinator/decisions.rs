//! Decisions of Envoy's rate limit service: time of a call over loopback, and CPU per decision.
//!
//! Each row has a coordinator of its own, which is a client of its own leases. The calls are those that
//! Envoy's filter makes: one descriptor, one hit. The first rows saturate the service; those at a fixed
//! rate say how long a call takes that does not wait for others.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tollgate_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use tollgate_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::cores;
use tollgate_tests::open_loop::OpenLoop;

use crate::channel::Channel;
use crate::table::quantile_ms;
use crate::{Options, WARM_UP_MIN};

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Rows: a name, the tenants that requests are of in turn, and the limit of each.
const ROWS: [(&str, usize, &str); 3] = [
    ("one tenant", 1, "{rate: 10000000}"),
    ("1 000 tenants", 1000, "{rate: 10000000}"),
    ("1 000 tenants, nearly all refused", 1000, "{rate: 1}"),
];

/// The row that is measured at fixed rates.
const FIXED_TENANTS: usize = 1000;
const FIXED_LIMIT: &str = "{rate: 10000000}";

/// Concurrent calls at a fixed rate, enough that none waits for a worker.
const FIXED_WORKERS: usize = 64;

/// Load of a row.
#[derive(Clone, Copy, Debug)]
enum Pace {
    /// Each worker's next call follows the last one's answer.
    Saturated,
    /// Calls per second, whatever becomes of earlier ones.
    Fixed(u32),
}

/// Result of one worker, or of all.
#[derive(Debug, Default)]
struct Decided {
    /// Latencies of the measured calls in microseconds.
    latencies_us: Vec<u32>,
    refused: usize,
}

/// Figures of one row.
#[derive(Debug)]
struct Row {
    per_second: f64,
    /// CPU of the coordinator for each decision, in microseconds.
    cpu_us: f64,
    decided: Decided,
}

/// State shared by all workers.
#[derive(Default)]
struct Shared {
    decided: AtomicU64,
    measured: AtomicBool,
    stopped: AtomicBool,
}

// === impl Decided ===

impl Decided {
    fn add(&mut self, latency_us: u32, answer: &RateLimitResponse) {
        self.latencies_us.push(latency_us);
        self.refused += usize::from(answer.overall_code() == Code::OverLimit);
    }

    fn refused_part(&self) -> f64 {
        self.refused as f64 / self.latencies_us.len().max(1) as f64
    }
}

// === impl Shared ===

impl Shared {
    /// Makes one call after the other, each for the next of the requests.
    async fn saturate(
        self: Arc<Self>,
        mut channel: Channel,
        requests: Arc<Vec<RateLimitRequest>>,
        first: usize,
    ) -> Result<Decided> {
        let mut decided = Decided::default();
        for request in requests.iter().cycle().skip(first) {
            if self.stopped.load(Ordering::Relaxed) {
                break;
            }
            let measured = self.measured.load(Ordering::Relaxed);
            let sent = Instant::now();
            let answer = self.call(&mut channel, request).await?;
            if measured {
                let micros = u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX);
                decided.add(micros, &answer);
            }
        }
        Ok(decided)
    }

    /// Makes calls as they fall due.
    async fn keep_pace(
        self: Arc<Self>,
        mut channel: Channel,
        requests: Arc<Vec<RateLimitRequest>>,
        load: Arc<OpenLoop>,
    ) -> Result<Decided> {
        let mut decided = Decided::default();
        while let Some(due) = load.next().await {
            let request = &requests[due.index % requests.len()];
            let answer = self.call(&mut channel, request).await?;
            if let Some(micros) = due.latency_us() {
                decided.add(micros, &answer);
            }
        }
        Ok(decided)
    }

    async fn call(
        &self,
        channel: &mut Channel,
        request: &RateLimitRequest,
    ) -> Result<RateLimitResponse> {
        let answer: RateLimitResponse = channel.call(request).await?;
        self.decided.fetch_add(1, Ordering::Relaxed);
        ensure!(answer.overall_code() != Code::Unknown, "no decision");
        Ok(answer)
    }
}

// === free functions ===

/// Measures all rows and prints them.
pub(crate) fn run(runtime: &Runtime, options: &Options) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{:<34} {:>11} {:>16} {:>7} {:>7} {:>8}",
        "decisions", "decisions/s", "CPU µs/decision", "p50 ms", "p99 ms", "refused"
    )?;
    let mut rows = Vec::new();
    for (name, pace, tenants, limit) in plan(options) {
        let row = measure(runtime, options, pace, tenants, limit);
        let row = row.with_context(|| format!("with {name}"))?;
        let [p50, p99] = [0.5, 0.99].map(|part| quantile_ms(&row.decided.latencies_us, part));
        let refused = row.decided.refused_part();
        writeln!(
            out,
            "{name:<34} {:>11.0} {:>16.2} {p50:>7.2} {p99:>7.2} {:>7.1}%",
            row.per_second,
            row.cpu_us,
            refused * 100.0
        )?;
        rows.push(json!({
            "row": name,
            "decisions_per_second": row.per_second,
            "cpu_us_per_decision": row.cpu_us,
            "p50_ms": p50,
            "p99_ms": p99,
            "refused": refused,
        }));
    }
    writeln!(out, "{}", json!({"bench": "decisions", "rows": rows}))?;
    Ok(())
}

/// All rows: those that saturate, then each fixed rate as often as there are rounds.
fn plan(options: &Options) -> Vec<(String, Pace, usize, &'static str)> {
    let saturated = ROWS.map(|(name, tenants, limit)| {
        let name = name.to_owned();
        (name, Pace::Saturated, tenants, limit)
    });
    let rounds = (0..options.rounds).flat_map(|_| &options.rates);
    let fixed = rounds.map(|rate| {
        let name = format!("1 000 tenants, {rate}/s fixed");
        (name, Pace::Fixed(*rate), FIXED_TENANTS, FIXED_LIMIT)
    });
    saturated.into_iter().chain(fixed).collect()
}

/// Measures one row.
fn measure(
    runtime: &Runtime,
    options: &Options,
    pace: Pace,
    tenants: usize,
    limit: &str,
) -> Result<Row> {
    let dir = TempDir::new()?;
    let config = format!(
        "limits: [{{match: 'tenant/*', requests: {limit}}}]\n\
         rls: {{domains: {{edge: {{scopes: [{{scope: 'tenant/{{tenant}}'}}]}}}}}}\n"
    );
    let coordinator =
        cores::beside_load(|| runtime.block_on(Coordinator::start(dir.path(), &config)))?;
    runtime.block_on(async {
        let requests: Arc<Vec<_>> = Arc::new((0..tenants).map(request).collect());
        let shared = Arc::new(Shared::default());
        let mut channels = Vec::new();
        for _ in 0..options.connections.max(1) {
            channels.push(Channel::open(coordinator.grpc(), SHOULD_RATE_LIMIT).await?);
        }
        let mut workers = start(pace, options, &shared, &requests, &channels)?;
        sleep(2 * WARM_UP_MIN).await;
        let look = || {
            let decided = shared.decided.load(Ordering::Relaxed);
            anyhow::Ok((Instant::now(), decided, coordinator.process.cpu()?))
        };
        shared.measured.store(true, Ordering::Relaxed);
        let before = look()?;
        sleep(options.measured_time()?).await;
        let after = look()?;
        shared.stopped.store(true, Ordering::Relaxed);
        let mut all = Decided::default();
        while let Some(done) = workers.join_next().await {
            let done = done??;
            all.latencies_us.extend(done.latencies_us);
            all.refused += done.refused;
        }
        all.latencies_us.sort_unstable();
        let count = (after.1 - before.1) as f64;
        let cpu = after.2.saturating_sub(before.2).as_secs_f64();
        Ok(Row {
            per_second: count / (after.0 - before.0).as_secs_f64(),
            cpu_us: cpu * 1e6 / count,
            decided: all,
        })
    })
}

/// Starts the workers of a row.
fn start(
    pace: Pace,
    options: &Options,
    shared: &Arc<Shared>,
    requests: &Arc<Vec<RateLimitRequest>>,
    channels: &[Channel],
) -> Result<JoinSet<Result<Decided>>> {
    let mut workers = JoinSet::new();
    let parts = || (Arc::clone(shared), Arc::clone(requests));
    match pace {
        Pace::Saturated => {
            for (i, channel) in (0..options.workers).zip(channels.iter().cycle()) {
                let (shared, all) = parts();
                let first = i * all.len() / options.workers;
                workers.spawn(shared.saturate(channel.clone(), all, first));
            }
        }
        Pace::Fixed(rate) => {
            let (warm_up, measured) = (2 * WARM_UP_MIN, options.measured_time()?);
            let load = OpenLoop::start(rate, warm_up, measured, FIXED_WORKERS)?;
            for (_, channel) in (0..FIXED_WORKERS).zip(channels.iter().cycle()) {
                let (shared, all) = parts();
                workers.spawn(shared.keep_pace(channel.clone(), all, Arc::clone(&load)));
            }
        }
    }
    Ok(workers)
}

fn request(tenant: usize) -> RateLimitRequest {
    RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![Entry {
                key: "tenant".to_owned(),
                value: format!("name-{tenant:03}"),
            }],
            ..RateLimitDescriptor::default()
        }],
        hits_addend: 0,
    }
}
