//! What a response says that a request has cost is charged after the fact, by the filters of the
//! examples, and the client does not see it.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tollgate_tests::artifact;
use tollgate_tests::conclude;
use tollgate_tests::connection::{Answer, get_once};
use tollgate_tests::envoy::{Envoy, Spec};
use tollgate_tests::filter::{COORDINATOR, TENANT_HEADER, tollgate};
use tollgate_tests::moody::Moody;

use crate::scene::{Scene, play};

const LIMITS: &str =
    "limits:\n  - match: \"*\"\n    requests: {rate: 100, burst: 100, headroom: 1}\n";

#[test]
fn what_a_response_says_it_cost_is_charged() {
    play("what_a_response_says_it_cost_is_charged", charged);
}

async fn charged(scene: &Scene) -> Result<()> {
    let moody = Moody::start().await?;
    let coordinator = scene.coordinator(LIMITS).await?;
    let plugin = json!({"coordinator": COORDINATOR, "scopes": [{
        "name": "tenant", "key": {"header": TENANT_HEADER},
        "final_cost": {"metadata": ["tollgate", "cost"]},
    }]});
    // The second one wins where both find a cost, which never happens here.
    let filters = vec![
        tollgate(&plugin)?,
        example("cost-header.json")?,
        example("cost-in-body.json")?,
    ];
    let spec = Spec::new("envoy", 1, moody.address(), filters);
    let envoy = Envoy::start(scene.dir(), &spec.asking(coordinator.grpc())).await?;
    let to = envoy.address();

    for (tenant, path) in [("header", "/cost/300"), ("body", "/usage/300")] {
        let answer = ask(to, path, tenant).await?;
        ensure!(answer.status == 200, "{tenant}: {}", answer.status);
        ensure!(
            answer.header("x-cost").is_none(),
            "the client sees the cost"
        );
        let pause = pause(to, tenant).await?;
        eprintln!("{tenant}: {pause} ms");
        // 300 of which the burst pays 100 at most, at 100 a second; what is leased first may be less.
        conclude!((1900..=3100).contains(&pause), "{pause} ms");
    }
    // What costs no more than it has paid, or says nonsense, owes nothing.
    for path in ["/cost/1", "/cost/nonsense", "/cost/-7", "/ok"] {
        for _ in 0..5 {
            let answer = ask(to, path, "cheap").await?;
            ensure!(answer.status == 200, "{path}: {}", answer.status);
        }
    }
    Ok(())
}

async fn ask(to: SocketAddr, path: &str, tenant: &str) -> Result<Answer> {
    get_once(to, path, &[(TENANT_HEADER, tenant)]).await
}

/// How long the next request has to wait, milliseconds; and after that time it passes.
async fn pause(to: SocketAddr, tenant: &str) -> Result<u64> {
    let answer = ask(to, "/ok", tenant).await?;
    ensure!(answer.status == 429, "{tenant}: {}", answer.status);
    let pause = answer.header("tollgate-pause-ms").context("no pause")?;
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

/// A filter of the examples.
fn example(name: &str) -> Result<Value> {
    let text = fs::read_to_string(artifact::workspace().join("envoy/examples").join(name))?;
    Ok(serde_json::from_str(&text)?)
}
