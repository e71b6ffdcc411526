//! Capacity follows demand that moves from one Envoy to another.

use anyhow::Result;
use serde_json::json;
use tollgate_tests::filter::by_tenant;
use tollgate_tests::load::{Flow, Load, sum};

use crate::test_context::{
    TestContext, assert_near, assert_never_above, print_course, run_test, s, watch_leases,
};

const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 400, burst: 80}\n";

#[test]
fn demand_that_moves_is_followed_within_two_seconds() {
    run_test("demand_that_moves_is_followed_within_two_seconds", moves);
}

async fn moves(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let plugin = by_tenant(&json!({}));
    let names = ["east", "west"];
    let [east, west] = test.envoys(names, &coordinator, &plugin).await?;
    let load = Load::start([
        Flow::new(east.address(), "acme", 900.0),
        Flow::new(west.address(), "acme", 20.0),
    ]);
    load.run_until(s(5.0)).await;
    load.set_rate(0, 20.0);
    load.set_rate(1, 900.0);
    watch_leases(&coordinator, "tenant/acme", &load, s(11.0)).await?;
    let records = load.stop().await?;
    print_course("east", &records[0]);
    print_course("west", &records[1]);
    let rate = |flow: usize, from, to| records[flow].admitted_per_second(s(from)..s(to));
    assert_near("east before, admitted/s", rate(0, 2.0, 5.0), 380.0, 0.05);
    assert_near("west before, admitted/s", rate(1, 2.0, 5.0), 20.0, 0.1);
    assert_near(
        "west 2 s after the move, admitted/s",
        rate(1, 7.0, 11.0),
        380.0,
        0.05,
    );
    assert_near(
        "east 2 s after the move, admitted/s",
        rate(0, 7.0, 11.0),
        20.0,
        0.1,
    );
    assert_never_above(&sum(&records), 400.0, 80.0);
    Ok(())
}
