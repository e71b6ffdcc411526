//! Envoy's rate limit service over real HTTP/2, beside leases of other clients.

use std::time::Duration;

use tollgate_core::lease_server::Start;
use tollgate_net::wire::RateLimitServiceClient;
use tollgate_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use tollgate_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tollgate_proto::envoy::r#type::v3::RateLimitUnit;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::harness::Coordinator;

/// Limits whose tokens do not come back within a test, in bursts that differ.
const CONFIG: &str = "limits:
- {match: tenant/ten, requests: {rate: 0.001, burst: 10}}
- {match: tenant/five, requests: {rate: 0.001, burst: 5}}
- {match: tenant/none, requests: {rate: 0}}
- {match: paid/*, requests: {rate: 100, burst: 10, headroom: 1}}
- {match: owed/*, requests: {rate: 0.001, burst: 10, headroom: 1}}
- {match: tenant/member, requests: {rate: unlimited}}
groups:
  plan: {requests: {rate: 0.001, burst: 4}, fair_between: clients}
  shared: {requests: {rate: 0.001, burst: 6}}
attach: {tenants: {member: plan, left: shared, right: shared}}
rls:
  domains:
    edge:
      scopes:
      - {scope: 'paid/{paid}', debt: true}
      - {scope: 'owed/{owed}', debt: true}
      - {scope: 'tenant/{shadow}', shadow: true}
      - {scope: 'tenant/{tenant}', name: per tenant}";

/// Client of the service.
pub(crate) struct Proxy(RateLimitServiceClient<Channel>);

// === impl Proxy ===

impl Proxy {
    pub(crate) const fn new(stub: RateLimitServiceClient<Channel>) -> Self {
        Self(stub)
    }

    fn of(coordinator: &Coordinator) -> Self {
        let address = format!("http://{}", coordinator.grpc);
        let channel = Endpoint::try_from(address).unwrap().connect_lazy();
        Self(RateLimitServiceClient::new(channel))
    }

    async fn send(&self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        let answer = self.0.clone().should_rate_limit(request).await?;
        Ok(answer.into_inner())
    }

    pub(crate) async fn ask(&self, descriptors: Vec<RateLimitDescriptor>) -> RateLimitResponse {
        let request = RateLimitRequest {
            domain: "edge".to_owned(),
            descriptors,
            hits_addend: 0,
        };
        self.send(request).await.unwrap()
    }

    /// Returns the status of the only descriptor of a request.
    pub(crate) async fn one(&self, descriptor: RateLimitDescriptor) -> DescriptorStatus {
        let answer = self.ask(vec![descriptor]).await;
        assert_eq!(answer.statuses.len(), 1);
        assert_eq!(answer.overall_code, answer.statuses[0].code);
        answer.statuses.into_iter().next().unwrap()
    }

    /// Looks at a descriptor until its scope has a lease. On a busy machine the first one may come too
    /// late for the first request, which then has the safe capacity.
    pub(crate) async fn leased(&self, descriptor: RateLimitDescriptor) {
        let look = hits(descriptor, 0);
        while has_fallback(&self.one(look.clone()).await) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Returns whether the descriptor passes, and the hits that are left.
    pub(crate) async fn passes(&self, descriptor: RateLimitDescriptor) -> (bool, u32) {
        let status = self.one(descriptor).await;
        (status.code() == Code::Ok, status.limit_remaining)
    }
}

// === free functions ===

pub(crate) fn descriptor(key: &str, value: &str) -> RateLimitDescriptor {
    RateLimitDescriptor {
        entries: vec![Entry {
            key: key.to_owned(),
            value: value.to_owned(),
        }],
        ..RateLimitDescriptor::default()
    }
}

fn tenant(name: &str) -> RateLimitDescriptor {
    descriptor("tenant", name)
}

pub(crate) fn hits(descriptor: RateLimitDescriptor, hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor {
        hits_addend: Some(hits),
        ..descriptor
    }
}

fn given_back(descriptor: RateLimitDescriptor, count: u64) -> RateLimitDescriptor {
    RateLimitDescriptor {
        is_negative_hits: true,
        ..hits(descriptor, count)
    }
}

/// Whether a status tells of the safe capacity of a node without a lease.
fn has_fallback(status: &DescriptorStatus) -> bool {
    let second = RateLimitUnit::Second as i32;
    let limit = status.current_limit.as_ref();
    limit.is_some_and(|limit| (limit.requests_per_unit, limit.unit) == (10, second))
}

/// Starts a coordinator that has leases of all tenants.
async fn start() -> (Coordinator, Proxy) {
    let (coordinator, proxy) = start_without_leases().await;
    for name in ["ten", "five", "none", "free", "member"] {
        proxy.leased(tenant(name)).await;
    }
    (coordinator, proxy)
}

async fn start_without_leases() -> (Coordinator, Proxy) {
    let coordinator = Coordinator::with(CONFIG, Start::Fresh).await;
    let proxy = Proxy::of(&coordinator);
    (coordinator, proxy)
}

#[tokio::test]
async fn each_descriptor_is_answered_from_the_leases() {
    let (coordinator, proxy) = start().await;
    let answer = proxy
        .ask(vec![
            tenant("ten"),
            descriptor("user", "ann"),
            hits(tenant("five"), 3),
            tenant("free"),
        ])
        .await;
    assert_eq!(answer.overall_code(), Code::Ok);
    let [ten, unmatched, five, unlimited] = &answer.statuses[..] else {
        panic!("{answer:?}");
    };
    assert_eq!((ten.code(), ten.limit_remaining), (Code::Ok, 9));
    let limit = RateLimit {
        requests_per_unit: 86,
        unit: 4,
        name: "per tenant".to_owned(),
    };
    assert_eq!(ten.current_limit.as_ref(), Some(&limit), "in days");
    assert!(ten.duration_until_reset.unwrap().seconds > 900);
    assert_eq!(unmatched.code(), Code::Ok);
    assert_eq!(
        (unmatched.limit_remaining, &unmatched.current_limit),
        (0, &None)
    );
    assert_eq!((five.code(), five.limit_remaining), (Code::Ok, 2));
    assert_eq!(
        (unlimited.code(), &unlimited.current_limit),
        (Code::Ok, &None)
    );
    assert_eq!(unlimited.limit_remaining, u32::MAX);

    // The node is one client of the lease table.
    let clients = coordinator.get("/v1/scopes/tenant%2Ften").await.body;
    assert!(clients.contains("\"rls/"), "{clients}");
}

#[tokio::test]
async fn hits_are_taken_or_refused_as_a_whole() {
    let (_coordinator, proxy) = start().await;
    assert_eq!(proxy.passes(hits(tenant("ten"), 8)).await, (true, 2));
    let over = proxy.one(hits(tenant("ten"), 3)).await;
    assert_eq!((over.code(), over.limit_remaining), (Code::OverLimit, 0));
    assert!(over.current_limit.is_some());
    assert!(
        over.duration_until_reset.unwrap().seconds > 900,
        "a token in 1000 s"
    );
    assert_eq!(proxy.passes(hits(tenant("ten"), 2)).await, (true, 0));
    assert_eq!(proxy.passes(tenant("ten")).await, (false, 0));
    // More than there can ever be at once, and a limit of zero.
    let never = proxy.one(hits(tenant("five"), 6)).await;
    assert_eq!(
        (never.code(), never.duration_until_reset),
        (Code::OverLimit, None)
    );
    assert_eq!(proxy.passes(tenant("none")).await, (false, 0));
}

#[tokio::test]
async fn zero_hits_only_look() {
    let (_coordinator, proxy) = start().await;
    for _ in 0..3 {
        assert_eq!(proxy.passes(hits(tenant("five"), 0)).await, (true, 5));
    }
    assert_eq!(proxy.passes(hits(tenant("five"), 5)).await, (true, 0));
    assert_eq!(proxy.passes(hits(tenant("five"), 0)).await, (false, 0));
    assert_eq!(proxy.passes(hits(tenant("none"), 0)).await, (false, 0));
}

#[tokio::test]
async fn negative_hits_go_back_up_to_the_burst() {
    let (_coordinator, proxy) = start().await;
    assert_eq!(proxy.passes(hits(tenant("five"), 5)).await, (true, 0));
    assert_eq!(proxy.passes(given_back(tenant("five"), 2)).await, (true, 2));
    assert_eq!(proxy.passes(hits(tenant("five"), 2)).await, (true, 0));
    assert_eq!(
        proxy.passes(given_back(tenant("five"), 1000)).await,
        (true, 5)
    );
}

/// Work that is over cannot be refused: neither what it has cost nor what it has left over.
#[tokio::test]
async fn hits_given_back_and_debts_stand_whatever_another_descriptor_says() {
    let (_coordinator, proxy) = start().await;
    let owed = || descriptor("owed", "acme");
    proxy.leased(owed()).await;
    assert_eq!(proxy.passes(hits(tenant("five"), 5)).await, (true, 0));
    let refuses = || tenant("none");
    let past = || [given_back(tenant("five"), 2), hits(owed(), 3)];
    let [back, spent] = past();
    let last = vec![hits(tenant("ten"), 4), back, spent, refuses()];
    let [back, spent] = past();
    let first = vec![refuses(), back, spent, hits(tenant("ten"), 4)];
    for descriptors in [last, first] {
        let answer = proxy.ask(descriptors).await;
        assert_eq!(answer.overall_code(), Code::OverLimit);
        let over = answer.statuses.iter().filter(|s| s.code() != Code::Ok);
        assert_eq!(over.count(), 1, "{answer:?}");
    }
    assert_eq!(proxy.passes(hits(tenant("five"), 0)).await, (true, 4));
    assert_eq!(proxy.passes(hits(owed(), 0)).await, (true, 4));
    assert_eq!(proxy.passes(hits(tenant("ten"), 0)).await, (true, 10));
}

#[tokio::test]
async fn the_stricter_of_the_scopes_limit_and_the_descriptors_own_holds() {
    let (_coordinator, proxy) = start().await;
    let with = |requests_per_unit: u32, tenant: RateLimitDescriptor| RateLimitDescriptor {
        limit: Some(RateLimitOverride {
            requests_per_unit,
            unit: RateLimitUnit::Hour.into(),
        }),
        ..tenant
    };
    let stricter = proxy.one(with(3, tenant("ten"))).await;
    assert_eq!(stricter.limit_remaining, 2);
    let limit = stricter.current_limit.unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit), (3, 3));
    assert_eq!(
        proxy.passes(with(3, hits(tenant("ten"), 3))).await,
        (false, 0)
    );
    assert_eq!(
        proxy.passes(hits(tenant("ten"), 0)).await,
        (true, 9),
        "what one limit refuses is charged to none"
    );
    assert_eq!(
        proxy.passes(with(3000, hits(tenant("ten"), 9))).await,
        (true, 0)
    );
    assert_eq!(proxy.passes(with(3000, tenant("ten"))).await, (false, 0));
    // A scope without a limit has that of its descriptor alone.
    assert_eq!(proxy.passes(with(7, tenant("free"))).await, (true, 6));
}

/// As with envoyproxy/ratelimit: who sends `[tenant]` and `[tenant, path]` is charged once by a limit of
/// tenants.
#[tokio::test]
async fn a_descriptor_with_further_keys_is_not_charged_to_the_tenant() {
    let (_coordinator, proxy) = start().await;
    let mut path = tenant("ten");
    path.entries.extend(descriptor("path", "/login").entries);
    for left in (0..10).rev() {
        let answer = proxy.ask(vec![tenant("ten"), path.clone()]).await;
        let [ten, unmatched] = &answer.statuses[..] else {
            panic!("{answer:?}");
        };
        assert_eq!((ten.code(), ten.limit_remaining), (Code::Ok, left));
        assert_eq!(unmatched.current_limit, None);
    }
    let answer = proxy.ask(vec![tenant("ten"), path]).await;
    assert_eq!(answer.overall_code(), Code::OverLimit);
}

#[tokio::test]
async fn a_request_that_one_descriptor_refuses_is_charged_to_none() {
    let (_coordinator, proxy) = start().await;
    let both = || vec![hits(tenant("ten"), 4), hits(tenant("five"), 4)];
    assert_eq!(proxy.ask(both()).await.overall_code(), Code::Ok);
    let refused = proxy.ask(both()).await;
    assert_eq!(refused.overall_code(), Code::OverLimit);
    let codes: Vec<_> = refused
        .statuses
        .iter()
        .map(DescriptorStatus::code)
        .collect();
    assert_eq!(codes, [Code::Ok, Code::OverLimit]);
    assert_eq!(proxy.passes(hits(tenant("ten"), 0)).await, (true, 6));
    assert_eq!(proxy.passes(hits(tenant("five"), 0)).await, (true, 1));
}

#[tokio::test]
async fn a_group_limits_its_members() {
    let (_coordinator, proxy) = start().await;
    // A group becomes known with the first answer for its member, and is asked for then.
    while proxy.passes(hits(tenant("member"), 0)).await != (true, 4) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(proxy.passes(hits(tenant("member"), 3)).await, (true, 1));
    assert_eq!(proxy.passes(hits(tenant("member"), 2)).await, (false, 0));
    assert_eq!(
        proxy.passes(given_back(tenant("member"), 2)).await,
        (true, 3)
    );
    assert_eq!(proxy.passes(hits(tenant("member"), 3)).await, (true, 0));
}

#[tokio::test]
async fn tokens_that_a_group_has_left_are_seen() {
    let (coordinator, proxy) = start().await;
    for (scope, name, count, left) in [
        ("member", "plan", 3, 1.0),
        ("left", "shared", 2, 4.0),
        ("right", "shared", 1, 3.0),
    ] {
        while !proxy.passes(hits(tenant(scope), count)).await.0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // The next call reports the spent tokens.
        loop {
            let status = coordinator.get("/v1/status").await.json();
            let groups = status["groups"].as_array().unwrap();
            let group = groups.iter().find(|group| group["name"] == name).unwrap();
            let bucket = &group["units"]["requests"]["bucket"];
            let sum = ["left", "held"].map(|field| bucket[field].as_f64().unwrap_or_default());
            if (left..left + 0.1).contains(&sum.iter().sum()) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let page = coordinator.get("/groups/shared").await.body;
    assert!(page.contains("of 6 tokens</strong> are left"), "{page}");
}

#[tokio::test]
async fn a_rule_in_shadow_mode_counts_and_lets_pass() {
    let shadow = || descriptor("shadow", "five");
    let (coordinator, proxy, first) = loop {
        let (coordinator, proxy) = start_without_leases().await;
        let first = proxy.one(hits(shadow(), 5)).await;
        if !has_fallback(&first) {
            break (coordinator, proxy, first);
        }
    };
    assert_eq!((first.code(), first.limit_remaining), (Code::Ok, 0));
    assert_eq!(proxy.passes(shadow()).await, (true, 0));
    let metrics = coordinator.get("/metrics").await.body;
    for line in [
        "tollgate_rls_requests_total{result=\"ok\"} 2",
        "tollgate_rls_descriptors_total{result=\"shadowed\"} 1",
        "tollgate_rls_descriptors_total{result=\"ok\"} 1",
        "tollgate_rls_duration_seconds_count 2",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

#[tokio::test]
async fn a_rule_of_debts_charges_what_has_been_spent() {
    let (_coordinator, proxy) = start().await;
    let paid = || descriptor("paid", "acme");
    proxy.leased(paid()).await;
    // The cost of work that is done: more than there is, and nobody could refuse it any more.
    assert_eq!(proxy.passes(hits(paid(), 20)).await, (true, 10));
    let looked = proxy.one(hits(paid(), 0)).await;
    assert_eq!(looked.code(), Code::OverLimit);
    // Ten are owed and one is needed, at 100 per second.
    assert!(looked.duration_until_reset.unwrap().nanos <= 110_000_000);
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert!(proxy.passes(hits(paid(), 0)).await.0);
}

#[tokio::test]
async fn a_request_without_its_parts_is_invalid() {
    let (coordinator, proxy) = start().await;
    let rows = [
        ("", vec![tenant("ten")], "domain: is empty"),
        ("edge", vec![], "descriptors: is empty"),
    ];
    for (domain, descriptors, want) in rows {
        let request = RateLimitRequest {
            domain: domain.to_owned(),
            descriptors,
            hits_addend: 1,
        };
        let refused = proxy.send(request).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        assert_eq!(refused.message(), want);
    }
    // A domain that is not configured limits nothing.
    let other = RateLimitRequest {
        domain: "other".to_owned(),
        descriptors: vec![tenant("none")],
        hits_addend: 1,
    };
    assert_eq!(proxy.send(other).await.unwrap().overall_code(), Code::Ok);
    let long = "x".repeat(65 << 10);
    let request = RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: vec![tenant(&long)],
        hits_addend: 1,
    };
    assert!(proxy.send(request).await.is_err(), "longer than 64 KiB");
    let metrics = coordinator.get("/metrics").await.body;
    assert!(metrics.contains("tollgate_rls_requests_total{result=\"error\"} 2"));
}

#[tokio::test]
async fn values_that_no_scope_can_have_are_limited_all_the_same() {
    let (_coordinator, proxy) = start().await;
    for value in ["", "a\nb", &"x".repeat(1000)] {
        proxy.leased(tenant(value)).await;
        let status = proxy.one(tenant(value)).await;
        assert_eq!(status.limit_remaining, u32::MAX, "{value:?} fits the rule");
    }
}

#[tokio::test]
async fn a_coordinator_that_stops_does_not_wait_for_its_own_leases() {
    let (coordinator, proxy) = start().await;
    assert_eq!(proxy.passes(tenant("ten")).await, (true, 9));
    drop(proxy);
    coordinator.stop().await.unwrap();
}
