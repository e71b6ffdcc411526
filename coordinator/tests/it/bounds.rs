//! Everything that grows has a bound, and reaching one hurts only the client that reaches it.

use std::time::Duration;

use tollgate_core::lease_server::Start;
use tonic::Code;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::harness::{Coordinator, request, unit};

const ALL: &str = "- {match: '*', requests: {rate: 100}}";

#[tokio::test]
async fn a_thousand_scopes_are_answered_and_one_more_refused() {
    let coordinator = Coordinator::start(ALL).await;
    let ids: Vec<_> = (0..1001).map(|i| format!("tenant/{i}")).collect();
    let scopes: Vec<_> = ids.iter().map(|id| (id.as_str(), 1, 0.0, 1.0)).collect();
    let answers = coordinator.refresh("a", &scopes[..1000]).await;
    assert_eq!(answers.len(), 1000);
    assert!(
        answers
            .iter()
            .zip(&ids)
            .all(|(answer, id)| &*answer.scope == id)
    );
    let refused = coordinator.client().refresh(request("a", &scopes)).await;
    let status = refused.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(status.message(), "scopes: has 1001 entries, more than 1000");
    coordinator.gets("a", "tenant/0", 2, (0.0, 1.0)).await;
}

#[tokio::test]
async fn a_call_of_more_than_a_mebibyte_is_refused() {
    let coordinator = Coordinator::start(ALL).await;
    let huge = request(&"x".repeat(2 << 20), &[("tenant/a", 1, 0.0, 1.0)]);
    let status = coordinator.client().refresh(huge).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
    coordinator.gets("a", "tenant/a", 2, (0.0, 1.0)).await;
}

#[tokio::test]
async fn a_scope_too_many_is_refused_and_the_others_go_on() {
    let yaml = format!("bounds: {{max_resources: 2}}\nlimits:\n{ALL}");
    let coordinator = Coordinator::with(&yaml, Start::Fresh).await;
    let scopes = ["tenant/a", "tenant/b", "tenant/c"].map(|id| (id, 1, 0.0, 1.0));
    let answers = coordinator.refresh("a", &scopes).await;
    unit(&answers[0]);
    unit(&answers[1]);
    let error = answers[2].outcome.as_ref().unwrap_err();
    assert_eq!(error.code, Code::ResourceExhausted as u32);
    coordinator.release("a", "tenant/a", 2).await;
    coordinator.gets("a", "tenant/c", 2, (0.0, 1.0)).await;
    let metrics = coordinator.get("/metrics").await.body;
    let line = "tollgate_refresh_errors_total{reason=\"too_many_resources\"} 1\n";
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test]
async fn a_lease_too_many_is_refused_until_there_is_room() {
    let yaml = format!("bounds: {{max_leases: 2}}\nlimits:\n{ALL}");
    let coordinator = Coordinator::with(&yaml, Start::Fresh).await;
    coordinator.gets("a", "tenant/a", 1, (0.0, 1.0)).await;
    coordinator.gets("b", "tenant/a", 1, (0.0, 1.0)).await;
    for (client, scope) in [("c", "tenant/a"), ("a", "tenant/b")] {
        let answers = coordinator.refresh(client, &[(scope, 1, 0.0, 1.0)]).await;
        let error = answers[0].outcome.as_ref().unwrap_err();
        assert_eq!(error.code, Code::ResourceExhausted as u32);
        assert!(error.message.contains("bounds.max_leases"), "{error:?}");
    }
    // Known clients go on, and a lease that is given back makes place for the next.
    coordinator.gets("a", "tenant/a", 2, (1.0, 1.0)).await;
    coordinator.release("b", "tenant/a", 2).await;
    coordinator.gets("c", "tenant/a", 2, (0.0, 1.0)).await;
    let metrics = coordinator.get("/metrics").await.body;
    for line in [
        "tollgate_refresh_errors_total{reason=\"too_many_leases\"} 2\n",
        "tollgate_clients{unit=\"requests\"} 2.0\n",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
}

#[tokio::test]
async fn a_client_too_many_is_refused_and_the_others_go_on() {
    let yaml = format!("bounds: {{max_clients_per_resource: 1}}\nlimits:\n{ALL}");
    let coordinator = Coordinator::with(&yaml, Start::Fresh).await;
    coordinator.gets("a", "tenant/a", 1, (0.0, 1.0)).await;
    let scopes = [("tenant/a", 1, 0.0, 1.0), ("tenant/b", 1, 0.0, 1.0)];
    let answers = coordinator.refresh("b", &scopes).await;
    let error = answers[0].outcome.as_ref().unwrap_err();
    assert_eq!(error.code, Code::ResourceExhausted as u32);
    unit(&answers[1]);
    coordinator.gets("a", "tenant/a", 2, (1.0, 1.0)).await;
}

/// Each stream of health takes memory, and needs no credentials.
#[tokio::test]
async fn streams_of_health_are_bounded_and_their_places_are_used_again() {
    const MAX: usize = 1024;
    let coordinator = Coordinator::start(ALL).await;
    let endpoint = Endpoint::try_from(format!("http://{}", coordinator.grpc)).unwrap();
    let connect = || HealthClient::new(endpoint.connect_lazy());
    let (mut client, mut streams) = (connect(), Vec::new());
    for i in 0..MAX {
        // A connection has 64 at a time.
        if i % 60 == 0 {
            client = connect();
        }
        let watch = client.watch(HealthCheckRequest::default()).await;
        streams.push(watch.unwrap());
    }
    let refused = connect().watch(HealthCheckRequest::default()).await;
    // Clients that hear this go on without.
    assert_eq!(refused.unwrap_err().code(), Code::Unimplemented);
    assert!(connect().check(HealthCheckRequest::default()).await.is_ok());
    streams.pop();
    while connect()
        .watch(HealthCheckRequest::default())
        .await
        .is_err()
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
