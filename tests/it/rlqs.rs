//! Envoy's own filter `rate_limit_quota`, without any wasm, as the example configures it.

mod outage;
mod streams;
mod traps;

use std::fs;
use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tollgate_tests::artifact;
use tollgate_tests::envoy::EnvoySpec;

use crate::test_context::TestContext;

const EXAMPLE: &str = "envoy/examples/rate-limit-quota.yaml";

/// Safe capacity of each Envoy in the example.
const FALLBACK: f64 = 20.0;

const CAPACITY: f64 = 300.0;
const BURST: f64 = 60.0;

/// A coordinator's file; a shorter lease than is advised, so that the test of its end is short.
const CONFIG: &str = "rlqs: {domains: {edge: {scope: 'tenant/{tenant}', abandon_after: 10s}}}
limits:
  - match: '*'
    requests: {rate: 300, burst: 60, lease: 6s}
";

/// The filter of the example, for an Envoy called `name`.
fn filter(name: &str) -> Result<Value> {
    let text = fs::read_to_string(artifact::workspace().join(EXAMPLE))?;
    let example: Value = serde_saphyr::from_str(&text)?;
    let chain = &example["static_resources"]["listeners"][0]["filter_chains"][0];
    let mut filter = chain["filters"][0]["typed_config"]["http_filters"][0].clone();
    let metadata = &mut filter["typed_config"]["rlqs_server"]["initial_metadata"];
    ensure!(
        metadata[0]["key"] == "tollgate-client",
        "{EXAMPLE}: no name"
    );
    metadata[0]["value"] = json!(name);
    Ok(filter)
}

fn spec(test: &TestContext, name: &str) -> Result<EnvoySpec> {
    let filters = vec![filter(name)?];
    Ok(EnvoySpec::new(name, 2, test.upstream.address(), filters))
}

#[test]
fn the_example_is_whole() {
    let envoy = artifact::envoy().unwrap();
    let file = artifact::workspace().join(EXAMPLE);
    let mut command = Command::new(envoy);
    command
        .args(["--mode", "validate", "--config-path"])
        .arg(file);
    assert!(command.output().unwrap().status.success());
}
