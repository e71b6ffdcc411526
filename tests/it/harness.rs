//! Tests of the harness: its load arrives, and it notices refused configurations. Otherwise a test about
//! limits could pass because nothing was sent.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tollgate_tests::load::{Flow, Load};
use tollgate_tests::{artifact, filter};

use crate::test_context::run_wasm_test;

/// Reason why some tests run once, whatever the build.
pub(crate) const NO_FILTER: &str = "no Tollgate filter is in it";

#[test]
fn load_without_a_filter_arrives_at_its_rate() {
    run_wasm_test(
        "load_without_a_filter_arrives_at_its_rate",
        NO_FILTER,
        async |test| {
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
        },
    );
}

#[test]
fn a_swapped_configuration_is_taken_or_refused() {
    run_wasm_test(
        "a_swapped_configuration_is_taken_or_refused",
        NO_FILTER,
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

#[test]
fn the_page_names_the_tests_in_which_the_builds_differ() {
    let page = fs::read_to_string(artifact::workspace().join("docs/native.md")).unwrap();
    let (_, section) = page.split_once("\n## Tests of both builds\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let named: BTreeSet<String> = names
        .filter_map(|name| Some(name.split("::").next()?.to_owned()))
        .collect();
    let files = fs::read_dir(artifact::workspace().join("tests/it")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let differ = files.filter(|file| differs(file));
    let differ = differ.filter_map(|file| Some(file.file_stem()?.to_str()?.to_owned()));
    let differ: BTreeSet<String> = differ.collect();
    assert_eq!(named, differ);
}

/// Whether a test in a file, or in a file of a folder, looks at the build.
fn differs(path: &Path) -> bool {
    if path.is_dir() {
        let mut files = fs::read_dir(path).unwrap();
        return files.any(|file| differs(&file.unwrap().path()));
    }
    let text = fs::read_to_string(path).unwrap_or_default();
    let marks = ["    run_wasm_test(", "= Build::Native", "Build::Native =>"];
    marks.iter().any(|mark| text.contains(mark))
}
