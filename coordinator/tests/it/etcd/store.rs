//! The store in etcd, under several writers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::Client;
use tokio::task::JoinSet;
use tollgate_config::Config;
use tollgate_config::catalog::metrics::CatalogMetrics;
use tollgate_config::catalog::spec::{AttachmentSpec, GroupSpec};
use tollgate_config::catalog::store::{EtcdStore, StoreError};
use tollgate_config::catalog::{Catalog, GroupKind, MemberKind, Precondition, WriteRefusal};
use tollgate_config::writer::{CatalogHandle, CatalogWriter, WriteError};
use tollgate_core::lease_server::Start;
use tollgate_net::clock::Clock;
use tollgate_observe::metrics::{Exporter, Exposition, registry};

use super::{Etcd, Link};
use crate::harness::{Ask, Coordinator};

const PREFIX: &str = "/test";
const TENANT: MemberKind = MemberKind::Tenant;
const ANY: Precondition = Precondition::Anything;

/// A writer of what is in the etcd behind `endpoints`.
async fn try_node(endpoints: &[SocketAddr]) -> Result<(CatalogHandle, Exporter), StoreError> {
    let endpoints: Vec<String> = endpoints
        .iter()
        .map(|at| format!("'http://{at}'"))
        .collect();
    let etcd = format!(
        "{{endpoints: [{}], prefix: {PREFIX}}}",
        endpoints.join(", ")
    );
    let cluster = format!("cluster: {{node: a, etcd: {etcd}}}");
    let config = Config::parse(&format!("limits: []\n{cluster}")).unwrap();
    let mut registry = registry();
    let metrics = CatalogMetrics::register(&mut registry);
    let store = EtcdStore::new(&config.cluster.as_ref().unwrap().etcd, metrics.clone());
    let writer = CatalogWriter::new(Box::new(store), config, Clock::start(), metrics);
    let (writer, handle) = writer.await?;
    tokio::spawn(writer.run());
    Ok((handle, Exporter::new(registry)))
}

async fn node(address: SocketAddr) -> CatalogHandle {
    try_node(&[address]).await.unwrap().0
}

fn group(rate: u32) -> GroupSpec {
    serde_json::from_str(&format!("{{\"requests\": {{\"rate\": {rate}}}}}")).unwrap()
}

fn attach(group: &str) -> AttachmentSpec {
    serde_json::from_str(&format!("{{\"group\": \"{group}\"}}")).unwrap()
}

async fn until(node: &CatalogHandle, as_wanted: impl FnMut(&Arc<Catalog>) -> bool) -> Arc<Catalog> {
    let mut newest = node.watch();
    newest.wait_for(as_wanted).await.unwrap().clone()
}

/// The groups of a node with their revisions.
fn groups(catalog: &Catalog) -> BTreeMap<String, Option<u64>> {
    let entries = catalog.list(GroupKind, "");
    entries
        .map(|entry| (entry.name.to_string(), entry.revision))
        .collect()
}

#[tokio::test]
async fn what_either_node_writes_both_have_and_one_of_two_conflicting_writes_wins() {
    let etcd = Etcd::start().await;
    let a = node(etcd.address()).await;
    let b = node(etcd.address()).await;
    a.put(GroupKind, "gold", group(1), ANY).await.unwrap();
    // At once, although the news of it may not have come yet.
    let attached = b.put(TENANT, "acme", attach("gold"), ANY).await;
    assert!(attached.unwrap().created);
    until(&a, |catalog| catalog.find(TENANT, "acme").is_some()).await;

    for round in 0..20 {
        let name = format!("g{round}");
        let created = a
            .put(GroupKind, &name, group(1), ANY)
            .await
            .unwrap()
            .revision;
        // Both want to be the next to change it.
        let expect = Precondition::Revision(created);
        let (one, other) = tokio::join!(
            a.put(GroupKind, &name, group(2), expect),
            b.put(GroupKind, &name, group(3), expect)
        );
        let (won, lost) = if one.is_ok() {
            (one, other)
        } else {
            (other, one)
        };
        let found = Some(won.unwrap().revision);
        assert_eq!(
            lost,
            Err(WriteRefusal::Mismatch { found }.into()),
            "{round}"
        );
        // One attaches to it, the other deletes it.
        let tenant = format!("t{round}");
        let (attached, deleted) = tokio::join!(
            a.put(TENANT, &tenant, attach(&name), ANY),
            b.delete(GroupKind, &name, ANY)
        );
        match (attached, deleted) {
            (Ok(_), Err(WriteError::Refused(WriteRefusal::Attached { count: 1, .. }))) => {}
            (Err(WriteError::Refused(WriteRefusal::NoGroup(_))), Ok(_)) => {}
            others => panic!("{others:?}"),
        }
    }
    let fresh = node(etcd.address()).await.catalog();
    assert_eq!(fresh.missing_groups().count(), 0);
    let same = |catalog: &Arc<Catalog>| groups(catalog) == groups(&fresh);
    until(&a, same).await;
    until(&b, same).await;
}

#[tokio::test]
async fn what_is_acknowledged_while_etcd_dies_again_and_again_is_there() {
    let mut etcd = Etcd::start().await;
    let nodes = [node(etcd.address()).await, node(etcd.address()).await];
    let mut writers = JoinSet::new();
    let (count, counted) = tokio::sync::watch::channel(0_u32);
    for writer in 0..10_usize {
        let (node, count) = (nodes[writer % 2].clone(), count.clone());
        writers.spawn(async move {
            let name = format!("g{writer}");
            let (mut acknowledged, mut failed) = (0, 0);
            for step in 1..=100 {
                loop {
                    match node.put(GroupKind, &name, group(step), ANY).await {
                        Ok(written) => {
                            assert!(written.revision > acknowledged);
                            acknowledged = written.revision;
                            count.send_modify(|count| *count += 1);
                            break;
                        }
                        Err(WriteError::Store(_)) => {
                            failed += 1;
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
            }
            (name, acknowledged, failed)
        });
    }
    for killed_after in [100, 400, 800] {
        let mut counted = counted.clone();
        counted
            .wait_for(|count| *count >= killed_after)
            .await
            .unwrap();
        etcd.kill();
        etcd.restart().await;
    }
    let mut failures = 0;
    let fresh = async || groups(&node(etcd.address()).await.catalog());
    for (name, acknowledged, failed) in writers.join_all().await {
        assert_eq!(fresh().await[&name], Some(acknowledged), "{name}");
        failures += failed;
    }
    assert!(failures > 0, "it was never away");
    let want = fresh().await;
    for node in nodes {
        until(&node, |catalog| groups(catalog) == want).await;
        assert_eq!(node.catalog().group("g0").unwrap().value.spec(), group(100));
    }
}

#[tokio::test]
async fn a_node_that_is_cut_off_reads_on_does_not_write_and_catches_up() {
    let etcd = Etcd::start().await;
    let link = Link::to(etcd.address()).await;
    let (cut, other) = (node(link.address()).await, node(etcd.address()).await);
    for name in ["a", "b"] {
        cut.put(GroupKind, name, group(1), ANY).await.unwrap();
    }
    for compact in [false, true] {
        let before = groups(&cut.catalog());
        link.cut();
        let refused = loop {
            match cut.put(GroupKind, "c", group(9), ANY).await {
                Err(WriteError::Store(StoreError::Away { cause, .. })) => break cause,
                // It may not have noticed.
                Err(WriteError::Store(StoreError::Unsure { .. })) => tokio::task::yield_now().await,
                other => panic!("{other:?}"),
            }
        };
        assert!(!refused.is_empty());
        assert_eq!(groups(&cut.catalog()), before);
        other.put(GroupKind, "a", group(7), ANY).await.unwrap();
        let last = other.put(GroupKind, "new", group(7), ANY).await.unwrap();
        if other.catalog().group("b").is_some() {
            other.delete(GroupKind, "b", ANY).await.unwrap();
        }
        if compact {
            let mut client = etcd.client().await;
            let now = client.get("x", None).await.unwrap();
            let now = now.header().unwrap().revision();
            client.compact(now, None).await.unwrap();
        }
        link.mend();
        let want = groups(&other.catalog());
        until(&cut, |catalog| groups(catalog) == want).await;
        assert_eq!(want["new"], Some(last.revision));
        // And it writes again, once it has seen that it may.
        while let Err(error) = cut.put(GroupKind, "b", group(1), ANY).await {
            assert!(matches!(error, WriteError::Store(_)), "{error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        until(&other, |catalog| catalog.group("b").is_some()).await;
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_skipped_and_a_newer_format_is_not_written_to() {
    let etcd = Etcd::start().await;
    let mut client: Client = etcd.client().await;
    let mut put = async |key: &str, value: &str| {
        client
            .put(format!("{PREFIX}/config/{key}"), value, None)
            .await
            .unwrap();
    };
    put(
        "group/bad",
        "{\"revision\": 1, \"spec\": {\"requests\": 7}}",
    )
    .await;
    put("nonsense", "x").await;
    let last = "{\"revision\": 18446744073709551615, \"spec\": {}}";
    put("group/last", last).await;
    let (a, metrics) = try_node(&[etcd.address()]).await.unwrap();
    let bad = async || {
        let text = metrics.encode(Exposition::Prometheus, |_| {}).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("tollgate_store_bad_records_total "));
        line.unwrap().to_owned()
    };
    assert_eq!(bad().await, "3");
    a.put(GroupKind, "good", group(1), ANY).await.unwrap();
    put("group/good", "\u{0}").await;
    put(
        "group/after",
        "{\"revision\": 99, \"spec\": {}, \"newer\": 1}",
    )
    .await;
    let catalog = until(&a, |catalog| catalog.group("after").is_some()).await;
    assert_eq!(catalog.group("good").unwrap().value.spec(), group(1));
    assert_eq!(bad().await, "4");
    assert!(catalog.group("bad").is_none());
    // A good record in its place repairs it.
    a.put(GroupKind, "bad", group(2), ANY).await.unwrap();

    put("revision", "{\"format\": 2, \"revision\": 100}").await;
    let newer = loop {
        if let Err(error) = a.put(GroupKind, "good", group(3), ANY).await {
            break error;
        }
    };
    let message = newer.to_string();
    assert!(
        message.contains("was written by a newer version of tollgate, in format 2"),
        "{message}"
    );
    let refused = try_node(&[etcd.address()]).await.unwrap_err();
    assert!(
        matches!(refused, StoreError::Newer { format: 2, .. }),
        "{refused}"
    );
}

#[tokio::test]
async fn thousands_of_records_are_read_at_the_start_and_in_pages() {
    let etcd = Etcd::start().await;
    let mut client = etcd.client().await;
    for page in 0..12 {
        let puts: Vec<_> = (0..100)
            .map(|i| {
                let key = format!("{PREFIX}/config/group/g{page}-{i}");
                let record = format!("{{\"revision\": {}, \"spec\": {{}}}}", page * 100 + i + 1);
                etcd_client::TxnOp::put(key, record, None)
            })
            .collect();
        let txn = etcd_client::Txn::new().and_then(puts);
        client.txn(txn).await.unwrap();
    }
    let a = node(etcd.address()).await;
    assert_eq!(groups(&a.catalog()).len(), 1200);
    // The records were written without the key of the last revision.
    let next = a.put(GroupKind, "next", group(1), ANY).await.unwrap();
    assert_eq!(next.revision, 1201);
}

/// A coordinator of a cluster in the etcd at `address`.
async fn coordinator(name: &str, address: SocketAddr) -> Coordinator {
    let etcd = format!("{{endpoints: ['http://{address}'], prefix: {PREFIX}}}");
    let yaml = format!("limits: []\ncluster: {{node: {name}, etcd: {etcd}}}");
    Coordinator::with(&yaml, Start::Fresh).await
}

#[tokio::test]
async fn any_coordinator_of_a_cluster_takes_writes_and_says_when_it_cannot() {
    let etcd = Etcd::start().await;
    let link = Link::to(etcd.address()).await;
    let a = coordinator("a", link.address()).await;
    let b = coordinator("b", etcd.address()).await;
    let put = |rate: u32| {
        let body = format!("{{\"requests\": {{\"rate\": {rate}}}}}");
        Ask::put("/v1/groups/gold", &body)
    };
    // Each on top of what the other has written just before.
    let mut tag = a.ask(&put(1)).await.header("etag").to_owned();
    for rate in 2..10 {
        let node = if rate % 2 == 0 { &b } else { &a };
        let written = node.ask(&put(rate).header("if-match", &tag)).await;
        assert_eq!(written.status, 200, "{}", written.body);
        let stale = node.ask(&put(0).header("if-match", &tag)).await;
        assert_eq!(stale.status, 412, "{}", stale.body);
        tag = written.header("etag").to_owned();
    }
    let attach = Ask::put("/v1/attachments/tenants/acme", "{\"group\": \"gold\"}");
    assert_eq!(b.ask(&attach).await.status, 201);
    assert_eq!(a.ask(&Ask::delete("/v1/groups/gold")).await.status, 409);

    link.cut();
    let refused = a.ask(&put(50)).await;
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert_eq!(refused.header("content-type"), "application/problem+json");
    assert_eq!(refused.header("retry-after"), "2");
    let detail = refused.json()["detail"].to_string();
    assert!(
        detail.contains(&format!("etcd {PREFIX}/config/")),
        "{detail}"
    );
    let read = a.get("/v1/groups/gold").await;
    assert_eq!(read.json()["spec"]["requests"]["rate"], 9);
    assert_eq!(b.ask(&put(60)).await.status, 200);
    link.mend();
    loop {
        let read = a.get("/v1/groups/gold").await;
        if read.json()["spec"]["requests"]["rate"] == 60 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_endpoint_that_hangs_is_left_for_the_next() {
    let etcd = Etcd::start().await;
    let links = [
        Link::to(etcd.address()).await,
        Link::to(etcd.address()).await,
    ];
    // One that never answers from the start.
    links[0].hang();
    let (a, _) = try_node(&links.each_ref().map(Link::address))
        .await
        .unwrap();
    a.put(GroupKind, "gold", group(1), ANY).await.unwrap();
    // And one that answers no more: one write does not know, the next is made.
    links[0].mend();
    links[1].hang();
    let unsure = a.put(GroupKind, "gold", group(2), ANY).await;
    assert!(
        matches!(unsure, Err(WriteError::Store(StoreError::Unsure { .. }))),
        "{unsure:?}"
    );
    while let Err(error) = a.put(GroupKind, "gold", group(3), ANY).await {
        assert!(matches!(error, WriteError::Store(_)), "{error}");
        tokio::task::yield_now().await;
    }
    assert_eq!(a.catalog().group("gold").unwrap().value.spec(), group(3));
}
