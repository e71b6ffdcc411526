//! A service without Envoy, behind the tower layer, beside an Envoy.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::extract::Request;
use axum::routing::any;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tollgate_client::{Charge, Client, Refused, Rule, ScopeLevel, Settings, TollgateLayer};
use tollgate_core::units::Rate;
use tollgate_tests::conclude;
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::filter::{TENANT_HEADER, by_tenant};
use tollgate_tests::load::{Flow, Load, sum};
use tollgate_tests::wait;

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

#[test]
fn a_service_whose_coordinator_is_killed_has_its_lease_then_the_safe_capacity() {
    run_test(
        "a_service_whose_coordinator_is_killed_has_its_lease_then_the_safe_capacity",
        killed,
    );
}

async fn killed(test: &TestContext) -> Result<()> {
    const SCOPE: &str = "tenant/acme";
    let limits = "limits:\n  - match: \"*\"\n    \
        requests: {rate: 1000, burst: 100, refresh: 500ms, lease: 3s, safe: 20}\n";
    let mut coordinator = test.coordinator(limits).await?;
    let limits = client(&coordinator)?;
    let charge = Charge::of(SCOPE);
    // Asks for more than there is in either state, and returns the number that passed.
    let ask = async || {
        sleep(s(0.01)).await;
        let attempts = (0..60).map(|_| limits.try_admit(&charge));
        attempts.filter(Result::is_ok).count()
    };
    let until = async |condition: &str, is_met: fn(ScopeLevel) -> bool| {
        wait::until(condition, s(30.0), async || {
            let passed = ask().await;
            let level = limits.levels(SCOPE)?[0];
            ensure!(is_met(level), "{level:?}");
            Ok((passed, level))
        })
        .await
    };
    let whole = |level: ScopeLevel| level.rate.as_micros() / 1_000_000;
    until("all of the capacity", |level| {
        level.is_leased && level.rate >= Rate::from_whole(990)
    })
    .await?;

    coordinator.process.kill()?;
    let mut passed = 0;
    for _ in 0..20 {
        let level = limits.levels(SCOPE)?[0];
        if level.is_leased {
            assert!(whole(level) >= 990, "{level:?}");
            passed += ask().await;
        }
    }
    conclude!(passed >= 100, "{passed} passed with a lease");
    let (_, level) = until("the end of the lease", |level| !level.is_leased).await?;
    assert_eq!(whole(level), 20, "the coordinator's own: {level:?}");
    // A refusal holds until the next token comes, and so may outlive the lease by a moment.
    wait::until("a refusal for want of a lease", s(5.0), async || {
        let refused = (0..100).find_map(|_| limits.try_admit(&charge).err());
        let refused = refused.context("more than the safe capacity passes")?;
        ensure!(
            refused.refused().is_some_and(Refused::is_reduced),
            "{refused}"
        );
        Ok(())
    })
    .await?;

    coordinator.restart().await?;
    until("a lease of the coordinator that is back", |level| {
        level.is_leased && level.rate >= Rate::from_whole(990)
    })
    .await?;
    Ok(())
}

/// Starts a client of `coordinator` that limits by tenant.
fn client(coordinator: &Coordinator) -> Result<Client> {
    let url = format!("http://{}", coordinator.grpc());
    let settings = Settings::new(url).node("service").rule(Rule::new("tenant"));
    Ok(Client::start(&settings)?)
}

/// Starts an HTTP server that limits by tenant, and returns its address.
async fn serve(coordinator: &Coordinator) -> Result<SocketAddr> {
    let limits = client(coordinator)?;
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
