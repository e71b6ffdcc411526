use tollgate_core::units::Capacity;

use super::*;
use crate::Config;
use crate::catalog::spec::{AttachmentSpec, GroupSpec, LimitsSpec};
use crate::catalog::store::{RecordKey, RecordKind};
use crate::catalog::{GroupKind, ObjectKind as _, OverrideKind, Precondition};

const FILE: &str = "
limits:
- match: tenant/acme
  requests: {rate: 100}
- match: tenant/*
  requests: {rate: 10}
  concurrency: {max: 5}
- match: namespace/free/*
  requests: {rate: unlimited}
groups:
  gold: {requests: {rate: 1000}, request_bytes: {rate: 1MiB}}
  pool: {requests: {rate: 500}, fair_between: clients}
attach:
  tenants: {acme: gold, beta: {group: gold, weight: 3}, carol: pool, free: gold}
  namespaces: {acme/special: pool, dora/orders: gold}
";

fn catalog() -> Catalog {
    Catalog::new(Config::parse(FILE).unwrap().catalog)
}

fn resolve(catalog: &Catalog, scope: &str) -> ResolvedScope {
    catalog.resolve(&scope.into())
}

/// A pool's scope and capacity, and the weight of the member.
type Lent = (String, Capacity, u32);

/// The limit of a unit of a scope, and the pool that it borrows from.
fn terms(resolved: &ResolvedScope, unit: Unit) -> Option<(Capacity, Option<Lent>)> {
    let terms = resolved.terms(unit)?;
    let pool = terms.pool.map(|pool| {
        assert_eq!(pool.pool.unit, unit);
        let scope = pool.pool.scope.as_ref().to_owned();
        (scope, pool.limit.capacity, pool.weight.get())
    });
    Some((terms.limit.capacity, pool))
}

fn whole(units: u64) -> Capacity {
    Capacity::from_whole(units)
}

#[test]
fn who_shares_whose_bucket() {
    use Unit::{Concurrency, RequestBytes, Requests};
    let rows: [(&str, &str, &[Unit]); 12] = [
        ("tenant/acme", "tenant/acme", &[Requests, RequestBytes]),
        (
            "tenant/beta",
            "tenant/beta",
            &[Requests, RequestBytes, Concurrency],
        ),
        ("tenant/carol", "group/pool", &[Requests, Concurrency]),
        ("tenant/zoe", "tenant/zoe", &[Requests, Concurrency]),
        // Inherited: the tenant is the member.
        (
            "namespace/acme/orders",
            "tenant/acme",
            &[Requests, RequestBytes],
        ),
        // Attached itself.
        ("namespace/acme/special", "group/pool", &[Requests]),
        (
            "namespace/dora/orders",
            "namespace/dora/orders",
            &[Requests, RequestBytes],
        ),
        ("namespace/dora/other", "namespace/dora/other", &[]),
        ("namespace/carol/x", "group/pool", &[Requests]),
        // Callers invent keys: another slash does not lead out of the tenant's group.
        ("namespace/carol/x/y", "group/pool", &[Requests]),
        ("namespace/carol", "namespace/carol", &[]),
        ("group/gold", "group/gold", &[Requests, RequestBytes]),
    ];
    let catalog = catalog();
    for (scope, canonical, limited) in rows {
        let resolved = resolve(&catalog, scope);
        assert_eq!(&*resolved.scope, scope);
        assert_eq!(&*resolved.canonical, canonical, "{scope}");
        assert_eq!(resolved.limited, limited, "{scope}");
    }
}

#[test]
fn on_which_terms_a_unit_is_lent() {
    let gold = |weight| Some(("group/gold".to_owned(), whole(1000), weight));
    let bytes = |weight| Some(("group/gold".to_owned(), whole(1 << 20), weight));
    let own = |capacity| Some((capacity, None));
    let rows = [
        // Its own limit and the group's.
        ("tenant/acme", Unit::Requests, Some((whole(100), gold(1)))),
        // Only the group's.
        (
            "tenant/acme",
            Unit::RequestBytes,
            Some((Capacity::UNLIMITED, bytes(1))),
        ),
        ("tenant/beta", Unit::Requests, Some((whole(10), gold(3)))),
        ("tenant/beta", Unit::Concurrency, own(whole(5))),
        ("tenant/acme", Unit::Concurrency, None),
        // Shared between Envoys: the tenant's own limit stays, the group's is in its own scope.
        ("tenant/carol", Unit::Requests, own(whole(10))),
        ("group/pool", Unit::Requests, own(whole(500))),
        // Through the tenant's scope: nothing here.
        ("namespace/acme/orders", Unit::Requests, None),
        (
            "namespace/dora/orders",
            Unit::Requests,
            Some((Capacity::UNLIMITED, gold(1))),
        ),
        // An unlimited limit is kept, so that the usage is visible.
        ("namespace/free/x", Unit::Requests, own(Capacity::UNLIMITED)),
        ("route/x", Unit::Requests, None),
    ];
    let catalog = catalog();
    for (scope, unit, want) in rows {
        let resolved = resolve(&catalog, scope);
        assert_eq!(terms(&resolved, unit), want, "{scope} {unit:?}");
    }
}

#[test]
fn an_override_is_above_globs_and_below_exact_ids() {
    let mut catalog = catalog();
    let put = |catalog: &mut Catalog, scope: &str| {
        let spec: LimitsSpec = serde_json::from_str(r#"{"requests": {"rate": 7}}"#).unwrap();
        let object = OverrideKind.check(scope, spec).unwrap();
        let key = RecordKey::new(RecordKind::Override, scope);
        catalog.write(&key, Some(object), Precondition::Anything, 1)
    };
    assert!(put(&mut catalog, "tenant/acme").is_err());
    put(&mut catalog, "tenant/zoe").unwrap();
    let zoe = resolve(&catalog, "tenant/zoe");
    assert_eq!(terms(&zoe, Unit::Requests), Some((whole(7), None)));
    // As a whole: the glob's other units are gone, too.
    assert_eq!(terms(&zoe, Unit::Concurrency), None);
    assert_eq!(zoe.own.unwrap().source, LimitSource::Override(1));

    // A later file that names the scope wins, and gives way again.
    let named = FILE.replace("tenant/acme\n", "tenant/zoe\n");
    let named = Config::parse(&named).unwrap().catalog;
    let later = catalog.with_file(named).unwrap();
    let zoe = resolve(&later, "tenant/zoe");
    assert_eq!(terms(&zoe, Unit::Requests), Some((whole(100), None)));
    let again = later
        .with_file(Config::parse(FILE).unwrap().catalog)
        .unwrap();
    let zoe = resolve(&again, "tenant/zoe");
    assert_eq!(terms(&zoe, Unit::Requests), Some((whole(7), None)));
}

#[test]
fn an_attachment_to_a_group_that_is_not_there_counts_for_nothing() {
    let mut catalog = Catalog::default();
    let attachment: AttachmentSpec = serde_json::from_str(r#"{"group": "lost"}"#).unwrap();
    let attachment = MemberKind::Tenant.check("acme", attachment).unwrap();
    let key = RecordKey::new(RecordKind::Attachment(MemberKind::Tenant), "acme");
    let stored = crate::catalog::StoredObject {
        value: attachment,
        revision: 3,
    };
    catalog.restore(&key, stored);
    let resolved = resolve(&catalog, "tenant/acme");
    assert_eq!(
        (&*resolved.canonical, resolved.limited.len()),
        ("tenant/acme", 0)
    );
    let missing: Vec<_> = catalog.missing_groups().collect();
    assert_eq!(missing, [(&"lost".into(), 1)]);

    let spec: GroupSpec = serde_json::from_str(r#"{"requests": {"rate": 5}}"#).unwrap();
    let group = GroupKind.check("lost", spec).unwrap();
    let key = RecordKey::new(RecordKind::Group, "lost");
    catalog
        .write(&key, Some(group), Precondition::Nothing, 4)
        .unwrap();
    assert_eq!(resolve(&catalog, "tenant/acme").limited, [Unit::Requests]);
}

#[test]
fn a_scope_shares_the_group_whose_capacity_its_requests_use() {
    let catalog = catalog();
    let rows = [
        ("tenant/acme", "gold", true),
        ("tenant/acme", "pool", false),
        ("tenant/carol", "pool", true),
        ("namespace/acme/special", "pool", true),
        // Through its tenant.
        ("namespace/acme/orders", "gold", true),
        ("tenant/dora", "gold", false),
        ("group/gold", "gold", true),
        ("group/gold", "pool", false),
        ("route/checkout", "gold", false),
    ];
    for (scope, group, want) in rows {
        assert_eq!(catalog.shares(scope, group), want, "{scope} {group}");
    }
}

#[test]
fn a_limit_is_usual_if_new_scopes_of_the_kind_have_it_too() {
    let rows = [
        // By a pattern; the answers for those that are named or in a group say nothing of others.
        ("tenant/zoe", Some(true)),
        ("tenant/~overflow-7", None),
        ("tenant/acme", None),
        ("tenant/beta", None),
        ("tenant/free", None),
        ("tenant/written", None),
        // A glob matches some of them.
        ("namespace/free/x", Some(false)),
        ("namespace/other/x", Some(false)),
        // None of these has a limit.
        ("route/checkout", Some(true)),
        ("route", Some(false)),
        // One that the API wrote has.
        ("plan/basic", Some(false)),
        ("group/none", Some(false)),
        ("group/gold", None),
    ];
    let mut catalog = catalog();
    for scope in ["tenant/written", "plan/gold"] {
        let spec: LimitsSpec = serde_json::from_str(r#"{"requests": {"rate": 7}}"#).unwrap();
        let object = OverrideKind.check(scope, spec).unwrap();
        let key = RecordKey::new(RecordKind::Override, scope);
        let written = catalog.write(&key, Some(object), Precondition::Anything, 1);
        written.unwrap();
    }
    for (scope, want) in rows {
        assert_eq!(resolve(&catalog, scope).usual, want, "{scope}");
    }
}
