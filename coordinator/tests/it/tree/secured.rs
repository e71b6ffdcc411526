//! A parent that speaks TLS, and asks for certificates.

use tollgate_net::wire::LeaseServiceClient;
use tonic::Code;
use tonic::transport::Channel;

use super::*;
use crate::certificates::{Client, Folder, Issuer, Pair};

/// Starts a root with a certificate of `issuer` for `root.internal`, which asks for client
/// certificates of `issuer`.
async fn root(folder: &Folder, issuer: &Issuer) -> Coordinator {
    root_with(folder, issuer, "").await
}

/// The same with `more` in `tls.grpc`.
async fn root_with(folder: &Folder, issuer: &Issuer, more: &str) -> Coordinator {
    let door = folder.door(&issuer.named("root.internal", 2020, 2120));
    let ca = folder.write("ca.crt", &issuer.pem());
    let tls = format!("tls: {{grpc: {{{door}, client_ca: '{ca}'{more}}}}}");
    Coordinator::with(&format!("{tls}\n{ROOT}"), Start::Fresh).await
}

/// A leaf below `root`, which trusts `issuer` and shows `pair`.
async fn leaf(root: &Coordinator, folder: &Folder, issuer: &Issuer, pair: &Pair) -> Coordinator {
    let ca = folder.write("root.crt", &issuer.pem());
    let cert = folder.write("leaf.crt", &pair.cert);
    let key = folder.write("leaf.key", &pair.key);
    let tls = format!("ca: '{ca}', cert: '{cert}', key: '{key}', server_name: root.internal");
    let parent = format!("name: eu, addresses: ['{}'], tls: {{{tls}}}", root.grpc);
    Coordinator::with(&format!("parent: {{{parent}}}\nlimits: []"), Start::Fresh).await
}

#[tokio::test]
async fn a_leaf_borrows_over_mutual_tls_and_takes_new_certificates() {
    let (folder, issuer, other_issuer) = (Folder::new(), Issuer::new(), Issuer::new());
    let root = root(&folder, &issuer).await;
    let (good, unknown) = (issuer.issue(), other_issuer.issue());
    // The root does not accept this certificate.
    let leaf = leaf(&root, &folder, &issuer, &unknown).await;
    let mut envoy = Envoy::new(&leaf, "a/1");
    let failed = "tollgate_parent_calls_total{result=\"failed\"}";
    while metric(&leaf, failed).await < 2.0 {
        assert_eq!(envoy.refresh(10.0).await.answer.lease, None);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // It accepts the next one, without a restart.
    folder.write("leaf.crt", &good.cert);
    folder.write("leaf.key", &good.key);
    envoy.until(80.0, 80.0).await;
    let expiry = "tollgate_tls_certificate_expiry_timestamp_seconds{certificate=\"parent\"}";
    assert!(metric(&leaf, expiry).await > 0.0);
}

#[tokio::test]
async fn nothing_is_borrowed_from_one_with_another_issuer() {
    let (folder, issuer, other_issuer) = (Folder::new(), Issuer::new(), Issuer::new());
    let root = root(&folder, &issuer).await;
    let leaf = leaf(&root, &folder, &other_issuer, &issuer.issue()).await;
    let mut envoy = Envoy::new(&leaf, "a/1");
    let failed = "tollgate_parent_calls_total{result=\"failed\"}";
    while metric(&leaf, failed).await < 2.0 {
        assert_eq!(envoy.refresh(10.0).await.answer.lease, None);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let answered = "tollgate_parent_calls_total{result=\"answered\"}";
    assert_eq!(metric(&leaf, answered).await, 0.0);
}

/// A client of `root` that shows `pair`, as an Envoy does.
async fn client(root: &Coordinator, issuer: &Issuer, pair: &Pair) -> LeaseServiceClient<Channel> {
    let client = Client::new(root.grpc, "h2", issuer, Some(pair)).of("root.internal");
    LeaseServiceClient::new(client.channel().await.unwrap())
}

/// A call of the coordinator `name` in the highest term there is.
fn as_coordinator(name: &str) -> v1::RefreshRequest {
    v1::RefreshRequest {
        incarnation: 0,
        term: Epoch::MAX.0,
        ..request(&format!("{name}/0"), &[("tenant/acme", 1, 0.0, 1.0)])
    }
}

#[tokio::test]
async fn nobody_speaks_for_a_coordinator_below_without_its_certificate() {
    let (folder, issuer) = (Folder::new(), Issuer::new());
    // A root that is alone has no nodes to name.
    let names = ", children: {eu: [eu.internal]}";
    let root = root_with(&folder, &issuer, names).await;
    let named = issuer.named("eu.internal", 2020, 2120);
    let leaf = leaf(&root, &folder, &issuer, &named).await;
    let mut envoy = Envoy::new(&leaf, "a/1");
    envoy.until(80.0, 80.0).await;

    let mut other = client(&root, &issuer, &issuer.issue()).await;
    let forged = [
        as_coordinator("eu"),
        as_coordinator("us"),
        request("eu/0", &[("tenant/acme", 1, 0.0, 1.0)]),
    ];
    for call in forged {
        let release = v1::ReleaseRequest {
            client_id: call.client_id.clone(),
            incarnation: call.incarnation,
            term: call.term,
            resources: vec![v1::ReleasedResource {
                scope: "tenant/acme".to_owned(),
                unit: v1::Unit::Requests.into(),
                sequence: u64::MAX,
            }],
        };
        let watch = v1::WatchRequest {
            client_id: call.client_id.clone(),
            incarnation: call.incarnation,
            term: call.term,
        };
        let mut forwarded = tonic::Request::new(call.clone());
        for header in ["tollgate-shard", "tollgate-epoch"] {
            forwarded.metadata_mut().insert(header, 0.into());
        }
        let refused = [
            other.refresh(call).await.unwrap_err(),
            other.refresh(forwarded).await.unwrap_err(),
            other.release(release).await.unwrap_err(),
            other.watch(watch).await.unwrap_err(),
        ];
        for status in refused {
            assert_eq!(status.code(), Code::PermissionDenied, "{status}");
        }
    }
    // An Envoy is who it says, and the coordinator below noticed nothing.
    let envoys = request("b/1", &[("tenant/acme", 1, 0.0, 1.0)]);
    other.refresh(envoys).await.unwrap();
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        envoy.refresh(80.0).await;
        assert!(envoy.has > 70.0, "{}", envoy.has);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(
        metric(&leaf, "tollgate_parent_scope_errors_total").await,
        0.0
    );
    // Its own certificate is believed.
    let mut own = client(&root, &issuer, &named).await;
    own.refresh(as_coordinator("eu")).await.unwrap();
}
