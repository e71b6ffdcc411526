//! A service without Envoy, behind the tower layer, beside an Envoy.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use axum::Router;
use axum::extract::Request;
use axum::routing::any;
use serde_json::json;
use tokio::net::TcpListener;
use tollgate_client::{Charge, Client, Rule, Settings, TollgateLayer};
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::filter::{TENANT_HEADER, by_tenant};
use tollgate_tests::load::{Flow, Load, sum};

use crate::test_context::{
    TestContext, assert_near, assert_never_above, print_course, run_test, s,
};

const CAPACITY: f64 = 1000.0;
const BURST: f64 = 100.0;
const LIMITS: &str =
    "limits:\n  - match: \"*\"\n    requests: {rate: 1000, burst: 100, refresh: 1s, lease: 5s}\n";

#[test]
fn a_tower_service_and_an_envoy_share_a_tenant() {
    run_test("a_tower_service_and_an_envoy_share_a_tenant", share);
}

async fn share(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let envoy = test
        .envoy("envoy", 2, &coordinator, &by_tenant(&json!({})))
        .await?;
    let service = serve(&coordinator).await?;
    let load = Load::start([
        Flow::new(envoy.address(), "acme", 1500.0),
        Flow::new(service, "acme", 400.0),
    ]);
    load.run_until(s(12.0)).await;
    let records = load.stop().await?;
    for (name, record) in ["envoy", "service"].into_iter().zip(&records) {
        print_course(name, record);
        assert_eq!(record.total().failed, 0);
    }
    let all = sum(&records);
    assert_never_above(&all, CAPACITY, BURST);
    let span = s(2.0)..s(12.0);
    assert_near(
        "both, admitted/s",
        all.admitted_per_second(span.clone()),
        CAPACITY,
        0.02,
    );
    let served = records[1].admitted_per_second(span);
    assert_near("service, admitted/s", served, 400.0, 0.05);
    Ok(())
}

/// Starts an HTTP server that limits by tenant, and returns its address.
async fn serve(coordinator: &Coordinator) -> Result<SocketAddr> {
    let url = format!("http://{}", coordinator.grpc());
    let settings = Settings::new(url).node("service").rule(Rule::new("tenant"));
    let limits = Client::start(&settings)?;
    let by_tenant = |request: &Request| {
        let tenant = request.headers().get(TENANT_HEADER)?.to_str().ok()?;
        Some(Charge::of(format!("tenant/{tenant}")))
    };
    let served = Router::new().fallback(any(async || "served"));
    let service = served.layer(TollgateLayer::new(limits, by_tenant));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, service).await });
    Ok(address)
}
