//! Plan of a fleet: the scenario and the limits that a seed makes.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tollgate_core::limit::Limit;
use tollgate_sim::scenario::{CoordinatorSpec, DemandSpec, EnvoyGroup, Scenario};

use crate::history::History;
use crate::limits::LimitsFile;

mod cluster;
mod parts;
mod tree;
mod work;

pub(crate) use self::work::Work;

/// Plan of one run. Each Envoy is a group of its own.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) scenario: Scenario,
    /// Limits that the scenario's events put into force, by number; the first hold at the start.
    pub(crate) limits: Vec<LimitsFile>,
    pub(crate) work: Work,
    pub(crate) history: History,
}

// === impl Plan ===

impl Plan {
    /// Returns the plan of `seed` where requests are counted.
    pub(crate) fn of_requests(seed: u64) -> Self {
        cluster::of_requests(seed)
    }

    /// Returns the plan of `seed` where other units than requests are counted, or requests wait.
    pub(crate) fn of_other_units(seed: u64) -> Self {
        cluster::of_other_units(seed)
    }

    /// Returns the plan of `seed` where shares depend on what processes use.
    pub(crate) fn of_usage(seed: u64) -> Self {
        cluster::of_usage(seed)
    }

    /// Returns the plan of `seed` with a tree of coordinators.
    pub(crate) fn of_trees(seed: u64) -> Self {
        tree::of_all_units(seed)
    }

    /// Returns the plan of `seed` with a tree where shares depend on what processes use.
    pub(crate) fn of_usage_in_trees(seed: u64) -> Self {
        tree::of_usage(seed)
    }

    /// Returns the times of all snapshot transfers: leases do not age during those.
    pub(crate) fn transfers(&self) -> impl Iterator<Item = Duration> {
        let events = self.scenario.events.iter();
        events.filter_map(|event| Some(event.hand_over.as_ref()?.lasts.0))
    }

    /// Returns whether a coordinator is handed leases at that time.
    pub(crate) fn is_transfer(&self, coordinator: usize, elapsed: Duration) -> bool {
        let name = &self.scenario.coordinators[coordinator].name;
        let mut events = self.scenario.events.iter();
        events.any(|event| {
            let mut hand_over = event.hand_over.iter();
            hand_over.any(|left| left.coordinator == *name && event.at.0 + left.lasts.0 == elapsed)
        })
    }

    /// Returns the coordinators that hand over, once for each time.
    pub(crate) fn handed_over(&self) -> impl Iterator<Item = usize> {
        let events = self.scenario.events.iter();
        let names = events.filter_map(|event| Some(&event.hand_over.as_ref()?.coordinator));
        names.filter_map(|name| self.coordinator(name))
    }

    /// Returns the coordinators that crash, once for each time.
    pub(crate) fn crashed(&self) -> impl Iterator<Item = usize> {
        let events = self.scenario.events.iter();
        let names = events.filter_map(|event| Some(&event.crash.as_ref()?.coordinator));
        names.filter_map(|name| self.coordinator(name))
    }

    /// Returns the end of the last cut of an Envoy that has begun.
    pub(crate) fn cut_until(&self, envoy: usize, elapsed: Duration) -> Duration {
        let name = &self.scenario.envoys[envoy].name;
        let events = self.scenario.events.iter();
        let begun = events.filter(|event| event.at.0 <= elapsed);
        let ends = begun.filter_map(|event| {
            let cut = event.cut.as_ref()?;
            let group = cut.envoys.as_ref()?.group.as_ref()?;
            (group == name).then_some(event.at.0 + cut.lasts.0)
        });
        ends.max().unwrap_or_default()
    }

    /// Returns the limit of a coordinator at the start.
    pub(crate) fn limit_of(&self, coordinator: usize) -> &Limit {
        let own = self.scenario.coordinators[coordinator].limits;
        let scope = &self.history.members[0].own.id.scope;
        self.limits[own.unwrap_or_default()].limit(scope)
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
