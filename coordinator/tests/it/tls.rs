//! TLS at both listeners: accepted clients, the certificates shown, and changes of the files.

use std::process::Command;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tollgate_core::lease_server::Start;
use tollgate_net::tls::{Listener, ServerFiles};
use tollgate_net::wire::LeaseServiceClient;
use tonic::transport::Channel;

use crate::certificates::{Client, Folder, Issuer, Pair};
use crate::harness::{Answer, Coordinator, request};

const LIMITS: &str = "limits: [{match: '*', requests: {rate: 100}}]";

/// How often something is looked at that happens by itself, and how many times at most.
const LOOK: (Duration, usize) = (Duration::from_millis(50), 600);

/// Asks for a lease over `channel` and says whether there was an answer.
async fn leases(channel: Channel) -> bool {
    let mut client = LeaseServiceClient::new(channel);
    let scopes = [("tenant/a", 1, 0.0, 1.0)];
    client.refresh(request("envoy/a", &scopes)).await.is_ok()
}

/// The line of `metrics` that starts with `name`.
fn metric(metrics: &str, name: &str) -> u64 {
    let mut lines = metrics.lines();
    let value = lines.find_map(|line| line.strip_prefix(name));
    value.unwrap_or_default().trim().parse().unwrap_or_default()
}

/// Waits until the metric `name` is `value`.
async fn until(coordinator: &Coordinator, name: &str, value: u64) {
    for _ in 0..LOOK.1 {
        if metric(&coordinator.get("/metrics").await.body, name) == value {
            return;
        }
        tokio::time::sleep(LOOK.0).await;
    }
    panic!("{name} never is {value}");
}

/// Waits until `client` is shown `pair`.
async fn until_shown(client: &Client, pair: &Pair) {
    for _ in 0..LOOK.1 {
        if client.shown().await == pair.der() {
            return;
        }
        tokio::time::sleep(LOOK.0).await;
    }
    panic!("the new certificate is never shown");
}

#[tokio::test]
async fn both_doors_speak_tls_to_who_trusts_them() {
    let (issuer, folder) = (Issuer::new(), Folder::new());
    let door = folder.door(&issuer.issue());
    let yaml = format!("tls: {{grpc: {{{door}}}, http: {{{door}}}}}\n{LIMITS}");
    let coordinator = Coordinator::with(&yaml, Start::Fresh).await;

    let grpc = Client::new(coordinator.grpc, "h2", &issuer, None);
    assert!(leases(grpc.channel().await.unwrap()).await);
    let http = Client::new(coordinator.http, "http/1.1", &issuer, None);
    let answer = Answer::over(http.connect().await.unwrap(), "/v1/scopes").await;
    assert!(answer.unwrap().body.contains("tenant/a"));

    let unknown = Client::new(coordinator.grpc, "h2", &Issuer::new(), None);
    assert!(
        unknown.channel().await.is_err(),
        "an issuer it does not trust"
    );
    let protocol = Client::new(coordinator.grpc, "http/1.1", &issuer, None);
    assert!(
        protocol.connect().await.is_err(),
        "the gRPC door speaks HTTP/2"
    );
    let plain = TcpStream::connect(coordinator.http).await.unwrap();
    assert!(
        Answer::over(plain, "/healthz")
            .await
            .map_or(true, |answer| answer.status != 200)
    );
}

#[tokio::test]
async fn with_a_client_ca_only_its_clients_get_in() {
    let (issuer, folder) = (Issuer::new(), Folder::new());
    let door = folder.door(&issuer.issue());
    let ca = folder.write("ca.crt", &issuer.pem());
    let yaml = format!("tls: {{grpc: {{{door}, client_ca: '{ca}'}}}}\n{LIMITS}");
    let coordinator = Coordinator::with(&yaml, Start::Fresh).await;

    let known = issuer.issue();
    let client = Client::new(coordinator.grpc, "h2", &issuer, Some(&known));
    assert!(leases(client.channel().await.unwrap()).await);
    let expired = issuer.valid(2001, 2002);
    let others = Issuer::new().issue();
    for identity in [None, Some(&others), Some(&expired)] {
        let client = Client::new(coordinator.grpc, "h2", &issuer, identity);
        // In TLS 1.3 a client hears of this with the first answer only.
        if let Ok(channel) = client.channel().await {
            assert!(!leases(channel).await);
        }
    }
    let name = "tollgate_tls_handshake_errors_total{listener=\"grpc\",reason=\"failed\"}";
    until(&coordinator, name, 3).await;
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_and_a_bad_one_is_not() {
    let (issuer, folder) = (Issuer::new(), Folder::new());
    let door = folder.door(&issuer.valid(2020, 2100));
    let yaml = format!("tls: {{grpc: {{{door}}}}}\n{LIMITS}");
    let coordinator = Coordinator::with(&yaml, Start::Fresh).await;
    let client = Client::new(coordinator.grpc, "h2", &issuer, None);
    let open = client.channel().await.unwrap();
    assert!(leases(open.clone()).await);
    let metrics = coordinator.get("/metrics").await.body;
    let expiry = "tollgate_tls_certificate_expiry_timestamp_seconds{certificate=\"grpc\"}";
    assert_eq!(metric(&metrics, expiry), 4_102_444_800, "2100-01-01");

    let second = issuer.valid(2020, 2101);
    folder.door(&second);
    until_shown(&client, &second).await;
    let metrics = coordinator.get("/metrics").await.body;
    assert_eq!(metric(&metrics, expiry), 4_133_980_800, "2101-01-01");

    // The key of another certificate: as if half of a renewal never came.
    folder.write("tls.crt", &issuer.issue().cert);
    let refused = "tollgate_tls_reloads_total{certificate=\"grpc\",result=\"refused\"}";
    until(&coordinator, refused, 1).await;
    assert_eq!(client.shown().await, second.der());
    std::fs::remove_file(folder.path("tls.crt")).unwrap();
    until(&coordinator, refused, 2).await;
    assert_eq!(client.shown().await, second.der());

    let third = issuer.issue();
    folder.door(&third);
    until_shown(&client, &third).await;
    let taken = "tollgate_tls_reloads_total{certificate=\"grpc\",result=\"taken\"}";
    until(&coordinator, taken, 2).await;
    assert!(
        leases(open).await,
        "a connection from before the first renewal"
    );
}

#[tokio::test]
async fn a_pipe_in_the_place_of_a_key_is_refused_and_recovered_from() {
    let (issuer, folder) = (Issuer::new(), Folder::new());
    let first = issuer.issue();
    let door = folder.door(&first);
    let yaml = format!("tls: {{grpc: {{{door}}}}}\n{LIMITS}");
    let coordinator = Coordinator::with(&yaml, Start::Fresh).await;
    let client = Client::new(coordinator.grpc, "h2", &issuer, None);
    assert_eq!(client.shown().await, first.der());
    let key = folder.path("tls.key");
    std::fs::remove_file(&key).unwrap();
    let created = Command::new("mkfifo").arg(&key).status().unwrap();
    assert!(created.success());
    let refused = "tollgate_tls_reloads_total{certificate=\"grpc\",result=\"refused\"}";
    until(&coordinator, refused, 1).await;
    assert_eq!(client.shown().await, first.der());

    std::fs::remove_file(&key).unwrap();
    let second = issuer.issue();
    folder.door(&second);
    until_shown(&client, &second).await;
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn who_says_nothing_keeps_nobody_out() {
    let (issuer, folder) = (Issuer::new(), Folder::new());
    let door = folder.door(&issuer.issue());
    let yaml = format!("tls: {{http: {{{door}}}}}\n{LIMITS}");
    let coordinator = Coordinator::with(&yaml, Start::Fresh).await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(TcpStream::connect(coordinator.http).await.unwrap());
    }
    let client = Client::new(coordinator.http, "http/1.1", &issuer, None);
    let answer = Answer::over(client.connect().await.unwrap(), "/healthz").await;
    assert_eq!(answer.unwrap().body, "ok\n");
    for mut stream in silent {
        let mut byte = [0];
        let pending = tokio::time::timeout(Duration::ZERO, stream.read(&mut byte)).await;
        assert!(pending.is_err(), "it has its time");
    }
}

#[test]
fn files_that_cannot_be_used_are_refused_by_name_and_reason() {
    let (issuer, folder) = (Issuer::new(), Folder::new());
    let good = issuer.issue();
    let expired = issuer.valid(2001, 2002);
    let early = issuer.valid(2100, 2101);
    let broken = good.cert.replacen("M", "!", 8);
    let large = "x".repeat((1 << 20) + 1);
    // Contents of cert, key and client_ca, and the error after the folder's name.
    let rows = [
        ("", &*good.key, None, "tls.crt: has no certificate"),
        (&*good.key, &*good.key, None, "tls.crt: has no certificate"),
        (
            &*broken,
            &*good.key,
            None,
            "tls.crt: is not PEM: base64 decode error",
        ),
        (
            &*large,
            &*good.key,
            None,
            "tls.crt: has more than 1048576 bytes",
        ),
        (
            &*expired.cert,
            &*expired.key,
            None,
            "tls.crt: the certificate expired on 2002-01-01T00:00:00Z",
        ),
        (
            &*early.cert,
            &*early.key,
            None,
            "tls.crt: the certificate is not valid before 2100-01-01T00:00:00Z",
        ),
        (&*good.cert, "", None, "tls.key: has no private key"),
        (
            &*good.cert,
            &*good.cert,
            None,
            "tls.key: has no private key",
        ),
        (
            &*good.cert,
            &*early.key,
            None,
            "tls.key: is not the key of ",
        ),
        (
            &*good.cert,
            &*good.key,
            Some(""),
            "ca.crt: has no certificate",
        ),
    ];
    for (cert, key, client_ca, want) in rows {
        let files = ServerFiles {
            cert: folder.write("tls.crt", cert).into(),
            key: folder.write("tls.key", key).into(),
            client_ca: client_ca.map(|text| folder.write("ca.crt", text).into()),
        };
        let error = files.load(Listener::Grpc).unwrap_err().to_string();
        let (_, said) = error.split_once(folder.path("").to_str().unwrap()).unwrap();
        assert!(said.starts_with(want), "{error}");
    }
    let files = ServerFiles {
        cert: folder.path("nothing"),
        key: folder.path("tls.key"),
        client_ca: None,
    };
    let error = files.load(Listener::Grpc).unwrap_err().to_string();
    assert!(error.contains("/nothing: No such file"), "{error}");
}
