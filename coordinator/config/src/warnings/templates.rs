//! Warnings of templates of `rlqs` and `rls` whose scopes have no limit, and of rules of `rls` that are
//! never used.

use crate::catalog::check::Check;
use crate::catalog::spec::LocatedScalar;
use crate::catalog::template::Template;
use crate::catalog::{FileCatalog, MemberKind};
use crate::raw::RawConfig;
use crate::rls::{RLS_ENTRIES_MAX, RawRls, RlsDomains, RlsRule};

// === free functions ===

/// Warns of templates whose scopes are of a kind for which the file has no limit.
pub(super) fn unlimited(check: &mut Check, raw: &RawConfig, catalog: &FileCatalog) {
    let unlimited_kind = |text: &LocatedScalar| {
        let template = Template::parse(text.as_str()).ok()?;
        let kind = template.kind();
        (!may_limit(catalog, kind)).then(|| kind.to_owned())
    };
    let reason = "; the API can add one";
    for (path, text) in raw.rlqs.iter().flat_map(|rlqs| rlqs.templates()) {
        if let Some(kind) = unlimited_kind(text) {
            let rule = format!("limits nothing: no limit in this file is for {kind:?}{reason}");
            check.refuse_value(text, path, rule);
        }
    }
    for (_, path, texts) in raw.rls.iter().flat_map(|rls| rls.templates()) {
        for (i, text) in texts.into_iter().enumerate() {
            if let Some(kind) = unlimited_kind(text) {
                let rule = format!(
                    "limits nothing, unless a descriptor brings a limit along: no limit in this \
                     file is for {kind:?}{reason}"
                );
                check.refuse_value(text, format!("{path}[{i}].scope"), rule);
            }
        }
    }
}

fn may_limit(catalog: &FileCatalog, kind: &str) -> bool {
    let has_members = MemberKind::ALL.iter().any(|member| {
        let is_inside = kind == MemberKind::Namespace.name();
        (kind == member.name() || is_inside) && !catalog.attached(*member).is_empty()
    });
    has_members || catalog.limits.may_match(kind) || kind == "group" && !catalog.groups.is_empty()
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

#[cfg(test)]
mod tests {
    use crate::rls::RLS_ENTRIES_MAX;
    use crate::warnings::tests::warnings;

    const EDGE: &str = "rls: {domains: {edge: {scopes: ";

    #[test]
    fn a_template_whose_scopes_have_no_limit_is_warned_of() {
        let rows = [
            "limits: [{match: 'tenant/*', requests: {rate: 5}}]",
            "limits: [{match: 'tenents/*', requests: {rate: 5}}, {match: 'x*', requests: {rate: 5}}]",
            "limits: [{match: a, requests: {rate: 5}}]\n\
             groups: {g: {requests: {rate: 5}}}\nattach: {tenants: {a: g}}",
        ];
        for text in rows {
            let rlqs = format!("{text}\nrlqs: {{domains: {{edge: {{scope: 'tenent/{{t}}'}}}}}}");
            let line = rlqs.lines().count();
            let want = format!(
                "{line}:32: rlqs.domains.edge.scope: limits nothing: no limit in this file is for \
                 \"tenent\"; the API can add one"
            );
            assert_eq!(warnings(&rlqs), [want], "{rlqs}");
            let rls = format!("{text}\n{EDGE}[{{scope: 'tenent/{{t}}'}}]}}}}}}");
            let want = format!(
                "{line}:41: rls.domains.edge.scopes[0].scope: limits nothing, unless a descriptor \
                 brings a limit along: no limit in this file is for \"tenent\"; the API can add one"
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
