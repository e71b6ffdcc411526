//! Clients of all four APIs on one resource: leases, Doorman, and Envoy's two rate limit services.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tollgate_coordinator::wire::RateLimitServiceClient;
use tollgate_core::lease_server::Start;
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use tonic::transport::{Channel, Endpoint};

use crate::harness::Coordinator;
use crate::{doorman, rlqs, rls};

const CAPACITY: f64 = 100.0;
const CONFIG: &str = "doorman: {scopes: {shared: tenant/acme}}
rlqs: {domains: {edge: {scope: 'tenant/{tenant}'}}}
rls: {domains: {edge: {scopes: [{scope: 'tenant/{tenant}'}]}}}
limits:
- match: tenant/acme
  requests: {rate: 100, burst: 10, headroom: 0, refresh: 100ms, min_refresh: 5ms, lease: 20s}";
/// Two Envoys, two of Doorman's clients, a proxy with quotas, and the node as the client of its service.
const CLIENTS: usize = 6;
const ROUNDS: u64 = 150;
/// Time that the last part may take on a busy machine.
const NEVER: Duration = Duration::from_secs(60);

/// All clients but the node.
struct Fleet {
    coordinator: Coordinator,
    /// Sequence and lease, by client.
    envoys: BTreeMap<&'static str, (u64, f64)>,
    doorman: [doorman::Client; 2],
    quotas: rlqs::Proxy,
    reported: Instant,
}

/// Leases that the coordinator knows: sum, and lease by client.
struct Lent {
    sum: f64,
    has: Vec<(String, f64)>,
}

// === impl Fleet ===

impl Fleet {
    async fn start() -> (Self, Channel) {
        let coordinator = Coordinator::with(CONFIG, Start::Fresh).await;
        let channel = Endpoint::try_from(format!("http://{}", coordinator.grpc)).unwrap();
        let channel = channel.connect_lazy();
        let client = |id| doorman::Client::new(&channel, id, "shared");
        let first = [("acme", 5, 100)];
        let quotas = rlqs::Proxy::over(channel.clone(), Some("quotas"), "edge", &first).await;
        let fleet = Self {
            envoys: BTreeMap::from([("envoy/a", (0, 0.0)), ("envoy/b", (0, 0.0))]),
            doorman: [client("go:1"), client("go:2")],
            quotas: quotas.unwrap(),
            coordinator,
            reported: Instant::now(),
        };
        (fleet, channel)
    }

    /// Makes one client want so much.
    async fn step(&mut self, client: u64, wants: f64) {
        match client {
            0 | 1 => {
                let name = ["envoy/a", "envoy/b"][client as usize];
                let (sequence, has) = self.envoys[name];
                let next = sequence + 1;
                let asked = self
                    .coordinator
                    .gets(name, "tenant/acme", next, (has, wants));
                self.envoys.insert(name, (next, asked.await));
            }
            2 | 3 => {
                self.doorman[client as usize - 2].gets(wants).await;
            }
            _ => {
                // Usage counts for the time since the last report.
                let requests = wants * self.reported.elapsed().as_secs_f64();
                self.reported = Instant::now();
                self.quotas
                    .report("edge", &[("acme", 5, requests as u64)])
                    .await;
            }
        }
    }

    async fn lent(&self) -> Lent {
        let scope = self.coordinator.get("/v1/scopes/tenant/acme").await.json();
        let requests = &scope["units"]["requests"];
        let clients = requests["clients"].as_array().unwrap().iter();
        let lease = |client: &serde_json::Value| {
            let id = client["client"].as_str().unwrap().to_owned();
            (id, client["has"].as_f64().unwrap())
        };
        Lent {
            sum: requests["sum_has"].as_f64().unwrap(),
            has: clients.map(lease).collect(),
        }
    }

    /// Checks that no more is lent than there is, by the coordinator's account and by what clients were answered.
    async fn check(&self, when: &str) -> Lent {
        let envoys: f64 = self.envoys.values().map(|(_, has)| has).sum();
        let doorman: f64 = self.doorman.iter().map(doorman::Client::capacity).sum();
        let lent = self.lent().await;
        assert!(lent.sum <= CAPACITY + 1e-6, "{when}: {} lent", lent.sum);
        let known = envoys + doorman;
        assert!(
            known <= lent.sum + 1e-6,
            "{when}: {known} held, {} lent",
            lent.sum
        );
        lent
    }
}

/// Sends requests of Envoy's rate limit service without a pause, and counts those that pass.
fn load(channel: Channel) -> (JoinSet<()>, Arc<AtomicU64>) {
    let passed = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    let counted = Arc::clone(&passed);
    tasks.spawn(async move {
        let proxy = rls::Proxy::new(RateLimitServiceClient::new(channel));
        loop {
            let answer = proxy.ask(vec![rls::descriptor("tenant", "acme")]).await;
            let passes = answer.overall_code() == Code::Ok;
            counted.fetch_add(u64::from(passes), Ordering::Relaxed);
            sleep(Duration::from_millis(2)).await;
        }
    });
    (tasks, passed)
}

#[tokio::test]
async fn what_all_apis_lend_never_adds_up_to_more_than_the_capacity() {
    let (mut fleet, channel) = Fleet::start().await;
    let (_load, passed) = load(channel);
    let mut random = 7_u64;
    let mut full = 0;
    for round in 1..=ROUNDS {
        // Xorshift: any order will do, as long as it is the same each time.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        fleet.step(random % 5, (random >> 32) as f64 % 90.0).await;
        let lent = fleet.check(&format!("round {round}")).await;
        full += u64::from(lent.sum > 0.95 * CAPACITY);
        sleep(Duration::from_millis(6)).await;
    }
    assert!(
        full > ROUNDS / 4,
        "capacity is lent, too: {full} of {ROUNDS}"
    );

    // All want more than their parts, so the parts are equal.
    let part = CAPACITY / CLIENTS as f64;
    let began = Instant::now();
    let is_equal = |lent: &Lent| {
        let equal = lent
            .has
            .iter()
            .all(|(_, has)| (has - part).abs() < 0.02 * part);
        lent.has.len() == CLIENTS && equal
    };
    loop {
        for client in 0..5 {
            fleet.step(client, 10.0 * CAPACITY).await;
        }
        let lent = fleet.check("at the end").await;
        if is_equal(&lent) {
            break;
        }
        assert!(began.elapsed() < NEVER, "not equal: {:?}", lent.has);
        sleep(Duration::from_millis(100)).await;
    }
    let (before, since) = (passed.load(Ordering::Relaxed), Instant::now());
    sleep(Duration::from_secs(2)).await;
    let passed = passed.load(Ordering::Relaxed) - before;
    let at_most = part * since.elapsed().as_secs_f64() + 10.0;
    assert!((passed as f64) < at_most, "{passed} passed the node");
    assert!(passed > 10, "{passed} passed the node");
}
