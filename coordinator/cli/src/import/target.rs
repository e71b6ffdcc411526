//! The new configuration.
//!
//! Descriptors with the same keys become one kind of scopes, whose values choose the limit:
//! `{scope: "tenant-path/{tenant}/{path}"}` and `{match: "tenant-path/acme/*"}`. So the number of
//! rules does not grow with that of the values.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Serialize;
use serde_saphyr::FlowMap;
use tollgate_config::catalog::check::ConfigError;
use tollgate_config::catalog::name::GLOB_CHARACTERS;
use tollgate_config::catalog::spec::Scalar;
use tollgate_config::catalog::template::Template;
use tollgate_config::{RLS_KINDS_MAX, RLS_RULES_MAX};

use super::entries::{Entry, entries, key_lists};
use super::rules::{Rule, rules};
use super::source::{Level, Source, finding};

/// First segments of scopes that have a meaning of their own.
const TAKEN: [&str; 2] = ["group", "namespace"];
/// The most characters of a first segment without its number.
const KIND_LEN_MAX: usize = 36;

/// The sections that are written.
#[derive(Debug, Default, Serialize)]
pub(super) struct Target {
    rls: Rls,
    pub(super) limits: Vec<FlowMap<ScopeLimit>>,
}

#[derive(Debug, Default, Serialize)]
struct Rls {
    domains: BTreeMap<String, Domain>,
}

#[derive(Debug, Serialize)]
struct Domain {
    scopes: Vec<FlowMap<Rule>>,
}

#[derive(Debug, Serialize)]
pub(super) struct ScopeLimit {
    #[serde(rename = "match")]
    pattern: String,
    requests: RequestLimit,
}

/// Limit of requests: one of both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct RequestLimit {
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<Scalar>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<Quota>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Quota {
    amount: u32,
    per: &'static str,
}

// === impl Target ===

impl Target {
    /// Translates a domain, and adds what has no translation to `untranslated`.
    pub(super) fn new(source: &Source, untranslated: &mut Vec<ConfigError>) -> Self {
        let descriptors = source.descriptors.as_deref();
        let (mut lists, mut all_rules) = (Vec::new(), Vec::new());
        let (mut limits, mut kinds) = (Vec::new(), BTreeSet::from(TAKEN.map(str::to_owned)));
        key_lists(descriptors, &mut Vec::new(), &mut lists);
        for (i, keys) in lists.iter().enumerate() {
            let mut entries = entries(descriptors, keys);
            let kind = free_kind(keys, &kinds);
            let earlier = lists.get(..i).unwrap_or_default();
            let added = template(&kind, keys, earlier).and_then(|scope| {
                let rules = rules(keys, &scope, &mut entries, untranslated);
                if rules.len() + all_rules.len() > RLS_RULES_MAX {
                    return Err(format!("a domain has no more than {RLS_RULES_MAX} rules"));
                }
                limits.extend(entries.iter().filter_map(|entry| limit(&scope, entry)));
                all_rules.extend(rules);
                kinds.insert(kind);
                Ok(())
            });
            if let Err(reason) = added {
                let limited = entries
                    .iter()
                    .filter_map(|entry| entry.source?.rate_limit.as_ref());
                let left_out = limited.map(|limit| finding(limit.at, "rate_limit", &*reason));
                untranslated.extend(left_out);
            }
        }
        // A rule fits also descriptors that have one of its keys more often.
        all_rules.sort_by_key(|rule: &Rule| Reverse(rule.scope.keys().count()));
        keep_known(&mut all_rules, untranslated);
        let scopes = all_rules.into_iter().map(FlowMap).collect();
        let domain = (source.domain.as_str().to_owned(), Domain { scopes });
        let domains = BTreeMap::from([domain]);
        let rls = Rls { domains };
        Self { rls, limits }
    }

    /// The text of it, after comments on its origin.
    pub(super) fn text(
        &self,
        file: &Path,
        untranslated: &[String],
    ) -> Result<String, serde_saphyr::ser::Error> {
        let file = file.display();
        let mut text = format!("# Translated by `tollgate import ratelimit {file}`.\n");
        if !untranslated.is_empty() {
            text.push_str("# Not translated:\n");
        }
        for line in untranslated {
            text.push_str(&format!("# - {line}\n"));
        }
        text.push_str(&serde_saphyr::to_string(self)?);
        Ok(text)
    }
}

// === impl RequestLimit ===

impl RequestLimit {
    /// Returns the limit that stands for fixed windows of `unit`: a rate for those up to an hour,
    /// and a quota for longer ones, whose requests are not expected back one by one.
    pub(super) fn new(requests: u32, unit: &str) -> Option<Self> {
        let (period, per) = match unit.to_ascii_lowercase().as_str() {
            "second" => ("s", ""),
            "minute" => ("min", ""),
            "hour" => ("h", ""),
            "day" => ("", "day"),
            "week" => ("", "week"),
            "month" => ("", "month"),
            "year" => ("", "year"),
            _ => return None,
        };
        Some(match requests {
            0 => Self::rate("0"),
            _ if per.is_empty() => Self::rate(&format!("{requests}/{period}")),
            amount => Self {
                quota: Some(Quota { amount, per }),
                ..Self::default()
            },
        })
    }

    pub(super) fn unlimited() -> Self {
        Self::rate("unlimited")
    }

    fn rate(text: &str) -> Self {
        Self {
            rate: Some(text.into()),
            ..Self::default()
        }
    }
}

// === free functions ===

/// Returns the template of the scopes of these keys, or why there is none.
fn template<'a>(
    kind: &str,
    keys: &[&'a str],
    earlier: &[Vec<&'a str>],
) -> Result<Template, String> {
    let sorted = |keys: &[&'a str]| {
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        keys
    };
    if earlier.iter().any(|other| sorted(other) == sorted(keys)) {
        let reason = "others have the same keys in another order, and a rule fits any order";
        return Err(reason.to_owned());
    }
    if earlier.len() >= RLS_KINDS_MAX {
        let reason =
            format!("there are {RLS_KINDS_MAX} lists of keys before, and no more kinds of scopes");
        return Err(reason);
    }
    let keys: String = keys.iter().map(|key| format!("/{{{key}}}")).collect();
    let template = Template::parse(&format!("{kind}{keys}"));
    template.map_err(|rule| format!("its keys make no scope: {kind}{keys} {rule}"))
}

/// Returns a first segment for the scopes of these keys that no other scopes have.
fn free_kind(keys: &[&str], kinds: &BTreeSet<String>) -> String {
    let mut kind = keys.join("-").to_ascii_lowercase();
    kind = kind.replace(
        |c: char| !matches!(c, 'a'..='z' | '0'..='9' | '_' | '-'),
        "_",
    );
    kind.truncate(KIND_LEN_MAX);
    let mut free = kind.clone();
    while kinds.contains(&free) {
        free = format!("{kind}-{}", kinds.len());
    }
    free
}

/// Returns the limit of an entry; `None` if no scope has its values.
fn limit(scope: &Template, entry: &Entry<'_>) -> Option<FlowMap<ScopeLimit>> {
    let texts: Vec<String> = entry.levels.iter().copied().map(glob).collect();
    let keys: Vec<&str> = scope.keys().collect();
    // The template encodes values here as it does those of a request.
    let pattern = scope.scope(|key, place| {
        let mut texts = keys.iter().zip(&texts).filter(|(other, _)| **other == key);
        texts.nth(place).map(|(_, text)| text.as_str())
    });
    let requests = entry.limit.clone().unwrap_or_else(RequestLimit::unlimited);
    pattern.map(|pattern| FlowMap(ScopeLimit { pattern, requests }))
}

/// The glob that matches the values of a level.
fn glob(level: Level<'_>) -> String {
    let (Level::Exact(text) | Level::Glob(text)) = level else {
        return "*".to_owned();
    };
    let mut glob = String::new();
    for c in text.chars() {
        // Two `*` would have a meaning of their own.
        if c == '*' && glob.ends_with('*') {
            continue;
        }
        if c != '*' && GLOB_CHARACTERS.contains(&c) {
            glob.push('\\');
        }
        glob.push(c);
    }
    glob
}

/// Takes away the names of no rule, which a rule cannot replace.
fn keep_known(rules: &mut [Rule], untranslated: &mut Vec<ConfigError>) {
    let names = rules.iter().filter_map(|rule| rule.settings.name.clone());
    let names: Vec<_> = names.collect();
    for rule in rules {
        rule.settings.replaces.retain(|name| {
            let is_known = names.contains(name);
            if !is_known {
                let reason = format!("{:?} is the name of no limit here", name.as_str());
                untranslated.push(finding(name.at, "rate_limit.replaces", reason));
            }
            is_known
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_windows_become_quotas_and_short_ones_rates() {
        let rows = [
            (5, "second", "{rate: 5/s}"),
            (7, "Minute", "{rate: 7/min}"),
            (u32::MAX, "HOUR", "{rate: 4294967295/h}"),
            (1000, "day", "{quota: {amount: 1000, per: day}}"),
            (1, "week", "{quota: {amount: 1, per: week}}"),
            (2, "month", "{quota: {amount: 2, per: month}}"),
            (3, "year", "{quota: {amount: 3, per: year}}"),
            (0, "day", "{rate: 0}"),
        ];
        for (requests, unit, want) in rows {
            let limit = RequestLimit::new(requests, unit).unwrap();
            let text = serde_saphyr::to_string(&FlowMap(limit)).unwrap();
            assert_eq!(text.trim_end(), want, "{requests} per {unit}");
        }
        assert_eq!(RequestLimit::new(1, "fortnight"), None);
    }
}
