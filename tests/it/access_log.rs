//! The access log of the documentation's example shows the reason of a refusal and the time a request
//! waited.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tollgate_tests::connection::get_once;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{TENANT_HEADER, by_tenant, tollgate};
use tollgate_tests::{artifact, wait};

use crate::test_context::{TestContext, run_test};

const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 1, burst: 1}\n";

#[test]
fn the_access_log_says_why_and_how_long() {
    run_test("the_access_log_says_why_and_how_long", logged);
}

async fn logged(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let filters = vec![tollgate(&by_tenant(&json!({})))?];
    let mut spec = EnvoySpec::new("envoy", 1, test.upstream.address(), filters);
    let file = test.dir().join("access.log");
    spec.access_log = vec![example(&file)?];
    let envoy = Envoy::start(test.dir(), &spec.asking(coordinator.grpc())).await?;
    for _ in 0..3 {
        get_once(envoy.address(), "/", &[(TENANT_HEADER, "acme")]).await?;
    }
    let lines = wait::until(
        "three lines of access log",
        Duration::from_secs(20),
        async || {
            let text = fs::read_to_string(&file)?;
            let lines: Vec<Value> = text
                .lines()
                .map(serde_json::from_str)
                .collect::<Result<_, _>>()?;
            ensure!(lines.len() == 3, "{} lines", lines.len());
            Ok(lines)
        },
    )
    .await?;
    let [first, _, last] = &lines[..] else {
        unreachable!("there are three")
    };
    assert_eq!(first["status"], 200);
    assert!(first["tollgate_reason"].is_null(), "{first}");
    let waited = number(first, "tollgate_waited_ms")?;
    assert!(
        waited <= 10_000,
        "the first request waited for its lease: {first}"
    );
    assert_eq!(last["status"], 429);
    assert_eq!(last["details"], "tollgate");
    assert_eq!(last["tollgate_reason"], "tenant/requests");
    assert!(number(last, "tollgate_pause_ms")? <= 1000, "{last}");
    assert!(last["tollgate_waited_ms"].is_null(), "{last}");
    Ok(())
}

fn number(line: &Value, field: &str) -> Result<u64> {
    let text = line[field].as_str();
    let text = text.with_context(|| format!("{field} in {line}"))?;
    Ok(text.parse()?)
}

/// The documentation's example of an access log, writing to `file`.
fn example(file: &Path) -> Result<Value> {
    let text = fs::read_to_string(artifact::workspace().join("envoy/access-log.json"))?;
    let mut log: Value = serde_json::from_str(&text)?;
    log["typed_config"]["path"] = json!(file);
    Ok(log)
}
