//! An Envoy that takes over in a hot restart is a new client: it shares the capacity with the old one.

use anyhow::{Result, ensure};
use serde_json::json;
use tollgate_tests::conclude;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{by_tenant, tollgate};
use tollgate_tests::load::{Flow, Load};
use tollgate_tests::{ports, wait};

use crate::test_context::{
    TestContext, assert_near, assert_never_above, print_course, run_test, s,
};

const LIMITS: &str = "limits:\n  - match: \"*\"\n    \
                      requests: {rate: 200, burst: 40, lease: 3s, refresh: 500ms}\n";

#[test]
fn an_envoy_that_takes_over_in_a_hot_restart_has_the_whole_rate_once_the_old_lease_has_ended() {
    run_test("an_envoy_that_takes_over_in_a_hot_restart", takes_over);
}

async fn takes_over(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let filters = vec![tollgate(&by_tenant(&json!({})))?];
    let upstream = test.upstream.address();
    let mut spec = EnvoySpec::new("first", 2, upstream, filters).asking(coordinator.grpc());
    spec.port = ports::free()?;
    spec.restart_epoch = Some(0);
    let mut first = Envoy::start(test.dir(), &spec).await?;
    let load = Load::start([Flow::new(first.address(), "acme", 400.0)]);
    load.run_until(s(3.0)).await;

    spec.name = "second".to_owned();
    spec.restart_epoch = Some(1);
    let second = Envoy::start(test.dir(), &spec).await?;
    ensure!(second.address() == first.address());
    wait::until("the first to have gone", s(20.0), async || {
        first.process.check_succeeded()
    })
    .await?;
    wait::until("its lease to end", s(10.0), async || {
        let leases = coordinator.leases("tenant/acme").await?;
        let (old, new) = leases.map_or((0.0, 0.0), |leases| {
            (leases.has("first"), leases.has("second"))
        });
        ensure!(
            old == 0.0 && new > 199.0,
            "the first has {old}, the second {new}"
        );
        Ok(())
    })
    .await?;
    let from = load.elapsed();
    load.run_until(from + s(3.0)).await;
    let record = load.stop().await?.remove(0);
    print_course("acme", &record);
    let total = record.total();
    eprintln!("{total:?}");
    let rate = record.admitted_per_second(from..from + s(3.0));
    assert_near("after the restart, admitted/s", rate, 200.0, 0.04);
    // The new process adds its burst once.
    assert_never_above(&record, 200.0, 2.0 * 40.0);
    // The old process may close connections while a request is in flight.
    let failed = total.failed as f64 / total.offered as f64;
    conclude!(failed <= 0.02, "{total:?}");
    Ok(())
}
