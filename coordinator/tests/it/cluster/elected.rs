//! Nodes that are elected through a real etcd.

use std::collections::BTreeSet;
use std::time::Duration;

use tollgate_cluster::election::ElectionMetrics;
use tollgate_cluster::election::EtcdElection as Election;
use tollgate_config::Config;
use tollgate_coordinator::{Listeners, Place, Server};
use tollgate_core::lease::Epoch;
use tollgate_core::lease_server::Start;

use super::nodes::{Node, asked_again};
use super::tenants;
use crate::certificates::{Folder, Issuer};
use crate::etcd::Etcd;
use crate::harness::unit;

/// Leases that last longer than any machine takes for this.
const LIMITS: &str = "limits: [{match: tenant/*, requests: {rate: 100, headroom: 0, lease: 10m}}]";

async fn node(name: &str, etcd: &Etcd) -> Node {
    let etcd = etcd.address();
    let etcd = format!("{{endpoints: ['http://{etcd}'], prefix: /cluster, lease: 5s}}");
    let yaml = format!("{LIMITS}\ncluster: {{node: {name}, shards: 3, etcd: {etcd}}}");
    let elected = |config: &mut Config, place: &Place| {
        let cluster = config.cluster.as_ref().unwrap();
        Election::new(cluster, place.peer.clone(), ElectionMetrics::default())
    };
    let shards = 3.try_into().unwrap();
    Node::elected_by(name, shards, &yaml, elected).await
}

/// Waits until `nodes` know a master of each shard, and these are `masters`.
async fn until_led_by(nodes: &[&Node], masters: &[&str]) {
    for node in nodes {
        loop {
            let status = node.get("/v1/status").await.json();
            let shards = status["cluster"]["shards"].as_array().unwrap();
            let led: BTreeSet<_> = shards
                .iter()
                .map(|shard| shard["master"].as_str())
                .collect();
            if led == masters.iter().map(|name| Some(*name)).collect() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Returns what `client`, which has nothing, gets of each tenant once all are answered.
async fn gets(node: &Node, client: &str, wants: f64) -> Vec<f64> {
    let mut sequence = 0;
    loop {
        sequence += 1;
        let requested = asked_again(client, &tenants(), sequence, wants);
        let answers = node.try_refresh(requested).await.unwrap_or_default();
        if !answers.is_empty() && answers.iter().all(|answer| answer.outcome.is_ok()) {
            let leases = answers.iter().map(|answer| unit(answer).answer.lease);
            let leases = leases.map(|lease| lease.expect("nothing is to be learned"));
            return leases.map(|lease| lease.capacity.as_f64()).collect();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_hands_its_leases_on() {
    let etcd = Etcd::start().await;
    let (a, b, c) = tokio::join!(node("a", &etcd), node("b", &etcd), node("c", &etcd));
    until_led_by(&[&a, &b, &c], &["a", "b", "c"]).await;
    assert_eq!(gets(&a, "envoy-a/x", 60.0).await, [60.0; 30]);
    b.stop().await;
    until_led_by(&[&a, &c], &["a", "c"]).await;
    assert_eq!(
        gets(&c, "envoy-b/x", 60.0).await,
        [40.0; 30],
        "what is left"
    );
    c.stop().await;
    until_led_by(&[&a], &["a"]).await;
    assert_eq!(gets(&a, "envoy-c/x", 60.0).await, [0.0; 30], "all is lent");
    a.stop().await;
}

/// One with nothing but a configuration, as `tollgate serve` has.
async fn configured(yaml: &str) -> Node {
    let listen = "listen: {grpc: '127.0.0.1:0', http: '127.0.0.1:0'}";
    let config = Config::parse(&format!("{listen}\n{yaml}")).unwrap();
    let listeners = Listeners::bind(config.listen).await.unwrap();
    let cluster = config.cluster.as_ref().unwrap();
    let (peer, tls) = (
        listeners.addresses().unwrap().peer(cluster, &config.tls),
        cluster.tls.clone(),
    );
    let server = Server::new(listeners, config, Epoch(0), Start::Fresh).await;
    Node::of(peer, tls, server.unwrap())
}

/// Nodes read in etcd whether a peer is reached with TLS.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_tell_each_other_that_they_speak_tls() {
    let (etcd, folder, issuer) = (Etcd::start().await, Folder::new(), Issuer::new());
    let door = folder.door(&issuer.issue());
    let ca = folder.write("ca.crt", &issuer.pem());
    let yaml = |name: &str, doors: &str| {
        let etcd = format!("{{endpoints: ['http://{}'], lease: 5s}}", etcd.address());
        let tls = format!("{{ca: '{ca}', {door}, server_name: localhost}}");
        let cluster = format!("cluster: {{node: {name}, shards: 2, etcd: {etcd}, tls: {tls}}}");
        format!("{LIMITS}\n{cluster}\ntls: {{{doors}}}")
    };
    // As in the middle of a rolling change: one speaks TLS, the other not yet.
    let doors = format!("grpc: {{{door}, client_ca: '{ca}'}}");
    let (a, b) = (yaml("a", &doors), yaml("b", ""));
    let (a, b) = tokio::join!(configured(&a), configured(&b));
    until_led_by(&[&a, &b], &["a", "b"]).await;
    // New to every shard, so that all masters learn; that both have answered is enough.
    for node in [&a, &b] {
        loop {
            let answers = node.try_refresh(asked_again("envoy/x", &tenants(), 1, 1.0));
            let answers = answers.await.unwrap_or_default();
            if !answers.is_empty() && answers.iter().all(|answer| answer.outcome.is_ok()) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(node.metrics().await["tollgate_answered_total{by=\"peer\"}"] > 0.0);
    }
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn masters_that_learn_say_so_at_every_node() {
    let etcd = Etcd::start().await;
    let yaml = |name: &str| {
        let etcd = format!("{{endpoints: ['http://{}'], lease: 5s}}", etcd.address());
        format!("{LIMITS}\ncluster: {{node: {name}, shards: 2, etcd: {etcd}}}")
    };
    let (a, b) = (yaml("a"), yaml("b"));
    let (a, b) = tokio::join!(configured(&a), configured(&b));
    until_led_by(&[&a, &b], &["a", "b"]).await;
    for node in [&a, &b] {
        loop {
            let _ = node
                .try_refresh(asked_again("envoy/x", &tenants(), 1, 1.0))
                .await;
            let status = node.get("/v1/status").await.json();
            let shards = status["cluster"]["shards"].as_array().unwrap();
            let learning = shards.iter().map(|shard| shard["learning_count"].as_u64());
            let learning: Option<Vec<u64>> = learning.collect();
            let terms = shards.iter().map(|shard| shard["term_left_ms"].as_u64());
            let terms: Option<Vec<u64>> = terms.collect();
            if let (Some(learning), Some(terms)) = (learning, terms)
                && learning.iter().sum::<u64>() == 30
            {
                assert!(learning.iter().all(|count| *count > 0), "{shards:?}");
                assert!(terms.iter().all(|left| *left <= 5000), "{shards:?}");
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    a.stop().await;
    b.stop().await;
}
