//! Scenario files: YAML, with the limits of a coordinator's configuration in them.

use std::fs;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context as _, anyhow};
use serde_json::{Map, Value};
use tollgate_coordinator::config::unknown_field;
use tollgate_sim::limits::LimitSource;
use tollgate_sim::scenario::Scenario;

use super::{limits, trace};
use crate::failure::Failure;

/// A scenario and its limits.
pub(super) struct ScenarioFile {
    pub(super) scenario: Scenario,
    /// Those in force from the start, then those of events.
    pub(super) limits: Vec<Rc<dyn LimitSource>>,
}

// === impl ScenarioFile ===

impl ScenarioFile {
    /// Reads a file. Paths in it begin at its folder.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string());
        let folder = path.parent().unwrap_or_else(|| Path::new(""));
        Self::parse(&text.map_err(Failure::Usage)?, folder).map_err(|failure| match failure {
            Failure::Usage(error) => Failure::Usage(error.context(path.display().to_string())),
            other => other,
        })
    }

    fn parse(text: &str, folder: &Path) -> Result<Self, Failure> {
        let value: Value = serde_saphyr::from_str(text).map_err(Failure::usage)?;
        let Value::Object(mut map) = value else {
            return Err(Failure::Usage(anyhow!("the file is not a mapping")));
        };
        let first = limits::take(&mut map, folder)?;
        let first = first.ok_or_else(|| {
            Failure::Usage(anyhow!("limits: is missing; or say `{}`", limits::FILE))
        })?;
        let mut limits = vec![first];
        for event in events(&mut map) {
            if let Some(more) = limits::take(event, folder)? {
                event.insert("limits".to_owned(), limits.len().into());
                limits.push(more);
            }
        }
        let scenario = serde_path_to_error::deserialize(Value::Object(map));
        let mut scenario: Scenario = scenario.map_err(|error| wrong(&error))?;
        trace::read_all(&mut scenario.demand, folder)?;
        Ok(Self { scenario, limits })
    }
}

// === free functions ===

/// Returns the events of a file, as far as they are mappings.
fn events(map: &mut Map<String, Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    let events = map.get_mut("events").and_then(Value::as_array_mut);
    let events = events.into_iter().flatten();
    events.filter_map(Value::as_object_mut)
}

/// Returns the failure of a value that does not fit.
fn wrong(error: &serde_path_to_error::Error<serde_json::Error>) -> Failure {
    let field = error.path().to_string();
    let said = error.inner().to_string();
    let mut names = said.split('`').skip(1).step_by(2);
    let rule = match (said.starts_with("unknown field"), names.next()) {
        (true, Some(unknown)) => unknown_field(unknown, &names.collect::<Vec<_>>()),
        _ => said.clone(),
    };
    match field.as_str() {
        "." => Failure::Usage(anyhow!("{rule}")),
        field => Failure::Usage(anyhow!("{field}: {rule}")),
    }
}

#[cfg(test)]
mod tests {
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
            Err(failure) => format!("{:#}", failure.into_parts().0),
        }
    }

    #[test]
    fn a_file_has_a_scenario_and_limits() {
        let text =
            format!("{GOOD}events: [{{at: 5s, limits: [{{match: '*', requests: {{rate: 1}}}}]}}]");
        let file = ScenarioFile::parse(&text, Path::new("")).ok().unwrap();
        assert_eq!(file.limits.len(), 2);
        assert_eq!(file.scenario.events[0].limits, Some(1));
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

    #[test]
    fn an_error_names_field_value_and_rule() {
        let rows = [
            (
                "duration: 10s",
                "duration: ten",
                "duration: \"ten\" is no length of time",
            ),
            (
                "rate: 100",
                "rate: -5",
                "limits[0].requests.rate: -5 is negative",
            ),
            ("count: 2", "cuont: 2", "did you mean `count`?"),
            ("count: 2", "count: 1e12", "envoys[0].count: invalid"),
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
                "missing field `over`",
            ),
            ("limits:", "groups: {}\nlimit:", "limits: is missing"),
        ];
        for (from, to, want) in rows {
            let error = error(&GOOD.replace(from, to));
            assert!(error.contains(want), "{to}: {error}");
        }
        let error = error("duration: 10s");
        assert!(error.contains("limits_file"), "{error}");
    }
}
