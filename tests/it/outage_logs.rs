//! Envoy's log reports unreachable coordinators, once for a process with several workers.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use tollgate_tests::connection::get_once;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{TENANT_HEADER, by_tenant, tenant_rule, tollgate};
use tollgate_tests::load::{Flow, Load};
use tollgate_tests::wait;

use crate::test_context::{TestContext, run_test, s};

const LIMITS: &str = "limits:\n  - match: \"*\"\n    \
                      requests: {rate: 200, burst: 40, safe: 20, lease: 2s, refresh: 200ms}\n";
/// Longest wait for a condition, on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);
const MISSING: &str = "wasmcustom.tollgate.missing_clusters";

/// Lines of Envoy's log that contain `part`.
fn lines(envoy: &Envoy, part: &str) -> Vec<String> {
    let log = envoy.process.log();
    let lines = log.lines().filter(|line| line.contains(part));
    lines.map(str::to_owned).collect()
}

#[test]
fn four_workers_say_once_that_the_coordinator_is_away_and_once_that_it_is_back() {
    run_test(
        "four_workers_say_once_that_the_coordinator_is_away_and_once_that_it_is_back",
        away_and_back,
    );
}

async fn away_and_back(test: &TestContext) -> Result<()> {
    let mut coordinator = test.coordinator(LIMITS).await?;
    let plugin = by_tenant(&json!({}));
    let envoy = test.envoy("envoy", 4, &coordinator, &plugin).await?;
    let flows = ["a", "b", "c"].map(|tenant| Flow::new(envoy.address(), tenant, 100.0));
    let load = Load::start(flows);
    load.run_until(s(2.0)).await;
    ensure!(
        lines(&envoy, "safe mode").is_empty(),
        "no scope is in safe mode"
    );
    coordinator.process.kill()?;
    wait::until("the warning", LIMIT, async || {
        let warned = lines(&envoy, "safe mode on").len();
        ensure!(warned > 0, "the log has no such line");
        Ok(())
    })
    .await?;
    // Time for the other workers to log it as well.
    load.run_until(load.elapsed() + s(2.0)).await;
    let warned = lines(&envoy, "safe mode on");
    eprintln!("{warned:?}");
    ensure!(warned.len() == 1, "{warned:?}");
    for part in [
        "[warning]",
        "coordinator=\"tollgate\"",
        "gRPC status 14 (UNAVAILABLE)",
    ] {
        ensure!(warned[0].contains(part), "no {part} in {warned:?}");
    }
    coordinator.restart().await?;
    wait::until("the end of safe mode", LIMIT, async || {
        let ended = lines(&envoy, "safe mode off").len();
        ensure!(ended > 0, "the log has no such line");
        Ok(())
    })
    .await?;
    load.run_until(load.elapsed() + s(2.0)).await;
    let all = lines(&envoy, "safe mode");
    eprintln!("{all:?}");
    ensure!(all.len() == 2, "{all:?}");
    load.stop().await?;
    Ok(())
}

#[test]
fn a_cluster_that_envoy_lacks_is_an_error_and_a_gauge_until_it_is_added() {
    run_test(
        "a_cluster_that_envoy_lacks_is_an_error_and_a_gauge_until_it_is_added",
        missing,
    );
}

async fn missing(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let more = json!({"coordinator": "tollgatte", "scopes": [tenant_rule(1.0)]});
    let filter = tollgate(&by_tenant(&more))?;
    let mut spec = EnvoySpec::new("envoy", 2, test.upstream.address(), vec![filter]);
    let clusters = test.dir().join("clusters.json");
    fs::write(&clusters, json!({"resources": []}).to_string())?;
    spec.clusters_file = Some(clusters.clone());
    let envoy = Envoy::start(test.dir(), &spec.asking(coordinator.grpc())).await?;
    get_once(envoy.address(), "/", &[(TENANT_HEADER, "acme")]).await?;
    gauge(&envoy, 1).await?;
    let logged = lines(&envoy, "cluster missing");
    eprintln!("{logged:?}");
    ensure!(logged.len() == 1, "{logged:?}");
    for part in ["[error]", "no cluster \"tollgatte\"", "coordinator"] {
        ensure!(logged[0].contains(part), "no {part} in {logged:?}");
    }

    // The file adds the cluster as a control plane would; no request is needed.
    let added = json!({"version_info": "1", "resources": [{
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": "tollgatte",
        "type": "STATIC",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": {}},
            },
        },
        "load_assignment": {"cluster_name": "tollgatte", "endpoints": [{"lb_endpoints": [
            {"endpoint": {"address": {"socket_address": {
                "address": "127.0.0.1", "port_value": coordinator.grpc().port(),
            }}}},
        ]}]},
    }]});
    let new = clusters.with_extension("new");
    fs::write(&new, added.to_string())?;
    fs::rename(&new, &clusters)?;
    gauge(&envoy, 0).await?;
    ensure!(lines(&envoy, "cluster found").len() == 1);
    wait::until("a lease", LIMIT, async || {
        get_once(envoy.address(), "/", &[(TENANT_HEADER, "acme")]).await?;
        let leases = coordinator.leases("tenant/acme").await?;
        let has = leases.map_or(0.0, |leases| leases.has("envoy"));
        ensure!(has > 0.0, "it has no lease");
        Ok(())
    })
    .await?;
    ensure!(lines(&envoy, "cluster missing").len() == 1, "logged twice");
    Ok(())
}

async fn gauge(envoy: &Envoy, want: u64) -> Result<()> {
    wait::until("the gauge of missing clusters", LIMIT, async || {
        let missing = envoy.stat(MISSING).await?;
        ensure!(missing == want, "{missing} instead of {want}");
        Ok(())
    })
    .await
}

#[test]
fn a_cluster_without_a_healthy_host_is_not_missing() {
    run_test("a_cluster_without_a_healthy_host_is_not_missing", unhealthy);
}

async fn unhealthy(test: &TestContext) -> Result<()> {
    let more = json!({"scopes": [tenant_rule(1.0)]});
    let filter = tollgate(&by_tenant(&more))?;
    let mut spec = EnvoySpec::new("envoy", 1, test.upstream.address(), vec![filter]);
    let clusters = test.dir().join("clusters.json");
    let empty = json!({"version_info": "1", "resources": [{
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": "tollgate",
        "type": "STATIC",
        "connect_timeout": "1s",
    }]});
    fs::write(&clusters, empty.to_string())?;
    spec.clusters_file = Some(clusters);
    let envoy = Envoy::start(test.dir(), &spec).await?;
    wait::until("the warning", LIMIT, async || {
        get_once(envoy.address(), "/", &[(TENANT_HEADER, "acme")]).await?;
        let warned = lines(&envoy, "safe mode on");
        ensure!(warned.len() == 1, "{warned:?}");
        eprintln!("{warned:?}");
        Ok(())
    })
    .await?;
    ensure!(lines(&envoy, "cluster missing").is_empty());
    ensure!(envoy.stat(MISSING).await? == 0);
    Ok(())
}
