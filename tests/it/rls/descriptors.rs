//! Descriptors of a route, as Envoy's own filter sends them: their hits, when they begin and when they end,
//! limits of their own, quotas, and metadata for the access log.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tollgate_tests::connection::{Answer, get_once};
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::faulty_upstream::FaultyUpstream;
use tollgate_tests::filter::{COORDINATOR, TENANT_HEADER, global_rate_limit};
use tollgate_tests::{artifact, wait};

use self::routes::{MODEL_HEADER, PAID_HEADER, PLAN, ROUTE_HEADER, virtual_hosts};
use crate::harness::NO_FILTER;
use crate::test_context::{TestContext, run_wasm_test, s};

mod routes;

/// Bursts that do not come back within a test.
const CONFIG: &str = "limits:
  - {match: \"model/*\", requests: {rate: 0.01, burst: 2}}
  - {match: \"special/*\", requests: {rate: 0.01, burst: 1}}
  - {match: \"*\", requests: {rate: 0.01, burst: 10}}
rls:
  domains:
    tollgate:
      response_headers: true
      dynamic_metadata: true
      scopes:
        - {scope: \"paid/{paid}\", debt: true}
        - {scope: \"model/{model}\", quota_mode: true}
        - {scope: \"special/{tenant}\", values: {generic_key: special}, replaces: [usual]}
        - {scope: \"tenant/{tenant}\", name: usual}
";

#[test]
fn envoys_own_filter_sends_what_a_route_says() {
    run_wasm_test(
        "envoys_own_filter_sends_what_a_route_says",
        NO_FILTER,
        descriptors,
    );
}

async fn descriptors(test: &TestContext) -> Result<()> {
    let upstream = FaultyUpstream::start().await?;
    let coordinator = test.coordinator(CONFIG).await?;
    let log = test.dir().join("access.log");
    let mut rate_limit = global_rate_limit(COORDINATOR);
    // Those of the filter would hold in the place of the routes'.
    rate_limit["typed_config"]["rate_limits"] = Value::Null;
    let filters = vec![plan(), cost()?, rate_limit];
    let mut spec = EnvoySpec::new("envoy", 1, upstream.address(), filters);
    spec.virtual_hosts = virtual_hosts();
    spec.access_log = vec![access_log(&log.to_string_lossy())];
    let envoy = Envoy::start(test.dir(), &spec.asking(coordinator.grpc())).await?;
    let to = envoy.address();
    hits(to).await?;
    costs_at_the_end(to).await?;
    hits_given_back(to).await?;
    own_limit(to).await?;
    quotas(to).await?;
    replaced(to).await?;
    paths(to).await?;
    let line = wait::until("a line of the access log", s(20.0), async || {
        let text = fs::read_to_string(&log)?;
        let lines = text.lines().map(serde_json::from_str::<Value>);
        let mut lines = lines.filter_map(Result::ok);
        let line = lines.find(|line| line["route"] == "number");
        line.context("no request of this route")
    });
    let metadata = &line.await?["metadata"];
    let want = json!({
        "domain": "tollgate",
        "descriptors": [{"entries": ["tenant=number"], "hitsAddend": 3}],
    });
    ensure!(*metadata == want, "{metadata}");
    Ok(())
}

/// Hits are a number, or what a header says. None looks only; without a number there is no descriptor.
async fn hits(to: SocketAddr) -> Result<()> {
    until_left(to, (TENANT_HEADER, "number"), 10).await?;
    let answer = by_tenant(to, "number", "/ok", "number").await?;
    ensure!(passed(&answer) == Some(7), "{answer:?}");

    // In a route's own `rate_limits` Envoy does not read them, and one is charged.
    until_left(to, (TENANT_HEADER, "own"), 10).await?;
    let answer = by_tenant(to, "of-the-route", "/ok", "own").await?;
    ensure!(passed(&answer) == Some(9), "{answer:?}");

    let tenant = "format";
    until_left(to, (TENANT_HEADER, tenant), 10).await?;
    for (hits, status, remaining) in [
        ("4", 200, Some("6")),
        ("0", 200, Some("6")),
        ("many", 200, None),
        ("-1", 200, None),
        ("7", 429, Some("0")),
    ] {
        let headers = [
            (ROUTE_HEADER, "format"),
            (TENANT_HEADER, tenant),
            ("x-hits", hits),
        ];
        let answer = get_once(to, "/ok", &headers).await?;
        let left = answer.header("x-ratelimit-remaining");
        ensure!(
            (answer.status, left) == (status, remaining),
            "{hits}: {answer:?}"
        );
    }
    ensure!(left(to, TENANT_HEADER, tenant).await? == 6);
    Ok(())
}

/// A request looks when it begins, and is charged at its end for what the upstream has said.
async fn costs_at_the_end(to: SocketAddr) -> Result<()> {
    let ask = async |path| {
        let headers = [(ROUTE_HEADER, "cost"), (PAID_HEADER, "acme")];
        get_once(to, path, &headers).await
    };
    until_left(to, (PAID_HEADER, "acme"), 10).await?;
    let answer = ask("/cost/4").await?;
    ensure!(passed(&answer) == Some(10), "{answer:?}");
    until_left(to, (PAID_HEADER, "acme"), 6).await?;
    // More than there is.
    ensure!(ask("/cost/25").await?.status == 200);
    until_left(to, (PAID_HEADER, "acme"), 0).await?;
    let refused = ask("/cost/1").await?;
    ensure!(refused.status == 429, "{refused:?}");
    // A minute's tokens are owed at most, and one is needed: 1.6 at one in 100 s.
    let reset = refused.header("x-ratelimit-reset").context("no reset")?;
    ensure!((101..=160).contains(&reset.parse::<u64>()?), "{refused:?}");
    Ok(())
}

/// Hits that were taken and not used go back at the end.
async fn hits_given_back(to: SocketAddr) -> Result<()> {
    let tenant = (TENANT_HEADER, "refund");
    until_left(to, (tenant.0, tenant.1), 10).await?;
    let answer = by_tenant(to, "refund", "/cost/2", tenant.1).await?;
    ensure!(passed(&answer) == Some(5), "{answer:?}");
    until_left(to, tenant, 7).await?;
    let answer = by_tenant(to, "number", "/ok", tenant.1).await?;
    ensure!(passed(&answer) == Some(4), "{answer:?}");
    // The upstream has said nothing of a request that was refused, so nothing goes back.
    let refused = by_tenant(to, "refund", "/cost/2", tenant.1).await?;
    ensure!(refused.status == 429, "{refused:?}");
    ensure!(left(to, tenant.0, tenant.1).await? == 4);
    // A number goes back in any case: Envoy tells of the end of refused requests, too.
    let refused = by_tenant(to, "refund-number", "/ok", tenant.1).await?;
    ensure!(refused.status == 429, "{refused:?}");
    until_left(to, tenant, 9).await
}

/// A limit of a descriptor holds besides that of its scope.
async fn own_limit(to: SocketAddr) -> Result<()> {
    until_left(to, (TENANT_HEADER, "plan"), 10).await?;
    for remaining in [1, 0] {
        let answer = by_tenant(to, "plan", "/ok", "plan").await?;
        ensure!(passed(&answer) == Some(remaining), "{answer:?}");
    }
    let refused = by_tenant(to, "plan", "/ok", "plan").await?;
    ensure!(refused.status == 429, "{refused:?}");
    let limit = refused.header("x-ratelimit-limit");
    ensure!(limit == Some("2, 2;w=3600;name=\"usual\""), "{refused:?}");
    ensure!(left(to, TENANT_HEADER, "plan").await? == 8);
    Ok(())
}

/// Of quotas one that is left is enough.
async fn quotas(to: SocketAddr) -> Result<()> {
    for model in ["small", "large"] {
        until_left(to, (MODEL_HEADER, model), 2).await?;
    }
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let answer = get_once(to, "/ok", &[(ROUTE_HEADER, "quota")]).await?;
        statuses.push(answer.status);
    }
    // Two hits of the small one's two, then one of the large one's two, twice.
    ensure!(statuses == [200, 200, 429], "{statuses:?}");
    Ok(())
}

/// The special limit holds in the place of the usual one, whichever value of its key comes first.
async fn replaced(to: SocketAddr) -> Result<()> {
    let tenant = "replaced";
    until_left(to, (TENANT_HEADER, tenant), 10).await?;
    wait::until("the lease of the special limit", s(20.0), async || {
        let headers = [(ROUTE_HEADER, "special-look"), (TENANT_HEADER, tenant)];
        let answer = get_once(to, "/ok", &headers).await?;
        ensure!(is_leased(&answer), "{answer:?}");
        Ok(())
    })
    .await?;
    for status in [200, 429] {
        let answer = by_tenant(to, "special", "/ok", tenant).await?;
        ensure!(answer.status == status, "{answer:?}");
    }
    until_left(to, (TENANT_HEADER, tenant), 10).await?;
    Ok(())
}

/// A descriptor with further keys is none of the tenant's own.
async fn paths(to: SocketAddr) -> Result<()> {
    let tenant = (TENANT_HEADER, "paths");
    until_left(to, tenant, 10).await?;
    let answer = by_tenant(to, "paths", "/ok", tenant.1).await?;
    ensure!(passed(&answer) == Some(9), "{answer:?}");
    ensure!(left(to, tenant.0, tenant.1).await? == 9);
    Ok(())
}

async fn by_tenant(to: SocketAddr, route: &str, path: &str, tenant: &str) -> Result<Answer> {
    let headers = [(ROUTE_HEADER, route), (TENANT_HEADER, tenant)];
    get_once(to, path, &headers).await
}

/// The hits that are left, if the request passed.
fn passed(answer: &Answer) -> Option<u64> {
    let left = answer.header("x-ratelimit-remaining")?.parse().ok()?;
    (answer.status == 200).then_some(left)
}

/// Whether an answer tells of a leased limit, and not of the safe capacity until the first lease.
fn is_leased(answer: &Answer) -> bool {
    let limit = answer.header("x-ratelimit-limit");
    limit.is_some_and(|limit| limit.contains(";w=3600"))
}

/// Looks at the scope of a descriptor with the value of `header`, when it has its lease.
async fn left(to: SocketAddr, header: &str, value: &str) -> Result<u64> {
    wait::until("a lease", s(20.0), async || {
        let answer = get_once(to, "/ok", &[(ROUTE_HEADER, "look"), (header, value)]).await?;
        ensure!(is_leased(&answer), "{answer:?}");
        let left = answer.header("x-ratelimit-remaining").context("no rest")?;
        Ok(left.parse()?)
    })
    .await
}

/// Waits until a scope has `want` hits left: Envoy does not wait for the answer to what it tells at the end.
async fn until_left(to: SocketAddr, (header, value): (&str, &str), want: u64) -> Result<()> {
    let limit = Duration::from_secs(20);
    wait::until("a call at the end of a request", limit, async || {
        let left = left(to, header, value).await?;
        ensure!(left == want, "{left} left instead of {want}");
        Ok(())
    })
    .await
}

/// The filter that sets the limit of the route `plan`.
fn plan() -> Value {
    json!({
        "name": "envoy.filters.http.set_metadata",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config",
            "metadata": [{
                "metadata_namespace": PLAN[0],
                "value": {PLAN[1]: {"requests_per_unit": 2, "unit": "HOUR"}},
            }],
        },
    })
}

/// The example's filter that reads the upstream's header `x-cost`.
fn cost() -> Result<Value> {
    let file = artifact::workspace().join("envoy/examples/cost-header.json");
    Ok(serde_json::from_str(&fs::read_to_string(file)?)?)
}

fn access_log(path: &str) -> Value {
    json!({
        "name": "envoy.access_loggers.file",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
            "path": path,
            "log_format": {"json_format": {
                "route": format!("%REQ({ROUTE_HEADER})%"),
                "metadata": "%DYNAMIC_METADATA(envoy.filters.http.ratelimit)%",
            }},
        },
    })
}
