//! Keys from CEL expressions: Envoy compiles and evaluates them, and a bad one is refused before use.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tollgate_tests::connection::get_once;
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::filter::{Build, COORDINATOR, tollgate};
use tollgate_tests::wait;

use crate::test_context::{TestContext, run_test};

const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 100000}\n";

#[test]
fn expressions_make_keys_and_bad_ones_are_refused() {
    run_test("expressions_make_keys_and_bad_ones_are_refused", cel);
}

async fn cel(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    if Build::under_test()? == Build::Native {
        return refused(test, &coordinator).await;
    }
    let first = plugin("request.headers['x-tenant'] + '@' + request.method");
    let mut envoy = test.envoy("envoy", 2, &coordinator, &first).await?;
    let ask = async |to| get_once(to, "/", &[("x-tenant", "acme")]).await;
    // Enough for both workers, with and without the wait for the first lease.
    for _ in 0..10 {
        ensure!(ask(envoy.address()).await?.status == 200);
    }
    for scope in [
        "made/acme@GET",
        "missing/unknown",
        "number/4",
        "join/acme/GET",
    ] {
        known(&coordinator, scope).await?;
    }

    for bad in ["request.headers[", "nosuch(request.path)"] {
        let filters = vec![tollgate(&plugin(bad))?];
        let taken = envoy.configure(&[("main".to_owned(), filters)]).await?;
        ensure!(!taken, "{bad} was taken");
        let logged = envoy.process.log().contains("must be an expression in CEL");
        ensure!(logged, "{bad}: the log has no reason");
    }
    ensure!(
        ask(envoy.address()).await?.status == 200,
        "the previous configuration stays in force"
    );

    let filters = vec![tollgate(&plugin("'later-' + request.headers['x-tenant']"))?];
    ensure!(envoy.configure(&[("main".to_owned(), filters)]).await?);
    ensure!(ask(envoy.address()).await?.status == 200);
    known(&coordinator, "made/later-acme").await
}

/// Envoy evaluates no expressions for dynamic modules, so they are refused with the reason.
async fn refused(test: &TestContext, coordinator: &Coordinator) -> Result<()> {
    let constant = json!({"coordinator": COORDINATOR, "scopes": [
        {"name": "made", "key": {"constant": "all"}},
    ]});
    let mut envoy = test.envoy("envoy", 1, coordinator, &constant).await?;
    let filters = vec![tollgate(&plugin("request.method"))?];
    ensure!(!envoy.configure(&[("main".to_owned(), filters)]).await?);
    let log = envoy.process.log();
    ensure!(
        log.contains("scopes[0].key is request.method: cannot be compiled"),
        "{log}"
    );
    let answer = get_once(envoy.address(), "/", &[]).await?;
    ensure!(
        answer.status == 200,
        "the previous configuration stays in force"
    );
    Ok(())
}

fn plugin(made: &str) -> Value {
    let rule = |name: &str, key: Value| json!({"name": name, "key": key});
    json!({"coordinator": COORDINATOR, "scopes": [
        rule("made", json!({"cel": made})),
        rule("missing", json!({"cel": "request.headers['x-none']"})),
        rule("number", json!({"cel": "size(request.headers['x-tenant'])"})),
        rule("join", json!({"join": [{"header": "x-tenant"}, {"cel": "request.method"}]})),
    ]})
}

async fn known(coordinator: &Coordinator, scope: &str) -> Result<()> {
    let what = format!("the coordinator to know {scope}");
    wait::until(&what, Duration::from_secs(5), async || {
        let leases = coordinator.leases(scope).await?;
        ensure!(leases.is_some(), "the scope is unknown");
        Ok(())
    })
    .await
}
