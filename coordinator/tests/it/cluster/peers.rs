//! Calls of unknown callers that pose as another node.

use tollgate_config::tokens::NewToken;
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::Epoch;
use tollgate_core::lease_server::Start;
use tollgate_net::wire::PeerServiceClient;
use tollgate_proto::v1;
use tonic::transport::Channel;
use tonic::{Code, Request};

use super::LIMITS;
use super::nodes::Cluster;
use crate::harness::{Ask, Coordinator};

fn request<M>(message: M, authorization: Option<&str>) -> Request<M> {
    let mut request = Request::new(message);
    if let Some(authorization) = authorization {
        let value = authorization.parse().unwrap();
        request.metadata_mut().insert("authorization", value);
    }
    request
}

/// The outcomes of each call of the service with `authorization`.
async fn outcomes(channel: &Channel, authorization: Option<&str>) -> [Code; 10] {
    let mut peer = PeerServiceClient::new(channel.clone());
    let list = v1::ListPeerRequest {
        after: String::new(),
        limit: 10,
    };
    let scope = v1::GetScopeRequest {
        scope: "tenant/0".to_owned(),
        clients: 10,
        page: false,
    };
    let client = "envoy/x".to_owned();
    let get = v1::GetClientRequest {
        client: client.clone(),
    };
    let drain = v1::DrainRequest { client, time_ms: 1 };
    let list_quotas = list.clone();
    let scope_id = "tenant/0".to_owned();
    let quotas = v1::GetQuotasRequest {
        scope: scope_id.clone(),
    };
    let change = v1::ChangeQuotaRequest {
        scope: scope_id,
        json: b"{}".to_vec(),
    };
    let status = v1::GetStatusRequest::default();
    let history = v1::GetHistoryRequest::default();
    let code = |error: Option<tonic::Status>| error.map_or(Code::Ok, |error| error.code());
    [
        code(peer.get_status(request(status, authorization)).await.err()),
        code(
            peer.get_history(request(history, authorization))
                .await
                .err(),
        ),
        code(
            peer.list_scopes(request(list.clone(), authorization))
                .await
                .err(),
        ),
        code(peer.get_scope(request(scope, authorization)).await.err()),
        code(peer.list_clients(request(list, authorization)).await.err()),
        code(peer.get_client(request(get, authorization)).await.err()),
        code(
            peer.list_quotas(request(list_quotas, authorization))
                .await
                .err(),
        ),
        code(peer.get_quotas(request(quotas, authorization)).await.err()),
        code(
            peer.change_quota(request(change, authorization))
                .await
                .err(),
        ),
        code(peer.drain(request(drain, authorization)).await.err()),
    ]
}

#[tokio::test]
async fn over_grpc_a_node_tells_nothing_that_its_admin_api_does_not() {
    let (viewer, admin) = (
        NewToken::from_random([1; 32]),
        NewToken::from_random([2; 32]),
    );
    let tokens = format!(
        "admin: {{public: [metrics], tokens: [{{name: v, role: viewer, sha256: {}}}, {{name: a, role: admin, sha256: {}}}]}}",
        viewer.hash, admin.hash
    );
    let cluster = Cluster::of_three(&format!("{LIMITS}\n{tokens}")).await;
    let channel = &cluster.nodes[0].channel;
    let bearer = |token: &str| format!("Bearer {token}");
    let none = [Code::Unauthenticated; 10];
    assert_eq!(outcomes(channel, None).await, none);
    let wrong = bearer("tollgate_00");
    assert_eq!(outcomes(channel, Some(&wrong)).await, none);
    let mut reads = [Code::Ok; 10];
    assert_eq!(
        outcomes(channel, Some(&bearer(&admin.text))).await,
        reads,
        "an admin may do all"
    );
    reads[8] = Code::PermissionDenied;
    reads[9] = Code::PermissionDenied;
    let viewer = bearer(&viewer.text);
    assert_eq!(outcomes(channel, Some(&viewer)).await, reads);
    let faults = cluster.nodes[0].metrics().await;
    let count = |reason: &str| {
        faults[&format!("tollgate_admin_auth_failures_total{{reason=\"{reason}\"}}")]
    };
    assert_eq!(
        (count("missing"), count("unknown"), count("role")),
        (10.0, 10.0, 2.0)
    );
    // The status page may be public, and then it is so everywhere.
    let page = v1::GetStatusRequest {
        page: true,
        ..v1::GetStatusRequest::default()
    };
    let mut peer = PeerServiceClient::new(channel.clone());
    let refused = peer.get_status(page.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let public = tokens.replace("public: [metrics]", "public: [status]");
    let cluster = Cluster::of_three(&format!("{LIMITS}\n{public}")).await;
    let mut peer = PeerServiceClient::new(cluster.nodes[0].channel.clone());
    peer.get_status(page).await.unwrap();
    let history = |page| v1::GetHistoryRequest {
        page,
        ..v1::GetHistoryRequest::default()
    };
    peer.get_history(history(true)).await.unwrap();
    let refused = peer.get_history(history(false)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let read = v1::GetStatusRequest::default();
    let refused = peer.get_status(read).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
}

/// A caller of the admin API whose token the other nodes do not know gets what this one has.
#[tokio::test]
async fn a_token_is_passed_along_and_judged_by_each_node() {
    let token = NewToken::from_random([1; 32]);
    let yaml = |node: &str| {
        let hash = match node {
            "c" => NewToken::from_random([2; 32]).hash,
            _ => NewToken::from_random([1; 32]).hash,
        };
        format!("{LIMITS}\nadmin: {{tokens: [{{name: v, role: viewer, sha256: {hash}}}]}}")
    };
    let mut cluster = Cluster::start_each(3, 1, yaml).await;
    cluster.elect(ShardId(0), 0, Epoch(100)).await;
    let ask = Ask::get("/v1/scopes").token(&token.text);
    let page = cluster.nodes[0].ask(&ask).await;
    assert_eq!(page.status, 200, "{}", page.body);
    assert_eq!(page.json()["unanswered"], serde_json::json!(["c"]));
}

#[tokio::test]
async fn a_coordinator_alone_has_no_service_for_peers() {
    let alone = Coordinator::with("limits: []", Start::Fresh).await;
    let address = format!("http://{}", alone.grpc);
    let mut peer = PeerServiceClient::connect(address).await.unwrap();
    let refused = peer.get_status(v1::GetStatusRequest::default()).await;
    assert_eq!(refused.unwrap_err().code(), Code::Unimplemented);
}
