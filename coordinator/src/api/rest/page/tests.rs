use std::collections::BTreeMap;

use super::*;
use crate::api::rest::status::{GroupStatus, GroupUnit};
use crate::leases::view::{LimitedBy, UnitSummary};

/// A scope that tries to be more than a text.
const HOSTILE: &str = "tenant/</h3><script>alert(1)</script>\" onclick=\"x' &amp;";

fn status(scope: &str, client: &str) -> Status {
    let summary = UnitSummary {
        capacity: Amount::Number(100.0),
        safe: None,
        learning_ms: 1500,
        sum_has: Amount::Number(90.0),
        sum_wants: Amount::Number(200.0),
        client_count: 2,
        limited_by: None,
    };
    let client = ResourceClient {
        client: client.to_owned(),
        wants: Amount::Number(150.0),
        has: Amount::Number(60.0),
        expires_in_ms: 9_000,
        throttled_for_ms: None,
    };
    let shared = GroupUnit {
        capacity: Amount::Number(1024.0),
        sum_has: 512.0,
        sum_wants: 0.0,
        member_count: 1,
    };
    Status {
        version: "0.1.0".to_owned(),
        epoch: 7,
        cluster: None,
        parent: None,
        unanswered: Vec::new(),
        uptime_ms: 61_000,
        refreshes_per_second: 12.5,
        units: BTreeMap::new(),
        group_count: 3,
        groups: vec![GroupStatus {
            name: scope.to_owned(),
            fair_between: "members".to_owned(),
            attached_count: 2,
            units: BTreeMap::from([("request_bytes".to_owned(), shared)]),
        }],
        busiest: vec![BusyResource {
            scope: scope.to_owned(),
            unit: "requests".to_owned(),
            summary,
            waiting_count: 1,
            throttled_for_ms: None,
            clients: vec![client],
        }],
        ..Status::default()
    }
}

fn html(status: &Status) -> String {
    let mut html = String::new();
    page(&mut html, status).unwrap();
    html
}

#[test]
fn it_shows_what_an_operator_asks_about() {
    let html = html(&status("tenant/acme", "envoy-1/a"));
    for part in [
        "<dt>epoch</dt><dd>7</dd>",
        "<dt>up</dt><dd>1 min 1 s</dd>",
        "<dt>refreshes per second</dt><dd>12.5</dd>",
        "<tr><th>tenant/acme<td>2<td>members<td>512 B of 1 KiB request_bytes",
        "<p>and 2 more</p>",
        "<article class=\"waiting\">\n<h3>tenant/acme <small>requests</small></h3>",
        "<p>90 leased of 100, 200 wanted; learning for 1.5 s</p>",
        "<rect class=\"room\" x=\"0.0\" y=\"0\" width=\"500.0\" height=\"16\"/>",
        "<rect class=\"s0\" x=\"0.0\" y=\"0\" width=\"300.0\" height=\"16\"/>",
        "<rect class=\"rest\" x=\"300.0\" y=\"0\" width=\"150.0\" height=\"16\"/>",
        "<rect class=\"wants\" x=\"0.0\" y=\"18\" width=\"1000.0\" height=\"4\"/>",
        "<summary>2 clients, 1 want more than they get</summary>",
        "<tr><th>envoy-1/a<td>60<td>150<td>9.0 s",
    ] {
        assert!(html.contains(part), "no {part} in\n{html}");
    }
}

#[test]
fn it_names_the_limit_that_binds() {
    let mut status = status("tenant/acme", "envoy-1/a");
    let mut with = |capacity, limited_by: Option<(&str, f64)>| {
        let summary = &mut status.busiest[0].summary;
        summary.capacity = capacity;
        summary.learning_ms = 0;
        summary.limited_by = limited_by.map(|(whose, at_most)| LimitedBy {
            whose: whose.to_owned(),
            at_most: at_most.into(),
        });
        html(&status)
    };
    let own = Amount::Number(100.0);
    let rows = [
        (
            own,
            Some(("own limit", 100.0)),
            "<p>90 leased of 100, 200 wanted; limited by own limit</p>",
        ),
        (
            own,
            Some(("group gold", 80.0)),
            "<p>90 leased of 80, 200 wanted; limited by group gold</p>",
        ),
        (
            Amount::Unlimited,
            Some(("group <gold>", 80.0)),
            "<p>90 leased of 80, 200 wanted; limited by group &lt;gold&gt;</p>",
        ),
        (Amount::Unlimited, None, "<p>no limit, 200 wanted</p>"),
    ];
    for (capacity, limited_by, want) in rows {
        let html = with(capacity, limited_by);
        assert!(html.contains(want), "no {want} in\n{html}");
    }
    // The bar of a member is one of its part.
    let html = with(Amount::Unlimited, Some(("group gold", 100.0)));
    assert!(html.contains("<rect class=\"room\" x=\"0.0\" y=\"0\" width=\"500.0\""));
}

#[test]
fn no_scope_and_no_client_gets_out_of_its_place() {
    let tags = |html: &str| html.matches('<').count();
    let quotes = |html: &str| html.matches('"').count();
    let plain = html(&status("tenant/acme", "envoy-1/a"));
    let hostile = html(&status(HOSTILE, HOSTILE));
    assert_eq!(tags(&hostile), tags(&plain));
    assert_eq!(quotes(&hostile), quotes(&plain));
    assert!(hostile.contains("tenant/&lt;/h3&gt;&lt;script&gt;"));
}

#[test]
fn it_loads_nothing_and_runs_only_its_own() {
    let policy = policy();
    assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    let page = html(&status("a", "b"));
    for outside in [
        "http://",
        "https://",
        "//",
        " src=",
        " href=",
        " style=",
        " onclick=",
    ] {
        let found = page.find(outside).map(|at| &page[at..][..40]);
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

/// A browser with just what the script uses. Its clock and the server's answers follow the test.
const BROWSER: &str = r#"
let now = 1, answers = true, tick, state = { textContent: "" };
globalThis.Date = class { constructor() { this.at = now; } toLocaleTimeString() { return `second ${this.at}`; } };
const page = { querySelector: () => ({}), querySelectorAll: () => [] };
globalThis.document = {
  hidden: false, getElementById: () => state, querySelectorAll: () => [],
  querySelector: () => ({ replaceWith() {} }),
};
globalThis.location = { href: "" };
globalThis.fetch = async () => {
  if (!answers) throw new Error("no answer");
  return { ok: true, text: async () => "" };
};
globalThis.DOMParser = class { parseFromString() { return page; } };
globalThis.setInterval = update => { tick = update; };
globalThis.clearInterval = () => {};
globalThis.setTimeout = () => {};
"#;

/// The page is looked at in seconds 5, 7 and 9, of which only the first has an answer.
const LOOKS: &str = r#"
(async () => {
  for (const [at, answered] of [[5, true], [7, false], [9, false]]) {
    [now, answers] = [at, answered];
    await tick();
    console.log(state.textContent);
  }
})();
"#;

#[test]
fn a_page_that_gets_no_answer_says_when_it_had_the_last() {
    let script = format!("{BROWSER}\n{SCRIPT}\n{LOOKS}");
    let node = std::process::Command::new("node")
        .args(["-e", &script])
        .output();
    // `just setup` installs it.
    let Ok(node) = node else {
        eprintln!("there is no Node to run the page's script in");
        return;
    };
    let said = String::from_utf8_lossy(&node.stdout);
    let problem = String::from_utf8_lossy(&node.stderr);
    let want = "\nnot updated since second 5\nnot updated since second 5\n";
    assert_eq!(said, want, "{problem}");
}
