//! Envoy's rate limit service on several nodes, each of which is a client of the leases.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::Epoch;
use tollgate_net::wire::RateLimitServiceClient;
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};

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

/// Longer than a hit takes to come at the rate of a lease.
const LEASED_PAUSE: Duration = Duration::from_millis(50);
/// Longer than anything here takes on a busy machine.
const NEVER: Duration = Duration::from_secs(60);

/// Whether a client has a lease of most of a scope's 100 a second, by the master of its shard.
async fn has_lease(master: &Node, scope: &str) -> bool {
    let scope = master.get(&format!("/v1/scopes/{scope}")).await;
    scope.json()["units"]["requests"]["sum_has"].as_f64() > Some(70.0)
}

/// The time until the next hit passes, of a status that refuses one.
fn next_hit(status: &DescriptorStatus) -> Option<Duration> {
    let reset = status.duration_until_reset?.try_into().ok();
    reset.filter(|_| status.code() == Code::OverLimit)
}

/// The store of leases is away: a node answers from those that it has, then at the safe capacity, and
/// never with an error.
#[tokio::test]
async fn a_node_without_a_master_answers_from_its_leases_and_then_at_the_safe_capacity() {
    const CONFIG: &str = "limits: [{match: tenant/*, requests: \
        {rate: 100, burst: 50, headroom: 1, lease: 3s, refresh: 500ms, safe: 2}}]
rls: {domains: {edge: {scopes: [{scope: 'tenant/{tenant}'}]}}}";
    let mut cluster = Cluster::start(2, 1, CONFIG).await;
    let shard = ShardId(0);
    cluster.elect(shard, 0, Epoch(100)).await;
    let proxy = proxy(&cluster.nodes[1]);
    let acme = || descriptor("tenant", "acme");
    proxy.leased(acme()).await;
    // Of a limit that is little used it draws, and has nothing when the master is away.
    let (began, mut sent) = (Instant::now(), 0);
    while !has_lease(&cluster.nodes[0], "tenant/acme").await {
        assert!(began.elapsed() < NEVER, "a busy limit is never leased");
        let due = (80.0 * began.elapsed().as_secs_f64()) as u64;
        proxy.one(hits(acme(), due - sent)).await;
        sent = due;
        sleep(Duration::from_millis(12)).await;
    }
    cluster.nodes[0].lost(shard).await;
    cluster.forget(shard).await;

    let leased = proxy.one(hits(acme(), 20)).await;
    assert_eq!(leased.code(), Code::Ok);
    let left = leased.limit_remaining;
    // Fewer where a busy machine has sent many of the hits before at once.
    assert!(left <= 50, "{left} of a burst of 50");
    // The next hit comes after 10 ms at the rate of the lease, and after half a second at the safe
    // capacity, which the coordinator has told along with the lease.
    let began = Instant::now();
    while next_hit(&proxy.one(acme()).await).is_none_or(|after| after <= LEASED_PAUSE) {
        assert!(began.elapsed() < NEVER, "the lease never ends");
    }
    while !proxy.passes(acme()).await.0 {
        assert!(began.elapsed() < NEVER, "nothing passes without a lease");
        sleep(Duration::from_millis(20)).await;
    }
    // So has a scope that had no lease: its limit is that of the same pattern.
    let other = proxy.one(descriptor("tenant", "other")).await;
    let limit = other.current_limit.as_ref();
    assert_eq!(other.code(), Code::Ok);
    assert_eq!(
        limit.map(|limit| limit.requests_per_unit),
        Some(2),
        "{other:?}"
    );
    let errors = "tollgate_rls_requests_total{result=\"error\"}";
    let metrics = cluster.nodes[1].metrics().await;
    assert_eq!(metrics.get(errors).copied().unwrap_or_default(), 0.0);
}
