//! Commands that write: groups, attachments and overrides.

use serde_json::json;

use super::{Server, say};
use crate::binary::file;

#[test]
fn a_group_is_put_shown_listed_and_deleted() {
    let server = Server::start();
    let none = server.say("list overrides");
    let want = (0, "", "tollgate: there is no override\n");
    assert_eq!((none.code, none.out.as_str(), none.err.as_str()), want);
    let put = "put group gold --requests 20k --request-bytes 50MiB --concurrency 500 --fair-between clients";
    assert_eq!(server.say(put).done(), "group gold created\n");
    assert_eq!(server.say(put).done(), "group gold changed\n");
    let shown = server.say("get group gold").done();
    assert!(shown.contains("# name: gold\n"), "{shown}");
    for line in [
        "rate: 20k",
        "rate: 50MiB",
        "max: 500",
        "fair_between: clients",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let json = server.json("get group gold");
    assert_eq!(json["spec"]["requests"], json!({"rate": "20k"}));

    let list = server.say("list groups").done();
    let rows: Vec<&str> = list.lines().collect();
    let first = |row: &str| row.split_whitespace().next().unwrap().to_owned();
    assert_eq!(
        rows.iter().copied().map(first).collect::<Vec<_>>(),
        ["NAME", "gold", "silver"]
    );
    assert!(rows[1].contains("20k") && rows[1].contains("api"), "{list}");
    assert!(
        rows[2].contains("500") && rows[2].contains("file"),
        "{list}"
    );

    assert_eq!(
        server.say("delete group gold").done(),
        "group gold deleted\n"
    );
    server
        .say("get group gold")
        .failed(3, "no group is called \"gold\"");
    server
        .say("delete group gold")
        .failed(3, "group gold: there is no such group");
}

#[test]
fn what_get_prints_can_be_put() {
    let server = Server::start();
    let yaml = "requests: {rate: 1.5k, burst: 20, guaranteed: {3: 10}}\nconcurrency: {max: 5}\n";
    let args = ["put", "group", "gold", "-f", "-", "--server", &server.url];
    assert_eq!(say(&args, yaml).done(), "group gold created\n");
    let shown = server.say("get group gold").done();
    let again = file(&shown);
    let line = format!("put group copy -f {}", again.path().to_str().unwrap());
    server.say(&line).done();
    let spec = |name: &str| server.json(&format!("get group {name}"))["spec"].clone();
    assert_eq!(spec("copy"), spec("gold"));
    assert_eq!(spec("copy")["requests"]["burst"], 20);

    let tabbed = file("{\n\t\"requests\": {\"rate\": 7}\n}");
    let line = format!(
        "put override tenant/x -f {}",
        tabbed.path().to_str().unwrap()
    );
    let put = server.say(&line).done();
    let want = "override tenant/x created (no Envoy has or wants a lease of it)\n";
    assert_eq!(put, want);
    let shown = server.say("get override tenant/x").done();
    assert!(shown.contains("rate: 7"), "{shown}");
    assert_eq!(
        server.say("delete override tenant/x").done(),
        "override tenant/x deleted\n"
    );
}

#[test]
fn put_changes_the_fields_that_it_names_and_begins_with_what_the_file_says() {
    let server = Server::start();
    let spec = |kind_and_name: &str| server.json(&format!("get {kind_and_name}"))["spec"].clone();
    server
        .say("put group gold --requests 20k --concurrency 500")
        .done();
    server
        .say("put group gold --burst 40k --set concurrency.safe=5")
        .done();
    let want = json!({
        "requests": {"rate": "20k", "burst": "40k"}, "concurrency": {"max": 500, "safe": 5},
    });
    assert_eq!(spec("group gold"), want);
    server.say("put group gold --set concurrency=null").done();
    assert_eq!(
        spec("group gold"),
        json!({"requests": {"rate": "20k", "burst": "40k"}})
    );

    let put = server.say("put override tenant/zed --requests 70").done();
    assert!(
        put.ends_with("created (no Envoy has or wants a lease of it)\n"),
        "{put}"
    );
    let want = json!({"rate": 70, "headroom": 0});
    assert_eq!(spec("override tenant/zed")["requests"], want);

    for twice in [
        "--requests 5 --set requests=null",
        "--requests 5 --set requests.rate=6",
    ] {
        let put = server.say(&format!("put override tenant/zed {twice}"));
        put.failed(2, "are both set");
    }
    server
        .say("put override tenant/zed")
        .failed(2, "no field is named");
    server
        .say("put override tenant/zed --set requests.bursts=5")
        .failed(2, "requests.bursts");
    server
        .say("put override tenant/zed --set requests")
        .failed(2, "is not FIELD=VALUE");
    server
        .say("put override tenant/zed --requests 5 --create")
        .failed(5, "override tenant/zed");
}

#[test]
fn a_raise_holds_over_the_file_until_it_is_undone() {
    let server = Server::start();
    let rate = |scope: &str| {
        let limits = server.json(&format!("get limit {scope}"));
        limits["own"]["units"]["requests"]["capacity"].as_f64()
    };
    let output = server
        .say("raise tenant/acme --requests 2k --burst 4k --for 1h")
        .done();
    assert!(
        output.starts_with("tenant/acme is raised until 2"),
        "{output}"
    );
    assert_eq!(rate("tenant/acme"), Some(2000.0));
    let shown = server.say("get limit tenant/acme").done();
    assert!(shown.contains("raised until 2"), "{shown}");
    server
        .say("raise group/silver --requests 5 --for 30m")
        .done();
    assert_eq!(rate("group/silver"), Some(5.0));
    let list = server.say("list raises").done();
    assert!(
        list.contains("group/silver") && list.contains("tenant/acme"),
        "{list}"
    );
    let undone = server.say("unraise tenant/acme").done();
    assert_eq!(undone, "tenant/acme is not raised any more\n");
    assert_eq!(rate("tenant/acme"), Some(100.0));
    server
        .say("unraise tenant/acme")
        .failed(3, "there is no such raise");
    server
        .say("raise tenant/acme --for 1h")
        .failed(2, "no field is named");
}

#[test]
fn tenants_and_namespaces_are_attached_and_detached() {
    let server = Server::start();
    let attached = server.say("attach tenant bee silver --weight 3").done();
    assert_eq!(attached, "tenant bee attached to silver\n");
    let attached = server.say("attach namespace bee/orders silver").done();
    assert_eq!(attached, "namespace bee/orders attached to silver\n");
    let shown = server.say("get tenant bee").done();
    assert!(
        shown.contains("group: silver\n") && shown.contains("weight: 3\n"),
        "{shown}"
    );
    let list = server.json("list tenants");
    assert_eq!(list["attachments"][0]["name"], "bee");
    assert_eq!(list["attachments"][0]["spec"]["weight"], 3);
    let list = server.say("list namespaces").done();
    assert!(
        list.contains("bee/orders") && list.contains("silver"),
        "{list}"
    );
    let limit = server.json("get limit tenant/bee");
    assert_eq!(limit["group"]["name"], "silver");
    let limit = server.say("get limit tenant/bee").done();
    let lines: Vec<&str> = limit.lines().collect();
    let first = "tenant/bee, member of group silver with weight 3";
    assert!(lines[0].starts_with(first), "{limit}");
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let own = [
        "file:",
        "tenant/*",
        "requests",
        "1000",
        "1000",
        "-",
        "fair_share",
        "10s",
        "1s",
    ];
    assert_eq!(words(lines[2]), own, "{limit}");
    assert_eq!(
        words(lines[3])[..4],
        ["group", "silver", "requests", "500"],
        "{limit}"
    );
    assert_eq!(
        server.say("detach namespace bee/orders").done(),
        "namespace bee/orders detached\n"
    );
    assert_eq!(
        server.say("detach tenant bee").done(),
        "tenant bee detached\n"
    );
    server.say("get tenant bee").failed(3, "bee");
    server.say("detach tenant bee").failed(3, "bee");
}

#[test]
fn limits_are_listed_in_their_order_and_units() {
    let server = Server::start();
    let list = server.say("list limits").done();
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let rows: Vec<_> = list.lines().map(words).collect();
    let want = [
        ["MATCH", "REQUESTS", "REQUEST_BYTES"],
        ["tenant/acme", "100", "50MiB"],
        ["tenant/*", "1000", "-"],
        ["*", "unlimited", "-"],
    ];
    assert_eq!(rows, want, "{list}");
}

#[test]
fn conflicts_end_with_5() {
    let server = Server::start();
    server.say("put group gold --requests 5").done();
    server.say("attach tenant bee gold").done();
    server.say("delete group gold").failed(5, "bee");
    server
        .say("put group silver --requests 5")
        .failed(5, "file");
    server
        .say("put group gold --requests 6 --create")
        .failed(5, "");
    let revision = server.json("get group gold")["revision"].to_string();
    let with = |revision: &str| {
        server.say(&format!(
            "put group gold --requests 6 --if-match {revision}"
        ))
    };
    with("99999").failed(5, "group gold: ");
    with(&revision).done();
    with(&revision).failed(5, "group gold: ");
    with("*").done();
    let gone = "delete override tenant/x --if-match *";
    server
        .say(gone)
        .failed(5, "override tenant/x: it does not exist");
}

#[test]
fn bad_input_ends_with_2_and_names_field_and_rule() {
    let server = Server::start();
    let list = file("- 1");
    let list = format!("put group gold -f {}", list.path().to_str().unwrap());
    let rows = [
        (
            "put group gold --requests=-5",
            "requests.rate: -5 is negative",
        ),
        (
            "put group gold --requests -5 --concurrency -0.5",
            "concurrency.max: -0.5 is negative; requests.rate: -5 is negative",
        ),
        (
            "put group gold --requests --concurrency 5",
            "a value is required for '--requests <RATE>'",
        ),
        (
            "attach tenant acme silver --weight -1",
            "weight: \"-1\" is not",
        ),
        (
            "drain a --for never",
            "for: \"never\" is not a duration like 10m",
        ),
        (
            "drain a --for 0s",
            "for: \"0s\" is not between 1ms and a day",
        ),
        ("drain a --for", "a value is required for '--for <TIME>'"),
        ("put group gold --requests many", "requests.rate"),
        ("put group gold --fair-between all", "fair_between"),
        ("put group gold", "no field is named"),
        ("put group gold --requests 1 -f x", "cannot be used with"),
        ("put group gold -f /no/such", "/no/such: No such file"),
        (list.as_str(), "is no mapping of units to limits"),
        ("put tenant acme --requests 1", "invalid value 'tenant'"),
        ("attach namespace acme silver", "say TENANT/NAMESPACE"),
        ("attach tenant acme silver --weight 0", "weight"),
        (
            "attach tenant acme nowhere",
            "there is no group called \"nowhere\"",
        ),
        ("list scopes --limit 0", "limit"),
        ("delete scope a", "invalid value 'scope'"),
    ];
    for (line, want) in rows {
        server.say(line).failed(2, want);
    }
}

#[test]
fn every_write_is_logged_however_many_there_are() {
    let server = Server::start();
    for _ in 0..25 {
        server.say("put group gold --requests 5").done();
    }
    let (code, log) = server.serve.end("TERM");
    assert_eq!(code, 0, "{log}");
    let written = log
        .lines()
        .filter(|line| line.contains("audit: admin API: write"));
    assert_eq!(written.count(), 25, "{log}");
}
