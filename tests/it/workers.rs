//! A process with several workers admits its lease once, not once for each worker.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{by_tenant, tollgate};
use tollgate_tests::load::{Flow, Load};

use crate::test_context::{
    TestContext, assert_near, assert_never_above, print_course, run_test, s,
};

const WORKERS: u32 = 4;
const LENGTH: Duration = Duration::from_secs(7);

#[test]
fn four_workers_admit_one_lease() {
    run_test(
        "four_workers_admit_one_lease",
        async |test: &TestContext| admit(test, &[WORKERS], 1000.0, 200.0, 20.0).await,
    );
}

#[test]
fn four_workers_are_exact_at_a_low_rate() {
    run_test(
        "four_workers_are_exact_at_a_low_rate",
        async |test: &TestContext| admit(test, &[WORKERS], 100.0, 5.0, 2.0).await,
    );
}

#[test]
fn one_lease_is_admitted_whatever_the_number_of_workers() {
    run_test(
        "one_lease_is_admitted_whatever_the_number_of_workers",
        async |test: &TestContext| admit(test, &[1, 2, 8], 600.0, 200.0, 20.0).await,
    );
}

/// Starts Envoys with those numbers of workers, and offers each the load of a tenant of its own. Checks
/// each rate within 2 %, and law 6: at most the burst, the rate, and the tokens in the workers' caches,
/// which are at most a quarter of the burst or a token each.
async fn admit(
    test: &TestContext,
    workers: &[u32],
    offered: f64,
    rate: f64,
    burst: f64,
) -> Result<()> {
    let limits =
        format!("limits:\n  - match: \"*\"\n    requests: {{rate: {rate}, burst: {burst}}}\n");
    let coordinator = test.coordinator(&limits).await?;
    let filters = vec![tollgate(&by_tenant(&json!({})))?];
    let spec = |workers: &u32| {
        let name = format!("envoy-{workers}");
        let spec = EnvoySpec::new(&name, *workers, test.upstream.address(), filters.clone());
        spec.asking(coordinator.grpc())
    };
    let specs: Vec<EnvoySpec> = workers.iter().map(spec).collect();
    let envoys = Envoy::start_all(test.dir(), &specs).await?;
    let flows = envoys.iter().zip(&specs);
    let load =
        Load::start(flows.map(|(envoy, spec)| Flow::new(envoy.address(), &spec.name, offered)));
    load.run_until(LENGTH).await;
    let records = load.stop().await?;
    // One request more or less at each end.
    let part = f64::max(0.02, 1.0 / (5.0 * rate));
    for (record, workers) in records.iter().zip(workers) {
        print_course(&format!("{workers} workers"), record);
        assert_eq!(record.total().failed, 0);
        let admitted = record.admitted_per_second(s(2.0)..LENGTH);
        assert_near(
            &format!("{workers} workers, admitted/s"),
            admitted,
            rate,
            part,
        );
        let cached = f64::max(burst / 4.0, f64::from(*workers));
        assert_never_above(record, rate, burst + cached);
    }
    Ok(())
}
