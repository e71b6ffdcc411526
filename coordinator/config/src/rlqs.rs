//! Section `rlqs`: the scopes that buckets of Envoy's rate limit quota service stand for.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::catalog::check::{Check, Rule, duration};
use crate::catalog::spec::{LocatedScalar, LocatedValue};
use crate::catalog::template::Template;

/// The most domains.
const DOMAINS_MAX: usize = 100;

/// The longest name of a domain, in bytes: it is a part of client ids.
const NAME_LEN_MAX: usize = 64;

/// Time after which a bucket without requests is abandoned, unless the domain says another.
const ABANDON_AFTER: Duration = Duration::from_secs(60);

/// The shortest such time: Envoy reports every five seconds, and one report may be late.
const ABANDON_AFTER_MIN: Duration = Duration::from_secs(10);

/// Domains by their names.
pub type RlqsDomains = BTreeMap<String, RlqsDomain>;

/// Domain: the buckets of one kind of proxies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RlqsDomain {
    /// Scope of the buckets that have its keys.
    pub scope: Template,
    /// Time without a request, or without a report, after which a bucket is abandoned.
    pub abandon_after: Duration,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRlqs {
    domains: Option<LocatedValue<BTreeMap<String, LocatedValue<RawRlqsDomain>>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRlqsDomain {
    scope: Option<LocatedScalar>,
    abandon_after: Option<LocatedScalar>,
}

// === impl RawRlqs ===

impl RawRlqs {
    /// The templates, each with its path.
    pub(super) fn templates(&self) -> impl Iterator<Item = (String, &LocatedScalar)> {
        let domains = self.domains.iter().flat_map(|domains| &domains.value);
        domains.filter_map(|(name, domain)| {
            let path = format!("{}.scope", path_of(name));
            Some((path, domain.value.scope.as_ref()?))
        })
    }
}

// === free functions ===

/// Checks the section.
pub(super) fn rlqs(check: &mut Check, raw: Option<&RawRlqs>) -> RlqsDomains {
    let mut domains = BTreeMap::new();
    let Some(raw) = raw.and_then(|raw| raw.domains.as_ref()) else {
        return domains;
    };
    if !check.is_within(DOMAINS_MAX, raw.value.len(), raw.at, "rlqs.domains") {
        return domains;
    }
    for (name, raw) in &raw.value {
        let field = path_of(name);
        if let Err(rule) = check_name(name) {
            check.refuse(raw.at, &*field, rule);
        }
        let domain = domain(check, &field, raw);
        domains.extend(domain.map(|domain| (name.clone(), domain)));
    }
    domains
}

fn path_of(domain: &str) -> String {
    format!("rlqs.domains.{}", domain.escape_debug())
}

fn check_name(name: &str) -> Result<(), String> {
    match name.len() {
        0 => Err("is empty, and the domain of a report never is".to_owned()),
        len if len > NAME_LEN_MAX => Err(format!("has {len} bytes, more than {NAME_LEN_MAX}")),
        _ if name.chars().any(char::is_control) => Err("has a control character".to_owned()),
        _ => Ok(()),
    }
}

fn domain(check: &mut Check, path: &str, raw: &LocatedValue<RawRlqsDomain>) -> Option<RlqsDomain> {
    let mut after = ABANDON_AFTER;
    let field = format!("{path}.abandon_after");
    check.set(&mut after, &raw.value.abandon_after, &field, abandon_after);
    let template = |text: &str| Ok(Template::parse(text)?);
    let field = format!("{path}.scope");
    let scope = check.required(raw.at, &raw.value.scope, &field, template)?;
    Some(RlqsDomain {
        scope,
        abandon_after: after,
    })
}

fn abandon_after(text: &str) -> Result<Duration, Rule> {
    let after = duration(text)?;
    if after < ABANDON_AFTER_MIN {
        Err(format!("{after:?} is shorter than {ABANDON_AFTER_MIN:?}").into())
    } else {
        Ok(after)
    }
}
