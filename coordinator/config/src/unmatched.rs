//! Limits that match no scope of any rule that clients ask for: the name of their rule may be misspelt.

#![allow(unused_qualifications, reason = "utoipa's macros name types twice")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::fields::similar;
use super::{Config, raw, rls_kinds};
use crate::catalog::check::{Check, ConfigError};
use crate::catalog::name::GLOB_CHARACTERS;
use crate::catalog::{Catalog, rule_name};

/// Time in which each client has asked again: it does so once a minute at least.
const SETTLED_AFTER: Duration = Duration::from_secs(120);

/// Names before which no rule of an Envoy stands: of groups, and of Doorman's resources.
const OWN_NAMES: [&str; 2] = ["group", "doorman"];

/// Names of all rules that clients have asked for or may ask for.
#[derive(Clone, Debug)]
pub struct KnownRules<'a>(BTreeSet<&'a str>);

/// A limit of a rule that no client has asked for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
pub struct UnmatchedLimit {
    /// The scopes that it matches: its `match` in the file, or the scope of an override or a raise.
    pub r#match: String,
    /// Where it stands.
    pub source: UnmatchedSource,
    /// The name of its rule.
    pub rule: String,
    /// The name that may be meant, of a rule that clients ask for; null if none is like it.
    pub similar: Option<String>,
}

/// Place of an unmatched limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnmatchedSource {
    /// The configuration file.
    File,
    /// An override.
    Override,
    /// A raise.
    Raise,
}

// === impl KnownRules ===

impl<'a> KnownRules<'a> {
    /// The rules called `names`, which clients have asked for in the time `known_for`, and those of
    /// other protocols that `config` names. `None` if that says nothing about others: soon after a
    /// start, or without any client.
    pub fn new(
        config: &'a Config,
        names: &'a BTreeSet<String>,
        known_for: Duration,
    ) -> Option<Self> {
        if names.is_empty() || known_for < SETTLED_AFTER {
            return None;
        }
        let quotas = config.rlqs.values().map(|domain| domain.scope.kind());
        let doorman = config.doorman.values().map(|id| rule_name(&id.scope));
        let mut names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        names.extend(OWN_NAMES);
        names.extend(rls_kinds(&config.rls));
        names.extend(quotas.chain(doorman));
        Some(Self(names))
    }

    /// Returns the `match` or the scope of each limit in `catalog` of a rule that is not among these: of
    /// the file, then overrides and raises.
    pub fn unmatched<'c>(
        &self,
        catalog: &'c Catalog,
    ) -> impl Iterator<Item = (&'c str, UnmatchedSource)> {
        let file = catalog.file().limits.in_order().into_iter();
        let file = file.map(|matched| (&*matched.pattern, UnmatchedSource::File));
        let overrides = catalog.overrides();
        let overrides = overrides.map(|scope| (&**scope, UnmatchedSource::Override));
        let raises = catalog.raises();
        let raises = raises.map(|(scope, _)| (&**scope, UnmatchedSource::Raise));
        let all = file.chain(overrides).chain(raises);
        all.filter(|(pattern, _)| rule_of_all(pattern).is_some_and(|rule| !self.0.contains(rule)))
    }

    /// Returns an unmatched limit with the name that may be meant.
    pub fn explained(&self, pattern: &str, source: UnmatchedSource) -> UnmatchedLimit {
        let rule = rule_name(pattern);
        UnmatchedLimit {
            r#match: pattern.to_owned(),
            source,
            rule: rule.to_owned(),
            similar: similar(rule, self.0.iter().copied()).map(str::to_owned),
        }
    }
}

// === impl UnmatchedLimit ===

impl UnmatchedLimit {
    /// Returns the reason for which it may limit nothing, and the name that may be meant; all clients have asked within
    /// the last `time`.
    pub fn reason(&self, time: &str) -> String {
        let meant = self.similar.as_ref();
        let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
        let rule = &self.rule;
        format!("no client has asked for a rule called {rule} in the last {time}{meant}")
    }
}

// === impl UnmatchedSource ===

impl UnmatchedSource {
    /// Returns the word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Override => "override",
            Self::Raise => "raise",
        }
    }
}

// === free functions ===

/// Warns of limits of `raw`, of which `config` was made, that match no scope of `known` rules; clients have
/// asked for these in the last `time`.
pub(super) fn warnings(
    raw: &raw::RawConfig,
    config: &Config,
    known: &KnownRules<'_>,
    time: &str,
) -> Vec<ConfigError> {
    let catalog = Catalog::new(config.catalog.clone());
    let unmatched: BTreeMap<_, _> = known.unmatched(&catalog).collect();
    let mut check = Check::default();
    let limits = raw.limits.iter().flat_map(|limits| &limits.value);
    for (i, limit) in limits.enumerate() {
        let text = limit.value.pattern();
        let found = text.and_then(|text| Some((text, *unmatched.get(text.as_str())?)));
        if let Some((text, source)) = found {
            let reason = known.explained(text.as_str(), source).reason(time);
            let rule = format!("{:?} limits nothing so far: {reason}", text.as_str());
            check.refuse_value(text, format!("limits[{i}].match"), rule);
        }
    }
    check.noted()
}

/// The rule of all scopes that `pattern` matches, if they have the same for sure.
fn rule_of_all(pattern: &str) -> Option<&str> {
    let glob = pattern.find(GLOB_CHARACTERS);
    let literal = glob.map_or(pattern, |end| &pattern[..end]);
    let rule = rule_name(literal);
    (glob.is_none() || rule.len() < literal.len()).then_some(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = ["tenant", "user", "route"];

    /// The limits of `text` that no rule called as `names` has, as they are warned of.
    fn unmatched(text: &str, names: &[&str], known_for: Duration) -> Vec<String> {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let config = Config::parse(text).unwrap();
        let known = KnownRules::new(&config, &names, known_for);
        let raw = crate::yaml::read_or_default(text).unwrap();
        let found = known.map(|known| warnings(&raw, &config, &known, "12m"));
        found.iter().flatten().map(ToString::to_string).collect()
    }

    fn limit(pattern: &str) -> String {
        format!("limits: [{{match: '{pattern}', requests: {{rate: 5}}}}]")
    }

    #[test]
    fn a_limit_of_a_rule_that_no_client_asks_for_is_found_with_the_name_that_is_meant() {
        let rows = [
            ("tennant/acme", "tennant", "; did you mean tenant?"),
            ("tennant/*", "tennant", "; did you mean tenant?"),
            ("usr@gold/*", "usr", "; did you mean user?"),
            ("usr@gold/alice", "usr", "; did you mean user?"),
            ("usr@*", "usr", "; did you mean user?"),
            ("zebra/{a,b}", "zebra", ""),
            ("gruop/gold", "gruop", "; did you mean group?"),
            ("zebra", "zebra", ""),
        ];
        for (pattern, rule, meant) in rows {
            let want = format!(
                "1:18: limits[0].match: {pattern:?} limits nothing so far: no client has asked for a \
                 rule called {rule} in the last 12m{meant}"
            );
            assert_eq!(unmatched(&limit(pattern), &NAMES, SETTLED_AFTER), [want]);
        }
    }

    #[test]
    fn a_limit_of_a_known_rule_or_of_several_is_not_found() {
        let rows = [
            "tenant/*",
            "tenant/acme",
            "user@gold/*",
            "user/*",
            "*",
            "*/acme",
            "{tennant,x}/*",
            "tenn*",
            "group/gold",
            "doorman/x",
            "[ab]/x",
            "tenn?nt/x",
        ];
        for pattern in rows {
            let found = unmatched(&limit(pattern), &NAMES, SETTLED_AFTER);
            assert_eq!(found, [""; 0], "{pattern}");
        }
        let others = "
rls: {domains: {edge: {scopes: [{scope: 'edge/{ip}'}]}}}
rlqs: {domains: {quota: {scope: 'quota/{t}'}}}
doorman: {scopes: {cpu: cpu/all}}";
        for pattern in ["edge/*", "quota/a", "cpu/*"] {
            let of_others = format!("{}{others}", limit(pattern));
            assert_eq!(unmatched(&of_others, &NAMES, SETTLED_AFTER), [""; 0]);
            assert_eq!(unmatched(&limit(pattern), &NAMES, SETTLED_AFTER).len(), 1);
        }
    }

    #[test]
    fn nothing_is_found_before_clients_could_ask() {
        let second = Duration::from_secs(1);
        let text = limit("tennant/*");
        assert_eq!(unmatched(&text, &[], SETTLED_AFTER), [""; 0]);
        assert_eq!(unmatched(&text, &NAMES, SETTLED_AFTER - second), [""; 0]);
    }
}
