//! Rules for one list of keys: one for all values, and before it those of values with settings of
//! their own.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use tollgate_config::catalog::check::ConfigError;
use tollgate_config::catalog::spec::{LocatedScalar, LocatedValue};
use tollgate_config::catalog::template::Template;

use super::entries::Entry;
use super::source::{Descriptor, Level, finding};
use super::target::RequestLimit;

type Values = BTreeMap<String, String>;

/// Rule of a domain.
#[derive(Debug, Serialize)]
pub(super) struct Rule {
    #[serde(serialize_with = "display")]
    pub(super) scope: Template,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    values: Values,
    #[serde(flatten)]
    pub(super) settings: Settings,
}

/// Settings of a limit that are a rule's with us.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Settings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<LocatedScalar>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) replaces: Vec<LocatedScalar>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shadow: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quota_mode: Option<bool>,
}

// === impl Settings ===

impl Settings {
    fn of(source: Option<&Descriptor>) -> Self {
        let limited = source.and_then(|source| Some((source, source.rate_limit.as_ref()?)));
        let Some((source, limit)) = limited else {
            return Self::default();
        };
        let flag = |flag: &Option<LocatedValue<bool>>| {
            let flag = flag.as_ref().map(|flag| flag.value);
            flag.filter(|is_set| *is_set)
        };
        let replaces = limit.value.replaces.iter().flatten();
        Self {
            name: limit.value.name.clone(),
            replaces: replaces.map(|replaced| replaced.name.clone()).collect(),
            shadow: flag(&source.shadow_mode),
            quota_mode: flag(&source.quota_mode),
        }
    }

    /// Whether they have an effect on descriptors without a limit.
    fn reach_beyond_limits(&self) -> bool {
        !self.replaces.is_empty() || self.quota_mode.is_some()
    }
}

// === free functions ===

/// Returns the rules of one list of keys. Settings of values that no rule can ask for are noted.
pub(super) fn rules(
    keys: &[&str],
    scope: &Template,
    entries: &mut [Entry<'_>],
    untranslated: &mut Vec<ConfigError>,
) -> Vec<Rule> {
    let rule = |values, settings| Rule {
        scope: scope.clone(),
        values,
        settings,
    };
    let mut rules = vec![rule(Values::new(), of_other_values(entries))];
    for entry in entries.iter_mut().rev() {
        let (values, are_all) = values(keys, &entry.levels);
        let settings = Settings::of(entry.source);
        let covers = |rule: &&Rule| {
            rule.values
                .iter()
                .all(|(key, value)| values.get(key) == Some(value))
        };
        if are_all {
            let overlaps = |rule: &&Rule| {
                let mut own = rule.values.iter();
                own.all(|(key, value)| values.get(key).is_none_or(|other| other == value))
            };
            let mut overlapping = rules.iter().filter(overlaps);
            let first = overlapping.find(|rule| rule.settings != settings || covers(rule));
            if first.is_none_or(|rule| rule.settings != settings) {
                rules.insert(0, rule(values, settings));
            }
        } else if let Some(other) = rules.iter().find(covers)
            && other.settings != settings
            && let Some(source) = entry.source
        {
            let mut reason =
                "a rule asks for no value with `*`, nor of a key that is there twice; \
                 shadow_mode, quota_mode, name and replaces are those of the other values"
                    .to_owned();
            if settings.shadow.is_some() && other.settings.shadow.is_none() {
                entry.limit = Some(RequestLimit::unlimited());
                reason.push_str(", and the limit is left out, for it would refuse now");
            }
            untranslated.push(finding(source.key.at, "value", reason));
        }
    }
    rules
}

/// Returns the settings of the rule for all values that no other rule asks for.
fn of_other_values(entries: &[Entry<'_>]) -> Settings {
    let last = entries.last();
    let settings = Settings::of(last.and_then(|last| last.source));
    let has_others = last.is_some_and(|last| last.levels.iter().all(|level| level.is_any()));
    let is_common = || {
        entries
            .iter()
            .all(|entry| Settings::of(entry.source) == settings)
    };
    if has_others || !settings.reach_beyond_limits() && is_common() {
        return settings;
    }
    Settings::default()
}

/// Returns the values that a rule can ask for, and whether these are all.
fn values(keys: &[&str], levels: &[Level<'_>]) -> (Values, bool) {
    let mut values = Values::new();
    let mut are_all = true;
    for (key, level) in keys.iter().zip(levels) {
        let is_single = keys.iter().filter(|other| *other == key).count() == 1;
        match level {
            Level::Exact(value) if is_single => {
                values.insert((*key).to_owned(), (*value).to_owned());
            }
            level => are_all &= level.is_any(),
        }
    }
    (values, are_all)
}

fn display<S: Serializer>(template: &Template, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(template)
}
