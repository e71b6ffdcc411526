//! Decisions of Envoy's rate limit service: time of a call over loopback, and CPU per decision.
//!
//! Each row has a coordinator of its own, which is a client of its own leases. The calls are those that
//! Envoy's filter makes: one descriptor, one hit.

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

/// Result of one worker, or of all.
#[derive(Debug, Default)]
struct Decided {
    /// Latencies of the measured calls in microseconds.
    latencies_us: Vec<u32>,
    refused: usize,
}

/// State shared by all workers.
#[derive(Default)]
struct Shared {
    decided: AtomicU64,
    measured: AtomicBool,
    stopped: AtomicBool,
}

// === impl Shared ===

impl Shared {
    /// Makes one call after the other, each for the next of the requests.
    async fn run(
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
            let answer: RateLimitResponse = channel.call(request).await?;
            let took = sent.elapsed();
            self.decided.fetch_add(1, Ordering::Relaxed);
            ensure!(answer.overall_code() != Code::Unknown, "no decision");
            if measured {
                let micros = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
                decided.latencies_us.push(micros);
                decided.refused += usize::from(answer.overall_code() == Code::OverLimit);
            }
        }
        Ok(decided)
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
    for (name, tenants, limit) in ROWS {
        let row = measure(runtime, options, tenants, limit);
        let (per_second, cpu_us, decided) = row.with_context(|| format!("with {name}"))?;
        let refused = decided.refused as f64 / decided.latencies_us.len().max(1) as f64;
        let [p50, p99] = [0.5, 0.99].map(|part| quantile_ms(&decided.latencies_us, part));
        writeln!(
            out,
            "{name:<34} {per_second:>11.0} {cpu_us:>16.2} {p50:>7.2} {p99:>7.2} {:>7.1}%",
            refused * 100.0
        )?;
        rows.push(json!({
            "row": name,
            "decisions_per_second": per_second,
            "cpu_us_per_decision": cpu_us,
            "p50_ms": p50,
            "p99_ms": p99,
            "refused": refused,
        }));
    }
    writeln!(out, "{}", json!({"bench": "decisions", "rows": rows}))?;
    Ok(())
}

/// Measures one row: decisions per second, CPU of the coordinator for each in microseconds, and the
/// decisions.
fn measure(
    runtime: &Runtime,
    options: &Options,
    tenants: usize,
    limit: &str,
) -> Result<(f64, f64, Decided)> {
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
        let mut workers = JoinSet::new();
        let mut channels = Vec::new();
        for _ in 0..options.connections.max(1) {
            channels.push(Channel::open(coordinator.grpc(), SHOULD_RATE_LIMIT).await?);
        }
        for (i, channel) in (0..options.workers).zip(channels.iter().cycle()) {
            let first = i * tenants / options.workers;
            let (shared, requests) = (Arc::clone(&shared), Arc::clone(&requests));
            workers.spawn(shared.run(channel.clone(), requests, first));
        }
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
        let per_second = count / (after.0 - before.0).as_secs_f64();
        Ok((per_second, cpu * 1e6 / count, all))
    })
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
