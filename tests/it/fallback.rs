//! Without a lease an Envoy admits no more than a limit that it knows, and does not throttle what has
//! none: while the coordinator learns, and when it is gone; also scopes that are new then.

use anyhow::{Result, ensure};
use serde_json::json;
use tollgate_tests::filter::{COORDINATOR, TENANT_HEADER};
use tollgate_tests::load::{Flow, Load};
use tollgate_tests::record::Tally;

use crate::test_context::{TestContext, run_test, s};

/// Three logins a minute for each tenant; nothing else has a limit.
const LIMITS: &str = "limits:\n  - match: \"login/*\"\n    \
                      requests: {rate: 0.05, burst: 3, lease: 5s, refresh: 500ms}\n";
const SECONDS: f64 = 3.0;

#[test]
fn the_fallback_is_never_above_a_limit_that_is_known() {
    run_test(
        "the_fallback_is_never_above_a_limit_that_is_known",
        async |test: &TestContext| {
            let mut coordinator = test.coordinator(LIMITS).await?;
            let rule = |name: &str| {
                json!({"name": name, "key": {"header": TENANT_HEADER},
                       "when": {"path_prefix": format!("/{name}")}})
            };
            let plugin =
                json!({"coordinator": COORDINATOR, "scopes": [rule("login"), rule("free")]});
            let envoy = test.envoy("envoy", 2, &coordinator, &plugin).await?;
            let flows = |tenants: &[&str]| {
                let of = |path, tenant: &&str| Flow::at(envoy.address(), path, tenant, 20.0);
                let flow = |tenant| [of("/login", tenant), of("/free", tenant)];
                tenants.iter().flat_map(flow).collect::<Vec<_>>()
            };

            coordinator.process.kill()?;
            coordinator.restart().await?;
            let learning = run(flows(&["acme"])).await?;
            coordinator.process.kill()?;
            let gone = run(flows(&["acme", "bolt"])).await?;
            eprintln!("learning: {learning:?}, gone: {gone:?}");

            let acme = learning[0].admitted + gone[0].admitted;
            ensure!(acme <= 4, "acme logged in {acme} times");
            ensure!(gone[2].admitted <= 4, "bolt is new: {:?}", gone[2]);
            for free in [&learning[1], &gone[1], &gone[3]] {
                ensure!((free.refused, free.failed) == (0, 0), "no limit: {free:?}");
            }
            Ok(())
        },
    );
}

/// Results of `flows` after a few seconds.
async fn run(flows: Vec<Flow>) -> Result<Vec<Tally>> {
    let load = Load::start(flows);
    load.run_until(s(SECONDS)).await;
    let records = load.stop().await?;
    Ok(records.iter().map(|record| record.total()).collect())
}
