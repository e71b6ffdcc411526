//! Metadata of routes and virtual hosts applies to their requests.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tollgate_tests::connection::get_once;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{Build, COORDINATOR, TENANT_HEADER, UPSTREAM, tollgate};

use crate::test_context::{TestContext, run_test};

/// `open/…` has a high limit; of `tenant/…` five pass at once, and another after half an hour.
const LIMITS: &str = "limits:\n  - match: \"open/*\"\n    requests: {rate: 100000}\n  \
    - match: \"*\"\n    requests: {rate: 0.0005, burst: 5}\n";

#[test]
fn routes_and_virtual_hosts_say_what_holds() {
    run_test("routes_and_virtual_hosts_say_what_holds", per_route);
}

async fn per_route(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let plugin = json!({"coordinator": COORDINATOR, "per_route": true, "scopes": [
        {"name": "tenant", "key": {"header": TENANT_HEADER}},
        {"name": "open", "key": {"header": TENANT_HEADER}},
    ]});
    let mut spec = EnvoySpec::new(
        "envoy",
        1,
        test.upstream.address(),
        vec![tollgate(&plugin)?],
    );
    let open = Some(json!({"scopes": ["open"]}));
    let dear = json!({"cost": 2, "scopes": ["tenant"]});
    spec.virtual_hosts = match Build::under_test()? {
        Build::Wasm => routes(open, dear, None),
        // Envoy tells dynamic modules the metadata of routes only.
        Build::Native => routes(None, dear, open),
    };
    let mut envoy = Envoy::start(test.dir(), &spec.asking(coordinator.grpc())).await?;
    let to = envoy.address();
    assert_eq!(
        passing(to, "/free", "a", 20).await?,
        20,
        "disabled for the route"
    );
    assert_eq!(
        passing(to, "/dear", "a", 20).await?,
        2,
        "two tokens each, of five"
    );
    assert_eq!(
        passing(to, "/", "a", 20).await?,
        20,
        "the rules of the virtual host, or of the last route"
    );
    let changed = routes(None, json!({"cost": 1}), None);
    ensure!(
        envoy.route(changed).await?,
        "the changed metadata is accepted"
    );
    let to = envoy.address();
    assert_eq!(
        passing(to, "/dear", "a", 20).await?,
        1,
        "one of five tokens is left"
    );
    assert_eq!(
        passing(to, "/", "b", 20).await?,
        5,
        "without metadata all rules apply"
    );
    let complaints = envoy.complaints();
    ensure!(complaints.is_empty(), "{complaints:?}");
    Ok(())
}

/// Virtual host with a free route, one with the metadata `dear`, and one with `rest` for the rest.
fn routes(virtual_host: Option<Value>, dear: Value, rest: Option<Value>) -> Value {
    let route = |prefix: &str, metadata: Option<Value>| {
        let mut route = json!({"match": {"prefix": prefix}, "route": {"cluster": UPSTREAM}});
        if let Some(metadata) = metadata {
            route["metadata"] = json!({"filter_metadata": {"tollgate": metadata}});
        }
        route
    };
    let mut host = json!({"name": "all", "domains": ["*"], "routes": [
        route("/free", Some(json!({"disabled": true}))),
        route("/dear", Some(dear)),
        route("/", rest),
    ]});
    if let Some(metadata) = virtual_host {
        host["metadata"] = json!({"filter_metadata": {"tollgate": metadata}});
    }
    json!([host])
}

/// Number of `requests` that pass.
async fn passing(to: SocketAddr, path: &str, tenant: &str, requests: usize) -> Result<usize> {
    let mut passed = 0;
    for _ in 0..requests {
        let answer = get_once(to, path, &[(TENANT_HEADER, tenant)]).await?;
        passed += usize::from(answer.status == 200);
    }
    Ok(passed)
}
