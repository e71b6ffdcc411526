//! Tests of the harness: its load arrives, and it notices refused configurations. Otherwise a test about
//! limits could pass because nothing was sent.

use std::time::Duration;

use serde_json::json;
use tollgate_tests::filter;
use tollgate_tests::load::{Flow, Load};

use crate::test_context::run_test;

#[test]
fn load_without_a_filter_arrives_at_its_rate() {
    run_test("load_without_a_filter_arrives_at_its_rate", async |test| {
        let envoy = test.envoy_with("envoy", Vec::new()).await?;
        let load = Load::start([
            Flow::new(envoy.address(), "acme", 1500.0),
            Flow::new(envoy.address(), "beta", 100.0),
        ]);
        load.run_until(Duration::from_secs(3)).await;
        let records = load.stop().await?;
        for (record, rate) in records.iter().zip([1500.0, 100.0]) {
            let total = record.total();
            assert_eq!((total.refused, total.failed), (0, 0));
            let measured =
                record.admitted_per_second(Duration::from_secs(1)..Duration::from_secs(3));
            assert!(
                (measured / rate - 1.0).abs() < 0.05,
                "{measured}/s instead of {rate}/s"
            );
        }
        assert_eq!(test.upstream.arrived("beta"), records[1].total().admitted);
        Ok(())
    });
}

#[test]
fn a_swapped_configuration_is_taken_or_refused() {
    run_test(
        "a_swapped_configuration_is_taken_or_refused",
        async |test| {
            let mut envoy = test.envoy_with("envoy", Vec::new()).await?;
            let named = |filters| vec![("main".to_owned(), filters)];
            let local = named(vec![filter::local_rate_limit(10_000)]);
            assert!(
                envoy.configure(&local).await?,
                "a valid configuration is taken"
            );
            let unknown = named(vec![json!({"name": "no such filter", "typed_config": {}})]);
            assert!(
                !envoy.configure(&unknown).await?,
                "an unknown filter is refused"
            );
            assert!(
                envoy.configure(&named(Vec::new())).await?,
                "and the next one is taken again"
            );
            assert_eq!(envoy.stat("listener_manager.lds.update_rejected").await?, 1);
            Ok(())
        },
    );
}
