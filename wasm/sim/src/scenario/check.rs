//! Rules that a scenario's values keep, each alone and to each other.

use std::collections::BTreeSet;
use std::fmt::Display;

use tollgate_core::lease::{Priority, ResourceId, Unit};
use tollgate_engine::RULES_MAX;

mod events;

use super::{
    Arrivals, CoordinatorSpec, DemandSpec, EnvoyGroup, EventSpec, InTurn, Program, Routing,
    Scenario, Selection, Span,
};

/// The most Envoys.
const ENVOYS_MAX: usize = 1_000_000;
/// The most scopes of all demand.
const SCOPES_MAX: u64 = 1_000_000;
/// The shortest time between two steps of a walk, of demand that goes on and off, or of mishaps.
const STEP_MIN: Span = Span::from_millis(1);
/// The highest priority band.
const PRIORITY_MAX: u8 = Priority::HIGHEST.level();
/// The most scopes that all Envoys together can come to know, each of which takes some hundred bytes.
const KNOWN_MAX: u64 = 20_000_000;
/// The most samples of a run.
const SAMPLES_MAX: u128 = 1_000_000;

/// Broken rule of one field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {rule}")]
pub struct ScenarioError {
    /// The path to the field.
    pub field: String,
    /// The rule, with the value that breaks it.
    pub rule: String,
}

/// Errors that have been found so far.
struct Check<'a> {
    scenario: &'a Scenario,
    /// Number of limits that events may name.
    limits: usize,
    errors: Vec<ScenarioError>,
}

// === impl Scenario ===

impl Scenario {
    /// Returns all rules that the scenario breaks, for a simulation with so many `limits`.
    pub fn check(&self, limits: usize) -> Vec<ScenarioError> {
        let mut check = Check {
            scenario: self,
            limits,
            errors: Vec::new(),
        };
        check.times();
        check.coordinators();
        check.envoys();
        check.demand();
        check.known();
        for (i, event) in self.events.iter().enumerate() {
            check.event(&format!("events[{i}]"), event);
        }
        if let Some(mishaps) = &self.mishaps {
            check.step("mishaps.every", mishaps.every);
            let [.., all] = mishaps.weights();
            check.ensure(all > 0, "mishaps", || {
                "spike, lose_master and elect are all 0: nothing can happen".to_owned()
            });
        }
        check.errors
    }
}

// === impl Check ===

impl Check<'_> {
    fn refuse(&mut self, field: &str, rule: impl Display) {
        self.errors.push(ScenarioError {
            field: field.to_owned(),
            rule: rule.to_string(),
        });
    }

    fn ensure(&mut self, holds: bool, field: &str, rule: impl FnOnce() -> String) {
        if !holds {
            self.refuse(field, rule());
        }
    }

    fn positive(&mut self, field: &str, span: Span) {
        self.ensure(!span.0.is_zero(), field, || {
            "must be longer than zero".to_owned()
        });
    }

    fn step(&mut self, field: &str, span: Span) {
        self.ensure(span >= STEP_MIN, field, || {
            format!("{:?} is shorter than {:?}", span.0, STEP_MIN.0)
        });
    }

    fn between<T: PartialOrd + Display>(&mut self, field: &str, value: T, [low, high]: [T; 2]) {
        self.ensure((&low..=&high).contains(&&value), field, || {
            format!("{value} is not between {low} and {high}")
        });
    }

    fn one_of<'b>(
        &mut self,
        field: &str,
        name: &str,
        known: impl Iterator<Item = &'b String> + Clone,
    ) {
        self.ensure({ known.clone() }.any(|known| known == name), field, || {
            let known: Vec<_> = known.map(String::as_str).collect();
            format!("{name:?} is none of {}", known.join(", "))
        });
    }

    fn times(&mut self) {
        let Scenario {
            duration,
            sample,
            measure_from,
            ..
        } = self.scenario;
        self.positive("duration", *duration);
        self.positive("sample", *sample);
        self.ensure(measure_from < duration, "measure_from", || {
            format!(
                "{:?} is not before the end, {:?}",
                measure_from.0, duration.0
            )
        });
        let count = duration.0.as_nanos() / sample.0.as_nanos().max(1);
        self.ensure(count <= SAMPLES_MAX, "sample", || {
            format!("makes {count} samples, more than {SAMPLES_MAX}")
        });
    }

    fn coordinators(&mut self) {
        let mut known = BTreeSet::new();
        for (i, coordinator) in self.scenario.coordinators.iter().enumerate() {
            let field = format!("coordinators[{i}]");
            let CoordinatorSpec {
                name,
                parent,
                shards,
                ..
            } = coordinator;
            if let Some(parent) = parent {
                self.ensure(
                    known.contains(parent.as_str()),
                    &join(&field, "parent"),
                    || format!("{parent:?} is no coordinator of those before this one"),
                );
            }
            self.ensure(known.insert(name.as_str()), &join(&field, "name"), || {
                format!("{name:?} is the name of another one")
            });
            self.between(&join(&field, "shards"), *shards, [1, 256]);
            self.positive(&join(&field, "call_timeout"), coordinator.call_timeout);
            self.limits(&join(&field, "limits"), coordinator.limits);
        }
    }

    fn envoys(&mut self) {
        let scenario = self.scenario;
        let count = scenario.envoy_count();
        self.ensure((1..=ENVOYS_MAX).contains(&count), "envoys", || {
            format!("{count} Envoys are not between 1 and {ENVOYS_MAX}")
        });
        let mut known = BTreeSet::new();
        for (i, group) in scenario.envoys.iter().enumerate() {
            let field = format!("envoys[{i}]");
            self.ensure(known.insert(&group.name), &join(&field, "name"), || {
                format!("{:?} is the name of another group", group.name)
            });
            self.group(&field, group);
        }
    }

    fn group(&mut self, field: &str, group: &EnvoyGroup) {
        self.between(&join(field, "workers"), group.workers, [1, 64]);
        self.step(&join(field, "tick"), group.tick);
        self.positive(&join(field, "call_timeout"), group.call_timeout);
        self.ensure(group.max_scopes > 0, &join(field, "max_scopes"), || {
            "must be at least 1".to_owned()
        });
        self.ensure(group.drift_ppm < 500_000, &join(field, "drift_ppm"), || {
            format!("{} is not below 500000", group.drift_ppm)
        });
        self.positive(&join(field, "idle_after"), group.idle_after);
        self.step(&join(field, "resolution"), group.resolution);
        self.between(&join(field, "priority"), group.priority, [0, PRIORITY_MAX]);
        if let Some(coordinator) = &group.coordinator {
            self.coordinator(&join(field, "coordinator"), coordinator);
        }
    }

    fn limits(&mut self, field: &str, limits: Option<usize>) {
        if let Some(limits) = limits.filter(|limits| *limits >= self.limits) {
            self.refuse(field, format!("there are no limits of number {limits}"));
        }
    }

    fn coordinator(&mut self, field: &str, name: &str) {
        let known = self.scenario.coordinators.iter();
        self.one_of(field, name, known.map(|known| &known.name));
    }

    fn selection(&mut self, field: &str, selection: &Selection) {
        self.selected_count(&join(field, "count"), selection);
        if let Some(name) = &selection.group {
            self.group_name(&join(field, "group"), name);
        }
    }

    fn group_name(&mut self, field: &str, name: &str) {
        let groups = self.scenario.envoys.iter();
        self.one_of(field, name, groups.map(|group| &group.name));
    }

    fn selected_count(&mut self, field: &str, selection: &Selection) {
        let Some(count) = selection.count else { return };
        let all = self.scenario.selectable(selection);
        // A group that there is not is an error by itself.
        self.ensure(count as usize <= all || all == 0, field, || {
            format!("{count} is more than the {all} Envoys that there are to choose from")
        });
        self.ensure(count > 0, field, || "0 chooses no Envoy".to_owned());
    }

    fn demand(&mut self) {
        let (mut rules, mut scopes) = (BTreeSet::new(), 0);
        self.ensure(!self.scenario.demand.is_empty(), "demand", || {
            "is empty: nobody asks for anything".to_owned()
        });
        for (i, demand) in self.scenario.demand.iter().enumerate() {
            let field = format!("demand[{i}]");
            self.selection(&join(&field, "envoys"), &demand.envoys);
            scopes += self.scopes(&field, demand, &mut rules);
            match (&demand.each, &demand.total) {
                (Some(program), None) => self.program(&join(&field, "each"), program),
                (None, Some(program)) => self.program(&join(&field, "total"), program),
                _ => self.refuse(&field, "needs either each or total, requests per second"),
            }
            self.routing(&field, demand);
        }
        self.ensure(scopes <= SCOPES_MAX, "demand", || {
            format!("{scopes} scopes are more than {SCOPES_MAX}")
        });
        self.ensure(rules.len() <= RULES_MAX, "demand", || {
            let count = rules.len();
            format!("has {count} kinds of scopes, more than an Envoy's rules, {RULES_MAX}")
        });
    }

    /// Checks how many scopes all Envoys can come to know, in sum.
    fn known(&mut self) {
        let scenario = self.scenario;
        let of_group = |group: &EnvoyGroup| {
            let asked = scenario.demand.iter().map(|demand| {
                let selection = &demand.envoys;
                let is_selected = selection.group.as_ref().is_none_or(|g| *g == group.name);
                let most = if is_selected { group.count } else { 0 };
                let envoys = selection.count.map_or(most, |count| count.min(most));
                u64::from(envoys).saturating_mul(demand.scope_count())
            });
            let most = u64::from(group.count).saturating_mul(group.max_scopes.into());
            asked.fold(0, u64::saturating_add).min(most)
        };
        let known = scenario.envoys.iter().map(of_group);
        let known = known.fold(0, u64::saturating_add);
        self.ensure(known <= KNOWN_MAX, "demand", || {
            format!(
                "makes all Envoys together know {known} scopes, more than {KNOWN_MAX}; fewer Envoys, \
                 fewer scopes or a smaller max_scopes make it less"
            )
        });
    }

    /// Checks how the requests of `demand` come to Envoys.
    fn routing(&mut self, field: &str, demand: &DemandSpec) {
        if demand.each.is_some() {
            let is_free = demand.routing == Routing::Random;
            self.ensure(is_free, &join(field, "routing"), || {
                "is of total: requests of each come to their Envoy".to_owned()
            });
            let retries = demand.retries;
            self.ensure(retries == 0, &join(field, "retries"), || {
                format!("{retries} is of total: requests of each do not come again")
            });
        }
        let no_burst = matches!(demand.arrivals, Arrivals::Bursts(0));
        let no_turn = matches!(demand.routing, Routing::InTurn(InTurn { requests: 0, .. }));
        for (name, is_empty) in [
            ("arrivals.bursts", no_burst),
            ("routing.in_turn.requests", no_turn),
        ] {
            self.ensure(!is_empty, &join(field, name), || {
                "must be at least 1".to_owned()
            });
        }
    }

    /// Checks the scopes of `demand`, and returns how many they are.
    fn scopes(&mut self, field: &str, demand: &DemandSpec, rules: &mut BTreeSet<String>) -> u64 {
        let (name, id, count) = match (&demand.scope, &demand.scopes) {
            (Some(scope), None) => ("scope", scope.clone(), 1),
            (None, Some(spread)) => {
                let last = spread.count.saturating_sub(1);
                let id = format!("{}{last}", spread.prefix);
                ("scopes.prefix", id, u64::from(spread.count))
            }
            _ => {
                self.refuse(field, "needs either scope or scopes");
                return 0;
            }
        };
        self.ensure(count > 0, &join(field, "scopes.count"), || {
            "must be at least 1".to_owned()
        });
        let field = join(field, name);
        if let Err(error) = ResourceId::new(&id, Unit::Requests) {
            self.refuse(&field, format!("{id:?}: {error}"));
        }
        match id.split_once('/') {
            Some((rule, key)) if !rule.is_empty() && !key.is_empty() => {
                rules.insert(rule.to_owned());
            }
            _ => self.refuse(&field, format!("{id:?} is not like `tenant/acme`")),
        }
        count
    }

    fn program(&mut self, field: &str, program: &Program) {
        match program {
            Program::Constant(_) | Program::Spike(_) => {}
            Program::Ramp(ramp) => self.positive(&join(field, "ramp.over"), ramp.over),
            Program::OnOff(on_off) => {
                self.step(&join(field, "on_off.on"), on_off.on);
                self.step(&join(field, "on_off.off"), on_off.off);
            }
            Program::Walk(walk) => self.step(&join(field, "walk.every"), walk.every),
            Program::Trace(trace) => {
                let times = trace.points.iter().map(|(at, _)| *at);
                self.ensure(times.is_sorted(), &join(field, "trace"), || {
                    "the times are not in order".to_owned()
                });
                self.ensure(!trace.points.is_empty(), &join(field, "trace"), || {
                    "has no rates".to_owned()
                });
            }
        }
    }
}

// === free functions ===

fn join(path: &str, name: &str) -> String {
    format!("{path}.{name}")
}

#[cfg(test)]
mod tests;
