use std::collections::BTreeMap;

use crate::history::HistoryOverview;
use crate::lease_view::{
    Amount, BusyResource, CreditView, EndedWindowView, LimitedBy, QuotaView, ResourceClient,
    ScopeDetail, TrafficView, UnitDetail, UnitSummary,
};

use super::query::TableQuery;
use super::resource_table::ResourceTable;
use super::*;
use crate::status::{GroupStatus, GroupUnit, Status};

/// A scope that tries to be more than a text.
const HOSTILE: &str = "tenant/</h3><script>alert(1)</script>\" onclick=\"x' &amp;";

fn summary() -> UnitSummary {
    UnitSummary {
        capacity: Amount::Number(100.0),
        safe: None,
        learning_ms: 0,
        sum_has: Amount::Number(90.0),
        sum_wants: Amount::Number(200.0),
        client_count: 2,
        written: None,
        limited_by: Some(LimitedBy {
            whose: "group gold".to_owned(),
            at_most: Amount::Number(80.0),
        }),
        bucket: None,
        quotas: Vec::new(),
        traffic: TrafficView::default(),
    }
}

#[test]
fn a_quota_is_drawn_down_to_where_its_pace_leads() {
    let quota = |used: f64, at_ms| QuotaView {
        per: "day".to_owned(),
        amount: 100.0,
        used,
        held: 0.0,
        left: 100.0 - used,
        from_ms: 1000,
        until_ms: 2000,
        at_ms,
        credits: vec![CreditView {
            id: HOSTILE.to_owned(),
            amount: 5.0,
            left: 4.0,
            until_ms: 1_790_208_000_000,
        }],
        ended: vec![EndedWindowView {
            from_ms: 0,
            until_ms: 1000,
            used: 40.0,
        }],
        changes: Vec::new(),
    };
    let rows = [
        (50.0, 1250, "M25.0 50.0L50.0 100.0"),
        (20.0, 1500, "M50.0 20.0L100.0 40.0"),
        (0.0, 1000, "M0.0 0.0L100.0 0.0"),
        (80.0, 1500, "M50.0 80.0L62.5 100.0"),
        (120.0, 1900, "M90.0 100.0L90.0 100.0"),
    ];
    for (used, at_ms, path) in rows {
        let page = quota::quotas("requests", &[quota(used, at_ms)]).into_string();
        assert!(page.contains(path), "{page}");
        assert!(
            page.contains("4 of 5 left until <time datetime=\"2026-09-24T00:00:00Z\">"),
            "{page}"
        );
        assert!(page.contains("width=\"40.0\""), "{page}");
        assert!(!page.contains("<script>"), "{page}");
    }
}

fn client(id: &str) -> ResourceClient {
    ResourceClient {
        client: id.to_owned(),
        wants: Amount::Number(150.0),
        has: Amount::Number(60.0),
        expires_in_ms: 9_000,
        throttled_for_ms: Some(61_000),
    }
}

fn status(scope: &str, id: &str) -> Status {
    let shared = GroupUnit {
        capacity: Amount::Number(1024.0),
        written: None,
        sum_has: 512.0,
        sum_wants: 0.0,
        member_count: 1,
        bucket: None,
        quotas: Vec::new(),
    };
    Status {
        version: "0.1.0".to_owned(),
        epoch: 7,
        uptime_ms: 61_000,
        refreshes_per_second: 12.5,
        group_count: 3,
        groups: vec![GroupStatus {
            name: scope.to_owned(),
            fair_between: "members".to_owned(),
            attached_count: 2,
            units: BTreeMap::from([("request_bytes".to_owned(), shared)]),
        }],
        match_count: 2004,
        resource_count: 2004,
        busiest: vec![BusyResource {
            scope: scope.to_owned(),
            unit: "requests".to_owned(),
            summary: summary(),
            waiting_count: 1,
            throttled_for_ms: Some(61_000),
            clients: vec![client(id)],
        }],
        ..Status::default()
    }
}

fn overview(status: &Status) -> String {
    let main = overview::main(status, &HistoryOverview::default(), &TableQuery::default());
    Page::live("Status", main).html().into_string()
}

#[test]
fn the_status_page_shows_what_an_operator_asks_about() {
    let html = overview(&status("tenant/acme", "envoy-1/a"));
    for part in [
        "<dt>epoch</dt><dd>7</dd>",
        "<dt>up</dt><dd>61s</dd>",
        "<dt>refreshes per second</dt><dd>12.5</dd>",
        "<a href=\"/groups/tenant%2Facme\"><bdi>tenant/acme</bdi></a>",
        "512 of 1KiB <span class=\"dim\">request_bytes</span>",
        "1 of 3 groups",
        "1 of 2004 resources",
        "<tr class=\"throttled\" data-key=\"requests /scopes/tenant/acme\">",
        "<a href=\"/scopes/tenant/acme\"><bdi>tenant/acme</bdi></a>",
        "<td class=\"num\" data-label=\"limit\">80</td>",
        "<strong class=\"flag\">1 throttled</strong><small>for 61s</small>",
        "<a href=\"/groups/gold\"><bdi>group gold</bdi></a>",
        "<rect class=\"room\" y=\"0\" width=\"40.0\" height=\"8\"></rect>",
        "<rect class=\"leased\" y=\"0\" width=\"45.0\" height=\"8\"></rect>",
        "<th class=\"num\" scope=\"col\" aria-sort=\"descending\"><a href=\"/?sort=pressure&amp;order=asc\"",
        "<a href=\"/?sort=scope&amp;order=asc\" data-stay>scope<",
    ] {
        assert!(html.contains(part), "no {part} in\n{html}");
    }
}

#[test]
fn a_sentence_says_who_is_throttled_why_and_since_when() {
    let shown = |change: fn(&mut UnitDetail)| {
        let mut detail = UnitDetail {
            summary: summary(),
            waiting_count: 1,
            throttled_for_ms: Some(61_000),
            clients: vec![client("envoy-1/a")],
        };
        change(&mut detail);
        let html = verdict::verdict("requests", &detail).into_string();
        let mut text = String::new();
        for part in html.split('<') {
            text.push_str(part.split_once('>').map_or(part, |(_, text)| text));
        }
        text
    };
    type Row = (fn(&mut UnitDetail), &'static str);
    let rows: [Row; 6] = [
        (
            |_| (),
            "1 of 2 clients is throttled: together all want 200, and the group gold allows 80. \
             The longest is envoy-1/a, for 61s (since ",
        ),
        (
            |detail| detail.summary.limited_by.as_mut().unwrap().whose = "own limit".to_owned(),
            "together all want 200, and the scope's own limit allows 80. ",
        ),
        (
            |detail| detail.summary.limited_by.as_mut().unwrap().at_most = Amount::Number(0.0),
            "the group gold allows nothing: it blocks every client. ",
        ),
        (
            |detail| detail.summary.sum_wants = Amount::Number(70.0),
            "all that is wanted (70) is within what the group gold allows (80); ",
        ),
        (
            |detail| {
                detail.summary.sum_wants = Amount::Number(70.0);
                detail.summary.learning_ms = 9_000;
            },
            "for another 9s the coordinator learns which leases are out",
        ),
        (
            |detail| detail.waiting_count = 0,
            "None of 2 clients is throttled. Together all want 200, and the group gold allows 80.",
        ),
    ];
    for (change, want) in rows {
        let message = shown(change);
        assert!(message.contains(want), "no {want:?} in {message:?}");
    }
}

#[test]
fn a_sentence_says_how_much_is_refused() {
    let shown = |attempts_per_second, refused_per_second| {
        let traffic = TrafficView {
            attempts_per_second,
            refused_per_second,
            ..TrafficView::default()
        };
        verdict::traffic("requests", &traffic).into_string()
    };
    let refused = shown(130.0, 30.0);
    assert!(refused.contains(">30 of 130 are refused</strong> each second."));
    assert!(shown(130.0, 0.0).contains("All pass: 130 are asked for each second."));
    assert_eq!(shown(0.0, 0.0), "");
}

#[test]
fn a_resource_that_refuses_is_marked_with_what_it_refuses() {
    let mut status = status("tenant/acme", "envoy-1/a");
    status.busiest[0].waiting_count = 0;
    assert!(!overview(&status).contains("<tr class=\"throttled\""));
    status.busiest[0].summary.traffic.refused_per_second = 2.5;
    let html = overview(&status);
    for part in [
        "<tr class=\"throttled\"",
        "<strong class=\"flag\">2.5 refused</strong><small>a second</small>",
    ] {
        assert!(html.contains(part), "no {part} in\n{html}");
    }
}

#[test]
fn the_unit_in_trouble_comes_first() {
    let unit = |waiting_count, refused_per_second| {
        let mut summary = summary();
        summary.traffic.refused_per_second = refused_per_second;
        UnitDetail {
            summary,
            waiting_count,
            throttled_for_ms: None,
            clients: Vec::new(),
        }
    };
    let detail = ScopeDetail {
        scope: "tenant/acme".to_owned(),
        units: BTreeMap::from([
            ("concurrency".to_owned(), unit(0, 0.0)),
            ("request_bytes".to_owned(), unit(0, 0.5)),
            ("requests".to_owned(), unit(1, 0.0)),
        ]),
        unanswered: Vec::new(),
    };
    let units = detail.by_trouble().into_iter().map(|(unit, _)| &**unit);
    let units: Vec<&str> = units.collect();
    assert_eq!(units, ["request_bytes", "requests", "concurrency"]);
}

#[test]
fn members_of_a_group_stand_with_their_weights() {
    let status = status("tenant/acme", "envoy-1/a");
    let query = TableQuery::default();
    let weight = |scope: &str| (scope == "tenant/acme").then_some(3);
    let table = ResourceTable {
        path: "/groups/gold",
        query: &query,
        resources: &status.busiest,
        match_count: 1,
        weight: Some(&weight),
    };
    let html = table.section("Members").into_string();
    assert!(
        html.contains("<td class=\"num\" data-label=\"weight\">3</td>"),
        "{html}"
    );
    assert!(!overview(&status).contains("data-label=\"weight\""));
}

#[test]
fn no_scope_and_no_client_gets_out_of_its_place() {
    let tags = |html: &str| html.matches('<').count();
    let quotes = |html: &str| html.matches('"').count();
    let plain = overview(&status("tenant/acme", "envoy-1/a"));
    let hostile = overview(&status(HOSTILE, HOSTILE));
    assert_eq!(tags(&hostile), tags(&plain));
    assert_eq!(quotes(&hostile), quotes(&plain));
    assert!(hostile.contains("tenant/&lt;/h3&gt;&lt;script&gt;"));
}

#[test]
fn a_page_loads_nothing_and_runs_only_its_own() {
    assert!(POLICY.starts_with("default-src 'none'; "), "{}", *POLICY);
    assert!(!POLICY.contains("unsafe"), "{}", *POLICY);
    let page = overview(&status("a", "b"));
    for outside in ["https://", "//", " src=", " style=", " onclick="] {
        // The icon's namespace is a name, not an address.
        let page = page.replace(ICON, "");
        let found = page.find(outside).map(|at| &page[at..][..40]);
        // Comments of the script are no addresses either.
        let found = found.filter(|found| !found.starts_with("// "));
        assert_eq!(found, None, "{outside}");
    }
    // The hashes are of what stands between the tags, to the byte.
    let between = |tag: &str| {
        let (_, rest) = page.split_once(&format!("<{tag}>")).unwrap();
        rest.split_once(&format!("</{tag}>")).unwrap().0
    };
    assert_eq!(between("style"), STYLE);
    assert_eq!(between("script"), SCRIPT);
}
