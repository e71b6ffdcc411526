//! Scope keys from all properties of a request that Envoy knows, over HTTP/1.1 and HTTP/2.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tollgate_tests::connection::get_once;
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{Build, COORDINATOR, UPSTREAM, tollgate};
use tollgate_tests::http2::Http2;
use tollgate_tests::wait;

use crate::test_context::{TestContext, run_test};

/// Admits everything; the coordinator's leases show the scopes of each request.
const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 100000}\n";
/// Signed with [`jwt_authn`]'s key: `{"iss": "tests", "sub": "alice", "team": {"name": "core"}}`.
const TOKEN: &str = "eyJhbGciOiAiSFMyNTYiLCAidHlwIjogIkpXVCIsICJraWQiOiAiayJ9.\
    eyJpc3MiOiAidGVzdHMiLCAic3ViIjogImFsaWNlIiwgInRlYW0iOiB7Im5hbWUiOiAiY29yZSJ9fQ.\
    mylxa320jhM6oyAJswJSbAT_Jk2SL0jF6qmZdOLSI7g";

#[test]
fn keys_come_from_all_that_envoy_knows_of_a_request() {
    run_test("keys_come_from_all_that_envoy_knows_of_a_request", keys);
}

async fn keys(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let envoy = start(test, &coordinator).await?;
    let authorization = format!("Bearer {TOKEN}");
    let fields = [
        ("x-tenant", " acme "),
        ("authorization", authorization.as_str()),
    ];
    let path = |version| format!("/{version}/tenants/acme%2Dinc/orders?region=eu%2dwest");
    let answer = get_once(envoy.address(), &path("h1"), &fields).await?;
    assert_eq!(answer.status, 200, "{answer:?}");
    let (connection, _running) = Http2::open(envoy.address()).await?;
    let answer = connection.get(&path("h2"), &fields).await?;
    assert_eq!(answer.status, 200, "{answer:?}");
    let authority = envoy.address().ip();
    // Envoy hands dynamic modules no nested metadata, and none of virtual hosts.
    let of_wasm = match Build::under_test()? {
        Build::Wasm => &[
            "claim/alice",
            "nested-claim/core",
            "vhost/team-of-vhost",
            "join/acme/alice",
        ][..],
        Build::Native => &[],
    };
    for scope in of_wasm {
        known(&coordinator, scope).await?;
    }
    for scope in [
        "query/eu-west",
        "segment/h1",
        "segment/h2",
        "template/acme-inc",
        "authority/localhost",
        &format!("authority/{authority}"),
        "source/127.0.0.0/8",
        "route/plan-of-route",
        "route-name/everything",
        "state/stateful",
        "constant/all",
        "missing/unknown",
        "when/all",
    ] {
        known(&coordinator, scope).await?;
    }
    let other = coordinator.leases("when-not/all").await?;
    assert!(
        other.is_none(),
        "a rule whose condition did not hold was applied"
    );
    let complaints = envoy.complaints();
    ensure!(complaints.is_empty(), "{complaints:?}");
    Ok(())
}

async fn known(coordinator: &Coordinator, scope: &str) -> Result<()> {
    let what = format!("the coordinator to know {scope}");
    wait::until(&what, Duration::from_secs(5), async || {
        let leases = coordinator.leases(scope).await?;
        ensure!(leases.is_some(), "the scope is unknown");
        Ok(())
    })
    .await
}

async fn start(test: &TestContext, coordinator: &Coordinator) -> Result<Envoy> {
    let mut rules = rules();
    if Build::under_test()? == Build::Native {
        rules.retain(|rule| {
            let text = rule["key"].to_string();
            !text.contains("payload") && !text.contains("virtual_host_metadata")
        });
        // A value that is not there is no error in Envoy's log.
        for key in [
            json!({"metadata": ["app", "none"]}),
            json!({"filter_state": "none"}),
        ] {
            let number = rules.len();
            rules.push(json!({"name": format!("none-{number}"), "key": key}));
        }
    }
    let plugin = json!({"coordinator": COORDINATOR, "scopes": rules});
    let filters = vec![jwt_authn(), filter_state(), tollgate(&plugin)?];
    let mut spec = EnvoySpec::new("envoy", 1, test.upstream.address(), filters);
    spec.virtual_hosts = json!([{
        "name": "all",
        "domains": ["*"],
        "metadata": {"filter_metadata": {"app": {"team": "team-of-vhost"}}},
        "routes": [{
            "name": "everything",
            "match": {"prefix": "/"},
            "metadata": {"filter_metadata": {"app": {"plan": "plan-of-route"}}},
            "route": {"cluster": UPSTREAM},
        }],
    }]);
    Envoy::start(test.dir(), &spec.asking(coordinator.grpc()))
        .await
        .context("an Envoy with every kind of key")
}

fn rules() -> Vec<Value> {
    let jwt = "envoy.filters.http.jwt_authn";
    let rule = |name: &str, key: Value| json!({"name": name, "key": key});
    vec![
        rule("query", json!({"query": "region"})),
        rule("segment", json!({"path": {"segment": 1}})),
        rule("template", json!({"path": "/*/tenants/{tenant}/**"})),
        rule("authority", json!({"authority": true})),
        rule("source", json!({"source_address": {"prefix_v4": 8}})),
        rule("claim", json!({"metadata": [jwt, "payload", "sub"]})),
        rule(
            "nested-claim",
            json!({"metadata": [jwt, "payload", "team", "name"]}),
        ),
        rule("route", json!({"route_metadata": ["app", "plan"]})),
        rule("vhost", json!({"virtual_host_metadata": ["app", "team"]})),
        rule("route-name", json!({"route_name": true})),
        rule("state", json!({"filter_state": "envoy.string"})),
        rule("constant", json!({"constant": "all"})),
        rule(
            "join",
            json!({"join": [
            {"header": "x-tenant"}, {"metadata": [jwt, "payload", "sub"]}]}),
        ),
        rule("missing", json!({"header": "x-none"})),
        json!({"name": "when", "key": {"constant": "all"},
               "when": {"methods": ["GET"], "path_prefix": ["/h1/", "/h2/"]}}),
        json!({"name": "when-not", "key": {"constant": "all"},
               "when": {"not": {"headers": {"x-tenant": true}}}}),
    ]
}

fn jwt_authn() -> Value {
    let key = "dG9sbGdhdGUtdGVzdHMtc2VjcmV0LW9mLTMyLWJ5dGVz";
    let keys = json!({"keys": [{"kty": "oct", "kid": "k", "alg": "HS256", "k": key}]});
    json!({
        "name": "envoy.filters.http.jwt_authn",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
            "providers": {"tests": {
                "issuer": "tests",
                "payload_in_metadata": "payload",
                "local_jwks": {"inline_string": keys.to_string()},
            }},
            "rules": [{"match": {"prefix": "/"}, "requires": {"provider_name": "tests"}}],
        },
    })
}

fn filter_state() -> Value {
    json!({
        "name": "envoy.filters.http.set_filter_state",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.set_filter_state.v3.Config",
            "on_request_headers": [{
                "object_key": "envoy.string",
                "format_string": {"text_format_source": {"inline_string": "stateful"}},
            }],
        },
    })
}
