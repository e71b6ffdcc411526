//! Quotas that people look at, change and export.

use tempfile::tempdir;

use super::{CommandOutput, Server};
use crate::binary::Serve;

/// A coordinator with the store at `path`.
fn server(path: &str) -> Server {
    Server::with(&format!(
        "listen: {{grpc: '127.0.0.1:0', http: '127.0.0.1:0'}}
store: {{path: {path}}}
limits:
- match: tenant/acme
  requests: {{rate: 10, quota: [{{amount: 1000, per: year}}, {{amount: 100k, per: 24h}}]}}
- {{match: 'tenant/*', requests: {{quota: {{amount: 50, per: year}}}}}}
- {{match: route/none, requests: {{rate: 5}}}}
groups: {{gold: {{requests: {{quota: {{amount: 16k, per: year}}}}}}}}
attach: {{tenants: {{member: gold}}}}
"
    ))
}

/// The same coordinator after it was killed.
fn after_a_crash(server: Server) -> Server {
    let Server { serve, _config, .. } = server;
    drop(serve);
    let serve = Serve::start(_config.path().to_str().unwrap(), &[]);
    let url = format!("http://{}", serve.address("http"));
    Server {
        serve,
        url,
        _config,
    }
}

fn lines(output: CommandOutput) -> Vec<String> {
    let lines = output.done();
    lines.lines().map(str::to_owned).collect()
}

/// The cells of a table's first row.
fn cells(lines: &[String]) -> Vec<&str> {
    lines[1].split_whitespace().collect()
}

#[test]
fn a_quota_is_set_and_credited_and_remembered_through_a_crash() {
    let directory = tempdir().unwrap();
    let store = directory.path().join("store.redb");
    let mut server = server(store.to_str().unwrap());
    let shown = lines(server.say("get quota tenant/bob"));
    assert_eq!(shown[0].split("  ").next(), Some("UNIT"));
    assert_eq!(
        cells(&shown)[..6],
        ["requests", "year", "50", "0", "0", "50"]
    );
    server.say("quota set-used tenant/bob 20").done();
    for _ in 0..2 {
        server
            .say("quota credit tenant/bob 5 --id ticket-7 --for 30d")
            .done();
    }
    server
        .say("quota credit tenant/bob 6 --id ticket-7")
        .failed(5, "was given with another amount");
    server.say("quota set-used group/gold 15k").done();
    server.say("quota reset tenant/acme --per 24h").done();
    for _ in 0..2 {
        let shown = lines(server.say("get quota tenant/bob"));
        assert_eq!(cells(&shown)[2..6], ["50", "20", "0", "35"], "{shown:?}");
        assert!(
            shown
                .iter()
                .any(|line| line.starts_with("ticket-7       5     5  ")),
            "{shown:?}"
        );
        assert!(
            shown.iter().any(|line| line.ends_with("  used set to 20")),
            "{shown:?}"
        );
        let shown = lines(server.say("get quota group/gold"));
        assert_eq!(cells(&shown)[2..6], ["16000", "15000", "0", "1000"]);
        let scopes = server.json("list quotas --limit 1000");
        let scopes = scopes["scopes"].as_array().unwrap();
        let names: Vec<_> = scopes
            .iter()
            .map(|one| one["scope"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["group/gold", "tenant/acme", "tenant/bob"]);
        let csv = server.say("quota export").done();
        assert!(
            csv.starts_with("scope,unit,per,from,until,used,amount\n"),
            "{csv}"
        );
        assert!(csv.contains("\ntenant/bob,requests,year,20"), "{csv}");
        let metrics = server.say("quota export --format openmetrics").done();
        assert!(
            metrics.contains("tollgate_quota_used{scope=\"tenant/bob\""),
            "{metrics}"
        );
        // The store knows, also before anyone asks for the scope.
        server = after_a_crash(server);
    }
}

#[test]
fn what_a_quota_cannot_be_changed_to_is_said() {
    let server = Server::with(
        "listen: {grpc: '127.0.0.1:0', http: '127.0.0.1:0'}
store: {path: memory}
limits:
- match: tenant/acme
  requests: {rate: 10, quota: [{amount: 1000, per: year}, {amount: 100k, per: 24h}]}
- {match: tenant/one, requests: {quota: {amount: 50, per: year}}}
groups: {gold: {requests: {quota: {amount: 1M, per: year}}}}
attach: {tenants: {member: gold}}
",
    );
    let both = "there are \"year\" of requests, \"24h\" of requests";
    let rows = [
        ("get quota route/none", 3, "route/none has no quota"),
        (
            "get quota tenant/member",
            3,
            "it shares those of group/gold",
        ),
        (
            "quota reset tenant/member",
            3,
            "it shares those of group/gold",
        ),
        ("quota reset tenant/acme", 2, both),
        (
            "quota reset tenant/one --per day",
            2,
            "per: fits none of \"year\" of requests",
        ),
        (
            "quota reset tenant/one --unit concurrency",
            2,
            "fits none of",
        ),
        ("quota set-used tenant/one -5", 2, "unexpected argument"),
        ("quota set-used tenant/one much", 2, "set_used: "),
        (
            "quota credit tenant/one 0 --id a",
            2,
            "credit.amount: is nothing",
        ),
        ("quota credit tenant/one 1", 2, "--id"),
        (
            "quota credit tenant/one 1 --id a --for 11years",
            2,
            "more than ten years from now",
        ),
    ];
    for (line, code, want) in rows {
        server.say(line).failed(code, want);
    }
    for id in 0..16 {
        server
            .say(&format!("quota credit tenant/one 1 --id {id}"))
            .done();
    }
    server.say("quota withdraw tenant/one --id 3").done();
    server.say("quota credit tenant/one 1 --id 3").done();
    server
        .say("quota withdraw tenant/one --id none")
        .failed(3, "no credit with this id");
    let seventeenth = server.say("quota credit tenant/one 1 --id 16");
    seventeenth.failed(5, "has 16 credits that have not expired");
}
