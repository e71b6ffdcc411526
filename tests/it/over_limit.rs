//! A tenant over its limit gets its rate, and each refusal tells exactly when the next request passes.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tollgate_tests::artifact;
use tollgate_tests::conclude;
use tollgate_tests::conditions;
use tollgate_tests::connection::{Answer, Connection, get, get_once};
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{TENANT_HEADER, by_tenant, tollgate};
use tollgate_tests::load::{Flow, Load};

use crate::test_context::{TestContext, assert_near, assert_never_above, run_test, s};

/// The origin of the pages that may read answers, as the documentation's example configuration says.
const ORIGIN: &str = "https://shop.example";

#[test]
fn a_tenant_over_its_limit_gets_its_rate() {
    run_test("a_tenant_over_its_limit_gets_its_rate", gets_its_rate);
}

async fn gets_its_rate(test: &TestContext) -> Result<()> {
    let limits = "limits:\n  - match: \"*\"\n    requests: {rate: 200, burst: 40}\n";
    let coordinator = test.coordinator(limits).await?;
    let envoy = test
        .envoy("envoy", 2, &coordinator, &by_tenant(&json!({})))
        .await?;
    let load = Load::start([Flow::new(envoy.address(), "acme", 800.0)]);
    load.run_until(s(8.0)).await;
    let record = load.stop().await?.remove(0);
    assert_eq!(record.total().failed, 0);
    assert_near(
        "admitted/s",
        record.admitted_per_second(s(2.0)..s(8.0)),
        200.0,
        0.02,
    );
    assert_never_above(&record, 200.0, 40.0);
    assert_eq!(
        test.upstream.arrived("acme"),
        record.total().admitted,
        "a refusal goes no further"
    );
    Ok(())
}

#[test]
fn a_request_sent_when_the_refusal_says_passes() {
    run_test("a_request_sent_when_the_refusal_says_passes", pause_is_true);
}

/// Sends one request after another, and waits exactly the pause after each refusal.
async fn pause_is_true(test: &TestContext) -> Result<()> {
    let limits = "limits:\n  - match: \"*\"\n    requests: {rate: 20, burst: 2}\n";
    let coordinator = test.coordinator(limits).await?;
    let envoy = test
        .envoy("envoy", 2, &coordinator, &by_tenant(&json!({})))
        .await?;
    let request = get("/", &[(TENANT_HEADER, "acme")]);
    let mut connection = Connection::open(envoy.address()).await?;
    conditions::begin();
    let settled = Instant::now() + s(3.0);
    let end = settled + s(6.0);
    let (mut admitted, mut kept, mut broken) = (0, 0, 0);
    while Instant::now() < end {
        let answer = connection.answer_to(&request).await?;
        if answer.status == 200 {
            admitted += u64::from(Instant::now() >= settled);
            continue;
        }
        sleep(pause_of(&answer)?).await;
        let after = connection.answer_to(&request).await?.status;
        if Instant::now() >= settled {
            admitted += u64::from(after == 200);
            kept += u64::from(after == 200);
            broken += u64::from(after != 200);
        }
    }
    eprintln!("{kept} pauses were exact, {broken} were too short; {admitted} admitted in 6 s");
    conclude!(
        broken == 0,
        "{broken} requests were refused after the pause they were told"
    );
    conclude!(kept >= 50, "only {kept} refusals in 6 s at 20/s");
    // Longer pauses than needed would show as a lower rate.
    assert_near("admitted/s", admitted as f64 / 6.0, 20.0, 0.1);
    Ok(())
}

fn pause_of(answer: &Answer) -> Result<Duration> {
    ensure!(answer.status == 429, "answered {}", answer.status);
    let pause = answer
        .header("tollgate-pause-ms")
        .context("a refusal without a pause")?;
    Ok(Duration::from_millis(pause.parse()?))
}

#[test]
fn a_refusal_says_why_and_what_the_policy_is() {
    run_test(
        "a_refusal_says_why_and_what_the_policy_is",
        refusal_is_complete,
    );
}

async fn refusal_is_complete(test: &TestContext) -> Result<()> {
    let limits = "limits:\n  - match: \"*\"\n    requests: {rate: 2, burst: 1}\n";
    let coordinator = test.coordinator(limits).await?;
    let cors = json!({
        "name": "envoy.filters.http.cors",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors"},
    });
    let filters = vec![cors, tollgate(&by_tenant(&json!({})))?];
    let mut spec = EnvoySpec::new("envoy", 1, test.upstream.address(), filters);
    let policy = fs::read_to_string(artifact::workspace().join("envoy/examples/cors.json"))?;
    let policy: Value = serde_json::from_str(&policy)?;
    spec.virtual_hosts[0]["typed_per_filter_config"] = policy;
    let envoy = Envoy::start(test.dir(), &spec.asking(coordinator.grpc())).await?;
    let refusal = refused(envoy.address(), &[("origin", ORIGIN)]).await?;
    assert_eq!(refusal.header("access-control-allow-origin"), Some(ORIGIN));
    let exposed = refusal.header("access-control-expose-headers");
    for field in exposed.context("exposed fields")?.split(", ") {
        assert!(refusal.header(field).is_some(), "{field}: {refusal:?}");
    }
    let seconds: u64 = refusal
        .header("retry-after")
        .context("Retry-After")?
        .parse()?;
    let pause = pause_of(&refusal)?;
    assert_eq!(
        seconds,
        pause.as_millis().div_ceil(1000) as u64,
        "rounded up: {refusal:?}"
    );
    assert_eq!(refusal.header("tollgate-reason"), Some("tenant/requests"));
    assert_eq!(refusal.header("x-envoy-ratelimited"), Some("true"));
    assert!(refusal.header("ratelimit").is_some(), "{refusal:?}");
    assert!(refusal.header("ratelimit-policy").is_some(), "{refusal:?}");
    assert_eq!(
        refusal.header("content-type"),
        Some("application/problem+json")
    );
    let problem: Value = serde_json::from_str(&refusal.body)?;
    assert!(
        problem["type"]
            .as_str()
            .is_some_and(|kind| kind.ends_with("quota-exceeded"))
    );
    let grpc = refused(envoy.address(), &[("content-type", "application/grpc")]).await?;
    assert_eq!(
        grpc.header("grpc-status"),
        Some("8"),
        "RESOURCE_EXHAUSTED: {grpc:?}"
    );
    Ok(())
}

/// Sends requests until one is refused; gRPC refusals have the status 200 as well.
async fn refused(to: SocketAddr, fields: &[(&str, &str)]) -> Result<Answer> {
    let mut fields = fields.to_vec();
    fields.push((TENANT_HEADER, "acme"));
    for _ in 0..200 {
        let answer = get_once(to, "/", &fields).await?;
        if answer.status == 429 || answer.header("grpc-status").is_some() {
            return Ok(answer);
        }
    }
    anyhow::bail!("200 requests were admitted at 2 a second")
}
