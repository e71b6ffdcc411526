//! Warnings of templates of `rlqs` and `rls` whose scopes have no limit, and of rules of `rls` that are
//! never used.
//!
//! A value may be any text here, also one that the encoding of values rules out. So a template that is
//! warned of has no limit for sure, and a few without a limit are not warned of.

use tollgate_core::lease::Unit;

use super::glob::{Sequence, Token, exact, overlap, sequences};
use crate::catalog::check::Check;
use crate::catalog::spec::LocatedScalar;
use crate::catalog::template::{DIGEST_PREFIX, Template};
use crate::catalog::{FileCatalog, MemberKind};
use crate::config::limits::RawLimit;
use crate::config::raw::RawConfig;
use crate::config::rls::{RLS_ENTRIES_MAX, RawRls, RlsDomains, RlsRule};

/// The most comparisons of a template and a limit for a file: about a second.
const COMPARISONS_MAX: usize = 200_000;

/// The scopes to which a file gives a limit of requests, by its limits, groups and attachments.
struct LimitedScopes {
    sequences: Vec<Sequence>,
    /// How many comparisons may still be made.
    comparisons_left: usize,
}

// === impl LimitedScopes ===

impl LimitedScopes {
    fn new(raw: &RawConfig, catalog: &FileCatalog) -> Self {
        let limits = raw.limits.iter().flat_map(|limits| &limits.value);
        let has_requests = |limit: &&RawLimit| {
            let mut units = limit.units().into_iter();
            units.any(|(unit, _)| unit == Unit::Requests)
        };
        let limits = limits.map(|limit| &limit.value).filter(has_requests);
        let patterns = limits.filter_map(RawLimit::pattern);
        let mut all: Vec<Sequence> = patterns.flat_map(of_pattern).collect();
        all.extend(of_groups(catalog));
        Self {
            sequences: all,
            comparisons_left: COMPARISONS_MAX,
        }
    }

    /// Whether a scope of `template` may be among them.
    fn may_have(&mut self, template: &Template) -> bool {
        let forms = forms(template);
        let Some(left) = self
            .comparisons_left
            .checked_sub(forms.len() * self.sequences.len())
        else {
            return true;
        };
        self.comparisons_left = left;
        let mut limited = self.sequences.iter();
        limited.any(|limited| forms.iter().any(|form| overlap(form, limited)))
    }
}

// === free functions ===

/// Warns of templates that make no scope that has a limit.
///
/// Only requests count: `rlqs` and `rls` limit nothing else.
pub(super) fn unlimited(check: &mut Check, raw: &RawConfig, catalog: &FileCatalog) {
    let mut limited = LimitedScopes::new(raw, catalog);
    let mut is_unlimited = |text: &LocatedScalar| {
        let template = Template::parse(text.as_str());
        template.is_ok_and(|template| !limited.may_have(&template))
    };
    let reason = "no limit of requests in this file is for such a scope; the API can add one";
    for (path, text) in raw.rlqs.iter().flat_map(|rlqs| rlqs.templates()) {
        if is_unlimited(text) {
            let rule = format!("{:?} limits nothing: {reason}", text.as_str());
            check.refuse_value(text, path, rule);
        }
    }
    for (_, path, texts) in raw.rls.iter().flat_map(|rls| rls.templates()) {
        for (i, text) in texts.into_iter().enumerate() {
            if is_unlimited(text) {
                let rule = format!(
                    "{:?} limits nothing, unless a descriptor brings a limit along: {reason}",
                    text.as_str()
                );
                check.refuse_value(text, format!("{path}[{i}].scope"), rule);
            }
        }
    }
}

/// Warns of rules that fit no descriptor, and of those before which another one fits whatever they fit.
pub(super) fn never_used(check: &mut Check, raw: &RawRls, domains: &RlsDomains) {
    for (name, path, texts) in raw.templates() {
        let rules = domains.get(name).map_or(&[][..], |domain| &domain.rules);
        for (i, (rule, text)) in rules.iter().zip(texts).enumerate() {
            let reason = fits_none(rule).or_else(|| covered(rules, i));
            if let Some(reason) = reason {
                let rule = format!("{:?} is never used: {reason}", text.as_str());
                check.refuse_value(text, format!("{path}[{i}].scope"), rule);
            }
        }
    }
}

/// Returns why no descriptor fits `rule`; `None` if one may.
fn fits_none(rule: &RlsRule) -> Option<String> {
    match rule.entries_min() {
        0 if !rule.more_keys => {
            let text =
                "it has no keys, and every descriptor has one; with `more_keys: true` it fits all";
            Some(text.to_owned())
        }
        count if count > RLS_ENTRIES_MAX => Some(format!(
            "it needs {count} entries, and a descriptor has at most {RLS_ENTRIES_MAX}"
        )),
        _ => None,
    }
}

/// Returns which rule comes before the one at `place`, whatever that fits; `None` if none does.
fn covered(rules: &[RlsRule], place: usize) -> Option<String> {
    let rule = rules.get(place)?;
    let mut earlier = rules.iter().take(place);
    let first = earlier.position(|earlier| earlier.fits_all_of(rule))?;
    Some(format!(
        "scopes[{first}] fits every descriptor that it does, and the first that fits decides"
    ))
}

/// The scopes that a limit with the `match` of `text` may be for.
fn of_pattern(text: &LocatedScalar) -> Vec<Sequence> {
    if RawLimit::is_glob(text) {
        return sequences(text.as_str()).unwrap_or_else(|| vec![vec![Token::Any]]);
    }
    vec![exact(text.as_str())]
}

/// The scopes of groups with a limit of requests, and of what is attached to them.
fn of_groups(catalog: &FileCatalog) -> Vec<Sequence> {
    let has_requests = |group: &str| {
        let group = catalog.groups.get(group);
        group.is_some_and(|group| group.limits().get(Unit::Requests).is_some())
    };
    let groups = catalog.groups.keys().filter(|group| has_requests(group));
    let mut all: Vec<_> = groups
        .map(|group| exact(&format!("group/{group}")))
        .collect();
    for kind in MemberKind::ALL {
        let attached = catalog.attached(kind).iter();
        for (name, _) in attached.filter(|(_, attached)| has_requests(&attached.group)) {
            all.push(exact(&format!("{}/{name}", kind.name())));
            if kind == MemberKind::Tenant {
                let namespaces = exact(&format!("namespace/{name}/"));
                all.push([namespaces, vec![Token::Any]].concat());
            }
        }
    }
    all
}

/// The scopes that `template` may make: with its values, or with a digest in the place of them all.
fn forms(template: &Template) -> [Sequence; 2] {
    let texts = template.texts();
    let whole = texts.flat_map(|text| text.map_or_else(|| vec![Token::Any], exact));
    let digest = exact(&format!("{}/{DIGEST_PREFIX}", template.kind()));
    [whole.collect(), [digest, vec![Token::Any]].concat()]
}

#[cfg(test)]
mod tests {
    use crate::config::rls::RLS_ENTRIES_MAX;
    use crate::config::warnings::tests::warnings;

    const EDGE: &str = "rls: {domains: {edge: {scopes: ";

    #[test]
    fn a_template_whose_scopes_have_no_limit_is_warned_of() {
        let rows = [
            "limits: [{match: 'tenant/*', requests: {rate: 5}}]",
            "limits: [{match: 'tenent', requests: {rate: 5}}, {match: '{x,y}/*', requests: {rate: 5}}]",
            "limits: [{match: 'tenent/*', concurrency: {max: 5}}]",
            "limits: [{match: a, requests: {rate: 5}}]\n\
             groups: {g: {requests: {rate: 5}}}\nattach: {tenants: {a: g}}",
        ];
        for text in rows {
            let rlqs = format!("{text}\nrlqs: {{domains: {{edge: {{scope: 'tenent/{{t}}'}}}}}}");
            let line = rlqs.lines().count();
            let want = format!(
                "{line}:32: rlqs.domains.edge.scope: \"tenent/{{t}}\" limits nothing: no limit of \
                 requests in this file is for such a scope; the API can add one"
            );
            assert_eq!(warnings(&rlqs), [want], "{rlqs}");
            let rls = format!("{text}\n{EDGE}[{{scope: 'tenent/{{t}}'}}]}}}}}}");
            let want = format!(
                "{line}:41: rls.domains.edge.scopes[0].scope: \"tenent/{{t}}\" limits nothing, \
                 unless a descriptor brings a limit along: no limit of requests in this file is \
                 for such a scope; the API can add one"
            );
            assert_eq!(warnings(&rls), [want], "{rls}");
        }
    }

    #[test]
    fn a_template_with_a_scope_that_may_have_a_limit_is_not_warned_of() {
        let group = "limits: [{match: a, requests: {rate: 5}}]\n\
                     groups: {g: {requests: {rate: 5}}}\nattach: {tenants: {a: g}}";
        let attached = "limits: [{match: a, requests: {rate: 5}}]\n\
                        groups: {g: {requests: {rate: 5}}}\nattach: {namespaces: {a/b: g}}";
        let rows = [
            (
                "limits: [{match: 'tenant/a*', requests: {rate: 5}}]",
                "tenant/{t}",
            ),
            (
                "limits: [{match: tenant/a, requests: {rate: 5}}]",
                "tenant/{t}",
            ),
            (
                "limits: [{match: tenant/a, requests: {rate: unlimited}}]",
                "tenant/{t}",
            ),
            (
                "limits: [{match: '**/x', requests: {rate: 5}}]",
                "tenant/{t}",
            ),
            ("limits: [{match: '*', requests: {rate: 5}}]", "tenant/{t}"),
            (
                "limits: [{match: 'n/a/*', requests: {rate: 5}}]",
                "n/{t}/{n}",
            ),
            (
                "limits: [{match: edge/all, requests: {rate: 5}}]",
                "edge/all",
            ),
            (
                "limits: [{match: 'edge/sha256-*', requests: {rate: 5}}]",
                "edge/t-{t}",
            ),
            (group, "tenant/{t}"),
            (group, "namespace/{t}/{n}"),
            (group, "group/{g}"),
            (attached, "namespace/{t}/{n}"),
        ];
        for (text, template) in rows {
            let rlqs = format!("{text}\nrlqs: {{domains: {{edge: {{scope: '{template}'}}}}}}");
            assert_eq!(warnings(&rlqs), [""; 0], "{rlqs}");
            let rules = format!("[{{scope: '{template}', more_keys: true}}]");
            let rls = format!("{text}\n{EDGE}{rules}}}}}}}");
            assert_eq!(warnings(&rls), [""; 0], "{rls}");
        }
    }

    #[test]
    fn a_rule_that_an_earlier_one_comes_before_is_warned_of() {
        let rows = [
            // A rule fits its own keys and no others, in any order.
            ("{scope: 'tenant/{t}'}, {scope: 'namespace/{t}/{n}'}", None),
            (
                "{scope: 'a/{t}/{n}'}, {scope: 'b/{n}/{t}'}",
                Some("b/{n}/{t}"),
            ),
            (
                "{scope: 'a/{t}', values: {k: v}}, {scope: 'b/{t}', values: {k: v, l: w}}",
                None,
            ),
            (
                "{scope: 'a/{t}', values: {k: v}}, {scope: 'b/{t}', values: {k: v}}",
                Some("b/{t}"),
            ),
            (
                "{scope: 'a/{t}', values: {k: v}}, {scope: 'b/{t}', values: {k: w}}",
                None,
            ),
            (
                "{scope: 'a/{t}', values: {k: v}}, {scope: 'b/{t}/{k}'}",
                None,
            ),
            (
                "{scope: 'a/{t}/{k}'}, {scope: 'b/{t}', values: {k: v}}",
                Some("b/{t}"),
            ),
            (
                "{scope: 'a/{t}'}, {scope: b/all, values: {t: v}}",
                Some("b/all"),
            ),
            ("{scope: 'namespace/{t}/{n}'}, {scope: 'tenant/{t}'}", None),
            // One that fits more keys as well.
            (
                "{scope: 'a/{t}', more_keys: true}, {scope: 'b/{t}/{n}'}",
                Some("b/{t}/{n}"),
            ),
            (
                "{scope: 'a/{t}', more_keys: true}, {scope: 'b/{t}', more_keys: true}",
                Some("b/{t}"),
            ),
            ("{scope: 'a/{t}'}, {scope: 'b/{t}', more_keys: true}", None),
            (
                "{scope: all/all, more_keys: true}, {scope: 'a/{b}'}",
                Some("a/{b}"),
            ),
            // A key that has to be there twice.
            ("{scope: 'a/{t}/{t}'}, {scope: 'b/{t}'}", None),
            ("{scope: 'a/{t}'}, {scope: 'b/{t}/{t}'}", Some("b/{t}/{t}")),
        ];
        let reason =
            "scopes[0] fits every descriptor that it does, and the first that fits decides";
        for (rules, never) in rows {
            let want = never.map(|template| (1, template, reason.to_owned()));
            assert_eq!(never_used(rules), want, "{rules}");
        }
    }

    #[test]
    fn a_rule_that_fits_no_descriptor_is_warned_of() {
        let reason =
            "it has no keys, and every descriptor has one; with `more_keys: true` it fits all";
        let want = Some((0, "all/all", reason.to_owned()));
        assert_eq!(never_used("{scope: all/all}"), want);
        assert_eq!(never_used("{scope: all/all, more_keys: true}"), None);
        let rule = |count: usize| {
            let keys = (1..count).map(|i| format!("k{i}: v"));
            let keys = keys.collect::<Vec<_>>().join(", ");
            format!("{{scope: 'a/{{b}}', values: {{{keys}}}}}")
        };
        assert_eq!(never_used(&rule(RLS_ENTRIES_MAX)), None);
        let reason = "it needs 33 entries, and a descriptor has at most 32";
        let want = Some((0, "a/{b}", reason.to_owned()));
        assert_eq!(never_used(&rule(RLS_ENTRIES_MAX + 1)), want);
    }

    /// Returns the rule that is warned of as never used, by its place and its template, and the reason.
    fn never_used(rules: &str) -> Option<(usize, &str, String)> {
        let limits = "limits: [{match: '*', requests: {rate: 5}}]";
        let found = warnings(&format!("{limits}\n{EDGE}[{rules}]}}}}}}"));
        let [warning] = &found[..] else {
            assert_eq!(found, [""; 0], "{rules}");
            return None;
        };
        let (field, rule) = warning.split_once(".scope: \"").unwrap();
        let place = field.rsplit_once('[').unwrap().1.trim_end_matches(']');
        let (template, reason) = rule.split_once("\" is never used: ").unwrap();
        let start = rules.find(template).unwrap();
        let template = &rules[start..start + template.len()];
        Some((place.parse().unwrap(), template, reason.to_owned()))
    }
}
