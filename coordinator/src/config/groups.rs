//! The groups of the file.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ENTRIES_MAX;
use super::check::{Check, join};
use super::error::{ConfigErrors, Problem};
use super::unit::unit_limits;
use crate::catalog::spec::{GroupSpec, LocatedValue};
use crate::catalog::{FairBetween, Group, name};

pub(super) type RawGroups = BTreeMap<String, LocatedValue<GroupSpec>>;

// === free functions ===

/// All groups of the file, by name.
pub(super) fn groups(
    check: &mut Check,
    raw: Option<&LocatedValue<RawGroups>>,
) -> BTreeMap<Arc<str>, Arc<Group>> {
    let mut groups = BTreeMap::new();
    let Some(raw) = raw else { return groups };
    let count = raw.value.len();
    if count > ENTRIES_MAX {
        let max = ENTRIES_MAX;
        check.refuse(raw.at, "groups", Problem::TooMany { count, max });
        return groups;
    }
    for (name, spec) in &raw.value {
        let path = format!("groups.{}", name.escape_debug());
        let text = LocatedValue {
            value: name.as_str().into(),
            at: spec.at,
        };
        let valid = check.value(Some(&text), &path, |name| {
            name::check_one(name)?;
            Ok(name::check_group(name)?)
        });
        let group = group(check, &path, name, spec);
        if let Some((group, ())) = group.zip(valid) {
            groups.insert(group.name().clone(), Arc::new(group));
        }
    }
    groups
}

/// The group called `name` that `spec`, which came as JSON, says.
///
/// # Errors
/// Everything that is wrong with it.
pub fn check_group(name: &str, spec: GroupSpec) -> Result<Group, ConfigErrors> {
    let mut check = Check::default();
    let text = LocatedValue::nowhere(name.into());
    let valid = check.value(Some(&text), "name", |name| Ok(name::check_group(name)?));
    let group = group(&mut check, "", name, &LocatedValue::nowhere(spec));
    check.end(group.zip(valid).map(|(group, ())| group))
}

fn group(
    check: &mut Check,
    path: &str,
    name: &str,
    spec: &LocatedValue<GroupSpec>,
) -> Option<Group> {
    let limits = unit_limits(check, path, spec.value.units());
    let between = spec.value.fair_between.as_ref();
    let between = check.value(between, &join(path, "fair_between"), fair_between);
    Some(Group::new(
        name,
        limits?,
        between.unwrap_or_default(),
        &spec.value,
    ))
}

fn fair_between(text: &str) -> Result<FairBetween, Problem> {
    let mut known = FairBetween::ALL.into_iter();
    let known = known.find(|between| between.name() == text);
    known.ok_or_else(|| Problem::Word {
        text: text.to_owned(),
        words: "members, clients",
    })
}
