//! Limits as people wrote them: to callers through both kinds of limiters, in the API and on pages.

use tollgate_client::{Client, Rule, Settings};
use tollgate_core::lease_server::Start;
use tollgate_net::wire::RateLimitServiceClient;
use tollgate_proto::envoy::r#type::v3::RateLimitUnit;
use tonic::transport::Endpoint;

use crate::harness::Coordinator;
use crate::rls::{Proxy, descriptor};
use crate::rust_client::NEVER;

const CONFIG: &str = "limits:
- {match: tenant/day, requests: {rate: 1M/day}}
- {match: tenant/d, requests: {rate: 1M/d}}
- {match: tenant/minute, requests: {rate: 100/min}}
- {match: tenant/hour, requests: {rate: 5/h}}
- {match: tenant/second, requests: {rate: 20/s}}
- {match: tenant/plain, requests: {rate: 20}}
groups: {gold: {requests: {rate: 300/hour}}}
attach: {tenants: {member: gold}}
rls: {domains: {edge: {scopes: [{scope: 'tenant/{tenant}'}]}}}";

/// Returns the policy that a refusal of `scope` tells: one of a request that costs more than there ever is.
async fn policy(client: &Client, scope: &str) -> String {
    let leased = tollgate_tests::wait::until("a lease", NEVER, async || {
        drop(client.acquire(scope, 1).await);
        anyhow::ensure!(client.levels(scope)?[0].is_leased);
        Ok(())
    });
    leased.await.unwrap();
    let error = client.acquire(scope, 100_000_000).await.unwrap_err();
    let refused = error.refused().unwrap();
    let mut headers = refused.headers();
    let policy = headers.find(|(name, _)| *name == "ratelimit-policy");
    policy.unwrap().1.to_owned()
}

#[tokio::test]
async fn a_limit_is_told_as_it_was_written() {
    use RateLimitUnit::{Day, Hour, Minute, Second};
    let coordinator = Coordinator::with(CONFIG, Start::Fresh).await;
    let address = format!("http://{}", coordinator.grpc);
    let client = Client::start(&Settings::new(&address).rule(Rule::new("tenant"))).unwrap();
    let channel = Endpoint::try_from(address).unwrap().connect_lazy();
    let proxy = Proxy::new(RateLimitServiceClient::new(channel));
    let rows = [
        ("day", "q=1000000;w=86400", (1_000_000, Day), Some("1M/d")),
        ("d", "q=1000000;w=86400", (1_000_000, Day), Some("1M/d")),
        ("minute", "q=100;w=60", (100, Minute), Some("100/min")),
        ("hour", "q=5;w=3600", (5, Hour), Some("5/h")),
        ("second", "q=20;w=1", (20, Second), Some("20/s")),
        ("plain", "q=20;w=1", (20, Second), None),
        ("member", "q=300;w=3600", (300, Hour), Some("300/h")),
    ];
    for (tenant, want, (requests, unit), written) in rows {
        let scope = format!("tenant/{tenant}");
        let stated = policy(&client, &scope).await;
        assert_eq!(stated, format!("\"tenant\";{want}"));
        let descriptors = descriptor("tenant", tenant);
        proxy.leased(descriptors.clone()).await;
        let limit = proxy.one(descriptors).await.current_limit.unwrap();
        assert_eq!(
            (limit.requests_per_unit, limit.unit),
            (requests, unit as i32)
        );
        let limits = coordinator.get(&format!("/v1/limits/{scope}")).await.json();
        let holder = if tenant == "member" { "group" } else { "own" };
        let shown = &limits[holder]["units"]["requests"]["written"];
        assert_eq!(shown.as_str(), written, "{limits}");
        let detail = coordinator.get(&format!("/v1/scopes/{scope}")).await.json();
        let shown = &detail["units"]["requests"]["written"];
        assert_eq!(shown.as_str(), written, "{detail}");
        let page = coordinator.get(&format!("/scopes/{scope}")).await.body;
        assert!(page.contains(written.unwrap_or("20")), "{page}");
    }
    let page = coordinator.get("/groups/gold").await.body;
    assert!(page.contains(" of 300/h requests "), "{page}");
}
