//! The load of one tenant does not affect another.

use anyhow::Result;
use serde_json::json;
use tollgate_tests::conclude;
use tollgate_tests::filter::by_tenant;
use tollgate_tests::load::{Flow, Load};

use crate::test_context::{TestContext, assert_near, run_test, s};

const LIMITS: &str = "limits:\n  - match: \"tenant/*\"\n    requests: {rate: 100, burst: 20}\n  \
                      - match: \"*\"\n    requests: {rate: 1}\n";

#[test]
fn tenants_do_not_touch_each_other() {
    run_test("tenants_do_not_touch_each_other", loud_and_quiet);
}

async fn loud_and_quiet(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let envoy = test
        .envoy("envoy", 2, &coordinator, &by_tenant(&json!({})))
        .await?;
    let load = Load::start([
        Flow::new(envoy.address(), "loud", 1500.0),
        Flow::new(envoy.address(), "quiet", 40.0),
        Flow::new(envoy.address(), "calm", 40.0),
    ]);
    load.run_until(s(7.0)).await;
    let records = load.stop().await?;
    for (name, record) in ["quiet", "calm"].iter().zip(&records[1..]) {
        let total = record.total();
        conclude!((total.refused, total.failed) == (0, 0), "{name}: {total:?}");
        assert_eq!(test.upstream.arrived(name), total.admitted);
        conclude!(total.admitted >= 270, "{name}: {total:?}");
    }
    let loud = records[0].admitted_per_second(s(2.0)..s(7.0));
    assert_near("loud, admitted/s", loud, 100.0, 0.03);
    Ok(())
}
