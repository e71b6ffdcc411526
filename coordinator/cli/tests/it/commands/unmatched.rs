//! Limits of rules that no client asks for, as commands show them.

use std::time::Duration;

use tollgate_core::lease_server::Start;

use super::{CommandOutput, say};
use crate::binary::file;
use crate::harness::Coordinator;

const FILE: &str = "limits:
- {match: 'tennant/*', requests: {rate: 5}}
- {match: 'tenant/*', requests: {rate: 5}}
- {match: '*', requests: {rate: 5}}";

/// Returns the output of `tollgate`, while this thread serves.
async fn run(args: &[&str]) -> CommandOutput {
    let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    let done = tokio::task::spawn_blocking(move || {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        say(&args, "")
    });
    done.await.unwrap()
}

async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_limit_of_an_unknown_rule_is_shown_and_warned_of() {
    let coordinator = Coordinator::with(FILE, Start::Fresh).await;
    let url = format!("http://{}", coordinator.http);
    let file = file(FILE);
    let path = file.path().to_str().unwrap();
    let check = ["check", path, "--against", &url];
    let early = run(&check).await;
    let note = format!("tollgate: not compared with {url}: no client has asked it yet\n");
    assert_eq!((early.code, early.err), (0, note));
    coordinator.gets("a", "tenant/acme", 1, (0.0, 1.0)).await;
    let early = run(&check).await;
    assert!(
        early.err.ends_with("and needs two minutes\n"),
        "{}",
        early.err
    );

    pass(Duration::from_secs(720)).await;
    let status = run(&["status", "--server", &url]).await.done();
    let (_, table) = status.split_once("NOT ASKED FOR  FROM  WHY\n").unwrap();
    let start =
        "tennant/*      file  no client has asked for a rule called tennant in the last 12m";
    assert!(table.starts_with(start), "{status}");
    assert!(table.ends_with("; did you mean tenant?\n"), "{status}");
    assert_eq!(table.lines().count(), 1, "{status}");

    let checked = run(&check).await;
    assert_eq!(checked.code, 0);
    let warning = ":2:11: limits[0].match: \"tennant/*\" limits nothing so far: no client has asked for a \
                   rule called tennant in the last 12m";
    assert!(
        checked.err.starts_with("tollgate: 1 warning in "),
        "{}",
        checked.err
    );
    assert!(checked.err.contains(warning), "{}", checked.err);
    let json = run(&["check", path, "--against", &url, "--json"])
        .await
        .json();
    assert_eq!(json["findings"][0]["field"], "limits[0].match");
    assert_eq!(json["findings"][0]["severity"], "warning");
}

#[tokio::test]
async fn a_file_is_not_compared_with_a_coordinator_that_is_away() {
    let file = file(FILE);
    let path = file.path().to_str().unwrap();
    let away = run(&["check", path, "--against", "http://127.0.0.1:1"]).await;
    away.failed(1, "no answer from http://127.0.0.1:1/v1/status");
    let bad = run(&["check", path, "--against", "localhost"]).await;
    bad.failed(
        2,
        "--against: \"localhost\" begins neither with http:// nor with https://",
    );
    let filter = crate::binary::file(r#"{"coordinator": "c", "scopes": []}"#);
    let path = filter.path().to_str().unwrap();
    let filter = run(&["check", path, "--against", "http://127.0.0.1:1"]).await;
    filter.failed(2, "a filter's configuration has no limits");
}
