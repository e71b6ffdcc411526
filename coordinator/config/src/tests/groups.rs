use super::*;
use crate::catalog::spec::GroupSpec;
use crate::catalog::{CatalogObject, FairBetween, GroupKind, ObjectKind as _};

#[test]
fn groups_attachments_and_doorman_scopes_are_checked() {
    let rows = [
        (
            "groups: {a/b: {}}",
            "2:15: groups.a/b: has a `/`, and a name of this kind is one segment",
        ),
        (
            "groups: {gold: {fair_between: all}}",
            "2:31: groups.gold.fair_between: \"all\" is none of members, clients",
        ),
        (
            "groups: {gold: {requests: {rate: -1}, concurrency: {}}}",
            "2:34: groups.gold.requests.rate: -1 is negative\n2:52: groups.gold.concurrency.max: is \
             missing",
        ),
        (
            "groups: {gold: {}, gold: {}}",
            "2:20: groups.gold: is here twice",
        ),
        (
            "attach: {tenants: {acme: silver}}",
            "2:26: attach.tenants.acme: there is no group called \"silver\" in this file",
        ),
        (
            "groups: {g: {}}\nattach: {tenants: {a: {weight: 0}, b/c: g}}",
            "3:23: attach.tenants.a.group: is missing\n3:32: attach.tenants.a.weight: \"0\" is not a \
             weight, a whole number from 1 to 1000000\n3:41: attach.tenants.b/c: has a `/`, and a name \
             of this kind is one segment",
        ),
        (
            "groups: {g: {}}\nattach: {namespaces: {a: g}}",
            "3:26: attach.namespaces.a: is not of the form `tenant/namespace`",
        ),
        (
            "attach: {tenants: {a: 5}}",
            "2:20: attach.tenants.a: integer `5` is not the name of a group, or a \
             mapping of `group` and `weight`",
        ),
        (
            "groups: {g: {}}\nattach: {tenants: {a: {group: g, wieght: 2}}}",
            "3:34: attach.tenants.a.wieght: unknown field, did you mean `weight`? Expected one of group, weight",
        ),
        (
            r#"doorman: {scopes: {"a\nb": ""}}"#,
            r"2:28: doorman.scopes.a\nb: is empty",
        ),
        (
            "rlqs: {domains: {edge: {}, '': {scope: tenant}}}",
            "2:24: rlqs.domains.edge.scope: is missing\n2:32: rlqs.domains.: is empty, and the domain of a \
             report never is\n2:40: rlqs.domains..scope: must begin with a word of 1 to 40 of \
             a-z, 0-9, `_` and `-`, and a `/`, as in `tenant/{tenant}`",
        ),
        (
            "rlqs: {domains: {edge: {scope: 'tenant/{tenant}', abandon_after: 5s}}}",
            "2:66: rlqs.domains.edge.abandon_after: 5s is shorter than 10s",
        ),
    ];
    for (text, want) in rows {
        assert_eq!(errors(&format!("limits: []\n{text}\n")), want, "{text}");
    }
    let message = errors("limits: [{match: group/g, requests: {rate: 1}}]\ngroups: {g: {}}\n");
    let want = "1:18: limits[0].match: \"group/g\" is a group of this file; its limits are there";
    assert_eq!(message, want);
}

#[test]
fn a_group_without_limits_and_both_forms_of_attachments_are_good() {
    let text = "
limits: []
groups: {gold: {requests: null}, pool: {requests: {rate: 5}, fair_between: clients}}
attach:
  tenants: {acme: gold, 'x y': {group: pool, weight: 3}}
  namespaces: {acme/orders: {group: pool}}
";
    let catalog = Config::parse(text).unwrap().catalog;
    assert_eq!(catalog.groups["gold"].fair_between(), FairBetween::Members);
    assert_eq!(catalog.groups["pool"].fair_between(), FairBetween::Clients);
    assert_eq!(catalog.tenants["acme"].weight.get(), 1);
    let attached = &catalog.tenants["x y"];
    assert_eq!((&*attached.group, attached.weight.get()), ("pool", 3));
    assert_eq!(&*catalog.namespaces["acme/orders"].group, "pool");
}

#[test]
fn what_comes_as_json_is_judged_by_the_same_rules() {
    let group = |name, json| {
        let spec: GroupSpec = serde_json::from_str(json).unwrap();
        GroupKind
            .check(name, spec)
            .map_err(|errors| errors.to_string())
    };
    let json = r#"{"requests": {"rate": 1500, "safe": "dynamic"}, "request_bytes": null,
        "response_bytes": {"rate": "50MiB", "burst": 1e3}, "fair_between": "clients"}"#;
    let CatalogObject::Group(gold) = group("gold", json).unwrap() else {
        panic!("not a group");
    };
    let bytes = gold.limits().get(Unit::ResponseBytes).unwrap();
    assert_eq!(bytes.capacity, Capacity::from_whole(50 << 20));
    assert_eq!(gold.limits().get(Unit::RequestBytes), None);
    // A group comes back as it was written, without absent fields.
    let written = serde_json::to_value(gold.spec()).unwrap();
    let want = serde_json::json!({"requests": {"rate": 1500, "safe": "dynamic"},
        "response_bytes": {"rate": "50MiB", "burst": 1000}, "fair_between": "clients"});
    assert_eq!(written, want);
    let again = GroupKind.check("gold", gold.spec());
    assert_eq!(again.unwrap(), CatalogObject::Group(gold));

    let message = group(
        "a/b",
        r#"{"requests": {"rate": -5, "burst": "x"}, "concurrency": {}}"#,
    );
    let want = "name: has a `/`, and a name of this kind is one segment\nrequests.rate: -5 is \
                negative\nrequests.burst: \"x\" is not a number\nconcurrency.max: is missing";
    assert_eq!(message.unwrap_err(), want);
    for bad in [
        r#"{"requests": {"rate": true}}"#,
        r#"{"request": {}}"#,
        "[]",
    ] {
        assert!(serde_json::from_str::<GroupSpec>(bad).is_err(), "{bad}");
    }
}
