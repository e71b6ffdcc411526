//! Clients of all four APIs on one resource: leases, Doorman, and Envoy's two rate limit services.
//!
//! Each client may use all that it was assigned until that ends, or until it is told otherwise. A node
//! that serves Envoy's rate limit service says nothing of its lease, so what it lets pass is counted.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tollgate_core::lease_server::Start;
use tollgate_net::wire::RateLimitServiceClient;
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use tollgate_tests::seeds::chosen;
use tonic::transport::{Channel, Endpoint};

use self::account::Account;
use self::clients::{Envoy, Quotas};
use crate::harness::{Answer, Coordinator};
use crate::{doorman, rls};

mod account;
mod clients;

const CAPACITY: f64 = 100.0;
const BURST: f64 = 2.0;
/// Seeds of a plain run.
pub(crate) const SEEDS: Range<u64> = 0..3;
const ROUNDS: u64 = 100;
/// Two Envoys, two of Doorman's clients, and a proxy with quotas.
const MODELS: u64 = 5;
/// Time that the last part may take on a busy machine.
const NEVER: Duration = Duration::from_secs(60);

/// One of the coordinators.
pub(crate) struct Link {
    pub(crate) channel: Channel,
    pub(crate) http: SocketAddr,
}

/// Random numbers of a seed.
struct Random(u64);

/// All clients of one resource.
pub(crate) struct Fleet {
    seed: u64,
    random: Random,
    tenant: String,
    nodes: Vec<Link>,
    envoys: [Envoy; 2],
    doorman: [doorman::Client; 2],
    quotas: Quotas,
    account: Account,
    /// Requests that each node has let pass.
    passed: Vec<Arc<AtomicU64>>,
    _load: JoinSet<()>,
}

/// Leases that the coordinators know: sum, and lease by client.
struct Lent {
    sum: f64,
    has: Vec<(String, f64)>,
}

// === impl Random ===

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// Returns a number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        // Xorshift: any order will do, as long as it is the same each time.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) % end
    }
}

// === impl Fleet ===

impl Fleet {
    /// Starts the clients of `seed`, at nodes with its [`config`].
    pub(crate) async fn start(seed: u64, nodes: Vec<Link>) -> Self {
        let mut random = Random::new(seed);
        let tenant = tenant(seed);
        let count = nodes.len() as u64;
        let mut at = |_: usize| nodes[random.below(count) as usize].channel.clone();
        let [a, b, c, d, e] = std::array::from_fn(&mut at);
        let (passed, load) = load(&nodes, &tenant);
        Self {
            seed,
            envoys: [
                Envoy::new("envoy/a", &tenant, a),
                Envoy::new("envoy/b", &tenant, b),
            ],
            doorman: [(c, "go:1"), (d, "go:2")]
                .map(|(channel, id)| doorman::Client::new(&channel, id, "shared")),
            quotas: Quotas::open(&tenant, e).await,
            account: Account::new(CAPACITY),
            passed,
            _load: load,
            random,
            tenant,
            nodes,
        }
    }

    /// Changes demand at random, and checks the sum after each change.
    pub(crate) async fn play(&mut self) {
        self.begin().await;
        let mut full = 0;
        for round in 1..=ROUNDS {
            let client = self.random.below(MODELS);
            match self.random.below(10) {
                0 => self.stop(client).await,
                _ => {
                    let wants = self.random.below(90) as f64;
                    self.step(client, wants).await;
                }
            }
            let lent = self.check(&format!("round {round}")).await;
            full += u64::from(lent.sum > 0.95 * CAPACITY);
            sleep(Duration::from_millis(3)).await;
        }
        let seed = self.seed;
        assert!(
            full > ROUNDS / 4,
            "seed {seed}: capacity is lent, too: {full} of {ROUNDS}"
        );
        self.share().await;
    }

    /// Waits until the nodes have leases of all, so that nothing passes without one, and begins to count. They draw
    /// for a second before.
    async fn begin(&mut self) {
        let began = Instant::now();
        let is_leased = |lent: &Lent, nodes| lent.has.len() >= nodes && lent.sum > 0.9 * CAPACITY;
        while !is_leased(&self.lent().await, self.nodes.len()) {
            assert!(began.elapsed() < NEVER, "seed {}: no lease", self.seed);
            sleep(Duration::from_millis(5)).await;
        }
        let passed = self.passed();
        self.account.begin(passed);
    }

    /// Makes one client want so much.
    async fn step(&mut self, client: u64, wants: f64) {
        match client {
            0 | 1 => {
                let envoy = &mut self.envoys[client as usize];
                let (rate, lasts) = envoy.gets(wants).await;
                self.account.hold(envoy.id, rate, Instant::now() + lasts);
            }
            2 | 3 => {
                let model = &mut self.doorman[client as usize - 2];
                model.gets(wants).await;
                let (rate, lasts) = model.lease();
                self.account.hold(model.id(), rate, Instant::now() + lasts);
            }
            _ => self.quotas.report(wants).await,
        }
    }

    /// Has a client give its lease back; ends the stream of the proxy with quotas, which uses what it was
    /// assigned all the same, and opens another at any node.
    async fn stop(&mut self, client: u64) {
        match client {
            0 | 1 => {
                let envoy = &mut self.envoys[client as usize];
                self.account.drop_held(envoy.id);
                envoy.release().await;
            }
            2 | 3 => {
                let model = &mut self.doorman[client as usize - 2];
                self.account.drop_held(model.id());
                model.release().await;
            }
            _ => {
                let node = self.random.below(self.nodes.len() as u64);
                let channel = self.nodes[node as usize].channel.clone();
                self.quotas.reopen(channel).await;
            }
        }
    }

    /// Takes all assignments that have arrived.
    async fn take_assignments(&mut self) {
        const ON_ITS_WAY: Duration = Duration::from_millis(2);
        while let Ok(assigned) = timeout(ON_ITS_WAY, self.quotas.assigned()).await {
            let until = Instant::now() + assigned.lives;
            self.account.hold("quotas", assigned.rate, until);
        }
    }

    fn passed(&self) -> u64 {
        let passed = self.passed.iter();
        passed.map(|passed| passed.load(Ordering::Relaxed)).sum()
    }

    async fn lent(&self) -> Lent {
        let path = format!("/v1/scopes/tenant/{}", self.tenant);
        let answer = Answer::get(self.nodes[0].http, &path).await;
        if answer.status == 404 {
            return Lent {
                sum: 0.0,
                has: Vec::new(),
            };
        }
        let scope = answer.json();
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

    /// Checks that no more is lent than there is, by the coordinators' account and by the clients', and
    /// that no more was used in any time that ends now.
    async fn check(&mut self, when: &str) -> Lent {
        let when = format!("seed {}, {when}", self.seed);
        self.take_assignments().await;
        let passed = self.passed();
        let excess = self.account.excess(passed);
        // A node has a part of the burst, but a request at least, and the answer to one may be on its way.
        let nodes = self.nodes.len() as f64;
        let most = BURST.max(nodes) + nodes;
        assert!(excess <= most, "{when}: {excess} used beyond the capacity");
        let before = self.account.rate();
        assert!(before <= CAPACITY + 1e-6, "{when}: {before} assigned");
        let lent = self.lent().await;
        assert!(lent.sum <= CAPACITY + 1e-6, "{when}: {} lent", lent.sum);
        self.take_assignments().await;
        // Assignments may have come meanwhile, or ended.
        let held = self.account.rate().min(before);
        let to_models = lent.has.iter().filter(|(id, _)| !id.starts_with("rls/"));
        let known: f64 = to_models.map(|(_, has)| has).sum();
        assert!(held <= known + 1e-6, "{when}: {held} held, {known} lent");
        lent
    }

    /// Has all clients want more than their parts, until these are equal.
    async fn share(&mut self) {
        let clients = MODELS as usize + self.nodes.len();
        let part = CAPACITY / clients as f64;
        let is_equal = |lent: &Lent| {
            let equal = |(_, has): &(String, f64)| (has - part).abs() < 0.02 * part;
            lent.has.len() == clients && lent.has.iter().all(equal)
        };
        let began = Instant::now();
        let before = self.each_passed();
        loop {
            for client in 0..MODELS {
                self.step(client, 10.0 * CAPACITY).await;
            }
            let lent = self.check("at the end").await;
            if is_equal(&lent) {
                break;
            }
            let (seed, has) = (self.seed, lent.has);
            assert!(began.elapsed() < NEVER, "seed {seed}: not equal: {has:?}");
            sleep(Duration::from_millis(50)).await;
        }
        sleep(Duration::from_secs(1)).await;
        self.check("afterwards").await;
        let after = self.each_passed();
        let mut both = before.iter().zip(&after);
        let seed = self.seed;
        assert!(
            both.all(|(before, after)| after > before),
            "seed {seed}: a node lets nothing pass: {before:?}, then {after:?}"
        );
    }

    fn each_passed(&self) -> Vec<u64> {
        let passed = self.passed.iter();
        passed
            .map(|passed| passed.load(Ordering::Relaxed))
            .collect()
    }
}

// === free functions ===

/// Sends requests of Envoy's rate limit service to each node without a pause, and counts those that pass.
fn load(nodes: &[Link], tenant: &str) -> (Vec<Arc<AtomicU64>>, JoinSet<()>) {
    let pause = Duration::from_millis(2 * nodes.len() as u64);
    let mut tasks = JoinSet::new();
    let passed = nodes.iter().map(|node| {
        let passed = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&passed);
        let proxy = rls::Proxy::new(RateLimitServiceClient::new(node.channel.clone()));
        let tenant = rls::descriptor("tenant", tenant);
        tasks.spawn(async move {
            loop {
                let answer = proxy.ask(vec![tenant.clone()]).await;
                let passes = answer.overall_code() == Code::Ok;
                counted.fetch_add(u64::from(passes), Ordering::Relaxed);
                sleep(pause).await;
            }
        });
        passed
    });
    (passed.collect(), tasks)
}

/// The tenant of a seed. Its name chooses the shard, if there are several.
fn tenant(seed: u64) -> String {
    format!("acme-{seed}")
}

/// Configuration of coordinators for `seed`.
pub(crate) fn config(seed: u64) -> String {
    let tenant = tenant(seed);
    format!(
        "doorman: {{scopes: {{shared: tenant/{tenant}}}}}
rlqs: {{domains: {{edge: {{scope: 'tenant/{{tenant}}'}}}}}}
rls: {{domains: {{edge: {{scopes: [{{scope: 'tenant/{{tenant}}'}}]}}}}}}
limits:
- match: tenant/{tenant}
  requests: {{rate: 100, burst: 2, headroom: 0, refresh: 100ms, min_refresh: 5ms, lease: 20s}}"
    )
}

#[tokio::test]
async fn what_all_apis_lend_never_adds_up_to_more_than_the_capacity() {
    for seed in chosen(SEEDS) {
        eprintln!("seed {seed}");
        let coordinator = Coordinator::with(&config(seed), Start::Fresh).await;
        let endpoint = Endpoint::try_from(format!("http://{}", coordinator.grpc)).unwrap();
        let node = Link {
            channel: endpoint.connect_lazy(),
            http: coordinator.http,
        };
        Fleet::start(seed, vec![node]).await.play().await;
    }
}
