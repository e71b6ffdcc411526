//! The configuration of envoyproxy/ratelimit, as it is written, and its rules.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_saphyr::Location;
use tollgate_config::catalog::check::{ConfigError, ConfigErrors, join};
use tollgate_config::catalog::spec::{LocatedScalar, LocatedValue};

use super::target::RequestLimit;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Source {
    pub(super) domain: LocatedScalar,
    pub(super) descriptors: Option<Vec<Descriptor>>,
}

/// Entry of descriptors; those within are the next entries.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Descriptor {
    pub(super) key: LocatedScalar,
    value: Option<LocatedScalar>,
    pub(super) rate_limit: Option<LocatedValue<RateLimit>>,
    pub(super) descriptors: Option<Vec<Self>>,
    pub(super) shadow_mode: Option<LocatedValue<bool>>,
    pub(super) quota_mode: Option<LocatedValue<bool>>,
    detailed_metric: Option<LocatedValue<bool>>,
    value_to_metric: Option<LocatedValue<bool>>,
    share_threshold: Option<LocatedValue<bool>>,
    metadata: Option<LocatedValue<IgnoredAny>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RateLimit {
    unit: Option<LocatedScalar>,
    requests_per_unit: Option<u32>,
    #[serde(default)]
    unlimited: bool,
    pub(super) name: Option<LocatedScalar>,
    pub(super) replaces: Option<Vec<Replaced>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Replaced {
    pub(super) name: LocatedScalar,
}

/// Values that an entry matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level<'a> {
    Exact(&'a str),
    /// With `*`, each of which stands for any text.
    Glob(&'a str),
    Any,
}

#[derive(Debug, Default)]
struct Findings {
    errors: Vec<ConfigError>,
    untranslated: Vec<ConfigError>,
}

// === impl Source ===

impl Source {
    /// Checks the rules of envoyproxy/ratelimit, and returns the fields that have no translation.
    ///
    /// # Errors
    /// All rules that are broken.
    pub(super) fn check(&self) -> Result<ConfigErrors, ConfigErrors> {
        let mut findings = Findings::default();
        if self.domain.as_str().is_empty() {
            findings.refuse(self.domain.at, "domain", "is empty");
        }
        findings.check_all(self.descriptors.as_deref(), "");
        if findings.errors.is_empty() {
            return Ok(ConfigErrors(findings.untranslated));
        }
        Err(ConfigErrors(findings.errors))
    }
}

// === impl Descriptor ===

impl Descriptor {
    pub(super) fn level(&self) -> Level<'_> {
        match self.value.as_ref().map(LocatedScalar::as_str) {
            None | Some("") => Level::Any,
            Some(value) if value.contains('*') => Level::Glob(value),
            Some(value) => Level::Exact(value),
        }
    }

    pub(super) fn limit(&self) -> Option<RequestLimit> {
        self.rate_limit.as_ref()?.value.requests().ok()
    }
}

// === impl RateLimit ===

impl RateLimit {
    /// Returns its limit with us, or the wrong field and the rule that it breaks.
    fn requests(&self) -> Result<RequestLimit, (&'static str, String)> {
        let unit = self.unit.as_ref().map(LocatedScalar::as_str);
        match (self.unlimited, unit, self.requests_per_unit) {
            (true, None, _) => Ok(RequestLimit::unlimited()),
            (true, Some(_), _) => Err(("unit", "stands beside `unlimited`".to_owned())),
            (false, None, _) => Err(("unit", "is missing".to_owned())),
            (false, Some(_), None) => Err(("requests_per_unit", "is missing".to_owned())),
            (false, Some(unit), Some(requests)) => {
                RequestLimit::new(requests, unit).ok_or_else(|| {
                    (
                        "unit",
                        format!(
                            "{unit:?} is none of second, minute, hour, day, week, month and year"
                        ),
                    )
                })
            }
        }
    }
}

// === impl Level ===

impl Level<'_> {
    /// Place among the entries with a key: the first one that matches a value decides.
    pub(super) const fn rank(self) -> u8 {
        match self {
            Self::Exact(_) => 0,
            Self::Glob(_) => 1,
            Self::Any => 2,
        }
    }

    pub(super) fn is_any(self) -> bool {
        match self {
            Self::Exact(_) => false,
            Self::Glob(glob) => glob.bytes().all(|byte| byte == b'*'),
            Self::Any => true,
        }
    }

    /// Whether both may match a value.
    pub(super) fn overlaps(self, other: Self) -> bool {
        match (self, other) {
            (Self::Exact(one), Self::Exact(other)) => one == other,
            (Self::Exact(value), Self::Glob(glob)) | (Self::Glob(glob), Self::Exact(value)) => {
                value.starts_with(glob.split('*').next().unwrap_or_default())
            }
            _ => true,
        }
    }
}

// === impl Findings ===

impl Findings {
    fn refuse(&mut self, at: Location, field: impl Into<String>, rule: impl Into<String>) {
        self.errors.push(finding(at, field, rule));
    }

    fn check_all(&mut self, descriptors: Option<&[Descriptor]>, path: &str) {
        let mut lines = BTreeMap::new();
        for (i, descriptor) in descriptors.into_iter().flatten().enumerate() {
            let path = join(path, &format!("descriptors[{i}]"));
            let at = descriptor.key.at;
            let value = descriptor.value.as_ref().map_or("", LocatedScalar::as_str);
            if let Some(line) = lines.insert((descriptor.key.as_str(), value), at.line()) {
                let rule = format!("has the key and the value of the one in line {line}");
                self.refuse(at, &path, rule);
            }
            self.check_entry(descriptor, &path);
            self.check_all(descriptor.descriptors.as_deref(), &path);
        }
        for descriptor in descriptors.into_iter().flatten() {
            let all = lines.get(&(descriptor.key.as_str(), "*"));
            if let Some(line) = all.filter(|_| descriptor.level() == Level::Any) {
                let reason = format!("is never used: line {line} matches every value before it");
                let at = descriptor.key.at;
                self.untranslated
                    .push(finding(at, join(path, "descriptors"), reason));
            }
        }
    }

    fn check_entry(&mut self, descriptor: &Descriptor, path: &str) {
        let at = descriptor.key.at;
        if descriptor.key.as_str().is_empty() {
            self.refuse(at, join(path, "key"), "is empty");
        }
        let share = set(&descriptor.share_threshold);
        if let Some(at) = share.filter(|_| !matches!(descriptor.level(), Level::Glob(_))) {
            self.refuse(at, join(path, "share_threshold"), "needs a value with `*`");
        }
        if let Some(LocatedValue { value: limit, at }) = &descriptor.rate_limit {
            if let Err((field, rule)) = limit.requests() {
                let at = limit.unit.as_ref().map_or(*at, |unit| unit.at);
                self.refuse(at, format!("{path}.rate_limit.{field}"), rule);
            }
            for Replaced { name } in limit.replaces.iter().flatten() {
                if name.as_str().is_empty() || limit.name.as_ref() == Some(name) {
                    let rule = "is empty, or the limit's own name";
                    self.refuse(name.at, format!("{path}.rate_limit.replaces"), rule);
                }
            }
        }
        let metrics = "metrics do not name values of descriptors; `tollgate top` does";
        let effect = |flag| set(flag).filter(|_| descriptor.rate_limit.is_none());
        let no_effect = "has no effect without a rate_limit beside it";
        let star = Some(at).filter(|_| descriptor.key.as_str().contains('*'));
        let metadata = descriptor.metadata.as_ref().map(|metadata| metadata.at);
        let left_out = [
            ("key", star, "a `*` has a meaning in a value only"),
            (
                "share_threshold",
                share,
                "each value has the limit for itself",
            ),
            ("detailed_metric", set(&descriptor.detailed_metric), metrics),
            ("value_to_metric", set(&descriptor.value_to_metric), metrics),
            ("metadata", metadata, "answers carry no metadata of a limit"),
            ("shadow_mode", effect(&descriptor.shadow_mode), no_effect),
            ("quota_mode", effect(&descriptor.quota_mode), no_effect),
        ];
        let left_out = left_out
            .into_iter()
            .filter_map(|(name, at, reason)| at.map(|at| finding(at, join(path, name), reason)));
        self.untranslated.extend(left_out);
    }
}

// === free functions ===

/// The field called `field`, which stands `at`, and the rule that it breaks or the reason for
/// which it has no translation.
pub(super) fn finding(
    at: Location,
    field: impl Into<String>,
    rule: impl Into<String>,
) -> ConfigError {
    ConfigError {
        line: at.line(),
        column: at.column(),
        field: field.into(),
        value: None,
        rule: rule.into(),
    }
}

/// The place of a flag that is `true`.
fn set(flag: &Option<LocatedValue<bool>>) -> Option<Location> {
    let flag = flag.as_ref().filter(|flag| flag.value)?;
    Some(flag.at)
}
