//! Scenario files: YAML, with the limits of a coordinator's configuration in them.

use std::fs;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context as _, anyhow};
use serde_json::{Map, Value};
use tollgate_config::catalog::check::{ConfigError, ConfigErrors};
use tollgate_config::yaml;
use tollgate_sim::limits::LimitSource;
use tollgate_sim::scenario::{Scenario, ScenarioError};

use super::{limits, trace};
use crate::failure::Failure;
use crate::located::{Node, place_of};

/// The most requests and ticks of a run. A run handles about a hundred thousand a second.
const EVENTS_MAX: f64 = 1e10;

/// A scenario and its limits.
pub(super) struct ScenarioFile {
    pub(super) scenario: Scenario,
    /// Those in force from the start, then those of events and of coordinators.
    pub(super) limits: Vec<Rc<dyn LimitSource>>,
}

// === impl ScenarioFile ===

impl ScenarioFile {
    /// Reads a file, and checks it. Paths in it begin at its folder.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string());
        let folder = path.parent().unwrap_or_else(|| Path::new(""));
        Self::parse(&text.map_err(Failure::Usage)?, folder).map_err(|errors| {
            let file = path.display().to_string();
            let lines = errors.0.iter().map(|error| of_file(&file, error));
            let lines = lines.collect::<Vec<_>>().join("\n");
            Failure::Usage(match errors.0.len() {
                1 => anyhow!("{lines}"),
                count => anyhow!("{count} errors in {file}\n{lines}"),
            })
        })
    }

    fn parse(text: &str, folder: &Path) -> Result<Self, ConfigErrors> {
        let root: Node = yaml::read(text)?;
        let located = |errors: Vec<ScenarioError>| {
            let errors = errors.into_iter().map(|error| located(&root, error));
            ConfigErrors(errors.collect())
        };
        let Value::Object(mut map) = root.value.to_json() else {
            let field = String::new();
            let rule = "the file is not a mapping".to_owned();
            return Err(located(vec![ScenarioError { field, rule }]));
        };
        let limits = limits(&mut map, folder).map_err(located)?;
        let scenario = yaml::read(&Value::Object(map).to_string());
        let scenario = scenario.map_err(|errors| limits::below("", &errors));
        let mut scenario: Scenario = scenario.map_err(located)?;
        trace::read_all(&mut scenario.demand, folder).map_err(located)?;
        let mut errors = scenario.check(limits.len());
        if errors.is_empty() {
            errors.extend(too_long(&scenario));
        }
        if errors.is_empty() {
            Ok(Self { scenario, limits })
        } else {
            Err(located(errors))
        }
    }
}

// === free functions ===

/// Returns `error` with the place of its field in a file, or of the deepest value on the way to it.
fn located(root: &Node, error: ScenarioError) -> ConfigError {
    let place = place_of(root, &error.field);
    ConfigError {
        line: place.line,
        column: place.column,
        field: error.field,
        value: None,
        rule: error.rule,
    }
}

/// Returns the error as one of `file`: `fleet.yaml:7:22: events[0].at: …`.
fn of_file(file: &str, error: &ConfigError) -> String {
    match error.line {
        0 => format!("{file}: {error}"),
        _ => format!("{file}:{error}"),
    }
}

/// Returns the error of a scenario that would be played for days.
fn too_long(scenario: &Scenario) -> Option<ScenarioError> {
    let events = scenario.expected_events();
    (events > EVENTS_MAX).then(|| ScenarioError {
        field: "duration".to_owned(),
        rule: format!(
            "makes about {events:.0e} requests and ticks of workers, more than {EVENTS_MAX:.0e}, which \
             take a day; a shorter time, fewer Envoys or a lower demand make it less"
        ),
    })
}

/// Takes the limits out of a file's sections: those in force from the start, then those of events and
/// of coordinators.
fn limits(
    map: &mut Map<String, Value>,
    folder: &Path,
) -> Result<Vec<Rc<dyn LimitSource>>, Vec<ScenarioError>> {
    let first = limits::take(map, folder, "")?;
    let first = first.ok_or_else(|| {
        let rule = format!("is missing; or say `{}`", limits::FILE);
        let field = "limits".to_owned();
        vec![ScenarioError { field, rule }]
    })?;
    let mut limits = vec![first];
    for list in ["events", "coordinators"] {
        let entries = map.get_mut(list).and_then(Value::as_array_mut);
        for (i, entry) in entries.into_iter().flatten().enumerate() {
            let Value::Object(entry) = entry else {
                continue;
            };
            if let Some(more) = limits::take(entry, folder, &format!("{list}[{i}]."))? {
                entry.insert("limits".to_owned(), limits.len().into());
                limits.push(more);
            }
        }
    }
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use tollgate_sim::scenario::Change;

    use super::*;

    const GOOD: &str = "
duration: 10s
limits: [{match: 'tenant/*', requests: {rate: 100}}]
envoys: [{count: 2}]
demand: [{scope: tenant/acme, each: 10}]
";

    #[track_caller]
    fn error(text: &str) -> String {
        match ScenarioFile::parse(text, Path::new("")) {
            Ok(_) => panic!("{text} is good"),
            Err(errors) => of_file("f.yaml", &errors.0[0]),
        }
    }

    #[test]
    fn a_file_has_a_scenario_and_limits() {
        let text =
            format!("{GOOD}events: [{{at: 5s, limits: [{{match: '*', requests: {{rate: 1}}}}]}}]");
        let file = ScenarioFile::parse(&text, Path::new("")).ok().unwrap();
        assert_eq!(file.limits.len(), 2);
        assert!(matches!(file.scenario.events[0].change, Change::Limits(1)));
        let limits = file.limits[0].limits_of(&"tenant/acme".into());
        assert_eq!(limits.units.len(), 1);
        assert_eq!(limits.units[0].limit.capacity.as_f64(), 100.0);
    }

    #[test]
    fn the_scenario_of_the_page_can_be_played() {
        let page = include_str!("../../../../docs/simulate.md");
        let text = page.split("```yaml").nth(1).unwrap();
        let text = text.split("```").next().unwrap();
        let limits = "limits: [{match: '*', requests: {rate: 100}}]";
        let text = text.replace("limits_file: tollgate.yaml", limits);
        let file = ScenarioFile::parse(&text, Path::new("")).ok().unwrap();
        assert_eq!(file.scenario.envoy_count(), 60);
        assert_eq!(file.scenario.events.len(), 2);
        let errors = file.scenario.check(file.limits.len());
        assert_eq!(errors, []);
    }

    /// Asserts the error of [`GOOD`] with another text in place of one, for each row.
    #[track_caller]
    fn assert_errors(rows: &[(&str, &str, &str)]) {
        for (from, to, want) in rows {
            let error = error(&GOOD.replace(from, to));
            assert!(error.contains(want), "{to}: {error}");
        }
    }

    #[test]
    fn an_error_names_field_value_and_rule() {
        let rows = [
            (
                "duration: 10s",
                "duration: ten",
                "f.yaml:2:11: duration: \"ten\" is no length of time",
            ),
            (
                "duration: 10s",
                "duration: [10",
                "f.yaml:3:7: duration: illegal",
            ),
            (
                "duration: 10s",
                "duration: 10s\nduration: 20s",
                "f.yaml:3:1: duration: is here twice",
            ),
            (
                "rate: 100",
                "rate: -5",
                "f.yaml:3:47: limits[0].requests.rate: -5 is negative",
            ),
            ("count: 2", "cuont: 2", "did you mean `count`?"),
            (
                "count: 2",
                "count: 70.5",
                "f.yaml:4:18: envoys[0].count: `70.5` is not a whole number from 0 to 4294967295",
            ),
            ("{count: 2}", "7", "envoys[0]: `7` is not a mapping"),
            ("[{count: 2}]", "7", "envoys: `7` is not a list"),
            (
                "count: 2",
                "no_lease: unsafe",
                "envoys[0].no_lease: `unsafe` is none of safe, optimistic, pessimistic",
            ),
            ("limits:", "groups: {}\nlimit:", "limits: is missing"),
        ];
        assert_errors(&rows);
        let error = error("duration: 10s");
        assert!(error.contains("limits_file"), "{error}");
    }

    #[test]
    fn an_error_of_an_event_a_file_or_a_size_names_its_place() {
        let rows = [
            (
                "demand:",
                "events: [{at: 1s, kill: {envoys: {count: 3}}}]\ndemand:",
                "f.yaml:5:42: events[0].kill.envoys.count: 3 is more than the 2 Envoys",
            ),
            (
                "demand:",
                "events: [{at: 1s, cut: {region: asia}, kill: {}}]\ndemand:",
                "f.yaml:5:10: events[0]: names 2 changes; one event is one",
            ),
            (
                "demand:",
                "events: [{at: 1s, cutt: {region: asia}}]\ndemand:",
                "did you mean `cut`?",
            ),
            (
                "demand:",
                "events: [{at: 1s, cut: {region: asai}}]\ndemand:",
                "f.yaml:5:33: events[0].cut.region: \"asai\" is no region",
            ),
            (
                "demand:",
                "events: [{at: 1s, limits: [{match: a, requests: {rate: x}}]}]\ndemand:",
                "f.yaml:5:56: events[0].limits[0].requests.rate: ",
            ),
            (
                "each: 10",
                "each: 1000M",
                "f.yaml:2:11: duration: makes about 2e10 requests and ticks of workers, more than 1e10",
            ),
            (
                "each: 10",
                "each: {trace: nowhere.csv}",
                "f.yaml:5:45: demand[0].each.trace: nowhere.csv: ",
            ),
            (
                "each: 10",
                "each: -1",
                "demand[0].each: -1 is no number from 0 on",
            ),
            (
                "each: 10",
                "each: 1e308M",
                "demand[0].each: 1e308M is more than 1000M",
            ),
            (
                "each: 10",
                "each: {ramp: {from: 1, to: 2}}",
                "demand[0].each.ramp.over: is missing",
            ),
        ];
        assert_errors(&rows);
    }
}
