//! A parent that speaks TLS, and asks for certificates.

use super::*;
use crate::certificates::{Folder, Issuer, Pair};

/// Starts a root with a certificate of `issuer` for `root.internal`, which asks for client
/// certificates of `issuer`.
async fn root(folder: &Folder, issuer: &Issuer) -> Coordinator {
    let door = folder.door(&issuer.named("root.internal", 2020, 2120));
    let ca = folder.write("ca.crt", &issuer.pem());
    let tls = format!("tls: {{grpc: {{{door}, client_ca: '{ca}'}}}}");
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
