//! Members of a group get their parts of it, whatever one of them sends, and configuration changes reach
//! running Envoys.

use std::time::Duration;

use serde_json::json;
use tollgate_tests::envoy::Envoy;
use tollgate_tests::filter::by_tenant;
use tollgate_tests::load::{Flow, Load, sum};
use tollgate_tests::record::Record;

use crate::test_context::{
    TestContext, assert_near, assert_never_above, print_course, run_test, s,
};

const CAPACITY: f64 = 1000.0;
const BURST: f64 = 100.0;

/// Load of each tenant on each of the two Envoys; the first is over its part.
const OFFERS: [(&str, [f64; 2]); 3] = [
    ("greedy", [700.0, 500.0]),
    ("beta", [300.0, 80.0]),
    ("gamma", [60.0, 320.0]),
];

/// A refresh interval, and the time to spend a bucket filled at the old rate.
const SETTLE: Duration = Duration::from_millis(1500);

fn config(tenants: &str) -> String {
    format!(
        "limits: []
groups:
  gold: {{requests: {{rate: 1000, burst: 100}}, fair_between: members}}
attach: {{tenants: {{{tenants}}}}}
"
    )
}

#[test]
fn members_of_a_group_get_their_parts_until_one_is_detached() {
    let name = "members_of_a_group_get_their_parts_until_one_is_detached";
    run_test(name, async |test: &TestContext| {
        let all = config("greedy: gold, beta: gold, gamma: gold");
        let mut coordinator = test.coordinator(&all).await?;
        let names = ["envoy-0", "envoy-1"];
        let plugin = by_tenant(&json!({}));
        let envoys = test.envoys(names, &coordinator, &plugin).await?;
        let load = Load::start(flows(&envoys));
        load.run_until(s(9.0)).await;
        let before: Vec<_> = (0..6).map(|flow| load.record(flow)).collect();
        assert_never_above(&sum(&before), CAPACITY, BURST);

        coordinator
            .reconfigure(&config("beta: gold, gamma: gold"))
            .await?;
        let detached = load.elapsed();
        load.run_until(detached + SETTLE + s(4.0)).await;
        let records = load.stop().await?;
        let tenants = by_name(&records);
        for ((tenant, _), record) in OFFERS.iter().zip(&tenants) {
            print_course(tenant, record);
            let part = record.admitted_per_second(s(3.0)..s(9.0));
            assert_near(&format!("{tenant}, its third"), part, CAPACITY / 3.0, 0.02);
            assert_eq!(record.total().failed, 0);
        }
        // The greedy tenant has no limit now, and the others want less than the group has.
        let window = detached + SETTLE..detached + SETTLE + s(4.0);
        for ((tenant, offers), record) in OFFERS.iter().zip(&tenants) {
            let offered: f64 = offers.iter().sum();
            let measured = record.admitted_per_second(window.clone());
            assert_near(
                &format!("{tenant}, after it was detached"),
                measured,
                offered,
                0.03,
            );
        }
        Ok(())
    });
}

/// Flows of each tenant to each Envoy.
fn flows(envoys: &[Envoy; 2]) -> Vec<Flow> {
    let of_tenant = |(tenant, offers): &(&'static str, [f64; 2])| {
        let flow = |(envoy, rate): (&Envoy, &f64)| Flow::new(envoy.address(), tenant, *rate);
        envoys.iter().zip(offers).map(flow).collect::<Vec<_>>()
    };
    OFFERS.iter().flat_map(of_tenant).collect()
}

/// Records of each tenant's flows, summed up.
fn by_name(records: &[Record]) -> Vec<Record> {
    records.chunks(2).map(sum).collect()
}
