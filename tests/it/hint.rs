//! The pause in a refusal is exact: a request passes at its end, and not before.
//!
//! Both are measured on the sender's clock and hold for any latency. The filter counts a pause from an
//! instant between the sending of the refused request and the arrival of its answer, and rounds it up to a
//! millisecond. So a request that is sent a pause after that answer finds a token. A request that is
//! *answered* less than a pause and a millisecond after the refused one was sent was decided without one.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tollgate_tests::conclude;
use tollgate_tests::connection::{Answer, Connection, get};
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::faulty_upstream::FaultyUpstream;
use tollgate_tests::filter::{TENANT_HEADER, UPSTREAM, by_tenant, tollgate};

use crate::test_context::{TestContext, run_test, s};

/// Each tenant has a limit of its own. Tenants of `bytes` have 5000 bytes a second, and a response has 500.
const LIMITS: &str = "limits:
  - {match: tenant/two/*, requests: {rate: 2, burst: 1}}
  - {match: tenant/five/*, requests: {rate: 5, burst: 2}}
  - {match: tenant/nine/*, requests: {rate: 9, burst: 6}}
  - {match: tenant/thirty/*, requests: {rate: 30, burst: 10}}
  - {match: tenant/bytes/*, response_bytes: {rate: 5000, burst: 5000}}
";
/// First part of the name, path, connections that a tenant uses in turn, and number of tenants.
const TENANTS: [(&str, &str, usize, u32); 6] = [
    ("two", "/ok", 2, 6),
    ("five", "/ok", 2, 8),
    ("nine", "/ok", 2, 8),
    // Three tokens for each request.
    ("thirty", "/dear", 2, 8),
    ("thirty", "/ok", 1, 2),
    // The other worker learns the cost of a response a little later.
    ("bytes", "/bytes/500", 1, 6),
];
/// Time for the leases to settle.
const SETTLED: Duration = s(3.0);
const LENGTH: Duration = s(8.0);
/// Times before the end of a pause of an early retry, in turn; zero for no early retry.
const EARLY_MS: [u64; 6] = [0, 4, 0, 10, 25, 60];
/// Pauses are rounded up to whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(1);

/// Results of retries.
#[derive(Debug, Default)]
struct RetryCounts {
    /// Admitted retries at the end of the pause.
    kept: u64,
    /// Refused retries at the end of the pause.
    broken: u64,
    /// Refused retries, answered before the end of the pause.
    refused_early: u64,
    /// Admitted retries, answered before the end of the pause.
    admitted_early: u64,
    /// Delays after the end of the pause of the retries that were due then.
    late: Vec<Duration>,
}

/// A tenant that keeps to its pauses, and uses its connections in turn.
struct Sender {
    request: Vec<u8>,
    connections: Vec<Connection>,
    sent: usize,
}

/// A refusal, with the instants before and after its decision.
struct Refused {
    sent: Instant,
    received: Instant,
    pause: Duration,
}

// === impl Sender ===

impl Sender {
    async fn open(to: SocketAddr, path: &str, tenant: &str, connections: usize) -> Result<Self> {
        let mut sender = Self {
            request: get(path, &[(TENANT_HEADER, tenant)]),
            connections: Vec::new(),
            sent: 0,
        };
        for _ in 0..connections {
            sender.connections.push(Connection::open(to).await?);
        }
        Ok(sender)
    }

    /// Sends a request; returns its refusal, `None` if it was admitted.
    async fn send(&mut self) -> Result<Option<Refused>> {
        let turn = self.sent % self.connections.len();
        self.sent += 1;
        let sent = Instant::now();
        let answer = self.connections[turn].answer_to(&self.request).await?;
        let received = Instant::now();
        if answer.status == 200 {
            return Ok(None);
        }
        let pause = pause_of(&answer)?;
        Ok(Some(Refused {
            sent,
            received,
            pause,
        }))
    }
}

// === impl RetryCounts ===

impl RetryCounts {
    fn add(&mut self, other: Self) {
        self.kept += other.kept;
        self.broken += other.broken;
        self.refused_early += other.refused_early;
        self.admitted_early += other.admitted_early;
        self.late.extend(other.late);
    }

    /// Counts a retry before the end of a pause, if it was certainly decided before that end.
    fn add_early(&mut self, refused: &Refused, passed: bool) {
        if Instant::now() + ROUNDING > refused.sent + refused.pause {
            return;
        }
        if passed {
            self.admitted_early += 1
        } else {
            self.refused_early += 1
        }
    }
}

fn pause_of(answer: &Answer) -> Result<Duration> {
    ensure!(answer.status == 429, "answered {}", answer.status);
    let pause = answer.header("tollgate-pause-ms");
    let pause = pause.with_context(|| format!("a refusal without a pause: {answer:?}"))?;
    Ok(Duration::from_millis(pause.parse()?))
}

#[test]
fn a_thousand_hints_are_true() {
    run_test("a_thousand_hints_are_true", hints);
}

async fn hints(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let upstream = FaultyUpstream::start().await?;
    let filters = vec![tollgate(&by_tenant(&json!({"per_route": true})))?];
    let mut spec = EnvoySpec::new("envoy", 2, upstream.address(), filters);
    spec.virtual_hosts = routes();
    let envoy = Envoy::start(test.dir(), &spec.asking(coordinator.grpc())).await?;
    let settled = Instant::now() + SETTLED;
    let mut tenants = JoinSet::new();
    for (rate, path, connections, count) in TENANTS {
        for n in 0..count {
            let tenant = format!("{rate}/{}{n}", &path[1..2]);
            let sender = Sender::open(envoy.address(), path, &tenant, connections).await?;
            tenants.spawn(async move { (tenant, keep_to_pauses(sender, settled).await) });
        }
    }
    let mut all = RetryCounts::default();
    while let Some(done) = tenants.join_next().await {
        let (tenant, tally) = done?;
        let tally = tally.with_context(|| tenant.clone())?;
        if tally.broken + tally.admitted_early > 0 {
            eprintln!(
                "{tenant}: {} kept, {} broken, {} refused early, {} admitted early",
                tally.kept, tally.broken, tally.refused_early, tally.admitted_early
            );
        }
        all.add(tally);
    }
    judge(all);
    Ok(())
}

fn judge(mut all: RetryCounts) {
    let sent = all.kept + all.broken;
    all.late.sort();
    eprintln!(
        "{sent} retries at the end of the pause, half of them within {:?}: {} admitted",
        all.late[all.late.len() / 2],
        all.kept
    );
    let tried = all.refused_early + all.admitted_early;
    eprintln!(
        "{tried} retries answered before the end of the pause: {} admitted",
        all.admitted_early
    );
    conclude!(sent > 1000, "only {sent} retries");
    conclude!(
        all.broken * 100 <= sent,
        "{} retries were refused",
        all.broken
    );
    conclude!(tried > 300, "only {tried} early retries");
    conclude!(all.admitted_early == 0, "a pause was longer than needed");
}

/// Sends one request after another. After a refusal, retries at the end of the pause, and sometimes also
/// before, which gives another pause.
async fn keep_to_pauses(mut sender: Sender, settled: Instant) -> Result<RetryCounts> {
    let mut tally = RetryCounts::default();
    let mut early = EARLY_MS.into_iter().map(Duration::from_millis).cycle();
    while Instant::now() < settled + LENGTH {
        let Some(mut refused) = sender.send().await? else {
            continue;
        };
        let counts = refused.received >= settled;
        let before = early.next().unwrap_or_default();
        if !before.is_zero() && before + ROUNDING < refused.pause {
            sleep_until(refused.sent + refused.pause - before).await;
            let again = sender.send().await?;
            if counts {
                tally.add_early(&refused, again.is_none());
            }
            let Some(again) = again else { continue };
            refused = again;
        }
        let end = refused.received + refused.pause;
        sleep_until(end).await;
        let late = end.elapsed();
        let passed = sender.send().await?.is_none();
        if counts {
            tally.late.push(late);
            tally.kept += u64::from(passed);
            tally.broken += u64::from(!passed);
        }
    }
    Ok(tally)
}

/// Virtual host with a route whose requests cost three tokens, and one for the rest.
fn routes() -> Value {
    let to_upstream = json!({"cluster": UPSTREAM});
    json!([{"name": "all", "domains": ["*"], "routes": [
        {
            "match": {"path": "/dear"},
            "route": to_upstream,
            "metadata": {"filter_metadata": {"tollgate": {"cost": 3}}},
        },
        {"match": {"prefix": "/"}, "route": to_upstream},
    ]}])
}
