//! Messages that are not what a call takes.

use tollgate_proto::v1;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_prost::ProstCodec;

use crate::harness::Coordinator;

/// Every call takes a message whose first field, if any, is text.
const CALLS: [&str; 5] = [
    "/tollgate.v1.LeaseService/Refresh",
    "/tollgate.v1.LeaseService/Release",
    "/doorman.Capacity/GetCapacity",
    "/doorman.Capacity/ReleaseCapacity",
    "/grpc.health.v1.Health/Check",
];

#[tokio::test]
async fn what_cannot_be_decoded_is_the_callers_fault_in_every_service() {
    let coordinator = Coordinator::start("- {match: '*', requests: {rate: 5}}").await;
    let address = format!("http://{}", coordinator.grpc);
    let channel = Endpoint::try_from(address).unwrap().connect_lazy();
    for call in CALLS {
        let mut client = Grpc::new(channel.clone());
        client.ready().await.unwrap();
        // A number as the first field.
        let message = Request::new(v1::ReleaseResponse { epoch: 5 });
        let codec = ProstCodec::<v1::ReleaseResponse, v1::ReleaseResponse>::default();
        let path = PathAndQuery::from_static(call);
        let status = client.unary(message, path, codec).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{call}: {status}");
        let text = status.message();
        assert!(text.contains("failed to decode Protobuf message"), "{text}");
    }
    // And the connection goes on.
    let gets = coordinator.gets("a", "tenant/a", 1, (0.0, 3.0)).await;
    assert!(gets >= 3.0, "{gets}");
}

#[tokio::test]
async fn a_long_health_check_is_refused() {
    let coordinator = Coordinator::start("- {match: '*', requests: {rate: 5}}").await;
    let address = format!("http://{}", coordinator.grpc);
    let channel = Endpoint::try_from(address).unwrap().connect_lazy();
    for (length, want) in [(1000, Code::NotFound), (1100, Code::OutOfRange)] {
        let mut client = HealthClient::new(channel.clone());
        let service = "x".repeat(length);
        let answer = client.check(HealthCheckRequest { service }).await;
        assert_eq!(answer.unwrap_err().code(), want);
    }
}
