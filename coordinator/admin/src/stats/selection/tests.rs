use tollgate_config::Config;

use super::*;
use crate::lease_view::{TrafficView, UnitSummary};

/// A resource with a capacity, what clients have and want, how many wait, and how many there are.
fn resource(
    (scope, unit): (&str, &str),
    capacity: Amount,
    (has, wants): (f64, f64),
    (waiting_count, client_count): (usize, usize),
) -> BusyResource {
    BusyResource {
        scope: scope.to_owned(),
        unit: unit.to_owned(),
        summary: UnitSummary {
            capacity,
            safe: Some(Amount::Unlimited),
            learning_ms: 0,
            sum_has: Amount::Number(has),
            sum_wants: Amount::Number(wants),
            client_count,
            written: None,
            limited_by: None,
            bucket: None,
            quotas: Vec::new(),
            traffic: TrafficView::default(),
        },
        waiting_count,
        throttled_for_ms: None,
        clients: Vec::new(),
    }
}

fn arranged(selection: &ResourceSelection, all: &[BusyResource]) -> Vec<String> {
    let mut all = all.to_vec();
    selection.arrange(&mut all);
    all.into_iter().map(|one| one.scope).collect()
}

#[test]
fn the_busiest_of_all_nodes_stand_in_the_order_of_one() {
    let busy =
        |scope, capacity, wants| resource((scope, "requests"), capacity, (0.0, wants), (0, 1));
    let all = [
        busy("c", Amount::Unlimited, 1e9),
        busy("b", Amount::Number(100.0), 150.0),
        busy("a", Amount::Number(100.0), 50.0),
        busy("idle", Amount::Number(0.0), 0.0),
        busy("blocked", Amount::Number(0.0), 1.0),
        busy("also-b", Amount::Number(200.0), 300.0),
    ];
    let order = arranged(&ResourceSelection::busiest(), &all);
    assert_eq!(order, ["blocked", "also-b", "b", "a", "c", "idle"]);
}

#[test]
fn each_order_is_by_what_it_is_called_and_total() {
    let number = Amount::Number;
    let all = [
        resource(("b", "requests"), number(10.0), (9.0, 20.0), (1, 3)),
        resource(("a", "requests"), Amount::Unlimited, (3.0, 30.0), (0, 9)),
        resource(("d", "requests"), number(40.0), (5.0, 10.0), (4, 4)),
        resource(("c", "concurrency"), number(5.0), (5.0, 10.0), (4, 4)),
    ];
    let rows = [
        (ResourceSort::Pressure, "bcda", "adcb"),
        (ResourceSort::Scope, "abcd", "dcba"),
        (ResourceSort::Capacity, "adbc", "cbda"),
        (ResourceSort::Leased, "bcda", "acdb"),
        (ResourceSort::Wanted, "abcd", "cdba"),
        (ResourceSort::Waiting, "cdba", "abcd"),
        (ResourceSort::Clients, "acdb", "bcda"),
    ];
    for (sort, first, reversed) in rows {
        let other = match sort.first_order() {
            SortOrder::Asc => SortOrder::Desc,
            SortOrder::Desc => SortOrder::Asc,
        };
        for (order, want) in [
            (None, first),
            (Some(sort.first_order()), first),
            (Some(other), reversed),
        ] {
            let selection = ResourceSelection::busiest().sorted_by(sort, order);
            let found = arranged(&selection, &all).concat();
            assert_eq!(found, want, "{sort:?} {order:?}");
            let mut turned = all.clone();
            turned.reverse();
            assert_eq!(arranged(&selection, &turned).concat(), want, "{sort:?}");
        }
    }
}

#[test]
fn a_selection_has_what_all_its_conditions_admit() {
    let admits = |selection: &ResourceSelection| {
        let rows = [
            ("tenant/Acme", Unit::Requests, 0),
            ("tenant/acme", Unit::Concurrency, 1),
            ("tenant/BÜCHER", Unit::Requests, 2),
        ];
        rows.map(|(scope, unit, waiting)| selection.admits(scope, unit, waiting))
    };
    let all = ResourceSelection::busiest;
    let throttled = ResourceSelection {
        throttled_only: true,
        ..all()
    };
    let requests = ResourceSelection {
        unit: Some(Unit::Requests),
        ..throttled.clone()
    };
    let rows = [
        (all(), [true, true, true]),
        (all().searching("aCM"), [true, true, false]),
        (all().searching("bücher"), [false, false, true]),
        (all().searching("nothing"), [false, false, false]),
        (throttled, [false, true, true]),
        (requests, [false, false, true]),
    ];
    for (selection, want) in rows {
        assert_eq!(admits(&selection), want, "{selection:?}");
    }
}

#[test]
fn of_a_group_only_scopes_that_share_it_are_selected() {
    let yaml = "limits: []\ngroups: {gold: {requests: {rate: 9}}}\nattach: {tenants: {a: gold}}";
    let catalog = Catalog::new(Config::parse(yaml).unwrap().catalog);
    let selection = ResourceSelection {
        group: Some(GroupScopes::new(catalog.into(), "gold")),
        sort: ResourceSort::Scope,
        ..ResourceSelection::busiest()
    };
    let all = ["tenant/a", "tenant/b", "group/gold", "group/silver"];
    let all = all.map(|scope| {
        let figures = (0.0, 1.0);
        resource((scope, "requests"), Amount::Unlimited, figures, (0, 1))
    });
    assert_eq!(arranged(&selection, &all), ["group/gold", "tenant/a"]);
}

#[test]
fn a_text_is_found_in_whatever_case_and_script() {
    let scopes = [
        "",
        "a",
        "A",
        "tenant/Acme",
        "TENANT/ACME",
        "tenant/acm",
        "STRASSE",
        "straße",
        "STRAẞE",
        "ÄPFEL",
        "\u{212a}elvin",
        "KELVIN",
        "İ",
        "i",
        "[a]",
        "{A}",
    ];
    for text in scopes
        .iter()
        .flat_map(|text| [text, "acme", "/a", "e", "k", "ä", "ß"])
    {
        for scope in scopes {
            let lower = text.to_lowercase();
            let want = scope.to_lowercase().contains(&lower);
            assert_eq!(has_text(scope, &lower), want, "{lower:?} in {scope:?}");
        }
    }
}
