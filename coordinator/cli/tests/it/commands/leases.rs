//! Commands that show leases and wants.

use std::time::Duration;

use super::{Server, say};

#[tokio::test]
async fn a_scope_is_shown_with_its_clients() {
    let server = Server::start();
    let clients = [
        ("envoy-1/a", "tenant/acme", 80.0),
        ("envoy-2/b", "tenant/acme", 40.0),
    ];
    server.refresh(&clients).await;
    let shown = server.say("get scope tenant/acme").done();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "tenant/acme", "{shown}");
    assert!(lines[1].starts_with("FROM               UNIT "), "{shown}");
    assert!(
        lines[2].starts_with("file: tenant/acme  request_bytes "),
        "{shown}"
    );
    assert!(
        lines[3].starts_with("file: tenant/acme  requests "),
        "{shown}"
    );
    let first = "tenant/acme requests: capacity 100, has 100, wants 120, safe -, clients 2, waiting 1, limited by own limit to 100";
    assert_eq!((lines[4], lines[5]), ("", first), "{shown}");
    assert!(lines[6].starts_with("throttled for "), "{shown}");
    assert!(lines[6].ends_with("s: envoy-2/b"), "{shown}");
    let header = "CLIENT     HAS  WANTS  EXPIRES  THROTTLED";
    assert_eq!(lines[7], header, "{shown}");
    assert!(lines[8].starts_with("envoy-1/a   80     80  "), "{shown}");
    assert!(lines[8].ends_with(" -"), "{shown}");
    assert!(lines[9].starts_with("envoy-2/b   20     40  "), "{shown}");
    assert!(lines[9].ends_with('s'), "{shown}");
    assert_eq!(lines.len(), 10, "{shown}");
    let json = server.json("get scope tenant/acme");
    assert_eq!(json["units"]["requests"]["sum_wants"], 120.0);
    assert_eq!(json["limits"][0]["own"]["source"]["match"], "tenant/acme");
    let other = server.say("get scope tenant/other");
    assert!(
        other.err.contains("`tollgate get limit tenant/other`"),
        "{}",
        other.err
    );
    other.failed(3, "no client has or wants a lease of tenant/other");
}

/// The limits of a scope may come from the file, from an override and from a group.
#[tokio::test]
async fn a_scope_is_shown_with_the_origin_of_each_limit() {
    let server = Server::with(
        "listen: {grpc: '127.0.0.1:0', http: '127.0.0.1:0'}
limits:
- {match: 'tenant/*', requests: {rate: 100}}
groups:
  gold: {requests: {rate: 400}}
  pool: {concurrency: {max: 30}, fair_between: clients}
attach: {tenants: {acme: {group: gold, weight: 3}, bee: pool}}
",
    );
    server
        .say("put override tenant/acme --requests 50 --concurrency 5")
        .done();
    let clients = [
        ("envoy-1/a", "tenant/acme", 80.0),
        ("envoy-1/a", "tenant/bee", 10.0),
    ];
    server.refresh(&clients).await;
    let show = |name: &str| server.say(&format!("get scope {name}")).done();
    let rows = |shown: &str| -> Vec<String> {
        let lines = shown.lines().skip(2).take_while(|line| !line.is_empty());
        let cut = |line: &str| line.split("  ").next().unwrap().to_owned();
        lines.map(cut).collect()
    };
    let acme = show("tenant/acme");
    assert!(
        acme.starts_with("tenant/acme, member of group gold with weight 3\n"),
        "{acme}"
    );
    let overridden = "override, revision 1";
    assert_eq!(
        rows(&acme),
        [overridden, overridden, "group gold"],
        "{acme}"
    );
    let bee = show("tenant/bee");
    let first = "tenant/bee, uses the capacity of group/pool as well\n";
    assert!(bee.starts_with(first), "{bee}");
    assert_eq!(rows(&bee), ["file: tenant/*", "group pool"], "{bee}");
    let json = server.json("get scope tenant/bee");
    assert_eq!(json["limits"][1]["scope"], "group/pool");
}

#[tokio::test]
async fn a_client_is_shown_with_its_leases() {
    let server = Server::start();
    let clients = [
        ("envoy-1/a", "tenant/acme", 80.0),
        ("envoy-1/a", "route/x", 2.0),
        ("envoy-2/b", "route/x", 1.0),
    ];
    server.refresh(&clients).await;
    let shown = server.say("get client envoy-1/a").done();
    let row = |row: &str| {
        row.split_whitespace()
            .take(4)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let rows: Vec<_> = shown.lines().map(row).collect();
    let want = [
        ["SCOPE", "UNIT", "HAS", "WANTS"],
        ["route/x", "requests", "unlimited", "2"],
        ["tenant/acme", "requests", "80", "80"],
    ];
    assert_eq!(rows, want, "{shown}");
    let list = server.json("list clients");
    let ids: Vec<_> = list["clients"].as_array().unwrap().iter().collect();
    assert_eq!((ids.len(), &ids[0]["client"]), (2, &"envoy-1/a".into()));
    server.say("get client envoy-3/c").failed(3, "envoy-3/c");
}

/// Refreshes envoy-1/a until what it gets is as `wanted`, and returns the next sequence. A refresh
/// sooner than the minimum refresh interval gets the previous answer again.
async fn gets_until(server: &Server, from: u64, wanted: fn(f64) -> bool) -> u64 {
    for sequence in from..from + 200 {
        if wanted(
            server
                .gets("envoy-1/a", "tenant/acme", sequence, 80.0)
                .await,
        ) {
            return sequence + 1;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it never gets that");
}

#[tokio::test]
async fn a_client_that_is_drained_gets_nothing_until_that_is_undone() {
    let server = Server::start();
    server.refresh(&[("envoy-1/a", "tenant/acme", 80.0)]).await;
    let drained = server.say("drain envoy-1/a --for 1h").done();
    assert!(
        drained.starts_with("client envoy-1/a is drained for "),
        "{drained}"
    );
    let shown = server.say("get client envoy-1/a").done();
    assert!(shown.starts_with("drained for "), "{shown}");
    server.refresh(&[("envoy-1/b", "tenant/acme", 1.0)]).await;
    let sequence = gets_until(&server, 2, |gets| gets == 0.0).await;

    let undone = server.say("drain envoy-1/a --undo").done();
    assert_eq!(undone, "client envoy-1/a is not drained\n");
    gets_until(&server, sequence, |gets| gets > 0.0).await;
    server
        .say("drain envoy-1/a --for never")
        .failed(2, "is not a duration");
    server
        .say("drain envoy-3/c")
        .failed(3, "client envoy-3/c: ");
}

#[tokio::test]
async fn scopes_are_listed_page_after_page() {
    let server = Server::start();
    let names: Vec<String> = (0..1005).map(|i| format!("route/{i:04}")).collect();
    let clients: Vec<_> = names
        .iter()
        .map(|name| ("envoy-1/a", name.as_str(), 1.0))
        .collect();
    server.refresh(&clients).await;

    let some = server.say("list scopes --limit 2");
    assert_eq!(
        (some.code, some.err.as_str()),
        (0, "tollgate: more follow: --after 'route/0001'\n")
    );
    let want = "\
SCOPE        UNIT       CAPACITY         HAS   WANTS   CLIENTS   LEARNING
route/0000   requests   unlimited  unlimited       1         1          -
route/0001   requests   unlimited  unlimited       1         1          -
";
    let words = |text: &str| {
        text.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(words(&some.out), words(want), "{}", some.out);

    let all = server.json("list scopes --limit 5000");
    let all: Vec<_> = all["scopes"].as_array().unwrap().iter().collect();
    let ids: Vec<&str> = all
        .iter()
        .map(|scope| scope["scope"].as_str().unwrap())
        .collect();
    assert_eq!(ids, names);
    let rest = server.json("list scopes --limit 1001 --after route/0500");
    assert_eq!(rest["scopes"].as_array().unwrap().len(), 504);
    assert_eq!(rest["next"], serde_json::Value::Null);
}

#[tokio::test]
async fn status_and_top_show_the_sums_and_the_busiest() {
    let server = Server::start();
    let idle = server.say("status").done();
    assert!(idle.contains("no client has or wants a lease"), "{idle}");
    let clients = [
        ("envoy-1/a", "tenant/acme", 150.0),
        ("envoy-1/a", "tenant/bee", 250.0),
        ("envoy-2/b", "route/x", 7.0),
    ];
    server.refresh(&clients).await;

    let status = server.say("status").done();
    assert!(status.starts_with(&server.url), "{status}");
    let row = status
        .lines()
        .find(|line| line.starts_with("requests"))
        .unwrap()
        .split_whitespace()
        .collect::<Vec<_>>();
    assert_eq!(row[..5], ["requests", "3", "1", "0", "1100"], "{status}");
    assert_eq!(row[6..], ["407", "3", "1"], "{status}");
    let json = server.json("status");
    assert_eq!(json["units"]["requests"]["sum_wants"], 407.0);

    let top = server.say("top --once").done();
    let lines: Vec<&str> = top.lines().collect();
    assert!(lines[2].starts_with("SCOPE"), "{top}");
    assert!(
        lines[3].starts_with("tenant/acme") && lines[3].contains("! 150 % for "),
        "{top}"
    );
    assert!(lines[3].contains("████████████████████"), "{top}");
    assert!(
        lines[4].starts_with("tenant/bee") && lines[4].ends_with("25 %"),
        "{top}"
    );
    assert!(
        lines[5].starts_with("route/x") && lines[5].ends_with("no limit"),
        "{top}"
    );
    let json = server.json("top --once --rows 1");
    assert_eq!(json["busiest"].as_array().unwrap().len(), 1);
    assert_eq!(json["busiest"][0]["scope"], "tenant/acme");
}

/// A member without a limit of its own is bound by its group, and is told so wherever it is shown.
#[tokio::test]
async fn a_member_of_a_full_group_is_shown_as_limited_by_it_everywhere() {
    let server = Server::with(
        "listen: {grpc: '127.0.0.1:0', http: '127.0.0.1:0'}
limits:
- {match: tenant/modest, requests: {rate: 50, headroom: 0}}
groups: {gold: {requests: {rate: 400, headroom: 0}}}
attach: {tenants: {acme: gold, bee: gold, modest: gold}}
",
    );
    let clients = [
        ("envoy-1/a", "tenant/acme", 900.0),
        ("envoy-1/a", "tenant/bee", 600.0),
        ("envoy-2/b", "tenant/modest", 80.0),
    ];
    for _ in 0..2 {
        server.refresh(&clients).await;
    }
    let json = server.json("top --once");
    let limited_by = |scope: &str| {
        let busiest = json["busiest"].as_array().unwrap().iter();
        let mut found = busiest.filter(|one| one["scope"] == scope);
        found.next().unwrap()["limited_by"].clone()
    };
    let of_group = serde_json::json!({"whose": "group gold", "at_most": 175.0});
    assert_eq!(limited_by("tenant/acme"), of_group);
    assert_eq!(limited_by("tenant/bee"), of_group);
    let own = serde_json::json!({"whose": "own limit", "at_most": 50.0});
    assert_eq!(limited_by("tenant/modest"), own);
    assert_eq!(json["busiest"][0]["scope"], "tenant/acme", "the busiest");
    assert_eq!(json["units"]["requests"]["unlimited_count"], 0);
    let scope = server.json("get scope tenant/acme");
    assert_eq!(scope["units"]["requests"]["limited_by"], of_group);

    let top = server.say("top --once").done();
    let line = top.lines().find(|line| line.starts_with("tenant/acme"));
    let line = line.unwrap();
    assert!(
        line.contains("group gold") && line.contains("! 514 % for "),
        "{top}"
    );
    let status = server.say("status").done();
    let line = status.lines().find(|line| line.starts_with("tenant/acme"));
    let line: Vec<&str> = line.unwrap().split_whitespace().collect();
    assert_eq!(line[3..], ["900", "175", "group", "gold"], "{status}");
    let get = server.say("get scope tenant/modest").done();
    assert!(get.contains(", limited by own limit to 50"), "{get}");
    let page = crate::harness::Answer::get(server.serve.address("http"), "/").await;
    let row = page
        .body
        .split("<tr")
        .find(|row| row.contains("/scopes/tenant/acme"));
    let row = row.expect("a row of the tenant");
    for part in [">900<", "href=\"/groups/gold\""] {
        assert!(row.contains(part), "{part} in {row}");
    }
}

#[test]
fn top_is_live_on_a_terminal_only() {
    say(&["top"], "").failed(2, "say --once");
    say(&["top", "--interval", "1ms"], "").failed(2, "is less than 200ms");
    say(&["top", "--rows", "0"], "").failed(2, "0 is not in 1..=200");
}
