//! A changed configuration file reaches running Envoys within one refresh.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tollgate_tests::filter::by_tenant;
use tollgate_tests::load::{Flow, Load, sum};

use crate::test_context::{TestContext, assert_near, print_course, run_test, s};

/// A refresh interval, and the time to spend a bucket filled at the old rate.
const SETTLE: Duration = Duration::from_millis(1500);

/// Measured time of each limit.
const HOLD: Duration = Duration::from_secs(3);

#[test]
fn changed_limits_are_admitted_after_one_refresh() {
    run_test("changed_limits_are_admitted_after_one_refresh", changes);
}

async fn changes(test: &TestContext) -> Result<()> {
    let limits = |rate: u32| {
        format!("limits: [{{match: tenant/acme, requests: {{rate: {rate}, burst: 20}}}}]\n")
    };
    let mut coordinator = test.coordinator(&limits(200)).await?;
    let plugin = by_tenant(&json!({}));
    let names = ["east", "west"];
    let [east, west] = test.envoys(names, &coordinator, &plugin).await?;
    let load = Load::start([
        Flow::new(east.address(), "acme", 400.0),
        Flow::new(west.address(), "acme", 300.0),
    ]);
    load.run_until(s(5.0)).await;
    let mut expected = vec![(s(2.0)..s(5.0), 200.0)];
    // Lowered, raised, blocked, and raised from zero.
    for rate in [80, 300, 0, 120] {
        coordinator.reconfigure(&limits(rate)).await?;
        let from = load.elapsed() + SETTLE;
        load.run_until(from + HOLD).await;
        expected.push((from..from + HOLD, f64::from(rate)));
    }
    coordinator.reconfigure("limits: []\n").await?;
    let from = load.elapsed() + SETTLE;
    load.run_until(from + HOLD).await;
    expected.push((from..from + HOLD, 700.0));

    let all = sum(&load.stop().await?);
    print_course("acme", &all);
    for (window, rate) in expected {
        let measured = all.admitted_per_second(window);
        assert_near("admitted/s", measured, rate, 0.05);
    }
    assert_eq!(all.total().failed, 0);
    Ok(())
}
