//! A hint is true: who is refused passes at the end of the pause that it was told, and not before.
//!
//! Both are measured on the sender's clock, and hold however long a message takes. The filter
//! counts a pause from some instant between the sending of the refused request and the arrival of its
//! answer, and rounds it up to a millisecond. So a request that is sent a pause after that answer
//! comes when there is a token, and one that is *answered* less than a pause and a
//! millisecond after the refused one was sent was decided on when there was none.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tollgate_tests::conclude;
use tollgate_tests::connection::{Answer, Connection, get};
use tollgate_tests::envoy::{Envoy, Spec};
use tollgate_tests::filter::{TENANT_HEADER, UPSTREAM, by_tenant, tollgate};
use tollgate_tests::moody::Moody;

use crate::scene::{Scene, play, s};

/// Each tenant alone has its limit. Those of `bytes` may have 5000 bytes a second, and each response has 500.
const LIMITS: &str = "limits:
  - {match: tenant/two/*, requests: {rate: 2, burst: 1}}
  - {match: tenant/five/*, requests: {rate: 5, burst: 2}}
  - {match: tenant/nine/*, requests: {rate: 9, burst: 6}}
  - {match: tenant/thirty/*, requests: {rate: 30, burst: 10}}
  - {match: tenant/bytes/*, response_bytes: {rate: 5000, burst: 5000}}
";
/// The first part of the name, the path, how many connections a tenant has in turn, and how many tenants.
const TENANTS: [(&str, &str, usize, u32); 6] = [
    ("two", "/ok", 2, 6),
    ("five", "/ok", 2, 8),
    ("nine", "/ok", 2, 8),
    // Three tokens for each request.
    ("thirty", "/dear", 2, 8),
    ("thirty", "/ok", 1, 2),
    // What a response has cost the other worker hears a little later.
    ("bytes", "/bytes/500", 1, 6),
];
/// The leases have settled.
const SETTLED: Duration = s(3.0);
const LENGTH: Duration = s(8.0);
/// So long before the end of a pause it is tried in vain, by turns: zero for not at all.
const EARLY_MS: [u64; 6] = [0, 4, 0, 10, 25, 60];
/// Pauses are told in whole milliseconds, rounded up.
const ROUNDING: Duration = Duration::from_millis(1);

/// What became of requests that were sent again.
#[derive(Debug, Default)]
struct Tally {
    kept: u64,
    broken: u64,
    /// Refused, and answered surely before the pause was over.
    vain: u64,
    /// Passed although the pause was surely not over.
    too_soon: u64,
    /// How long after the end of the pause those were sent that were sent at its end.
    late: Vec<Duration>,
}

/// A tenant that does as it is told, with its connections in turn.
struct Sender {
    request: Vec<u8>,
    connections: Vec<Connection>,
    sent: usize,
}

/// A refusal, and between which instants it was decided.
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

    /// Sends a request; how it was refused, if it was.
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

// === impl Tally ===

impl Tally {
    fn add(&mut self, other: Self) {
        self.kept += other.kept;
        self.broken += other.broken;
        self.vain += other.vain;
        self.too_soon += other.too_soon;
        self.late.extend(other.late);
    }

    /// Counts what came of a request that was sent before the end of a pause, if it was surely decided
    /// before.
    fn tried(&mut self, refused: &Refused, passed: bool) {
        if Instant::now() + ROUNDING > refused.sent + refused.pause {
            return;
        }
        match passed {
            true => self.too_soon += 1,
            false => self.vain += 1,
        }
    }
}

fn pause_of(answer: &Answer) -> Result<Duration> {
    ensure!(answer.status == 429, "answered {}", answer.status);
    let pause = answer.header("tollgate-pause-ms");
    let pause = pause.with_context(|| format!("no pause: {answer:?}"))?;
    Ok(Duration::from_millis(pause.parse()?))
}

#[test]
fn a_thousand_hints_are_true() {
    play("a_thousand_hints_are_true", hints);
}

async fn hints(scene: &Scene) -> Result<()> {
    let coordinator = scene.coordinator(LIMITS).await?;
    let moody = Moody::start().await?;
    let filters = vec![tollgate(&by_tenant(&json!({"per_route": true})))?];
    let mut spec = Spec::new("envoy", 2, moody.address(), filters);
    spec.virtual_hosts = routes();
    let envoy = Envoy::start(scene.dir(), &spec.asking(coordinator.grpc())).await?;
    let settled = Instant::now() + SETTLED;
    let mut tenants = JoinSet::new();
    for (rate, path, connections, count) in TENANTS {
        for n in 0..count {
            let tenant = format!("{rate}/{}{n}", &path[1..2]);
            let sender = Sender::open(envoy.address(), path, &tenant, connections).await?;
            tenants.spawn(async move { (tenant, do_as_told(sender, settled).await) });
        }
    }
    let mut all = Tally::default();
    while let Some(done) = tenants.join_next().await {
        let (tenant, tally) = done?;
        let tally = tally.with_context(|| tenant.clone())?;
        if tally.broken + tally.too_soon > 0 {
            eprintln!(
                "{tenant}: {} kept, {} broken, {} in vain, {} too soon",
                tally.kept, tally.broken, tally.vain, tally.too_soon
            );
        }
        all.add(tally);
    }
    judge(all);
    Ok(())
}

fn judge(mut all: Tally) {
    let sent = all.kept + all.broken;
    all.late.sort();
    eprintln!(
        "{sent} requests were sent again at the end of their pause, half of them within {:?}: {} passed",
        all.late[all.late.len() / 2],
        all.kept
    );
    let tried = all.vain + all.too_soon;
    eprintln!(
        "{tried} were answered before the end of their pause: {} passed",
        all.too_soon
    );
    conclude!(sent > 1000, "only {sent}");
    conclude!(
        all.broken * 100 <= sent,
        "{} were refused again",
        all.broken
    );
    conclude!(tried > 300, "only {tried}");
    conclude!(all.too_soon == 0, "a pause was longer than need be");
}

/// Sends one request after another. Who is refused comes back at the end of its pause, and now and then tries
/// before as well, and is told another pause then.
async fn do_as_told(mut sender: Sender, settled: Instant) -> Result<Tally> {
    let mut tally = Tally::default();
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
                tally.tried(&refused, again.is_none());
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

/// One route whose requests cost three tokens, and the rest.
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
