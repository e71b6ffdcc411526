//! Envoy's rate limit service on several nodes, each of which is a client of the leases.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tollgate_coordinator::wire::RateLimitServiceClient;
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::Epoch;
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

use super::nodes::{Cluster, Node};
use crate::rls::{Proxy, descriptor, hits};

/// Hits per second of all nodes together.
const RATE: f64 = 1000.0;
/// Hits of each request. With several a few requests are enough to ask for more than the rate, also on a
/// busy machine.
const HITS: u64 = 10;
const CONFIG: &str = "limits: [{match: tenant/*, requests: {rate: 1000, burst: 100}}]
rls: {domains: {edge: {scopes: [{scope: 'tenant/{tenant}'}]}}}";

/// Length of a measurement.
const WINDOW: Duration = Duration::from_secs(6);
/// The most measurements. A busy machine that stands still for longer than the burst lasts loses tokens;
/// one measurement without that shows what the nodes let pass.
const WINDOWS_MAX: u32 = 5;

/// Times at which a node has let requests pass; clones share them.
#[derive(Clone, Default)]
struct Passed(Arc<Mutex<Vec<Instant>>>);

// === impl Passed ===

impl Passed {
    /// Returns the hits in a time.
    fn within(&self, from: Instant, to: Instant) -> u64 {
        let times = self.0.lock().unwrap();
        let within = times.iter().filter(|time| (from..to).contains(*time));
        HITS * within.count() as u64
    }
}

fn proxy(node: &Node) -> Proxy {
    Proxy::new(RateLimitServiceClient::new(node.channel.clone()))
}

/// Asks a node every `pause`, for as long as the task lives.
async fn load(proxy: Proxy, pause: Duration, passed: Passed) {
    loop {
        let answer = proxy
            .ask(vec![hits(descriptor("tenant", "acme"), HITS)])
            .await;
        if answer.overall_code() == Code::Ok {
            passed.0.lock().unwrap().push(Instant::now());
        }
        sleep(pause).await;
    }
}

/// Measures until what passes in a window is within two percent of the capacity.
async fn measure(passed: &[Passed; 3]) -> Result<(), [u64; 3]> {
    let mut in_window = [0; 3];
    for _ in 0..WINDOWS_MAX {
        let from = Instant::now();
        sleep(WINDOW).await;
        let to = from + WINDOW;
        in_window = passed.each_ref().map(|passed| passed.within(from, to));
        let sum: u64 = in_window.iter().sum();
        let want = RATE * WINDOW.as_secs_f64();
        eprintln!("passed in {WINDOW:?}: {in_window:?}, in all {sum} of {want}");
        if (sum as f64 / want - 1.0).abs() <= 0.02 && !in_window.contains(&0) {
            return Ok(());
        }
    }
    Err(in_window)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_let_pass_the_capacity_within_two_percent() {
    let mut cluster = Cluster::start(3, 1, CONFIG).await;
    cluster.elect(ShardId(0), 0, Epoch(100)).await;
    let start = Instant::now();
    let passed: [Passed; 3] = Default::default();
    let pauses = [5, 8, 10].map(Duration::from_millis);
    let mut loads = JoinSet::new();
    for ((node, pause), passed) in cluster.nodes.iter().zip(pauses).zip(&passed) {
        loads.spawn(load(proxy(node), pause, passed.clone()));
    }
    sleep(Duration::from_secs(2)).await;
    let measured = measure(&passed).await;
    let end = Instant::now();
    // The burst, and what each node may let pass before its first lease.
    let most = RATE * (end - start).as_secs_f64() + 100.0 + 30.0;
    let total: u64 = passed.iter().map(|passed| passed.within(start, end)).sum();
    assert!(total as f64 <= most, "{total} of {most}");
    measured.unwrap_or_else(|passed| panic!("no window is within 2 %, the last: {passed:?}"));
}
