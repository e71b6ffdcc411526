//! Leases of Envoys, and the errors where they get none.

use std::time::Duration;

use tollgate_core::lease_server::Start;
use tollgate_proto::v1;
use tonic::Code;

use crate::harness::{Coordinator, request, unit, whole};

const ACME: &str = "- {match: tenant/acme, requests: {rate: 100, burst: 50, safe: 5, headroom: 0}}
- {match: '*', requests: {rate: unlimited}}";

#[tokio::test]
async fn a_refresh_is_answered_with_a_lease_and_all_that_goes_with_it() {
    let coordinator = Coordinator::start(ACME).await;
    let scopes = [("tenant/acme", 7, 0.0, 40.0), ("route/x", 8, 0.0, 1.0)];
    let answers = coordinator.refresh("envoy-1/a", &scopes).await;
    assert_eq!(&*answers[0].scope, "tenant/acme");
    assert_eq!(answers[0].canonical, answers[0].scope);
    let acme = unit(&answers[0]);
    assert_eq!(acme.sequence, 7);
    assert_eq!(acme.answer.capacity, whole(100));
    assert_eq!(acme.answer.safe, Some(whole(5)));
    assert_eq!(acme.answer.refresh_interval, Duration::from_secs(1));
    let lease = acme.answer.lease.unwrap();
    assert_eq!(lease.capacity, whole(40));
    assert_eq!(lease.duration, Duration::from_secs(10));
    let rest = unit(&answers[1]);
    assert!(rest.answer.capacity.is_unlimited());
    assert!(rest.answer.lease.unwrap().capacity.is_unlimited());
}

#[tokio::test]
async fn a_bad_number_refuses_the_call_and_the_service_goes_on() {
    let coordinator = Coordinator::start(ACME).await;
    let rows = [
        (
            f64::NAN,
            "scopes[1].units[0].wants: NaN is not a finite number",
        ),
        (
            f64::INFINITY,
            "scopes[1].units[0].wants: inf is not a finite number",
        ),
        (-1.0, "scopes[1].units[0].wants: -1 is negative"),
    ];
    for (wants, want) in rows {
        let scopes = [("tenant/acme", 1, 0.0, 1.0), ("tenant/b", 1, 0.0, wants)];
        let refused = coordinator.client().refresh(request("a", &scopes)).await;
        let status = refused.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(status.message(), want);
    }
    assert_eq!(
        coordinator.gets("a", "tenant/acme", 2, (0.0, 9.0)).await,
        9.0
    );
    let metrics = coordinator.get("/metrics").await.body;
    let line = "tollgate_refresh_errors_total{reason=\"invalid\"} 3\n";
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test]
async fn a_stale_sequence_is_an_error_of_its_scope_alone() {
    let coordinator = Coordinator::start(ACME).await;
    assert_eq!(
        coordinator.gets("a", "tenant/acme", 5, (0.0, 9.0)).await,
        9.0
    );
    let scopes = [("tenant/acme", 4, 0.0, 90.0), ("tenant/b", 4, 0.0, 1.0)];
    let answers = coordinator.refresh("a", &scopes).await;
    let error = answers[0].outcome.as_ref().unwrap_err();
    assert_eq!(error.code, Code::Aborted as u32);
    assert_eq!(error.message, "sequence 4 came after sequence 5");
    assert!(unit(&answers[1]).answer.lease.is_some());
    let metrics = coordinator.get("/metrics").await.body;
    let line = "tollgate_refresh_errors_total{reason=\"stale\"} 1\n";
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test]
async fn a_call_without_an_incarnation_is_refused() {
    let coordinator = Coordinator::start(ACME).await;
    let message = v1::RefreshRequest {
        incarnation: 0,
        ..request("a", &[("tenant/acme", 1, 0.0, 1.0)])
    };
    let status = coordinator.client().refresh(message).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let text = status.message();
    assert!(
        text.starts_with("incarnation: is 0: a client chooses"),
        "{text}"
    );
}

/// Its sequences begin anew, and a request of its dead run comes late.
#[tokio::test]
async fn a_client_that_starts_again_under_its_id_is_not_acknowledged_for_by_its_dead_run() {
    let soon = "- {match: tenant/acme, requests: {rate: 100, headroom: 0, min_refresh: 1ms}}";
    let coordinator = Coordinator::start(soon).await;
    let mut client = coordinator.client();
    let mut ask = async |incarnation, sequence, has| {
        let message = v1::RefreshRequest {
            incarnation,
            ..request("a", &[("tenant/acme", sequence, has, 100.0)])
        };
        let answer = client.refresh(message).await.unwrap().into_inner();
        let lease = answer.scopes[0].units[0].lease;
        lease.map_or(0.0, |lease| lease.capacity)
    };
    let (dead, living) = (1, 2);
    assert_eq!(ask(living, 1, 0.0).await, 100.0);
    assert_eq!(ask(dead, 900, 0.0).await, 0.0, "another client");
    // Its lease is lowered, and it hears nothing of that.
    let mut sequence = 2;
    while ask(living, sequence, 100.0).await > 50.0 {
        sequence += 1;
    }
    assert_eq!(ask(dead, 901, 0.0).await, 0.0);
    let of_dead = v1::ReleaseRequest {
        client_id: "a".to_owned(),
        resources: vec![v1::ReleasedResource {
            scope: "tenant/acme".to_owned(),
            unit: v1::Unit::Requests.into(),
            sequence: u64::MAX,
        }],
        incarnation: dead,
        term: 0,
    };
    coordinator.client().release(of_dead).await.unwrap();
    let gets = coordinator.gets("b", "tenant/acme", 1, (0.0, 100.0)).await;
    assert_eq!(gets, 0.0, "the living run may be using all of it");
}

#[tokio::test]
async fn what_is_released_goes_to_those_who_want_it() {
    let coordinator = Coordinator::start(ACME).await;
    let all = coordinator.gets("a", "tenant/acme", 1, (0.0, 500.0)).await;
    assert_eq!(all, 100.0);
    assert_eq!(
        coordinator.gets("b", "tenant/acme", 1, (0.0, 500.0)).await,
        0.0
    );
    coordinator.release("a", "tenant/acme", 2).await;
    // Half of it: the other half is for `b`, which may not ask again before `min_refresh`.
    assert_eq!(
        coordinator.gets("c", "tenant/acme", 1, (0.0, 500.0)).await,
        50.0
    );
}

#[tokio::test]
async fn a_release_that_a_refresh_overtook_is_ignored() {
    let coordinator = Coordinator::start(ACME).await;
    assert_eq!(
        coordinator.gets("a", "tenant/acme", 3, (0.0, 60.0)).await,
        60.0
    );
    coordinator.release("a", "tenant/acme", 2).await;
    assert_eq!(
        coordinator.gets("b", "tenant/acme", 1, (0.0, 500.0)).await,
        40.0
    );
}

#[tokio::test]
async fn while_learning_only_claims_are_confirmed() {
    let yaml = format!("limits:\n{ACME}");
    let coordinator = Coordinator::with(&yaml, Start::Learning).await;
    let answers = coordinator
        .refresh("a", &[("tenant/acme", 1, 70.0, 90.0)])
        .await;
    assert_eq!(unit(&answers[0]).answer.lease.unwrap().capacity, whole(70));
    let answers = coordinator
        .refresh("b", &[("tenant/acme", 1, 70.0, 90.0)])
        .await;
    // Both cannot be true, and nothing says which is. The second does not count, but its client is told
    // to keep what it may have from before.
    assert_eq!(unit(&answers[0]).answer.lease.unwrap().capacity, whole(70));
    let detail = coordinator.get("/v1/scopes/tenant/acme").await.json();
    assert_eq!(detail["units"]["requests"]["sum_has"], 100.0, "{detail}");
    let left = detail["units"]["requests"]["learning_ms"].as_u64().unwrap();
    assert!((1..=10_000).contains(&left), "{detail}");
}

#[tokio::test]
async fn a_newcomer_while_learning_gets_the_safe_capacity_and_no_lease() {
    let yaml = format!("limits:\n{ACME}");
    let coordinator = Coordinator::with(&yaml, Start::Learning).await;
    let answers = coordinator
        .refresh("a", &[("tenant/acme", 1, 0.0, 90.0)])
        .await;
    let answer = unit(&answers[0]).answer;
    assert_eq!(answer.lease, None);
    assert_eq!(answer.safe, Some(whole(5)));
}
