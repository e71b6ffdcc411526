//! The final cost in a response is charged afterwards, with the filters of the examples, and hidden from
//! the client.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tollgate_tests::artifact;
use tollgate_tests::conclude;
use tollgate_tests::connection::{Answer, get_once};
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::faulty_upstream::FaultyUpstream;
use tollgate_tests::filter::{COORDINATOR, TENANT_HEADER, tollgate};

use crate::test_context::{TestContext, run_test};

const LIMITS: &str =
    "limits:\n  - match: \"*\"\n    requests: {rate: 100, burst: 100, headroom: 1}\n";

#[test]
fn what_a_response_says_it_cost_is_charged() {
    run_test("what_a_response_says_it_cost_is_charged", charged);
}

async fn charged(test: &TestContext) -> Result<()> {
    let upstream = FaultyUpstream::start().await?;
    let coordinator = test.coordinator(LIMITS).await?;
    let plugin = json!({"coordinator": COORDINATOR, "scopes": [{
        "name": "tenant", "key": {"header": TENANT_HEADER},
        "final_cost": {"metadata": ["tollgate", "cost"]},
    }]});
    // The second example would win if both found a cost, which does not happen here.
    let filters = vec![
        tollgate(&plugin)?,
        example("cost-header.json")?,
        example("cost-in-body.json")?,
    ];
    let spec = EnvoySpec::new("envoy", 1, upstream.address(), filters);
    let envoy = Envoy::start(test.dir(), &spec.asking(coordinator.grpc())).await?;
    let to = envoy.address();

    let (header, body) = (("header", "/cost/300"), ("body", "/usage/300"));
    tokio::try_join!(is_charged(to, header), is_charged(to, body))?;
    // A final cost within the paid one, or an invalid one, adds no debt.
    for path in ["/cost/1", "/cost/nonsense", "/cost/-7", "/ok"] {
        for _ in 0..5 {
            let answer = ask(to, path, "cheap").await?;
            ensure!(answer.status == 200, "{path}: {}", answer.status);
        }
    }
    let complaints = envoy.complaints();
    ensure!(complaints.is_empty(), "{complaints:?}");
    Ok(())
}

/// Checks that a response with a final cost of 300 tokens makes the tenant's next request wait.
async fn is_charged(to: SocketAddr, (tenant, path): (&str, &str)) -> Result<()> {
    let answer = ask(to, path, tenant).await?;
    ensure!(answer.status == 200, "{tenant}: {}", answer.status);
    ensure!(
        answer.header("x-cost").is_none(),
        "the client sees the cost"
    );
    let pause = pause(to, tenant).await?;
    eprintln!("{tenant}: {pause} ms");
    // 300 tokens at 100 a second, of which the burst pays at most 100; the first lease may be smaller.
    conclude!((1900..=3100).contains(&pause), "{pause} ms");
    Ok(())
}

async fn ask(to: SocketAddr, path: &str, tenant: &str) -> Result<Answer> {
    get_once(to, path, &[(TENANT_HEADER, tenant)]).await
}

/// Pause of the next request in milliseconds; checks that a request after it passes.
async fn pause(to: SocketAddr, tenant: &str) -> Result<u64> {
    let answer = ask(to, "/ok", tenant).await?;
    ensure!(answer.status == 429, "{tenant}: {}", answer.status);
    let pause = answer
        .header("tollgate-pause-ms")
        .context("a refusal without a pause")?;
    let pause = pause.parse()?;
    tokio::time::sleep(Duration::from_millis(pause + 1)).await;
    let answer = ask(to, "/ok", tenant).await?;
    ensure!(
        answer.status == 200,
        "{tenant}, after {pause} ms: {}",
        answer.status
    );
    Ok(pause)
}

/// Reads a filter of the examples.
fn example(name: &str) -> Result<Value> {
    let text = fs::read_to_string(artifact::workspace().join("envoy/examples").join(name))?;
    Ok(serde_json::from_str(&text)?)
}
