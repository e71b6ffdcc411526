//! Envoy's rate limit service on several nodes, each of which is a client of the leases.

use std::time::Duration;

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

/// Times at which a node has let requests pass.
struct Passed(Vec<Instant>);

// === impl Passed ===

impl Passed {
    /// Returns the hits in a time.
    fn within(&self, from: Instant, to: Instant) -> u64 {
        let times = self.0.iter();
        HITS * times.filter(|time| (from..to).contains(*time)).count() as u64
    }
}

fn proxy(node: &Node) -> Proxy {
    Proxy::new(RateLimitServiceClient::new(node.channel.clone()))
}

/// Asks a node every `pause` until `end`.
async fn load(proxy: Proxy, pause: Duration, end: Instant) -> Passed {
    let mut passed = Passed(Vec::new());
    while Instant::now() < end {
        let answer = proxy
            .ask(vec![hits(descriptor("tenant", "acme"), HITS)])
            .await;
        if answer.overall_code() == Code::Ok {
            passed.0.push(Instant::now());
        }
        sleep(pause).await;
    }
    passed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_let_pass_the_capacity_within_two_percent() {
    let mut cluster = Cluster::start(3, 1, CONFIG).await;
    cluster.elect(ShardId(0), 0, Epoch(100)).await;
    let start = Instant::now();
    let (from, to) = (
        start + Duration::from_secs(2),
        start + Duration::from_secs(8),
    );
    let pauses = [5, 8, 10].map(Duration::from_millis);
    let loads = cluster.nodes.iter().zip(pauses);
    let loads = loads.map(|(node, pause)| tokio::spawn(load(proxy(node), pause, to)));
    let mut in_window = [0; 3];
    let mut total = 0;
    for (count, load) in in_window.iter_mut().zip(loads.collect::<Vec<_>>()) {
        let passed = load.await.unwrap();
        *count = passed.within(from, to);
        total += passed.within(start, Instant::now());
    }
    let sum: u64 = in_window.iter().sum();
    let want = RATE * (to - from).as_secs_f64();
    eprintln!("passed in 6 s: {in_window:?}, in all {sum} of {want}");
    assert!((sum as f64 / want - 1.0).abs() <= 0.02, "{in_window:?}");
    assert!(in_window.iter().all(|count| *count > 0));
    // The burst, and what each node may let pass before its first lease.
    let most = RATE * (to - start).as_secs_f64() + 100.0 + 30.0;
    assert!(total as f64 <= most, "{total} of {most}");
}
