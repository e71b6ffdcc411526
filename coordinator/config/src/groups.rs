//! Section `groups`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ENTRIES_MAX;
use crate::catalog::check::{Check, group};
use crate::catalog::spec::{GroupSpec, LocatedValue};
use crate::catalog::{Group, name};

pub(super) type RawGroups = BTreeMap<String, LocatedValue<GroupSpec>>;

// === free functions ===

/// Checks all groups of the file.
pub(super) fn groups(
    check: &mut Check,
    raw: Option<&LocatedValue<RawGroups>>,
) -> BTreeMap<Arc<str>, Arc<Group>> {
    let mut groups = BTreeMap::new();
    let Some(raw) = raw else { return groups };
    if !check.is_within(ENTRIES_MAX, raw.value.len(), raw.at, "groups") {
        return groups;
    }
    for (name, spec) in &raw.value {
        let path = format!("groups.{}", name.escape_debug());
        let valid = name::check_one(name).and_then(|()| name::check_group(name));
        let valid = check.name(spec.at, &path, valid);
        let group = group(check, &path, name, spec);
        if let Some((group, ())) = group.zip(valid) {
            groups.insert(group.name().clone(), Arc::new(group));
        }
    }
    groups
}
