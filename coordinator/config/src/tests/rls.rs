//! Section `rls`.

use super::errors;

/// Returns the errors of the rules of one domain.
fn rule_errors(rule: &str) -> String {
    errors(&format!(
        "limits: []\nrls:\n  domains:\n    edge:\n      scopes:\n      - {rule}\n"
    ))
}

#[test]
fn the_rules_of_a_domain_are_checked() {
    let rows = [
        ("{scope: 'tenant/{tenant}'}", "good"),
        (
            "{scope: 'tenant/{t}', values: {generic_key: a}, name: x, shadow: true, \
             quota_mode: true, debt: true, more_keys: true}",
            "good",
        ),
        (
            "{scope: a/b, more_keys: maybe}",
            "6:33: rls.domains.edge.scopes[0].more_keys: \"maybe\" is neither `true` nor `false`",
        ),
        (
            "{name: x}",
            "6:9: rls.domains.edge.scopes[0].scope: is missing",
        ),
        (
            "{scope: tenant}",
            "6:17: rls.domains.edge.scopes[0].scope: \"tenant\" must begin with a word of 1 to 40 of a-z, 0-9, \
             `_` and `-`, and a `/`, as in `tenant/{tenant}`",
        ),
        (
            "{scope: 'a/{b', shadow: maybe}",
            "6:17: rls.domains.edge.scopes[0].scope: \"a/{b\" has a `{` without its `}`, or the other way \
             round\n6:33: rls.domains.edge.scopes[0].shadow: \"maybe\" is neither `true` nor `false`",
        ),
        (
            "{scope: a/b, replaces: [c]}",
            "6:33: rls.domains.edge.scopes[0].replaces: \"c\" is the name of no rule of this domain",
        ),
        (
            "{scope: a/b, name: ''}",
            "6:28: rls.domains.edge.scopes[0].name: is empty",
        ),
    ];
    for (rule, want) in rows {
        assert_eq!(rule_errors(rule), want, "{rule}");
    }
}

#[test]
fn no_rule_replaces_itself() {
    let names = |replaces: [&str; 3]| {
        let rules = ["a", "b", "c"].into_iter().zip(replaces);
        let rules = rules.map(|(name, replaces)| {
            format!("{{scope: {name}/x, name: {name}, replaces: [{replaces}]}}")
        });
        let rules = rules.collect::<Vec<_>>().join(", ");
        errors(&format!(
            "limits: []\nrls: {{domains: {{edge: {{scopes: [{rules}]}}}}}}"
        ))
    };
    let error = |place: &str, index: usize, name: &str| {
        format!(
            "{place}: rls.domains.edge.scopes[{index}].replaces: {name:?} replaces this rule, so neither would hold"
        )
    };
    assert_eq!(names(["b, c", "c", ""]), "good");
    assert_eq!(names(["a", "", ""]), error("2:66", 0, "a"));
    let both = [error("2:66", 0, "b"), error("2:104", 1, "a")].join("\n");
    assert_eq!(names(["b", "a", ""]), both);
    assert_eq!(names(["b", "c", "a"]).lines().count(), 3);
}

#[test]
fn domains_and_kinds_are_bounded() {
    let head = "limits: []\nrls: {domains: {";
    assert_eq!(
        errors(&format!("{head} edge: {{}} }}}}")),
        "2:24: rls.domains.edge.scopes: is missing"
    );
    let domains = |count: usize| {
        let domains = (0..count).map(|n| format!("d{n}: {{scopes: []}}"));
        format!("{head}{}}}}}", domains.collect::<Vec<_>>().join(", "))
    };
    assert_eq!(errors(&domains(100)), "good");
    assert_eq!(
        errors(&domains(101)),
        "2:16: rls.domains: has 101 entries, more than 100"
    );
    let kinds = |count: usize| {
        let rules = (0..count).map(|n| format!("{{scope: k{n}/x}}"));
        let rules = rules.collect::<Vec<_>>().join(", ");
        format!("{head}edge: {{scopes: [{rules}]}}}}}}")
    };
    assert_eq!(errors(&kinds(16)), "good");
    let message = errors(&kinds(17));
    assert!(
        message.starts_with("2:16: rls.domains: have 17 kinds of scopes, more than 16: k0, k1"),
        "{message}"
    );
    let rules = |count: usize| {
        let rules = vec!["{scope: a/b}"; count].join(", ");
        format!("{head}edge: {{scopes: [{rules}]}}}}}}")
    };
    assert_eq!(errors(&rules(100)), "good");
    assert_eq!(
        errors(&rules(101)),
        "2:32: rls.domains.edge.scopes: has 101 entries, more than 100"
    );
}
