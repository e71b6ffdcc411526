//! Envoy's metrics for Prometheus, and the dashboard of them.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tollgate_tests::connection::get_once;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{Build, TENANT_HEADER, by_tenant, tollgate};
use tollgate_tests::monitoring::{alerts, dashboard_queries, missing_metrics};
use tollgate_tests::{artifact, wait};

use crate::test_context::{TestContext, run_test};

const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 1, burst: 1}\n";

#[test]
fn prometheus_sees_rules_and_causes_as_labels_and_the_dashboard_only_what_there_is() {
    run_test("prometheus_sees_rules_and_causes_as_labels", statistics);
}

async fn statistics(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let rules = json!([
        {"name": "tenant", "key": {"header": TENANT_HEADER}, "missing": "deny"},
        {"name": "by-host", "key": {"authority": true}, "enforced_percent": 0},
    ]);
    let plugin = by_tenant(&json!({"scopes": rules}));
    let mut spec = EnvoySpec::new(
        "envoy",
        1,
        test.upstream.address(),
        vec![tollgate(&plugin)?],
    );
    spec.stats_config = Some(json_of("envoy/stats-config.json")?);
    let envoy = Envoy::start(test.dir(), &spec.asking(coordinator.grpc())).await?;
    get_once(envoy.address(), "/", &[]).await?;
    for tenant in ["a", "b", "c", "d", "a", "a", "a"] {
        get_once(envoy.address(), "/", &[(TENANT_HEADER, tenant)]).await?;
    }
    let wanted = [
        r#"tollgate_refused{rule="tenant",cause="requests"}"#,
        r#"tollgate_refused{rule="tenant",cause="missing"} 1"#,
        r#"tollgate_shadowed{rule="by-host",cause="requests"}"#,
    ];
    let text = wait::until(
        "the counters with labels",
        Duration::from_secs(5),
        async || {
            let text = without_prefix(&envoy.prometheus().await?)?;
            for line in wanted {
                ensure!(labelled(&text, line), "no {line} in\n{text}");
            }
            Ok(text)
        },
    )
    .await?;
    let mut queries = dashboard_queries("tollgate.json")?;
    queries.extend(
        alerts("tollgate-envoys")?
            .into_iter()
            .map(|alert| alert.expr),
    );
    let missing = missing_metrics(&queries, &text);
    assert!(missing.is_empty(), "Envoy does not have {missing:?}");
    Ok(())
}

/// The metrics as the documented relabelling leaves them: Envoy puts a prefix before those of dynamic
/// modules.
fn without_prefix(text: &str) -> Result<String> {
    Ok(match Build::under_test()? {
        Build::Wasm => text.to_owned(),
        Build::Native => text.replace("envoy_wasmcustom_tollgate_", "tollgate_"),
    })
}

/// Whether `text` has a line with the labels of `want`, in any order, and with its value if it has one.
fn labelled(text: &str, want: &str) -> bool {
    let (want, value) = want
        .split_once("} ")
        .unwrap_or_else(|| (want.trim_end_matches('}'), ""));
    let (name, labels) = want.split_once('{').unwrap_or((want, ""));
    text.lines().any(|line| {
        let (head, actual) = line.rsplit_once(' ').unwrap_or((line, ""));
        head.starts_with(&format!("{name}{{"))
            && labels.split(',').all(|label| head.contains(label))
            && (value.is_empty() || actual == value)
    })
}

fn json_of(file: &str) -> Result<Value> {
    let text = fs::read_to_string(artifact::workspace().join(file))?;
    Ok(serde_json::from_str(&text)?)
}
