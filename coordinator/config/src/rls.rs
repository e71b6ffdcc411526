//! Section `rls`: the scopes that descriptors of Envoy's rate limit service stand for.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::values::yes_or_no;
use crate::catalog::check::{Check, not_empty};
use crate::catalog::spec::{LocatedScalar, LocatedValue};
use crate::catalog::template::Template;

/// The most domains.
const DOMAINS_MAX: usize = 100;
/// The most rules of a domain.
pub const RLS_RULES_MAX: usize = 100;
/// The most kinds of scopes, which are their first segments, of all domains together: one client of
/// the leases has no more.
pub const RLS_KINDS_MAX: usize = 16;
/// The most names that a rule replaces, and the most values that it asks for.
const LIST_MAX: usize = 32;

/// The most entries of a descriptor.
pub const RLS_ENTRIES_MAX: usize = 32;

/// Domains by their names.
pub type RlsDomains = BTreeMap<String, RlsDomain>;

/// Domain: the rules that its descriptors are looked up in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RlsDomain {
    /// Rules, of which the first that fits a descriptor holds.
    pub rules: Vec<RlsRule>,
    /// Whether responses carry `X-RateLimit-*` fields of draft 03.
    pub response_headers: bool,
    /// Whether the proxy gets the request's descriptors as metadata.
    pub dynamic_metadata: bool,
}

/// Rule: the scope that descriptors with certain keys stand for, and how they are counted there.
///
/// It fits a descriptor that has its keys and no others, those of `scope` and those of `values`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RlsRule {
    /// Scope of the descriptors that have its keys.
    pub scope: Template,
    /// Values that a descriptor must have for the rule to fit: one of each key.
    pub values: BTreeMap<String, String>,
    /// Whether it fits descriptors with further keys as well.
    pub more_keys: bool,
    /// Name that answers tell.
    pub name: Option<String>,
    /// Names of rules that do not hold for a request to which this one applies.
    pub replaces: Vec<String>,
    /// Whether it only counts what it would refuse.
    pub shadow: bool,
    /// Whether a request is refused only if all such rules of it refuse.
    pub quota_mode: bool,
    /// Whether hits beyond the limit are charged all the same, as a debt.
    pub debt: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRls {
    domains: Option<LocatedValue<BTreeMap<String, LocatedValue<RawDomain>>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDomain {
    scopes: Option<LocatedValue<Vec<LocatedValue<RawRule>>>>,
    response_headers: Option<LocatedScalar>,
    dynamic_metadata: Option<LocatedScalar>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    scope: Option<LocatedScalar>,
    values: Option<LocatedValue<BTreeMap<String, LocatedScalar>>>,
    more_keys: Option<LocatedScalar>,
    name: Option<LocatedScalar>,
    replaces: Option<LocatedValue<Vec<LocatedScalar>>>,
    shadow: Option<LocatedScalar>,
    quota_mode: Option<LocatedScalar>,
    debt: Option<LocatedScalar>,
}

// === impl RawRls ===

impl RawRls {
    /// The templates of each domain in the order of its rules, with the path of the rules.
    pub(super) fn templates(&self) -> impl Iterator<Item = (&str, String, Vec<&LocatedScalar>)> {
        let domains = self.domains.iter().flat_map(|domains| &domains.value);
        domains.map(|(name, domain)| {
            let rules = domain.value.scopes.iter().flat_map(|rules| &rules.value);
            let templates = rules.filter_map(|rule| rule.value.scope.as_ref());
            let path = format!("{}.scopes", path_of(name));
            (name.as_str(), path, templates.collect())
        })
    }
}

// === impl RlsDomain ===

impl RlsDomain {
    /// Returns the first rule that fits a descriptor with these entries, which are keys and values,
    /// and the scope that the descriptor stands for.
    pub fn find<'a>(
        &self,
        entries: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    ) -> Option<(&RlsRule, String)> {
        let mut rules = self.rules.iter();
        rules.find_map(|rule| Some((rule, rule.scope_of(entries.clone())?)))
    }
}

// === impl RlsRule ===

impl RlsRule {
    /// Returns the scope of a descriptor with these entries; `None` if the rule does not fit it.
    fn scope_of<'a>(
        &self,
        entries: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    ) -> Option<String> {
        let of = |key: &str, place| {
            let mut values = entries.clone().filter(|(other, _)| *other == key);
            values.nth(place).map(|(_, value)| value)
        };
        let has = |(key, value): (&String, &String)| {
            let mut entries = entries.clone();
            entries.any(|entry| entry == (key.as_str(), value.as_str()))
        };
        let has_others = || entries.clone().any(|(key, _)| self.count_of(key) == 0);
        if !self.values.iter().all(has) || !self.more_keys && has_others() {
            return None;
        }
        self.scope.scope(of)
    }

    /// Whether it fits every descriptor that `other` fits.
    pub fn fits_all_of(&self, other: &Self) -> bool {
        let has_others = || other.keys().any(|key| self.count_of(key) == 0);
        let (mut values, mut keys) = (self.values.iter(), self.keys());
        values.all(|(key, value)| other.values.get(key) == Some(value))
            && keys.all(|key| self.count_of(key) <= other.count_of(key))
            && (self.more_keys || !other.more_keys && !has_others())
    }

    /// Returns the least entries of a descriptor that it fits.
    pub fn entries_min(&self) -> usize {
        let keys: BTreeSet<&str> = self.keys().collect();
        keys.into_iter().map(|key| self.count_of(key)).sum()
    }

    fn keys(&self) -> impl Iterator<Item = &str> {
        let keys = self.values.keys().map(String::as_str);
        keys.chain(self.scope.keys())
    }

    /// Returns the least entries with `key` of a descriptor that it fits; 0 if the key is none of its
    /// own.
    fn count_of(&self, key: &str) -> usize {
        let places = self.scope.keys().filter(|other| *other == key).count();
        places.max(usize::from(self.values.contains_key(key)))
    }
}

// === free functions ===

/// Returns the kinds of scopes of all domains.
pub fn kinds(domains: &RlsDomains) -> BTreeSet<&str> {
    let rules = domains.values().flat_map(|domain| &domain.rules);
    rules.map(|rule| rule.scope.kind()).collect()
}

/// Checks the section.
pub(super) fn rls(check: &mut Check, raw: Option<&RawRls>) -> RlsDomains {
    let mut domains = BTreeMap::new();
    let Some(raw) = raw.and_then(|raw| raw.domains.as_ref()) else {
        return domains;
    };
    if !check.is_within(DOMAINS_MAX, raw.value.len(), raw.at, "rls.domains") {
        return domains;
    }
    for (name, spec) in &raw.value {
        let field = path_of(name);
        if name.is_empty() {
            check.refuse(
                spec.at,
                &*field,
                "is empty, and a request's domain never is",
            );
        }
        domains.insert(name.clone(), domain(check, &field, spec));
    }
    let kinds = kinds(&domains);
    if kinds.len() > RLS_KINDS_MAX {
        let rule = format!(
            "have {} kinds of scopes, more than {RLS_KINDS_MAX}: {}",
            kinds.len(),
            kinds.into_iter().collect::<Vec<_>>().join(", "),
        );
        check.refuse(raw.at, "rls.domains", rule);
    }
    domains
}

fn path_of(domain: &str) -> String {
    format!("rls.domains.{}", domain.escape_debug())
}

fn domain(check: &mut Check, path: &str, raw: &LocatedValue<RawDomain>) -> RlsDomain {
    let mut domain = RlsDomain::default();
    let field = |name: &str| format!("{path}.{name}");
    let (headers, metadata) = (&raw.value.response_headers, &raw.value.dynamic_metadata);
    check.set(
        &mut domain.response_headers,
        headers,
        &field("response_headers"),
        yes_or_no,
    );
    check.set(
        &mut domain.dynamic_metadata,
        metadata,
        &field("dynamic_metadata"),
        yes_or_no,
    );
    let path = field("scopes");
    let Some(rules) = &raw.value.scopes else {
        check.missing(raw.at, path);
        return domain;
    };
    if check.is_within(RLS_RULES_MAX, rules.value.len(), rules.at, &path) {
        let rules = rules.value.iter().enumerate();
        domain
            .rules
            .extend(rules.filter_map(|(i, raw)| rule(check, &format!("{path}[{i}]"), raw)));
        check_replaced(check, &path, raw, &domain);
    }
    domain
}

fn rule(check: &mut Check, path: &str, raw: &LocatedValue<RawRule>) -> Option<RlsRule> {
    let field = |name: &str| format!("{path}.{name}");
    let (at, raw) = (raw.at, &raw.value);
    let mut flag = |text, name| check.value(text, &field(name), yes_or_no).unwrap_or(false);
    let shadow = flag(raw.shadow.as_ref(), "shadow");
    let quota_mode = flag(raw.quota_mode.as_ref(), "quota_mode");
    let debt = flag(raw.debt.as_ref(), "debt");
    let more_keys = flag(raw.more_keys.as_ref(), "more_keys");
    let name = check.value(&raw.name, &field("name"), not_empty);
    let replaces = replaced(check, &field("replaces"), raw.replaces.as_ref());
    let values = values(check, &field("values"), raw.values.as_ref());
    let template = |text: &str| {
        let template = Template::parse(text);
        template.map_err(|rule| format!("{text:?} {rule}").into())
    };
    let scope = check.required(at, &raw.scope, &field("scope"), template)?;
    Some(RlsRule {
        scope,
        values,
        more_keys,
        name,
        replaces,
        shadow,
        quota_mode,
        debt,
    })
}

fn replaced(
    check: &mut Check,
    field: &str,
    raw: Option<&LocatedValue<Vec<LocatedScalar>>>,
) -> Vec<String> {
    let Some(raw) = raw else { return Vec::new() };
    if check.is_within(LIST_MAX, raw.value.len(), raw.at, field) {
        raw.value
            .iter()
            .map(|name| name.as_str().to_owned())
            .collect()
    } else {
        Vec::new()
    }
}

fn values(
    check: &mut Check,
    field: &str,
    raw: Option<&LocatedValue<BTreeMap<String, LocatedScalar>>>,
) -> BTreeMap<String, String> {
    let Some(raw) = raw else {
        return BTreeMap::new();
    };
    let pair = |(key, value): (&String, &LocatedScalar)| (key.clone(), value.as_str().to_owned());
    if check.is_within(LIST_MAX, raw.value.len(), raw.at, field) {
        raw.value.iter().map(pair).collect()
    } else {
        BTreeMap::new()
    }
}

/// Notes names that are replaced and that no rule of the domain has, and rules that replace themselves.
fn check_replaced(
    check: &mut Check,
    path: &str,
    raw: &LocatedValue<RawDomain>,
    domain: &RlsDomain,
) {
    let names: BTreeSet<&str> = domain
        .rules
        .iter()
        .flat_map(|rule| rule.name.as_deref())
        .collect();
    let rules = raw.value.scopes.iter().flat_map(|rules| &rules.value);
    for (i, rule) in rules.enumerate() {
        let own = rule.value.name.as_ref().map(LocatedScalar::as_str);
        let replaces = rule.value.replaces.iter().flat_map(|names| &names.value);
        for name in replaces {
            let rule = match name.as_str() {
                name if !names.contains(name) => {
                    format!("{name:?} is the name of no rule of this domain")
                }
                name if own.is_some_and(|own| leads_to(domain, name, own)) => {
                    format!("{name:?} replaces this rule, so neither would hold")
                }
                _ => continue,
            };
            check.refuse_value(name, format!("{path}[{i}].replaces"), rule);
        }
    }
}

/// Whether the rules called `from` are called `to`, or replace such a rule, or one that does, and so on.
fn leads_to(domain: &RlsDomain, from: &str, to: &str) -> bool {
    let mut known = BTreeSet::new();
    let mut open = vec![from];
    while let Some(name) = open.pop() {
        if name == to {
            return true;
        }
        if known.insert(name) {
            let rules = domain.rules.iter();
            let named = rules.filter(|rule| rule.name.as_deref() == Some(name));
            open.extend(named.flat_map(|rule| rule.replaces.iter().map(String::as_str)));
        }
    }
    false
}
