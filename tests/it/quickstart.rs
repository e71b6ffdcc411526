//! The files of the quickstart are valid and short.

use std::fs;
use std::process::Command;

use tollgate_tests::artifact;

/// Most lines for the filter in an Envoy configuration.
const FILTER_LINES_MAX: usize = 25;
/// Path of the filter in the quickstart, from the root of the repository.
const MODULE: &str = "target/tollgate_filter.wasm";

#[test]
fn envoy_takes_the_quickstart() {
    // The file names the module's default path; here cargo may have another target directory.
    let file = artifact::workspace().join("envoy/quickstart/envoy.yaml");
    let text = fs::read_to_string(file).unwrap();
    let module = artifact::filter().unwrap();
    assert!(text.contains(MODULE), "the quickstart names {MODULE}");
    let copy = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    let text = text.replace(MODULE, &module.to_string_lossy());
    fs::write(copy.path(), text).unwrap();
    let output = Command::new(artifact::envoy().unwrap())
        .args(["--mode", "validate", "--config-path"])
        .arg(copy.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "Envoy refuses the quickstart:\n{errors}"
    );
}

#[test]
fn the_coordinator_takes_the_quickstart() {
    let output = Command::new(artifact::coordinator().unwrap())
        .current_dir(artifact::workspace())
        .args(["check", "envoy/quickstart/tollgate.yaml"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "tollgate refuses the quickstart:\n{errors}"
    );
}

#[test]
fn the_filter_takes_few_lines() {
    let file = artifact::workspace().join("envoy/quickstart/envoy.yaml");
    let text = fs::read_to_string(file).unwrap();
    let between: Vec<_> = text
        .lines()
        .skip_while(|line| !line.contains("- name: tollgate"))
        .take_while(|line| !line.contains("- name: envoy.filters.http.router"))
        .collect();
    assert!(!between.is_empty(), "the file has the filter");
    assert!(
        between.len() <= FILTER_LINES_MAX,
        "{} lines:\n{}",
        between.len(),
        between.join("\n")
    );
}
