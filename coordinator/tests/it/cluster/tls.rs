//! Nodes that speak TLS with each other, and ask each other for certificates.

use std::time::Duration;

use anyhow::ensure;
use serde_json::json;
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::Epoch;
use tollgate_proto::response::ScopeAnswer;
use tollgate_tests::wait;

use super::nodes::{Cluster, Node};
use super::{LIMITS, tenants};
use crate::certificates::{Client, Folder, Issuer, Pair};
use crate::harness::Answer;

/// Longer than anything here takes on a machine that has much else to do.
const LIMIT: Duration = Duration::from_secs(60);

/// The name that is in the certificates of all nodes.
const NAME: &str = "nodes.tollgate";

/// Certificates and keys of the nodes, and their issuer.
struct Files {
    folder: Folder,
    issuer: Issuer,
}

// === impl Files ===

impl Files {
    fn new() -> Self {
        let (folder, issuer) = (Folder::new(), Issuer::new());
        folder.write("ca.crt", &issuer.pem());
        Self { folder, issuer }
    }

    /// Writes the certificate that `node` shows as `what`: at its listeners, or to peers.
    fn write(&self, node: &str, what: &str, pair: &Pair) -> String {
        let cert = self.folder.write(&format!("{node}-{what}.crt"), &pair.cert);
        let key = self.folder.write(&format!("{node}-{what}.key"), &pair.key);
        format!("cert: '{cert}', key: '{key}'")
    }

    /// A good certificate.
    fn pair(&self) -> Pair {
        self.issuer.named(NAME, 2020, 2120)
    }

    /// The configuration of `node`, with `own` as what it shows, and `name` as what it expects.
    fn yaml(&self, node: &str, [door, peer]: [&Pair; 2], name: &str) -> String {
        let ca = self.folder.path("ca.crt");
        let ca = ca.display();
        let (door, peer) = (
            self.write(node, "door", door),
            self.write(node, "peer", peer),
        );
        let door = format!("{{{door}, client_ca: '{ca}'}}");
        let tls = format!("tls: {{ca: '{ca}', {peer}{name}}}");
        format!(
            "{LIMITS}\ntls: {{grpc: {door}, http: {door}}}\ncluster: {{node: {node}, {tls}, etcd: \
             {{endpoints: ['http://127.0.0.1:1']}}}}"
        )
    }

    /// Three nodes as `yaml` says of each, with as many shards, each with its own master.
    async fn cluster(yaml: impl Fn(&str) -> String) -> Cluster {
        let mut cluster = Cluster::start_each(3, 3, yaml).await;
        for i in 0..3 {
            let epoch = Epoch(100 + u64::from(i));
            cluster.elect(ShardId(i), usize::from(i), epoch).await;
        }
        cluster
    }

    /// Returns the HTTP answer of node `i` to a client with a good certificate.
    async fn get(&self, cluster: &Cluster, i: usize, path: &str) -> Answer {
        get(&cluster.nodes[i], &self.issuer, path).await.unwrap()
    }
}

// === free functions ===

/// Returns the HTTP answer of `node` to a client that trusts `issuer` and has its certificate.
async fn get(node: &Node, issuer: &Issuer, path: &str) -> std::io::Result<Answer> {
    let pair = issuer.named(NAME, 2020, 2120);
    let client = Client::new(node.http, "http/1.1", issuer, Some(&pair)).of(NAME);
    Answer::over(client.connect().await?, path).await
}

fn expecting(name: &str) -> String {
    format!(", server_name: {name}")
}

/// Returns the errors of the scopes without an answer; successive equal ones once.
fn errors(answers: &[ScopeAnswer]) -> Vec<String> {
    let errors = answers.iter().filter_map(|answer| {
        let error = answer.outcome.as_ref().err()?;
        Some(error.message.clone())
    });
    let mut errors: Vec<String> = errors.collect();
    errors.dedup();
    errors
}

#[tokio::test]
async fn nodes_pass_calls_on_and_ask_each_other_over_mutual_tls() {
    let files = Files::new();
    let pair = files.pair();
    let yaml = |node: &str| files.yaml(node, [&pair, &pair], &expecting(NAME));
    let cluster = Files::cluster(yaml).await;
    for (i, node) in cluster.nodes.iter().enumerate() {
        let answers = node.refresh(&format!("envoy-{i}/x"), &tenants(), 1.0).await;
        assert!(answers.iter().all(|answer| answer.outcome.is_ok()));
        let scopes = files.get(&cluster, i, "/v1/scopes?limit=1000").await.json();
        assert_eq!(scopes["scopes"].as_array().unwrap().len(), 30);
        assert_eq!(scopes["unanswered"], json!(null));
    }
    // Calls without a certificate are refused, whatever name the caller gives.
    let node = &cluster.nodes[0];
    let unknown = Client::new(node.peer.grpc.parse().unwrap(), "h2", &files.issuer, None);
    if let Ok(channel) = unknown.of(NAME).channel().await {
        let mut client = tollgate_net::wire::LeaseServiceClient::new(channel);
        let call = super::nodes::asked("envoy/x", &tenants(), 1.0);
        assert!(client.refresh(call).await.is_err());
    }
}

#[tokio::test]
async fn a_node_with_a_certificate_that_is_not_accepted_is_told_from_one_that_is_away() {
    let files = Files::new();
    let (good, others) = (files.pair(), Issuer::new());
    let unknown = others.named(NAME, 2020, 2120);
    let misnamed = files.issuer.named("elsewhere", 2020, 2120);
    // The certificate that the listener of `b` shows, and the error of a call to it.
    let rows = [
        (&unknown, "invalid peer certificate: "),
        (&misnamed, "not valid for name \"nodes.tollgate\""),
    ];
    for (door, want) in rows {
        let yaml = |node: &str| {
            let door = if node == "b" { door } else { &good };
            files.yaml(node, [door, &good], &expecting(NAME))
        };
        let mut cluster = Cluster::start_each(3, 3, yaml).await;
        cluster.elect(ShardId(0), 0, Epoch(100)).await;
        cluster.says_it_leads(ShardId(1), 1, Epoch(101)).await;
        cluster.elect(ShardId(2), 2, Epoch(102)).await;
        let answers = cluster.nodes[0].refresh("envoy/x", &tenants(), 1.0).await;
        let message = errors(&answers);
        let [message] = &message[..] else {
            panic!("{message:?}")
        };
        assert!(
            message.contains("b, the master of shard 1") && message.contains(want),
            "{message}"
        );
        let page = files.get(&cluster, 0, "/v1/scopes?limit=1000").await.json();
        assert_eq!(page["unanswered"], json!(["b"]));
    }
    // And the other direction: `a` shows its peers a certificate that they do not accept.
    let yaml = |node: &str| {
        let peer = if node == "a" { &unknown } else { &good };
        files.yaml(node, [&good, peer], &expecting(NAME))
    };
    let mut cluster = Cluster::start_each(2, 1, yaml).await;
    cluster.says_it_leads(ShardId(0), 1, Epoch(100)).await;
    let client = Client::new(
        cluster.nodes[0].peer.grpc.parse().unwrap(),
        "h2",
        &files.issuer,
        Some(&good),
    );
    let channel = client.of(NAME).channel().await.unwrap();
    let mut client = tollgate_net::wire::LeaseServiceClient::new(channel);
    let call = super::nodes::asked("envoy/x", &tenants(), 1.0);
    let refused = client.refresh(call).await.unwrap_err();
    let text = refused.message();
    assert!(
        text.contains("b, the master of shard 0") && text.contains("alert"),
        "{text}"
    );
}

#[tokio::test]
async fn certificates_of_another_issuer_are_taken_while_the_nodes_run() {
    let files = Files::new();
    let pair = files.pair();
    let yaml = |node: &str| files.yaml(node, [&pair, &pair], &expecting(NAME));
    let cluster = Files::cluster(yaml).await;
    let asks = async || {
        let answers = cluster.nodes[0].refresh("envoy/x", &tenants(), 1.0).await;
        let message = errors(&answers);
        ensure!(message.is_empty(), "{message:?}");
        Ok(())
    };
    asks().await.unwrap();
    // First everybody trusts both issuers, then they show what the new one has issued.
    let next = Issuer::new();
    let both = format!("{}{}", files.issuer.pem(), next.pem());
    files.folder.write("ca.crt", &both);
    let taken = "tollgate_tls_reloads_total{certificate=\"cluster\",result=\"taken\"}";
    wait::until("the issuers to be taken", LIMIT, async || {
        let metrics = files.get(&cluster, 0, "/metrics").await.body;
        ensure!(metrics.contains(&format!("{taken} 1")), "{metrics}");
        Ok(())
    })
    .await
    .unwrap();
    asks().await.unwrap();
    let second = next.named(NAME, 2020, 2101);
    for node in ["a", "b", "c"] {
        files.write(node, "door", &second);
        files.write(node, "peer", &second);
    }
    let expiry = "tollgate_tls_certificate_expiry_timestamp_seconds{certificate=\"cluster\"}";
    wait::until("what is shown to be new", LIMIT, async || {
        let metrics = get(&cluster.nodes[0], &next, "/metrics").await?.body;
        ensure!(
            metrics.contains(&format!("{expiry} 4133980800")),
            "{metrics}"
        );
        Ok(())
    })
    .await
    .unwrap();
    wait::until("new connections", LIMIT, asks).await.unwrap();
}

#[tokio::test]
async fn a_node_without_cluster_tls_says_what_it_lacks() {
    let files = Files::new();
    let pair = files.pair();
    let yaml = |node: &str| match node {
        "a" => LIMITS.to_owned(),
        _ => files.yaml(node, [&pair, &pair], &expecting(NAME)),
    };
    let mut cluster = Cluster::start_each(2, 1, yaml).await;
    cluster.says_it_leads(ShardId(0), 1, Epoch(100)).await;
    let call = super::nodes::asked("envoy/x", &tenants(), 1.0);
    let refused = cluster.nodes[0].try_refresh(call).await.unwrap_err();
    let want = "speaks TLS, and this node has no `cluster.tls`";
    assert!(refused.message().contains(want), "{}", refused.message());
}

/// An operator's token arrives over TLS, and must not go on to a peer in plain text.
#[tokio::test]
async fn a_node_that_is_asked_over_tls_asks_nobody_in_plain_text() {
    let files = Files::new();
    let pair = files.pair();
    let yaml = |node: &str| {
        let whole = files.yaml(node, [&pair, &pair], &expecting(NAME));
        let (before, doors) = whole.split_once("\ntls: {grpc: ").unwrap();
        let (_, cluster) = doors.split_once('\n').unwrap();
        match node {
            "a" => whole,
            _ => format!("{before}\n{cluster}"),
        }
    };
    let mut cluster = Cluster::start_each(2, 1, yaml).await;
    cluster.elect(ShardId(0), 1, Epoch(100)).await;
    cluster.nodes[1].refresh("envoy/x", &tenants(), 1.0).await;
    let connections = async || {
        let metrics = cluster.nodes[1].metrics().await;
        metrics["tollgate_connections{listener=\"grpc\"}"]
    };
    let before = connections().await;
    let page = files.get(&cluster, 0, "/v1/scopes").await.json();
    assert_eq!(page["unanswered"], json!(["b"]));
    assert_eq!(connections().await, before, "nothing is sent");
    // In the other direction there is a certificate to check.
    let page = cluster.nodes[1].get("/v1/scopes").await.json();
    assert_eq!(page["unanswered"], json!(null));
}
