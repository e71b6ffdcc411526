//! The documentation's example client waits out its pauses and gets its rate.

use std::net::SocketAddr;
use std::process::Output;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::process::Command;
use tollgate_tests::artifact;
use tollgate_tests::filter::by_tenant;
use tollgate_tests::wait;

use crate::test_context::{TestContext, run_test, s};

#[test]
fn the_client_of_the_documentation_waits_as_it_is_told() {
    run_test("the_client_of_the_documentation_waits_as_it_is_told", waits);
}

/// Forty requests at 20 a second with a burst of two take two seconds; the client retries no more than
/// needed.
async fn waits(test: &TestContext) -> Result<()> {
    let limits = "limits:\n  - match: \"*\"\n    requests: {rate: 20, burst: 2}\n";
    let coordinator = test.coordinator(limits).await?;
    let envoy = test
        .envoy("envoy", 1, &coordinator, &by_tenant(&json!({})))
        .await?;
    let output = python(
        envoy.address(),
        "for _ in range(40): assert client.get(url, 'acme') == b'ok\\n'",
    )
    .await?;
    ensure!(output.status.success(), "{}", errors(&output));
    assert_eq!(test.upstream.arrived("acme"), 40);
    // Each was refused at most once: the retry after its pause passed.
    let refused = wait::until("the refusals to be counted", s(5.0), async || {
        let refused = envoy.stat("wasmcustom.tollgate.refused.tenant.requests");
        let refused = refused.await?;
        ensure!(refused > 0, "no refusals are counted");
        Ok(refused)
    })
    .await?;
    ensure!(refused <= 40, "{refused} refusals of 40 requests");
    Ok(())
}

#[test]
fn the_client_of_the_documentation_gives_up_where_no_pause_helps() {
    run_test(
        "the_client_of_the_documentation_gives_up_where_no_pause_helps",
        gives_up,
    );
}

async fn gives_up(test: &TestContext) -> Result<()> {
    let limits = "limits:\n  - match: \"*\"\n    requests: {rate: 0}\n";
    let coordinator = test.coordinator(limits).await?;
    let envoy = test
        .envoy("envoy", 1, &coordinator, &by_tenant(&json!({})))
        .await?;
    let output = python(envoy.address(), "client.get(url, 'acme')").await?;
    assert!(!output.status.success());
    assert!(
        errors(&output).contains("HTTP Error 429"),
        "{}",
        errors(&output)
    );
    Ok(())
}

/// Runs a line of Python with the example as `client` and the Envoy's address as `url`.
async fn python(to: SocketAddr, line: &str) -> Result<Output> {
    let program = format!("import client\nurl = 'http://{to}/'\n{line}");
    Command::new("python3")
        .arg("-c")
        .arg(program)
        .env("PYTHONPATH", artifact::workspace().join("envoy/examples"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .kill_on_drop(true)
        .output()
        .await
        .context("python3, which the example is written in")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_page_shows_the_client_that_is_tested() {
    let read = |path: &str| std::fs::read_to_string(artifact::workspace().join(path)).unwrap();
    let page = read("docs/throttling.md");
    let client = read("envoy/examples/client.py");
    assert!(
        page.contains(client.trim_end()),
        "docs/throttling.md shows another client"
    );
    let code = client.lines().filter(|line| !line.trim().is_empty());
    assert!(code.count() <= 27, "the example has to be short");
}
