//! `tollgate simulate`: the scenarios of `tests/scenarios`, their figures, and the report.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use tempfile::tempdir;

use crate::binary::{file, run};

fn scenario(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios");
    folder.join(format!("{name}.yaml")).display().to_string()
}

/// Returns the figures of a scenario, in which no law may be broken.
fn figures(name: &str, seed: &str) -> Value {
    let (code, out, err) = run(&["simulate", &scenario(name), "--seed", seed, "--json"]);
    assert_eq!(code, 0, "{name}: {err}");
    assert!(err.contains("tollgate: 100 % simulated"), "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    report["figures"].clone()
}

/// Returns the figures of each limit of a scenario, in which no law may be broken.
pub(crate) fn limits_of(name: &str) -> Vec<Value> {
    let (code, out, err) = run(&["simulate", &scenario(name), "--json"]);
    assert_eq!(code, 0, "{name}: {err}");
    let mut report: Value = serde_json::from_str(&out).unwrap();
    match report["limits"].take() {
        Value::Array(limits) => limits,
        other => panic!("{name}: {other}"),
    }
}

/// Plays a scenario, in which at least `handed_out` of what is attainable has to be handed out after
/// the start, and at most so many leases may be lost.
#[track_caller]
fn plays(name: &str, handed_out: f64, lost: u64) {
    plays_by(name, "of_attainable", handed_out, lost);
}

/// The same by another part: clients of a limit that is little used have no leases.
#[track_caller]
fn plays_by(name: &str, part: &str, least: f64, lost: u64) {
    let figures = figures(name, "0");
    let number = |field: &str| figures[field].as_f64().unwrap();
    // Clients draw for a second before they have leases.
    assert!(number("first_lease") < 1.5, "{name}: {figures}");
    assert!(number(part) >= least, "{name}: {figures}");
    assert_eq!(number("over_capacity"), 0.0, "{name}: {figures}");
    assert!(number("leases_lost") as u64 <= lost, "{name}: {figures}");
}

#[test]
fn doorman_1_to_6_hand_out_what_there_is() {
    plays("doorman-1", 0.99, 0);
    // While a new master learns, wants that fall give back what nobody else gets.
    plays("doorman-2", 0.97, 0);
    // No master for longer than a lease, and then one that knows it.
    plays("doorman-3", 0.89, 5);
    plays("doorman-4", 0.99, 0);
    plays("doorman-5", 0.99, 0);
    plays("doorman-6", 0.99, 0);
}

#[test]
fn doorman_7_is_an_hour_of_mishaps() {
    plays("doorman-7", 0.98, 60);
}

#[test]
fn a_flash_crowd_and_three_regions_use_what_there_is() {
    plays_by("flash-crowd", "of_ideal", 0.999, 0);
    plays("three-regions", 0.99, 0);
}

#[test]
fn low_limits_are_measured_beside_an_ideal_bucket() {
    let figures = figures("low-limits", "0");
    let figure = |name: &str| figures[name].as_f64().unwrap();
    assert_eq!(figure("over_capacity"), 0.0, "{figures}");
    assert!(figure("of_ideal") > 0.96, "{figures}");
    assert!(figure("least_of_ideal") <= figure("of_ideal"), "{figures}");
    assert_eq!(figure("beyond_ideal"), 0.0, "{figures}");
}

#[test]
fn a_rolling_deploy_costs_the_leases_of_the_dead() {
    plays("rolling-deploy", 0.94, 0);
}

#[test]
fn no_fault_and_no_kind_of_demand_breaks_a_law() {
    for seed in ["0", "1", "2"] {
        let (code, out, err) = run(&["simulate", &scenario("faults"), "--seed", seed, "--json"]);
        assert_eq!(code, 0, "seed {seed}: {err}");
        let summary: Value = serde_json::from_str(&out).unwrap();
        let marks = summary["marks"].as_array().unwrap();
        // Twelve events, some of which are marked at their end, too.
        assert!(marks.len() >= 12, "seed {seed}: {marks:?}");
        let figure = |name: &str| summary["figures"][name].as_f64().unwrap();
        assert!(figure("messages_lost") > 100.0, "seed {seed}: {out}");
        assert_eq!(figure("over_capacity"), 0.0, "seed {seed}: {out}");
        assert!(figure("of_attainable") > 0.8, "seed {seed}: {out}");
        assert_eq!(figure("scopes"), 30.0, "seed {seed}: {out}");
    }
}

#[test]
fn the_same_seed_takes_the_same_course() {
    let course = |seed| figures("doorman-6", seed)["digest"].clone();
    assert_eq!(course("3"), course("3"));
    assert_ne!(course("3"), course("4"));
}

#[test]
fn many_seeds_are_played_in_one_call() {
    let path = scenario("doorman-1");
    let arguments = ["simulate", &path, "--seed", "3", "--seeds", "2"];
    let (code, out, err) = run(&[&arguments[..], &["--json"]].concat());
    assert_eq!(code, 0, "{err}");
    let seeds: Value = serde_json::from_str(&out).unwrap();
    for (run, seed) in ["3", "4"].into_iter().enumerate() {
        assert_eq!(
            seeds["runs"][run]["figures"],
            figures("doorman-1", seed),
            "{seed}"
        );
    }
    let (code, out, err) = run(&arguments);
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with("FIGURE"), "{out}");
    assert!(out.contains("messages"), "{out}");
    let (code, _, err) = run(&[&arguments[..], &["--compare"]].concat());
    assert!(code == 2 && err.contains("--compare"), "{err}");
}

#[test]
fn a_report_works_offline() {
    let folder = tempdir().unwrap();
    let folder = folder.path().join("made");
    let text = folder.to_str().unwrap();
    let (code, out, err) = run(&["simulate", &scenario("doorman-2"), "--report", text]);
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with("FIGURE"), "{out}");
    let page = fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(page.matches("<svg").count() >= 3, "{page}");
    assert!(page.contains("root loses its master"), "{page}");
    for outside in ["http:", "https:", "<script", "{{", "src=", "href="] {
        assert!(!page.contains(outside), "{outside}");
    }
    let json = fs::read_to_string(folder.join("report.json")).unwrap();
    let record: Value = serde_json::from_str(&json).unwrap();
    let samples = record["samples"].as_array().unwrap().len();
    assert_eq!(samples, 60);
    for (name, lines) in [
        ("samples", samples),
        ("scopes", samples),
        ("clients", 5 * samples),
        ("limits", 1),
    ] {
        let csv = fs::read_to_string(folder.join(format!("{name}.csv"))).unwrap();
        assert_eq!(csv.lines().count(), 1 + lines, "{name}");
    }
}

#[test]
fn algorithms_are_compared_in_one_table() {
    let folder = tempdir().unwrap();
    let text = folder.path().to_str().unwrap();
    let path = scenario("doorman-6");
    let (code, out, err) = run(&["simulate", &path, "--compare", "--report", text]);
    assert_eq!(code, 0, "{err}");
    let names = [
        "static",
        "proportional_share",
        "fair_share",
        "usage_share",
        "max_rate",
    ];
    let rows: Vec<&str> = out.lines().skip(1).collect();
    for (row, name) in rows.iter().zip(names) {
        assert!(row.starts_with(name), "{out}");
    }
    assert_eq!(rows.len(), names.len(), "{out}");
    let page = fs::read_to_string(folder.path().join("comparison.html")).unwrap();
    assert_eq!(page.matches("<figure").count(), names.len());
    assert!(!page.contains("{{"), "{page}");
    let json = fs::read_to_string(folder.path().join("comparison.json")).unwrap();
    let comparison: Value = serde_json::from_str(&json).unwrap();
    let figure = |run: usize, field: &str| {
        let figure = comparison["runs"][run]["figures"][field].as_f64();
        figure.unwrap_or_else(|| panic!("{field}: {comparison}"))
    };
    // Each Envoy has the whole capacity: two of them have 500 of it alone.
    assert!(figure(0, "worst") > 2.0 && figure(0, "over_capacity") > 40.0);
    for (run, name) in names.iter().enumerate().skip(1) {
        assert_eq!(figure(run, "over_capacity"), 0.0, "{name}");
    }
    assert!(figure(2, "fairness") > 0.99, "{json}");
    assert!(figure(2, "fairness") > figure(1, "fairness"), "{json}");
    assert!(folder.path().join("max_rate/report.html").is_file());
}

#[test]
fn an_algorithm_takes_the_place_of_that_of_the_limits() {
    let path = scenario("doorman-1");
    let (code, out, err) = run(&["simulate", &path, "--algorithm", "max_rate", "--json"]);
    assert_eq!(code, 0, "{err}");
    let summary: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(summary["algorithm"], "max_rate");
    assert_ne!(
        summary["figures"]["digest"],
        figures("doorman-1", "0")["digest"]
    );
    let (code, _, err) = run(&["simulate", &path, "--algorithm", "fair"]);
    assert!(code == 2 && err.contains("fair_share"), "{err}");
}

#[test]
fn a_report_that_cannot_be_written_costs_no_figures() {
    let taken = file("no folder");
    let folder = taken.path().join("report");
    let path = scenario("doorman-1");
    let (code, out, err) = run(&["simulate", &path, "--report", folder.to_str().unwrap()]);
    assert_eq!(code, 6, "{err}");
    assert!(out.contains("handed out, of the capacity"), "{out}");
    let want = format!("the report is not written: {}", folder.display());
    assert!(err.contains(&want), "{err}");
}

#[test]
fn a_scope_without_a_limit_is_shown_and_warned_of() {
    let text = "duration: 5s\nlimits: [{match: tenant/a, requests: {rate: 50}}]\n\
                envoys: [{count: 3}]\n\
                demand: [{scope: tenant/a, each: 9}, {scope: tenant/b, each: 9}]";
    let (scenario, folder) = (file(text), tempdir().unwrap());
    let (path, report) = (scenario.path(), folder.path());
    let arguments = [
        "simulate",
        path.to_str().unwrap(),
        "--report",
        report.to_str().unwrap(),
    ];
    let (code, _, err) = run(&arguments);
    assert_eq!(code, 0, "{err}");
    let want = "warning: no limit matches the requests of tenant/b: all of them go on";
    assert!(err.contains(want), "{err}");
    let csv = fs::read_to_string(report.join("scopes.csv")).unwrap();
    let last = csv.lines().last().unwrap();
    assert!(
        last.starts_with("5,tenant/b,27.000,unlimited,unlimited,"),
        "{last}"
    );
    let page = fs::read_to_string(report.join("report.html")).unwrap();
    assert!(page.contains("tenant/b, unlimited") && !page.contains("NaN"));
}

/// Returns the text of a scenario of three Envoys, whose two tenants share a group with such a limit,
/// with an event.
fn group(rate: u32, between: &str, event: &str) -> String {
    let group = sections(rate, between);
    format!(
        "duration: 30s\nmeasure_from: 5s\nenvoys: [{{count: 3, drift_ppm: 0}}]\n{group}\n\
         demand: [{{scope: tenant/a, each: 200}}, {{scope: tenant/b, each: 50}}]\n\
         events: [{event}]"
    )
}

fn sections(rate: u32, between: &str) -> String {
    format!(
        "limits: []\ngroups: {{gold: {{requests: {{rate: {rate}}}, fair_between: {between}}}}}\n\
         attach: {{tenants: {{a: gold, b: gold}}}}"
    )
}

#[test]
fn a_group_of_a_file_counts_once() {
    for between in ["members", "clients"] {
        let scenario = file(&group(300, between, ""));
        let (code, out, err) = run(&["simulate", scenario.path().to_str().unwrap(), "--json"]);
        assert_eq!(code, 0, "{between}: {err}");
        let summary: Value = serde_json::from_str(&out).unwrap();
        let figure = |name: &str| summary["figures"][name].as_f64().unwrap();
        for name in ["of_capacity", "of_attainable", "fairness"] {
            assert!(figure(name) > 0.97, "{between}: {out}");
        }
        assert_eq!((figure("over_capacity"), figure("scopes")), (0.0, 2.0));
        assert_eq!(summary["limits"].as_array().unwrap().len(), 1, "{out}");
    }
}

#[test]
fn limits_of_a_group_may_change() {
    for (before, after) in [
        ((600, "members"), (300, "members")),
        ((600, "clients"), (200, "clients")),
        ((300, "members"), (300, "clients")),
        ((300, "clients"), (300, "members")),
    ] {
        let sections = sections(after.0, after.1).replace('\n', ", ");
        let text = group(before.0, before.1, &format!("{{at: 15s, {sections}}}"));
        let (scenario, folder) = (file(&text), tempdir().unwrap());
        let (path, report) = (scenario.path(), folder.path());
        let arguments = [path.to_str().unwrap(), "--report", report.to_str().unwrap()];
        let (code, _, err) = run(&[&["simulate"][..], &arguments].concat());
        assert_eq!(code, 0, "{before:?}, {after:?}: {err}");
        let json = fs::read_to_string(report.join("report.json")).unwrap();
        let record: Value = serde_json::from_str(&json).unwrap();
        let last = record["samples"].as_array().unwrap().last().unwrap();
        let has = last["has"].as_f64().unwrap();
        assert!(
            has > 0.97 * f64::from(after.0),
            "{before:?}, {after:?}: {last}"
        );
    }
}

/// Envoys whose clocks are far too slow use their leases while others have them already.
#[test]
fn a_broken_law_is_seen_in_the_sum_of_a_scope_and_of_a_group() {
    let slow = |text: String| text.replace("drift_ppm: 0", "drift_ppm: 400000");
    let cut = "{at: 5s, cut: {envoys: {count: 2}, for: 25s}}";
    let scope = "limits: [{match: 'tenant/*', requests: {rate: 200}}]";
    for (text, broken) in [
        (group(300, "members", cut), "group/gold"),
        (group(200, "clients", cut), "group/gold"),
        (
            group(200, "members", cut).replace(&sections(200, "members"), scope),
            "tenant/a",
        ),
    ] {
        let scenario = file(&slow(text));
        let path = scenario.path().to_str().unwrap();
        let (code, out, _) = run(&["simulate", path, "--seeds", "12", "--json"]);
        assert_eq!(code, 1, "{broken}");
        assert!(
            out.contains(&format!("law 1: the leases of {broken} sum to ")),
            "{out}"
        );
    }
    let scenario = file(&group(300, "members", cut).replace("drift_ppm: 0", "drift_ppm: 100"));
    let path = scenario.path().to_str().unwrap();
    let (code, _, err) = run(&["simulate", path, "--seeds", "12"]);
    assert_eq!(code, 0, "{err}");
}

#[test]
fn a_limits_file_is_that_of_a_coordinator() {
    let limits =
        file("listen: {grpc: '0.0.0.0:7710'}\nlimits: [{match: '*', requests: {rate: 50}}]");
    let trace = file("seconds,rate\n0,20\n10,100\n");
    let text = format!(
        "duration: 20s\nlimits_file: {}\nenvoys: [{{count: 2}}]\n\
         demand: [{{scope: tenant/a, total: {{trace: {}}}}}]",
        limits.path().display(),
        trace.path().display()
    );
    let scenario = file(&text);
    let path = scenario.path().to_str().unwrap();
    let (code, out, err) = run(&["simulate", path, "--json"]);
    assert_eq!(code, 0, "{err}");
    let figures: Value = serde_json::from_str(&out).unwrap();
    let admitted = figures["figures"]["admitted"].as_u64().unwrap();
    // 20 a second for ten seconds, then 50 and a burst of a second.
    assert!((680..=800).contains(&admitted), "{admitted}");
}

#[test]
fn errors_name_the_file_the_field_and_the_rule() {
    let rows = [
        ("duration: 0s", ":4:11: duration: must be longer than zero"),
        ("demand: []", "demand: is empty"),
        ("coordinators: [{nmae: a}]", "did you mean `name`?"),
        ("nudges: often", "nudges: `often` is not true or false"),
        ("nudge: false", "did you mean `nudges`?"),
        (
            "limits: [{match: a, requests: {rate: x}}]",
            "limits[0].requests.rate",
        ),
    ];
    for (line, want) in rows {
        let good = [
            "duration: 10s",
            "limits: [{match: '*', requests: {rate: 5}}]",
            "envoys: [{count: 1}]",
            "demand: [{scope: tenant/a, each: 1}]",
        ];
        let field = line.split(':').next().unwrap();
        let rest = good.into_iter().filter(|good| !good.starts_with(field));
        let text = rest.chain([line]).collect::<Vec<_>>().join("\n");
        let scenario = file(&text);
        let path = scenario.path().to_str().unwrap();
        let (code, _, err) = run(&["simulate", path]);
        assert_eq!(code, 2, "{err}");
        assert!(err.contains(want) && err.contains(path), "{line}: {err}");
    }
}
