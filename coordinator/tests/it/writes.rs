//! Writes through the admin API: groups, attachments, overrides, and callers that are refused.

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::{Answer, Ask, Coordinator};

const YAML: &str = "- {match: tenant/fixed, requests: {rate: 7}}
- {match: 'tenant/*', requests: {rate: 100, headroom: 0}}
groups: {file: {requests: {rate: 50}}}
attach: {tenants: {old: file}}
bounds: {max_groups: 3}";

pub(crate) async fn coordinator() -> Coordinator {
    Coordinator::start(YAML).await
}

/// The status of an answer, and its body.
pub(crate) fn status_and_body(answer: &Answer) -> (u16, Value) {
    let body = if answer.body.is_empty() {
        Value::Null
    } else {
        answer.json()
    };
    (answer.status, body)
}

#[tokio::test]
async fn a_merge_patch_changes_single_fields() {
    let coordinator = coordinator().await;
    let patch = async |path: &str, body: &str| {
        let answer = coordinator.ask(&Ask::patch(path, body)).await;
        (answer.status, answer.json()["spec"].clone())
    };
    let group = "/v1/groups/gold";
    let spec = json!({"requests": {"rate": "1k"}});
    assert_eq!(patch(group, &spec.to_string()).await, (201, spec));
    let (status, spec) = patch(
        group,
        r#"{"requests": {"burst": 5}, "concurrency": {"max": 7}}"#,
    )
    .await;
    let want = json!({"requests": {"rate": "1k", "burst": 5}, "concurrency": {"max": 7}});
    assert_eq!((status, spec), (200, want));
    let (_, spec) = patch(group, r#"{"requests": null}"#).await;
    assert_eq!(spec, json!({"concurrency": {"max": 7}}));
    // The file's limits for acme, but for the rate.
    let (status, spec) = patch("/v1/overrides/tenant/acme", r#"{"requests": {"rate": 7}}"#).await;
    assert_eq!((status, &spec["requests"]["rate"]), (201, &json!(7)));
    for (path, body, want) in [
        (group, r#"{"requests": {"bursts": 5}}"#, 422),
        (group, r#"{"concurrency": {"max": -1}}"#, 422),
        (group, "[]", 422),
        ("/v1/groups/file", r#"{"requests": {"rate": 5}}"#, 409),
    ] {
        assert_eq!(patch(path, body).await.0, want, "{path} {body}");
    }
    let stale = Ask::patch(group, "{}").header("if-match", "\"1\"");
    assert_eq!(coordinator.ask(&stale).await.status, 412);
    // Of many at a time each changes its own field.
    let bodies: Vec<String> = (0..4)
        .map(|band| format!(r#"{{"concurrency": {{"guaranteed": {{"{band}": 1}}}}}}"#))
        .collect();
    let [a, b, c, d] = [0, 1, 2, 3].map(|index| patch(group, &bodies[index]));
    let answers = tokio::join!(a, b, c, d);
    assert_eq!(
        [answers.0.0, answers.1.0, answers.2.0, answers.3.0],
        [200; 4]
    );
    let spec = coordinator.get(group).await.json()["spec"].clone();
    assert_eq!(
        spec["concurrency"]["guaranteed"].as_object().unwrap().len(),
        4,
        "{spec}"
    );
}

#[tokio::test]
async fn a_group_is_created_replaced_read_and_deleted() {
    let coordinator = coordinator().await;
    let put = Ask::put("/v1/groups/gold", r#"{"requests": {"rate": "1k"}}"#);
    let created = coordinator.ask(&put).await;
    assert_eq!(created.status, 201);
    let first = created.header("etag").to_owned();
    let body = created.json();
    assert_eq!(format!("\"{}\"", body["revision"]), first);
    assert_eq!(body["spec"], json!({"requests": {"rate": "1k"}}));

    // The whole is replaced: what is absent or null has no limit any more.
    let spec = r#"{"requests": null, "concurrency": {"max": 5}, "fair_between": "clients"}"#;
    let replaced = coordinator.ask(&Ask::put("/v1/groups/gold", spec)).await;
    assert_eq!(replaced.status, 200);
    assert_ne!(replaced.header("etag"), first);
    let got = coordinator.get("/v1/groups/gold").await;
    assert_eq!(got.header("etag"), replaced.header("etag"));
    let want = json!({
        "name": "gold", "defined_by": "api", "revision": replaced.json()["revision"],
        "attached_count": 0,
        "spec": {"concurrency": {"max": 5}, "fair_between": "clients"},
    });
    assert_eq!(got.json(), want);
    let known = Ask::get("/v1/groups/gold").header("if-none-match", got.header("etag"));
    let known = coordinator.ask(&known).await;
    assert_eq!((known.status, known.body.as_str()), (304, ""));

    let deleted = coordinator.ask(&Ask::delete("/v1/groups/gold")).await;
    assert_eq!((deleted.status, deleted.body.as_str()), (204, ""));
    assert_eq!(coordinator.get("/v1/groups/gold").await.status, 404);
    let again = coordinator.ask(&Ask::delete("/v1/groups/gold")).await;
    assert_eq!(again.status, 404);
}

#[tokio::test]
async fn what_is_written_is_in_force_when_it_is_answered() {
    let coordinator = coordinator().await;
    let attach = Ask::put("/v1/attachments/tenants/acme", r#"{"group": "file"}"#);
    assert_eq!(coordinator.ask(&attach).await.status, 201);
    let limits = coordinator.get("/v1/limits/tenant/acme").await.json();
    let source = json!({"kind": "file", "match": "tenant/*"});
    assert_eq!(limits["own"]["source"], source);
    assert_eq!(limits["own"]["units"]["requests"]["capacity"], 100.0);
    assert_eq!(limits["group"]["name"], "file");
    assert_eq!(limits["group"]["weight"], 1);
    let detach = Ask::delete("/v1/attachments/tenants/acme");
    assert_eq!(coordinator.ask(&detach).await.status, 204);

    let spec = r#"{"requests": {"rate": 40, "headroom": 0}}"#;
    let over = coordinator
        .ask(&Ask::put("/v1/overrides/tenant/acme", spec))
        .await;
    assert_eq!(over.status, 201);
    let (scope, asks) = ("tenant/acme", (0.0, 500.0));
    assert_eq!(coordinator.gets("a", scope, 1, asks).await, 40.0);
    let limits = coordinator.get("/v1/limits/tenant/acme").await.json();
    let revision = &over.json()["revision"];
    let source = json!({"kind": "override", "revision": revision});
    assert_eq!(limits["own"]["source"], source);
    assert_eq!(limits["group"], Value::Null);
}

#[tokio::test]
async fn what_the_file_defines_is_not_changed_and_what_is_used_not_deleted() {
    let coordinator = coordinator().await;
    let spec = r#"{"requests": {"rate": 1}}"#;
    let of_file = [
        Ask::put("/v1/groups/file", spec),
        Ask::delete("/v1/groups/file"),
        Ask::put("/v1/attachments/tenants/old", r#"{"group": "file"}"#),
        Ask::delete("/v1/attachments/tenants/old"),
        Ask::put("/v1/overrides/tenant/fixed", spec),
        Ask::delete("/v1/overrides/tenant/fixed"),
    ];
    for ask in of_file {
        let (status, problem) = status_and_body(&coordinator.ask(&ask).await);
        let name = format!("{} {}: {problem}", ask.method, ask.path);
        assert_eq!(status, 409, "{name}");
        assert_eq!(
            problem["type"], "urn:tollgate:problem:defined-in-file",
            "{name}"
        );
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.contains("the configuration file defines this"),
            "{name}"
        );
    }
    let group = coordinator.get("/v1/groups/file").await;
    assert_eq!(group.json()["defined_by"], "file");
    assert_eq!(group.json()["attached_count"], 1);
    assert_eq!(group.header("etag"), "");

    coordinator.ask(&Ask::put("/v1/groups/gold", spec)).await;
    let attach = Ask::put(
        "/v1/attachments/namespaces/acme/orders",
        r#"{"group": "gold"}"#,
    );
    coordinator.ask(&attach).await;
    let (status, problem) =
        status_and_body(&coordinator.ask(&Ask::delete("/v1/groups/gold")).await);
    assert_eq!(
        (status, &problem["type"]),
        (409, &json!("urn:tollgate:problem:attached"))
    );
    let detail = "1 are attached to this group, such as the namespace \"acme/orders\"";
    assert_eq!(problem["detail"], detail);
    let detach = Ask::delete("/v1/attachments/namespaces/acme/orders");
    assert_eq!(coordinator.ask(&detach).await.status, 204);
    assert_eq!(
        coordinator
            .ask(&Ask::delete("/v1/groups/gold"))
            .await
            .status,
        204
    );
}

#[tokio::test]
async fn a_bad_body_names_field_value_and_rule() {
    let coordinator = coordinator().await;
    let rows = [
        (
            "/v1/groups/gold",
            r#"{"requests": {"rate": -5}}"#,
            ("requests.rate", json!("-5"), "-5 is negative"),
        ),
        (
            "/v1/groups/gold",
            r#"{"requests": {"rate": 5, "burst": 0.5}}"#,
            ("requests.burst", json!("0.5"), "0.5 is less than one token"),
        ),
        (
            "/v1/groups/a%2Fb",
            "{}",
            (
                "name",
                Value::Null,
                "has a `/`, and a name of this kind is one segment",
            ),
        ),
        (
            "/v1/attachments/tenants/acme",
            r#"{"group": "nowhere"}"#,
            (
                "group",
                json!("nowhere"),
                "there is no group called \"nowhere\"",
            ),
        ),
        (
            "/v1/attachments/tenants/acme",
            r#"{"group": "file", "weight": 0}"#,
            (
                "weight",
                json!("0"),
                "\"0\" is not a weight, a whole number from 1 to 1000000",
            ),
        ),
        (
            "/v1/overrides/group/gold",
            r#"{"requests": {"rate": 5}}"#,
            (
                "scope",
                Value::Null,
                "is the scope of a group: change the group",
            ),
        ),
    ];
    for (path, body, (field, value, rule)) in rows {
        let (status, problem) = status_and_body(&coordinator.ask(&Ask::put(path, body)).await);
        assert_eq!(status, 422, "{path} {body}: {problem}");
        assert_eq!(problem["field"], field, "{path} {body}");
        assert_eq!(problem["value"], value, "{path} {body}");
        assert_eq!(problem["rule"], rule, "{path} {body}");
    }
    let two = r#"{"requests": {"rate": -5}, "concurrency": {"max": "many"}}"#;
    let (_, problem) = status_and_body(&coordinator.ask(&Ask::put("/v1/groups/gold", two)).await);
    let fields = problem["errors"].as_array().unwrap().iter();
    let fields: Vec<_> = fields.map(|error| &error["field"]).collect();
    assert_eq!(fields, ["requests.rate", "concurrency.max"]);
    assert_eq!(coordinator.get("/v1/groups/gold").await.status, 404);
}

#[tokio::test]
async fn what_is_no_good_request_changes_nothing() {
    let coordinator = coordinator().await;
    let put = |body: &str| Ask::put("/v1/groups/gold", body);
    let plain = Ask::new("PUT", "/v1/groups/gold").header("content-type", "text/plain");
    let long = format!("{{\"requests\": {{\"rate\": \"{}\"}}}}", "9".repeat(70_000));
    let rows = [
        (put("{"), 400),
        (put(""), 400),
        (put("[1]"), 422),
        (put("\"gold\""), 422),
        (put("{\"request\": {}}"), 422),
        (
            put("{\"requests\": {\"rate\": 1}, \"requests\": {\"rate\": 2}}"),
            422,
        ),
        (put("{\"requests\": {\"rate\": [1]}}"), 422),
        (plain, 415),
        (put(&long), 413),
        (put("{}").header("if-match", "1"), 400),
        (
            put("{}")
                .header("if-match", "*")
                .header("if-none-match", "*"),
            400,
        ),
        (Ask::new("POST", "/v1/groups/gold"), 405),
        (Ask::put("/v1/groups", "{}"), 405),
        (Ask::put("/v1/groups/", "{}"), 404),
        (Ask::put("/v1/groups/%FF", "{}"), 400),
        (Ask::put("/v1/groups/a%0Ab", "{}"), 422),
        (Ask::put("/v1/attachments/tenants/a/b", "{}"), 404),
    ];
    for (ask, want) in rows {
        let answer = coordinator.ask(&ask).await;
        let message = format!("{} {} {}", ask.method, ask.path, ask.headers);
        assert_eq!(answer.status, want, "{message}: {}", answer.body);
        let kind = answer.header("content-type");
        assert_eq!(kind, "application/problem+json", "{message}");
        assert_eq!(answer.json()["status"], want, "{message}");
    }
    let groups = coordinator.get("/v1/groups").await.json();
    assert_eq!(groups["groups"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn names_are_decoded_once() {
    let coordinator = coordinator().await;
    let spec = r#"{"requests": {"rate": 1}}"#;
    let names = [
        ("b%C3%BCcher%20%26%20co", "bücher & co"),
        ("100%25", "100%"),
        ("a%252Fb", "a%2Fb"),
    ];
    for (path, name) in names {
        let path = format!("/v1/groups/{path}");
        let created = coordinator.ask(&Ask::put(&path, spec)).await;
        assert_eq!(created.json()["name"], name);
        assert_eq!(coordinator.get(&path).await.json()["name"], name);
        assert_eq!(coordinator.ask(&Ask::delete(&path)).await.status, 204);
    }
    let over = "/v1/overrides/namespace/a%25/b%2Fc";
    let created = coordinator.ask(&Ask::put(over, spec)).await;
    assert_eq!(created.json()["scope"], "namespace/a%/b/c");
    let also = coordinator.get("/v1/overrides/namespace/a%25/b/c").await;
    assert_eq!(also.status, 200);
}

#[tokio::test]
async fn of_writers_who_expect_the_same_one_wins() {
    let coordinator = coordinator().await;
    let address = coordinator.http;
    let race = async |tag: (&'static str, String)| {
        let mut writers = JoinSet::new();
        for rate in 0..20 {
            let body = format!("{{\"requests\": {{\"rate\": {rate}}}}}");
            let put = Ask::put("/v1/groups/gold", &body).header(tag.0, &tag.1);
            writers.spawn(async move { (rate, Answer::of(address, &put).await) });
        }
        let answers = writers.join_all().await;
        let (won, lost): (Vec<_>, Vec<_>) = answers
            .into_iter()
            .partition(|(_, answer)| answer.status < 400);
        assert_eq!(won.len(), 1, "{}", tag.0);
        assert!(lost.iter().all(|(_, answer)| answer.status == 412));
        let (rate, answer) = &won[0];
        let group = coordinator.get("/v1/groups/gold").await;
        assert_eq!(group.json()["spec"]["requests"]["rate"], *rate);
        assert_eq!(group.header("etag"), answer.header("etag"));
        answer.header("etag").to_owned()
    };
    let first = race(("if-none-match", "*".to_owned())).await;
    let second = race(("if-match", first.clone())).await;
    let late = Ask::delete("/v1/groups/gold").header("if-match", &first);
    assert_eq!(coordinator.ask(&late).await.status, 412);
    let right = Ask::delete("/v1/groups/gold").header("if-match", &second);
    assert_eq!(coordinator.ask(&right).await.status, 204);
    let gone = Ask::put("/v1/groups/gold", "{}").header("if-match", "*");
    assert_eq!(coordinator.ask(&gone).await.status, 412);
}

#[tokio::test]
async fn lists_come_in_pages_and_bounds_are_told() {
    let coordinator = coordinator().await;
    for name in ["a", "b", "z"] {
        let path = format!("/v1/groups/{name}");
        assert_eq!(coordinator.ask(&Ask::put(&path, "{}")).await.status, 201);
        let path = format!("/v1/attachments/tenants/{name}");
        let attach = Ask::put(&path, &format!("{{\"group\": \"{name}\", \"weight\": 2}}"));
        assert_eq!(coordinator.ask(&attach).await.status, 201);
    }
    let (status, problem) =
        status_and_body(&coordinator.ask(&Ask::put("/v1/groups/c", "{}")).await);
    assert_eq!(
        (status, &problem["type"]),
        (409, &json!("urn:tollgate:problem:bound-reached"))
    );
    for (list, path, want) in [
        ("groups", "/v1/groups", ["a", "b", "file", "z"]),
        (
            "attachments",
            "/v1/attachments/tenants",
            ["a", "b", "old", "z"],
        ),
    ] {
        let mut names = Vec::new();
        let mut after = String::new();
        loop {
            let query = format!("{path}?limit=3&after={after}");
            let page = coordinator.get(&query).await.json();
            let entries = page[list].as_array().unwrap();
            assert!(!entries.is_empty() && entries.len() <= 3, "{query}");
            names.extend(entries.iter().map(|entry| entry["name"].clone()));
            match page["next"].as_str() {
                Some(next) => after = next.to_owned(),
                None => break,
            }
        }
        assert_eq!(names, want, "{path}");
    }
    let limits = coordinator.get("/v1/limits?limit=1").await.json();
    assert_eq!(limits["limits"][0]["match"], "tenant/fixed");
    assert_eq!(limits["next"], "tenant/fixed");
    let limits = coordinator
        .get("/v1/limits?after=tenant/fixed")
        .await
        .json();
    assert_eq!(limits["limits"][0]["match"], "tenant/*");
    assert_eq!(limits["next"], Value::Null);
}

#[tokio::test]
async fn clients_are_listed_with_their_leases() {
    let coordinator = coordinator().await;
    let scopes = [("tenant/a", 1, 0.0, 60.0), ("tenant/b", 1, 0.0, 60.0)];
    coordinator.refresh("envoy/1", &scopes).await;
    coordinator.refresh("envoy/2", &scopes[..1]).await;
    let page = coordinator.get("/v1/clients?limit=1").await.json();
    let one = json!({"client": "envoy/1", "resource_count": 2, "waiting_count": 0});
    assert_eq!(page["clients"], json!([one]));
    assert_eq!(page["next"], "envoy/1");
    let rest = coordinator.get("/v1/clients?after=envoy/1").await.json();
    let two = json!({"client": "envoy/2", "resource_count": 1, "waiting_count": 1});
    assert_eq!(rest, json!({"clients": [two], "next": null}));
    let client = coordinator.get("/v1/clients/envoy%2F1").await.json();
    assert_eq!(client["lease_count"], 2);
    assert_eq!(client["leases"][1]["scope"], "tenant/b");
    assert_eq!(client["leases"][1]["has"], 60.0);
    assert_eq!(coordinator.get("/v1/clients/envoy%2F3").await.status, 404);
}

#[tokio::test]
async fn a_drained_client_gets_nothing_until_it_is_let_serve_again() {
    let coordinator = coordinator().await;
    let gets = async |client, sequence, has| {
        let asks = (has, 80.0);
        coordinator
            .gets(client, "tenant/acme", sequence, asks)
            .await
    };
    assert_eq!(gets("envoy/1", 1, 0.0).await, 80.0);
    assert_eq!(gets("envoy/2", 1, 0.0).await, 20.0);
    let path = "/v1/clients/envoy%2F1/drain";
    let drained = coordinator
        .ask(&Ask::new("POST", &format!("{path}?for=1h")))
        .await;
    assert_eq!(drained.status, 200, "{}", drained.body);
    let left = drained.json()["drained_for_ms"].as_u64().unwrap();
    assert!((3_590_000..=3_600_000).contains(&left), "{left}");
    // A later interval, so that it is answered anew; then it says that it has nothing more.
    tokio::time::sleep(std::time::Duration::from_millis(150)).await;
    assert_eq!(gets("envoy/1", 2, 80.0).await, 0.0);
    tokio::time::sleep(std::time::Duration::from_millis(150)).await;
    assert_eq!(gets("envoy/1", 3, 0.0).await, 0.0);
    assert_eq!(gets("envoy/2", 2, 20.0).await, 80.0);
    assert_eq!(coordinator.ask(&Ask::delete(path)).await.status, 204);
    let client = coordinator.get("/v1/clients/envoy%2F1").await.json();
    assert_eq!(client["drained_for_ms"], Value::Null);
    for bad in ["for=0s", "for=25h", "for=soon", "until=1"] {
        let ask = Ask::new("POST", &format!("{path}?{bad}"));
        assert_eq!(coordinator.ask(&ask).await.status, 400, "{bad}");
    }
    let nobody = Ask::new("POST", "/v1/clients/nobody/drain");
    assert_eq!(coordinator.ask(&nobody).await.status, 404);
}

#[tokio::test]
async fn a_pattern_is_no_name() {
    let coordinator = coordinator().await;
    let limits = r#"{"requests": {"rate": 5}}"#;
    let attachment = r#"{"group": "file"}"#;
    let rows = [
        ("/v1/overrides/a*", limits, "scope", "a*", '*'),
        ("/v1/overrides/tenant/%3F", limits, "scope", "tenant/?", '?'),
        (
            "/v1/overrides/tenant/%7Ba,b%7D",
            limits,
            "scope",
            "tenant/{a,b}",
            '{',
        ),
        ("/v1/groups/g*", limits, "name", "g*", '*'),
        ("/v1/attachments/tenants/*", attachment, "name", "*", '*'),
        (
            "/v1/attachments/namespaces/a/*",
            attachment,
            "name",
            "a/*",
            '*',
        ),
    ];
    for (path, body, field, value, character) in rows {
        let (status, problem) = status_and_body(&coordinator.ask(&Ask::put(path, body)).await);
        assert_eq!(status, 400, "{path}: {problem}");
        assert_eq!(problem["field"], field, "{path}");
        assert_eq!(problem["value"], value, "{path}");
        let rule = problem["rule"].as_str().unwrap();
        let want = format!("is a pattern because of its `{character}`");
        assert!(rule.starts_with(&want), "{rule}");
        assert_eq!(coordinator.get(path).await.status, 404, "{path}");
    }
    // A tenant may be called so, and its attachment has no other spelling.
    let odd = Ask::put("/v1/attachments/tenants/%5Beu%5D", attachment);
    assert_eq!(coordinator.ask(&odd).await.status, 201);
}
