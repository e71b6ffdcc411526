//! Warnings: parts of a good configuration that can never have an effect.
//!
//! Only what the file alone proves is warned of, for people delete what they are warned of. `tollgate
//! check` shows them; a running coordinator does not.

use tollgate_core::limit::{Algorithm, Limit};
use tollgate_core::quantity::rate_text;

use super::attach::RawAttach;
use super::explain::ScopeExplanation;
use super::limits::RawLimit;
use super::raw::RawConfig;
use crate::Config;
use crate::catalog::check::{Check, ConfigError, algorithm_named, join};
use crate::catalog::name::GLOB_CHARACTERS;
use crate::catalog::spec::{LocatedValue, UnitFields, Units};
use crate::catalog::{Catalog, FairBetween, FileCatalog, MemberKind};

mod templates;

// === free functions ===

/// Warns of what has no effect in the file `raw`, whose values are those of `config`.
pub(super) fn warnings(raw: &RawConfig, config: &Config) -> Vec<ConfigError> {
    let catalog = &config.catalog;
    let mut check = Check::default();
    let limits = raw.limits.as_ref();
    let limits = limits.map_or(&[][..], |limits| &limits.value);
    covered(&mut check, limits);
    let whole = Catalog::new(catalog.clone());
    for (i, limit) in limits.iter().enumerate() {
        let path = format!("limits[{i}]");
        above_group(&mut check, &path, &limit.value, &whole);
        unlimited(&mut check, &path, limit.value.units());
        bandless(&mut check, &path, limit.value.units());
    }
    groups(&mut check, raw, &whole);
    if let Some(raw) = &raw.attach {
        weights(&mut check, raw, catalog);
    }
    templates::unlimited(&mut check, raw, catalog);
    if let Some(raw) = &raw.rls {
        templates::never_used(&mut check, raw, &config.rls);
    }
    check.noted()
}

/// Warns of globs that `PREFIX*` before them matches all scopes of.
fn covered(check: &mut Check, limits: &[LocatedValue<RawLimit>]) {
    let texts = limits.iter().map(|limit| limit.value.pattern()).enumerate();
    let texts = texts.filter_map(|(i, text)| Some((i, text?)));
    let mut prefixes: Vec<(usize, &str)> = Vec::new();
    for (i, text) in texts.filter(|(_, text)| RawLimit::is_glob(text)) {
        let literal = literal_of(text.as_str());
        let covers = |(_, prefix): &&(usize, &str)| literal.starts_with(prefix);
        if let Some((first, _)) = prefixes.iter().find(covers) {
            let rule = format!(
                "{:?} is never used: limits[{first}] matches every scope that it does, and the \
                 first match decides",
                text.as_str()
            );
            check.refuse_value(text, format!("limits[{i}].match"), rule);
        }
        if let Some("*") = text.as_str().strip_prefix(literal) {
            prefixes.push((i, literal));
        }
    }
}

/// The beginning of a glob, before its first character of a pattern.
fn literal_of(glob: &str) -> &str {
    glob.find(GLOB_CHARACTERS).map_or(glob, |end| &glob[..end])
}

/// Warns of limits of one scope that let more pass than its group does.
fn above_group(check: &mut Check, path: &str, raw: &RawLimit, catalog: &Catalog) {
    let exact = raw.pattern().filter(|text| !RawLimit::is_glob(text));
    let Some(scope) = exact.map(|text| text.as_str()) else {
        return;
    };
    let explanation = ScopeExplanation::new(catalog, &scope.into());
    let own = catalog.file().limits.exact(scope);
    for (unit, fields) in raw.units() {
        let Some(own) = own.and_then(|own| own.limits.get(unit)) else {
            continue;
        };
        let others = explanation.of_unit(unit);
        let mut others = others.filter(|(other, _)| *other.scope != *scope);
        let lower = others.find(|(_, limit)| limit.capacity < own.capacity);
        if let (Some((other, limit)), (name, Some(text))) = (lower, fields.capacity) {
            let rule = format!(
                "{} can never be reached: {scope} belongs to {}, whose {} is {}",
                text.as_str(),
                other.scope,
                unit.name(),
                match limit.period {
                    Some(_) => rate_text(unit.name(), limit.capacity.as_f64(), limit.period),
                    None => limit.capacity.to_string(),
                }
            );
            check.refuse_value(text, join(path, &format!("{}.{name}", unit.name())), rule);
        }
    }
}

/// Warns of settings of `units` without a limit that they could be settings of.
fn unlimited(check: &mut Check, path: &str, units: Units<'_>) {
    for (unit, fields) in units {
        let path = join(path, unit.name());
        if fields
            .capacity
            .1
            .is_some_and(|text| text.as_str() == "unlimited")
        {
            unused_settings(check, &path, &fields);
        }
    }
}

fn unused_settings(check: &mut Check, path: &str, fields: &UnitFields<'_>) {
    let settings = [
        ("burst", fields.burst),
        ("headroom", fields.headroom),
        ("reserve", fields.reserve),
    ];
    for (name, text) in settings {
        if let Some(text) = text {
            let rule = format!(
                "{} has no effect where the {} is unlimited",
                text.as_str(),
                fields.capacity.0
            );
            check.refuse_value(text, join(path, name), rule);
        }
    }
}

/// Warns of minimums of priority bands where the algorithm knows none.
fn bandless(check: &mut Check, path: &str, units: Units<'_>) {
    for (unit, fields) in units {
        let named = fields
            .algorithm
            .filter(|text| algorithm_named(text.as_str()).is_some_and(Algorithm::goes_by_usage));
        if let (Some(algorithm), Some(bands)) = (named, fields.guaranteed) {
            let rule = format!(
                "has no effect: {} knows no priority bands",
                algorithm.as_str()
            );
            let path = join(path, &format!("{}.guaranteed", unit.name()));
            let first = bands.values().next();
            check.refuse(first.map_or(fields.at, |band| band.at), path, rule);
        }
    }
}

/// Warns of groups that limit nothing, and of groups without attachments in the file.
fn groups(check: &mut Check, raw: &RawConfig, catalog: &Catalog) {
    let groups = raw.groups.iter().flat_map(|groups| &groups.value);
    for (name, spec) in groups {
        let path = format!("groups.{}", name.escape_debug());
        unlimited(check, &path, spec.value.units());
        bandless(check, &path, spec.value.units());
        let limits = catalog.file().groups.get(name.as_str());
        let limits = limits
            .map(|group| group.limits().clone())
            .unwrap_or_default();
        let limited = |limit: &Limit| !limit.capacity.is_unlimited();
        if !limits.iter().any(|(_, limit)| limited(limit)) {
            check.refuse(spec.at, &path, "limits nothing: no unit has a limit");
        }
        if catalog.attached_count(name) == 0 {
            let rule = "is not used in this file: no tenant or namespace is attached to it; the \
                        API can attach some";
            check.refuse(spec.at, &path, rule);
        }
    }
}

/// Warns of weights of members of groups that are not divided between members.
fn weights(check: &mut Check, raw: &RawAttach, catalog: &FileCatalog) {
    for kind in MemberKind::ALL {
        for (name, spec) in raw.of(kind).iter().flat_map(|raw| &raw.value) {
            let attached = catalog.attached(kind).get(name.as_str());
            let group = attached.and_then(|attached| catalog.groups.get(&attached.group));
            let between = group.map(|group| (group.name(), group.fair_between()));
            if let (Some((group, FairBetween::Clients)), Some(text)) = (between, &spec.value.weight)
            {
                let path = format!("attach.{}.{}.weight", kind.plural(), name.escape_debug());
                let rule = format!(
                    "{} has no effect: group {group} has `fair_between: clients`, so its members \
                     have no shares",
                    text.as_str()
                );
                check.refuse_value(text, path, rule);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Config;

    pub(super) fn warnings(text: &str) -> Vec<String> {
        let config = Config::parse(text).unwrap();
        let warnings = config.warnings_of(text);
        warnings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_has_no_effect_is_named_with_the_reason() {
        let rows = [
            (
                "limits:\n- {match: 'tenant/*', requests: {rate: 5}}\n- {match: 'tenant/a?', requests: {rate: 1}}",
                "3:11: limits[1].match: \"tenant/a?\" is never used: limits[0] matches every scope \
                 that it does, and the first match decides",
            ),
            (
                "limits: [{match: 'a*', requests: {rate: 5}}, {match: 'ab[cd]', requests: {rate: 1}}]",
                "1:54: limits[1].match: \"ab[cd]\" is never used: limits[0] matches every scope that it \
                 does, and the first match decides",
            ),
            (
                "limits: [{match: tenant/a, requests: {rate: 5k}}]\n\
                 groups: {g: {requests: {rate: 4k}}}\nattach: {tenants: {a: g}}",
                "1:45: limits[0].requests.rate: 5k can never be reached: tenant/a belongs to \
                 group/g, whose requests is 4000",
            ),
            (
                "limits: [{match: namespace/a/n, requests: {rate: 9}}, \
                 {match: tenant/a, requests: {rate: 8}}]\n\
                 groups: {g: {concurrency: {max: 4}}}\nattach: {tenants: {a: g}}",
                "1:50: limits[0].requests.rate: 9 can never be reached: namespace/a/n belongs to \
                 tenant/a, whose requests is 8",
            ),
            (
                "limits: [{match: a, requests: {rate: unlimited, burst: 5}}]",
                "1:56: limits[0].requests.burst: 5 has no effect where the rate is unlimited",
            ),
            (
                "limits: [{match: a, requests: {rate: 5, algorithm: max_rate, guaranteed: {1: 2}}}]",
                "1:78: limits[0].requests.guaranteed: has no effect: max_rate knows no priority \
                 bands",
            ),
            (
                "limits: []\ngroups: {g: {requests: {rate: 5}}}",
                "2:13: groups.g: is not used in this file: no tenant or namespace is attached to \
                 it; the API can attach some",
            ),
            (
                "limits: []\ngroups: {g: {requests: {rate: unlimited}}}\nattach: {tenants: {a: g}}",
                "2:13: groups.g: limits nothing: no unit has a limit",
            ),
            (
                "limits: []\ngroups: {g: {requests: {rate: 5}, fair_between: clients}}\n\
                 attach: {tenants: {a: {group: g, weight: 3}}}",
                "3:42: attach.tenants.a.weight: 3 has no effect: group g has `fair_between: \
                 clients`, so its members have no shares",
            ),
        ];
        for (text, want) in rows {
            assert_eq!(warnings(text), [want], "{text}");
        }
    }

    #[test]
    fn what_can_have_an_effect_is_not_warned_of() {
        let rows = [
            "limits: [{match: 'tenant/a*', requests: {rate: 5}}, {match: 'tenant/*', requests: {rate: 5}}]",
            "limits: [{match: 'tenant/*', requests: {rate: 5}}, {match: tenant/a, requests: {rate: 9}}, \
             {match: '*', concurrency: {max: 5}}]",
            "limits: [{match: a, requests: {rate: 5, algorithm: static, guaranteed: {1: 2}}}, \
             {match: b, request_bytes: {rate: 5, algorithm: usage_share}}]",
            "limits: [{match: tenant/a, requests: {rate: 5, burst: 50}}]\n\
             groups: {g: {requests: {rate: 5}}}\nattach: {tenants: {a: {group: g, weight: 3}}}",
        ];
        for text in rows {
            assert_eq!(warnings(text), [""; 0], "{text}");
        }
    }
}
