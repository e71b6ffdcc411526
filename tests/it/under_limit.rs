//! A tenant under its limit is never refused, not even at its first request.

use anyhow::Result;
use serde_json::json;
use tollgate_tests::conclude;
use tollgate_tests::filter::by_tenant;
use tollgate_tests::load::{Flow, Load};

use crate::test_context::{TestContext, run_test, s};

const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 300}\n";

#[test]
fn a_tenant_under_its_limit_is_never_refused() {
    run_test("a_tenant_under_its_limit_is_never_refused", never_refused);
}

async fn never_refused(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let plugin = by_tenant(&json!({}));
    let names = ["east", "west"];
    let [east, west] = test.envoys(names, &coordinator, &plugin).await?;
    let load = Load::start([
        Flow::new(east.address(), "acme", 120.0),
        Flow::new(west.address(), "acme", 60.0),
        Flow::new(west.address(), "beta", 150.0),
    ]);
    load.run_until(s(8.0)).await;
    for (record, least) in load.stop().await?.iter().zip([950, 470, 1190]) {
        let total = record.total();
        conclude!((total.refused, total.failed) == (0, 0), "{total:?}");
        conclude!(total.admitted >= least, "{total:?}");
    }
    Ok(())
}
