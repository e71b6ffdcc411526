//! The limits of the file, by the scopes they match.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Deserialize;
use serde_saphyr::Location;
use tollgate_core::lease::{ResourceId, Unit};

use super::ENTRIES_MAX;
use super::check::Check;
use super::error::{ConfigErrors, Problem};
use super::unit::unit_limits;
use crate::catalog::limits::{
    CHOICES_MAX, GLOB_CHARACTERS, GLOB_CHOICES_MAX, LimitTable, LimitTableBuilder, Pattern,
    UnitLimits, choices,
};
use crate::catalog::spec::{
    ConcurrencySpec, LimitsSpec, LocatedScalar, LocatedValue, RateSpec, units,
};
use crate::catalog::{Group, Override, name};

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

type RawLimits = LocatedValue<Vec<LocatedValue<RawLimit>>>;

// === free functions ===

/// All limits of the file.
pub(super) fn limits(
    check: &mut Check,
    raw: Option<&RawLimits>,
    groups: &BTreeMap<Arc<str>, Arc<Group>>,
) -> Option<LimitTable> {
    let Some(raw) = raw else {
        check.refuse(Location::UNKNOWN, "limits", Problem::Missing);
        return None;
    };
    let count = raw.value.len();
    if count > ENTRIES_MAX {
        let max = ENTRIES_MAX;
        check.refuse(raw.at, "limits", Problem::TooMany { count, max });
        return None;
    }
    unique(check, &raw.value);
    rest_is_last(check, &raw.value);
    if !few_choices(check, &raw.value) {
        return None;
    }
    let mut builder = LimitTableBuilder::default();
    for (i, entry) in raw.value.iter().enumerate() {
        if let Some((text, pattern, limits)) = limit(check, i, entry, groups) {
            builder.add(text, pattern, limits);
        }
    }
    match builder.build() {
        Ok(limits) => Some(limits),
        Err(error) => {
            refuse_largest(check, &raw.value, &error);
            None
        }
    }
}

/// The override that `spec`, which came as JSON, says of `scope`.
///
/// # Errors
/// Everything that is wrong with it.
pub fn check_override(scope: &str, spec: &LimitsSpec) -> Result<Override, ConfigErrors> {
    let mut check = Check::default();
    let text = LocatedValue::nowhere(scope.into());
    let valid = check.value(Some(&text), "scope", |scope| Ok(name::check_scope(scope)?));
    let limits = some_units(&mut check, "", Location::UNKNOWN, spec.units());
    let limits = limits.zip(valid).map(|(limits, ())| limits);
    Ok(Override::new(check.end(limits)?, spec))
}

/// What `limits[index]` matches and allows; none if something is wrong, which is noted.
fn limit<'a>(
    check: &mut Check,
    index: usize,
    raw: &'a LocatedValue<RawLimit>,
    groups: &BTreeMap<Arc<str>, Arc<Group>>,
) -> Option<(&'a str, Pattern, UnitLimits)> {
    let path = format!("limits[{index}]");
    let field = format!("{path}.match");
    let text = raw.value.pattern.as_ref();
    if text.is_none() {
        check.refuse(raw.at, &field, Problem::Missing);
    }
    let pattern = check.value(text, &field, |text| parse_pattern(text, groups));
    let limits = some_units(check, &path, raw.at, raw.value.units());
    Some((text?.as_str(), pattern?, limits?))
}

/// Like [`unit_limits`], but at least one: an entry without any is rather forgotten than meant.
fn some_units(
    check: &mut Check,
    path: &str,
    at: Location,
    units: crate::catalog::spec::Units<'_>,
) -> Option<UnitLimits> {
    if units.is_empty() {
        check.refuse(at, path, Problem::NoUnit);
        return None;
    }
    unit_limits(check, path, units)
}

fn parse_pattern(text: &str, groups: &BTreeMap<Arc<str>, Arc<Group>>) -> Result<Pattern, Problem> {
    ResourceId::new(text, Unit::Requests)?;
    let group = text.strip_prefix("group/");
    if group.is_some_and(|group| groups.contains_key(group)) {
        return Err(Problem::GroupScope(text.to_owned()));
    }
    Ok(Pattern::parse(text)?)
}

/// No two limits match the same.
fn unique(check: &mut Check, limits: &[LocatedValue<RawLimit>]) {
    let mut seen = HashMap::new();
    for (i, limit) in limits.iter().enumerate() {
        let Some(text) = &limit.value.pattern else {
            continue;
        };
        let first = *seen.entry(text.as_str()).or_insert(i);
        if first != i {
            let pattern = text.as_str().to_owned();
            let problem = Problem::Duplicate { pattern, first };
            check.refuse(text.at, format!("limits[{i}].match"), problem);
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
            check.refuse(text.at, field(), Problem::GlobChoices(count));
            few = false;
        }
        if all > CHOICES_MAX {
            check.refuse(text.at, field(), Problem::Choices(all));
            return false;
        }
    }
    few
}

/// Notes that the matcher cannot be built, at the glob that contributes most to it.
fn refuse_largest(check: &mut Check, limits: &[LocatedValue<RawLimit>], error: &globset::Error) {
    let size = |text: &LocatedScalar| (choices(text.as_str()), text.as_str().len());
    if let Some((i, text)) = globs(limits).max_by_key(|(_, text)| size(text)) {
        let problem = Problem::Matcher(error.kind().to_string());
        check.refuse(text.at, format!("limits[{i}].match"), problem);
    }
}

/// The globs among `limits` and their indexes.
fn globs(limits: &[LocatedValue<RawLimit>]) -> impl Iterator<Item = (usize, &LocatedScalar)> {
    let patterns = limits.iter().map(|limit| limit.value.pattern.as_ref());
    let patterns = patterns
        .enumerate()
        .filter_map(|(i, text)| Some((i, text?)));
    patterns.filter(|(_, text)| text.as_str().contains(GLOB_CHARACTERS))
}

fn rest_is_last(check: &mut Check, limits: &[LocatedValue<RawLimit>]) {
    let patterns = limits.iter().map(|limit| &limit.value.pattern);
    let mut patterns = patterns.flatten().enumerate();
    let Some((i, text)) = patterns.find(|(_, pattern)| pattern.as_str() == "*") else {
        return;
    };
    let after = patterns.count();
    if after > 0 {
        let problem = Problem::RestNotLast { after };
        check.refuse(text.at, format!("limits[{i}].match"), problem);
    }
}

// === impl RawLimit ===

impl RawLimit {
    fn units(&self) -> crate::catalog::spec::Units<'_> {
        let rates = [
            (Unit::Requests, &self.requests),
            (Unit::RequestBytes, &self.request_bytes),
            (Unit::ResponseBytes, &self.response_bytes),
        ];
        units(rates, &self.concurrency)
    }
}
