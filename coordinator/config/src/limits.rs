//! Section `limits`: limits, by the scopes they match.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Deserialize;
use serde_saphyr::Location;
use tollgate_core::lease::{ResourceId, Unit};

use super::ENTRIES_MAX;
use crate::catalog::Group;
use crate::catalog::check::{Check, Rule, scope_limits};
use crate::catalog::limits::{
    CHOICES_MAX, GLOB_CHOICES_MAX, LimitTable, Pattern, UnitLimits, choices,
};
use crate::catalog::name::GLOB_CHARACTERS;
use crate::catalog::spec::{
    ConcurrencySpec, LimitsSpec, LocatedScalar, LocatedValue, RateSpec, impl_units,
};

/// A `match` and the form of [`LimitsSpec`], which cannot be flattened into it: places would be
/// lost.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLimit {
    #[serde(rename = "match")]
    pattern: Option<LocatedScalar>,
    requests: Option<LocatedValue<RateSpec>>,
    request_bytes: Option<LocatedValue<RateSpec>>,
    response_bytes: Option<LocatedValue<RateSpec>>,
    concurrency: Option<LocatedValue<ConcurrencySpec>>,
}

impl_units!(RawLimit);

// === impl RawLimit ===

impl RawLimit {
    /// Its limits, without the `match`.
    fn spec(&self) -> LimitsSpec {
        LimitsSpec {
            requests: self.requests.clone(),
            request_bytes: self.request_bytes.clone(),
            response_bytes: self.response_bytes.clone(),
            concurrency: self.concurrency.clone(),
        }
    }

    /// The text of its `match`.
    pub(super) fn pattern(&self) -> Option<&LocatedScalar> {
        self.pattern.as_ref()
    }

    /// Whether `text` is a glob, and not an exact id.
    pub(super) fn is_glob(text: &LocatedScalar) -> bool {
        text.as_str().contains(GLOB_CHARACTERS)
    }
}

type RawLimits = LocatedValue<Vec<LocatedValue<RawLimit>>>;

// === free functions ===

/// Checks all limits of the file.
pub(super) fn limits(
    check: &mut Check,
    raw: Option<&RawLimits>,
    groups: &BTreeMap<Arc<str>, Arc<Group>>,
) -> Option<LimitTable> {
    let Some(raw) = raw else {
        check.missing(Location::UNKNOWN, "limits");
        return None;
    };
    if !check.is_within(ENTRIES_MAX, raw.value.len(), raw.at, "limits") {
        return None;
    }
    unique(check, &raw.value);
    rest_is_last(check, &raw.value);
    if !few_choices(check, &raw.value) {
        return None;
    }
    let limits = raw.value.iter().enumerate();
    let limits = limits.filter_map(|(i, entry)| limit(check, i, entry, groups));
    let table = LimitTable::new(limits.collect::<Vec<_>>());
    table
        .map_err(|error| refuse_largest(check, &raw.value, &error))
        .ok()
}

/// Checks `limits[index]`; `None` if it has errors, which are noted.
fn limit<'a>(
    check: &mut Check,
    index: usize,
    raw: &'a LocatedValue<RawLimit>,
    groups: &BTreeMap<Arc<str>, Arc<Group>>,
) -> Option<(&'a str, Pattern, UnitLimits, LimitsSpec)> {
    let path = format!("limits[{index}]");
    let field = format!("{path}.match");
    let text = &raw.value.pattern;
    let pattern = check.required(raw.at, text, &field, |text| parse_pattern(text, groups));
    let limits = scope_limits(check, &path, raw.at, raw.value.units());
    Some((text.as_ref()?.as_str(), pattern?, limits?, raw.value.spec()))
}

fn parse_pattern(text: &str, groups: &BTreeMap<Arc<str>, Arc<Group>>) -> Result<Pattern, Rule> {
    ResourceId::new(text, Unit::Requests)?;
    let group = text.strip_prefix("group/");
    if group.is_some_and(|group| groups.contains_key(group)) {
        return Err(format!("{text:?} is a group of this file; its limits are there").into());
    }
    Ok(Pattern::parse(text)?)
}

/// No two limits match the same.
fn unique(check: &mut Check, limits: &[LocatedValue<RawLimit>]) {
    let mut patterns = HashMap::new();
    for (i, limit) in limits.iter().enumerate() {
        let Some(text) = &limit.value.pattern else {
            continue;
        };
        let first = *patterns.entry(text.as_str()).or_insert(i);
        if first != i {
            let rule = format!("{:?} is matched by limits[{first}] already", text.as_str());
            check.refuse_value(text, format!("limits[{i}].match"), rule);
        }
    }
}

/// Whether the matcher of all globs stays small; the glob with which it does not is noted.
fn few_choices(check: &mut Check, limits: &[LocatedValue<RawLimit>]) -> bool {
    let (mut all, mut few) = (0, true);
    for (i, text) in globs(limits) {
        let field = || format!("limits[{i}].match");
        let count = choices(text.as_str());
        all += count;
        if count > GLOB_CHOICES_MAX {
            let rule = format!(
                "has {count} wildcards, classes and alternatives, more than {GLOB_CHOICES_MAX}; a \
                 class counts as 4"
            );
            check.refuse_value(text, field(), rule);
            few = false;
        }
        if all > CHOICES_MAX {
            let rule = format!(
                "with this glob there are {all} wildcards, classes and alternatives in all globs, \
                 more than {CHOICES_MAX}; a class counts as 4"
            );
            check.refuse_value(text, field(), rule);
            return false;
        }
    }
    few
}

/// Notes that the matcher cannot be built, at the glob that contributes most to it.
fn refuse_largest(check: &mut Check, limits: &[LocatedValue<RawLimit>], error: &globset::Error) {
    let size = |text: &LocatedScalar| (choices(text.as_str()), text.as_str().len());
    if let Some((i, text)) = globs(limits).max_by_key(|(_, text)| size(text)) {
        let rule = format!(
            "is the largest of all globs, and the matcher of all is too large: {}",
            error.kind()
        );
        check.refuse_value(text, format!("limits[{i}].match"), rule);
    }
}

/// The globs among `limits` and their indexes.
fn globs(limits: &[LocatedValue<RawLimit>]) -> impl Iterator<Item = (usize, &LocatedScalar)> {
    let patterns = limits.iter().map(|limit| limit.value.pattern());
    let patterns = patterns
        .enumerate()
        .filter_map(|(i, text)| Some((i, text?)));
    patterns.filter(|(_, text)| RawLimit::is_glob(text))
}

fn rest_is_last(check: &mut Check, limits: &[LocatedValue<RawLimit>]) {
    let patterns = limits.iter().map(|limit| &limit.value.pattern);
    let mut patterns = patterns.flatten().enumerate();
    let Some((i, text)) = patterns.find(|(_, pattern)| pattern.as_str() == "*") else {
        return;
    };
    let after = patterns.count();
    if after > 0 {
        let rule =
            format!("`*` matches every scope, so it must be the last limit; {after} come after it");
        check.refuse_value(text, format!("limits[{i}].match"), rule);
    }
}
