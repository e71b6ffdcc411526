//! Tenants that share a group get their parts of it, whatever one of them sends; and changes of the
//! configuration reach running Envoys.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::envoy::Envoy;
use tollgate_tests::filter::by_tenant;
use tollgate_tests::load::{Flow, Load, sum};
use tollgate_tests::record::Record;

use crate::scene::{Scene, assert_near, assert_never_above, play, print_course, s};

const CAPACITY: f64 = 1000.0;
const BURST: f64 = 100.0;

/// What each tenant sends to each of the two Envoys; the first is greedy.
const OFFERS: [(&str, [f64; 2]); 3] = [
    ("greedy", [700.0, 500.0]),
    ("beta", [300.0, 80.0]),
    ("gamma", [60.0, 320.0]),
];

/// A refresh interval, and what a bucket at its old rate may have saved up.
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
    play(name, async |scene: &Scene| {
        let all = config("greedy: gold, beta: gold, gamma: gold");
        let mut coordinator = scene.coordinator(&all).await?;
        let envoys = [
            envoy(scene, "envoy-0", &coordinator).await?,
            envoy(scene, "envoy-1", &coordinator).await?,
        ];
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
        // The greedy tenant has no limit any more, and the others want less than is left.
        let window = detached + SETTLE..detached + SETTLE + s(4.0);
        for ((tenant, offers), record) in OFFERS.iter().zip(&tenants) {
            let offered: f64 = offers.iter().sum();
            let seen = record.admitted_per_second(window.clone());
            assert_near(
                &format!("{tenant}, after it was detached"),
                seen,
                offered,
                0.03,
            );
        }
        Ok(())
    });
}

async fn envoy(scene: &Scene, name: &str, coordinator: &Coordinator) -> Result<Envoy> {
    scene
        .envoy(name, 2, coordinator, &by_tenant(&json!({})))
        .await
}

/// Each tenant's flow to each Envoy.
fn flows(envoys: &[Envoy; 2]) -> Vec<Flow> {
    let of_tenant = |(tenant, offers): &(&'static str, [f64; 2])| {
        let flow = |(envoy, rate): (&Envoy, &f64)| Flow::new(envoy.address(), tenant, *rate);
        envoys.iter().zip(offers).map(flow).collect::<Vec<_>>()
    };
    OFFERS.iter().flat_map(of_tenant).collect()
}

/// The records of each tenant's flows as one.
fn by_name(records: &[Record]) -> Vec<Record> {
    records.chunks(2).map(sum).collect()
}
