//! Plan of a fleet: the scenario and the limits that a seed makes.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tollgate_core::limit::Limit;
use tollgate_sim::limits::LimitSource;
use tollgate_sim::scenario::{Change, CoordinatorSpec, DemandSpec, EnvoyGroup, HandOver, Scenario};

use crate::history::{self, History};
use crate::limits::LimitsFile;

mod cluster;
mod parts;
mod tree;
mod work;

pub(crate) use self::work::Work;

/// Plan of one run. Each Envoy is a group of its own.
pub(crate) struct Plan {
    pub(crate) scenario: Scenario,
    /// Limits that the scenario's events put into force, by number; the first hold at the start.
    limits: Vec<LimitsFile>,
    pub(crate) sources: Vec<Rc<dyn LimitSource>>,
    pub(crate) work: Work,
    pub(crate) history: History,
}

// === impl Plan ===

impl Plan {
    /// Returns all hand-overs of coordinators, with their times.
    fn hand_overs(&self) -> impl Iterator<Item = (Duration, &HandOver)> {
        let events = self.scenario.events.iter();
        events.filter_map(|event| match &event.change {
            Change::HandOver(left) => Some((event.at.0, left)),
            _ => None,
        })
    }

    /// Returns the times of all snapshot transfers: leases do not age during those.
    pub(crate) fn transfers(&self) -> impl Iterator<Item = Duration> {
        self.hand_overs().map(|(_, left)| left.lasts.0)
    }

    /// Returns whether a coordinator is handed leases at that time.
    pub(crate) fn is_transfer(&self, coordinator: usize, elapsed: Duration) -> bool {
        let name = &self.scenario.coordinators[coordinator].name;
        self.hand_overs()
            .any(|(at, left)| left.coordinator == *name && at + left.lasts.0 == elapsed)
    }

    /// Returns the coordinators that hand over, once for each time.
    pub(crate) fn handed_over(&self) -> impl Iterator<Item = usize> {
        let names = self.hand_overs().map(|(_, left)| &left.coordinator);
        names.filter_map(|name| self.coordinator(name))
    }

    /// Returns the coordinators that crash, once for each time.
    pub(crate) fn crashed(&self) -> impl Iterator<Item = usize> {
        let events = self.scenario.events.iter();
        events.filter_map(|event| match &event.change {
            Change::Crash(crash) => self.coordinator(&crash.coordinator),
            _ => None,
        })
    }

    /// Returns the end of the last cut of an Envoy that has begun.
    pub(crate) fn cut_until(&self, envoy: usize, elapsed: Duration) -> Duration {
        let name = Some(&self.scenario.envoys[envoy].name);
        let events = self.scenario.events.iter();
        let ends = events.filter_map(|event| match &event.change {
            Change::Cut(cut) if event.at.0 <= elapsed => {
                let group = cut.envoys.as_ref()?.group.as_ref();
                (group == name).then_some(event.at.0 + cut.lasts.0)
            }
            _ => None,
        });
        ends.max().unwrap_or_default()
    }

    /// Returns the limit of a coordinator at the start.
    pub(crate) fn limit_of(&self, coordinator: usize) -> Limit {
        let own = self.scenario.coordinators[coordinator].limits;
        let scope = &self.history.members[0].own.id.scope;
        let source = &self.sources[own.unwrap_or_default()];
        history::limit_of(&**source, scope, self.work.unit()).limit
    }

    /// Returns the Envoys that ask a coordinator.
    pub(crate) fn envoys_of(&self, coordinator: usize) -> Vec<usize> {
        let name = Some(&self.scenario.coordinators[coordinator].name);
        let envoys = self.scenario.envoys.iter().enumerate();
        let envoys = envoys.filter(|(_, envoy)| envoy.coordinator.as_ref() == name);
        envoys.map(|(index, _)| index).collect()
    }

    /// Returns the parent of a coordinator.
    pub(crate) fn parent_of(&self, coordinator: usize) -> Option<usize> {
        let parent = self.scenario.coordinators[coordinator].parent.as_ref()?;
        self.coordinator(parent)
    }

    /// Returns whether there is a tree of coordinators.
    pub(crate) fn is_tree(&self) -> bool {
        self.scenario.coordinators.len() > 1
    }

    fn coordinator(&self, name: &str) -> Option<usize> {
        let mut coordinators = self.scenario.coordinators.iter();
        coordinators.position(|coordinator| coordinator.name == name)
    }

    /// Returns the file that `tollgate simulate` plays.
    pub(crate) fn file(&self) -> Value {
        let scenario = serde_json::to_value(&self.scenario).expect("a scenario is a mapping");
        let Value::Object(mut file) = without_nulls(scenario) else {
            return Value::Null;
        };
        leave_out_defaults(&mut file);
        file.append(&mut self.limits[0].sections());
        for list in ["events", "coordinators"] {
            let entries = file.get_mut(list).and_then(Value::as_array_mut);
            for entry in entries
                .into_iter()
                .flatten()
                .filter_map(Value::as_object_mut)
            {
                let number = entry.remove("limits").and_then(|number| number.as_u64());
                if let Some(number) = number {
                    entry.append(&mut self.limits[number as usize].sections());
                }
            }
        }
        Value::Object(file)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let yaml = serde_saphyr::to_string(&self.file()).map_err(|_| fmt::Error)?;
        f.write_str(&yaml)
    }
}

// === free functions ===

/// Removes fields of Envoys, coordinators and demand that need not be written.
fn leave_out_defaults(file: &mut Map<String, Value>) {
    let defaults = [
        ("envoys", json!(EnvoyGroup::default())),
        ("coordinators", json!(CoordinatorSpec::default())),
        ("demand", json!(DemandSpec::default())),
    ];
    for (list, default) in defaults {
        let entries = file.get_mut(list).and_then(Value::as_array_mut);
        for entry in entries
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            entry.retain(|name, value| default.get(name) != Some(value));
        }
    }
}

/// Returns `value` without fields of null, which are those that are not written.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            let fields = fields.map(|(name, value)| (name, without_nulls(value)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}
