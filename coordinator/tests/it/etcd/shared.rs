//! Limits, groups and attachments that all nodes of a cluster read in etcd.

use std::net::SocketAddr;
use std::time::Duration;

use tollgate_config::Config;
use tollgate_config::catalog::WriteRefusal;
use tollgate_config::shared_config::{SharedConfigError, get, put};
use tollgate_coordinator::{Listeners, serve};
use tollgate_core::lease::Epoch;
use tollgate_core::lease_server::Start;

use super::Etcd;
use crate::harness::{Ask, Coordinator};

fn yaml(node: &str, etcd: SocketAddr) -> String {
    let etcd = format!("{{endpoints: ['http://{etcd}'], prefix: /test}}");
    format!("cluster: {{node: {node}, shared_config: true, etcd: {etcd}}}\n")
}

fn limit(rate: u32) -> String {
    format!("limits: [{{match: tenant/a, requests: {{rate: {rate}}}}}]\n")
}

/// Waits until `node` has `rate` as the limit of `tenant/a`.
async fn until(node: &Coordinator, rate: f64) {
    loop {
        let limits = node.get("/v1/limits/tenant/a").await.json();
        if limits["own"]["units"]["requests"]["capacity"] == rate {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// How often a changed configuration was taken, and how often refused.
async fn reloads(node: &Coordinator) -> (String, String) {
    let metrics = node.get("/metrics").await.body;
    let count = |result: &str| {
        let name = format!("tollgate_reloads_total{{result=\"{result}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap().to_owned()
    };
    (count("taken"), count("refused"))
}

#[tokio::test]
async fn all_nodes_take_what_is_put_there_and_refuse_what_is_wrong() {
    let etcd = Etcd::start().await;
    let node = Config::parse(&yaml("a", etcd.address())).unwrap();
    assert_eq!(get(&node).await, Ok(None));
    let listen = "listen: {grpc: '127.0.0.1:0', http: '127.0.0.1:0'}\n";
    let config = Config::parse(&format!("{listen}{}", yaml("a", etcd.address()))).unwrap();
    let listeners = Listeners::bind(config.listen).await.unwrap();
    let ended = serve(
        listeners,
        config,
        Epoch(1),
        Start::Fresh,
        std::future::pending(),
    )
    .await;
    let message = ended.unwrap_err().to_string();
    let want = "there is no /test/config/file in etcd: `tollgate config put` puts one there";
    assert_eq!(message, want);

    put(&node, limit(100).as_bytes()).await.unwrap();
    let a = Coordinator::with(&yaml("a", etcd.address()), Start::Fresh).await;
    let b = Coordinator::with(&yaml("b", etcd.address()), Start::Fresh).await;
    for node in [&a, &b] {
        until(node, 100.0).await;
    }
    let groups = format!("{}groups: {{gold: {{requests: {{rate: 9}}}}}}\n", limit(50));
    put(&node, groups.as_bytes()).await.unwrap();
    for node in [&a, &b] {
        until(node, 50.0).await;
        assert_eq!(reloads(node).await, ("1".to_owned(), "0".to_owned()));
    }
    assert_eq!(get(&node).await, Ok(Some(groups.into_bytes())));

    // A wrong file is refused; if it gets into etcd all the same, no node takes it.
    let wrong = put(&node, b"limits: []\nlimit: []")
        .await
        .unwrap_err()
        .to_string();
    assert!(wrong.starts_with("2:1: limit: unknown field"), "{wrong}");
    let mut client = etcd.client().await;
    for wrong in ["limits: 5", "\u{0}", ""] {
        client.put("/test/config/file", wrong, None).await.unwrap();
    }
    client.delete("/test/config/file", None).await.unwrap();
    for node in [&a, &b] {
        while reloads(node).await.1 != "4" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        until(node, 50.0).await;
    }
    put(&node, limit(30).as_bytes()).await.unwrap();
    for node in [&a, &b] {
        until(node, 30.0).await;
    }
}

#[tokio::test]
async fn a_group_that_is_used_stays_whoever_is_faster() {
    let etcd = Etcd::start().await;
    let node = Config::parse(&yaml("a", etcd.address())).unwrap();
    let with = format!("{}groups: {{gold: {{}}}}\n", limit(1));
    let without = limit(1);
    put(&node, with.as_bytes()).await.unwrap();
    let a = Coordinator::with(&yaml("a", etcd.address()), Start::Fresh).await;
    let attach = Ask::put("/v1/attachments/tenants/acme", "{\"group\": \"gold\"}");
    for round in 0..12 {
        // Sooner or later, so that each is the first now and then.
        let attached_after = async {
            tokio::time::sleep(Duration::from_millis(4 * round)).await;
            a.ask(&attach).await
        };
        let (answer, removed) = tokio::join!(attached_after, put(&node, without.as_bytes()));
        match (answer.status, removed) {
            (201, Err(SharedConfigError::Refused(WriteRefusal::Attached { count: 1, .. }))) => {
                let detached = a.ask(&Ask::delete(&attach.path)).await;
                assert_eq!(detached.status, 204, "{round}");
            }
            (422, Ok(())) => put(&node, with.as_bytes()).await.unwrap(),
            others => panic!("{round}: {others:?}"),
        }
    }
}
