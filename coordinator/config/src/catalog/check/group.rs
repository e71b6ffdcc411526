//! Rules for a group.

use super::unit::unit_limits;
use super::values::one_of;
use super::{Check, Rule, join};
use crate::catalog::spec::{GroupSpec, LocatedValue};
use crate::catalog::{FairBetween, Group};

/// Checks the group called `name` at `path`; `None` if it has errors, which are noted.
pub(crate) fn group(
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

fn fair_between(text: &str) -> Result<FairBetween, Rule> {
    one_of(
        text,
        &FairBetween::ALL.map(|between| (between.name(), between)),
    )
}
