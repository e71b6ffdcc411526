//! Elections through a real etcd.

use std::num::NonZeroU16;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use axum::body::Bytes;
use elector::{Elector, LIMIT};
use tempfile::TempDir;
use tollgate_cluster::election::{ElectionError, Term};
use tollgate_cluster::etcd::{Client, connect};
use tollgate_config::{ClusterConfig, Config};
use tollgate_core::cluster::{ShardId, assign};
use tollgate_net::files::FileReader;
use tollgate_tests::etcd::Etcd;
use tollgate_tests::wait;

mod elector;
mod secured;

const SHARD: ShardId = ShardId(0);

/// The configuration of `node` in a cluster on `etcd` with `rest`, such as `shards: 3`.
fn cluster(etcd: &Etcd, node: &str, rest: &str) -> ClusterConfig {
    let endpoints = etcd.endpoints_yaml();
    with_etcd(node, rest, &format!("endpoints: {endpoints}, lease: 2s"))
}

fn with_etcd(node: &str, rest: &str, etcd: &str) -> ClusterConfig {
    let text = format!("cluster: {{node: {node}, {rest}, etcd: {{{etcd}}}}}\nlimits: []");
    Config::parse(&text).unwrap().cluster.unwrap()
}

async fn client(cluster: &ClusterConfig) -> Client {
    connect(
        &cluster.etcd,
        &FileReader::default(),
        &cluster.etcd.endpoints,
    )
    .await
    .unwrap()
}

async fn one_member() -> (TempDir, Etcd) {
    let dir = tempfile::tempdir().unwrap();
    let etcd = Etcd::start(dir.path(), 1).await.unwrap();
    (dir, etcd)
}

/// Snapshot of `len` bytes, which can be more than one request of etcd takes.
fn snapshot(len: usize) -> Bytes {
    let bytes = (0..len).map(|n| (n * 31 % 251) as u8);
    bytes.collect::<Vec<_>>().into()
}

/// Of `a` and `b` the one that is to lead the only shard, and the other.
fn of_two() -> (&'static str, &'static str) {
    match assign(NonZeroU16::MIN, &["a", "b"])[0] {
        Some(0) => ("a", "b"),
        _ => ("b", "a"),
    }
}

/// Waits until `elector` leads the only shard, and gives its term and the snapshot that came with it.
async fn term_of(elector: &Elector) -> (Term, Option<Bytes>) {
    elector.leads(1).await;
    elector.terms.of(SHARD).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_hands_its_books_over_when_the_preferred_node_comes_and_when_it_stops() {
    let (_dir, etcd) = one_member().await;
    let (preferred, other) = of_two();
    let large = snapshot(3 << 20 | 12_345);
    let first = Elector::start(&cluster(&etcd, other, "shards: 1"), Some(large.clone()));
    let (first_term, from_nobody) = term_of(&first).await;
    assert_eq!(from_nobody, None);

    let small = snapshot(5);
    let second = Elector::start(&cluster(&etcd, preferred, "shards: 1"), Some(small.clone()));
    let (second_term, from_first) = term_of(&second).await;
    assert!(!first_term.holds(), "who has handed over lends nothing");
    assert!(from_first.unwrap() == large, "other snapshot arrived");
    assert!(second_term.epoch() > first_term.epoch());
    for masters in [&first.masters, &second.masters] {
        wait::until("all to know the master", LIMIT, async || {
            let masters = masters.borrow();
            let master = masters.of(SHARD).context("no master")?;
            ensure!(master.peer.node == preferred && master.epoch == second_term.epoch());
            ensure!(masters.members.len() == 2);
            Ok(())
        })
        .await
        .unwrap();
    }

    second.stop().await;
    assert!(!second_term.holds());
    let (third_term, from_second) = term_of(&first).await;
    assert_eq!(from_second, Some(small));
    assert!(third_term.epoch() > second_term.epoch());
    let observed = first.terms.vacant_for(SHARD);
    assert!(observed.is_some(), "it saw that there was none before");
}

#[tokio::test(flavor = "multi_thread")]
async fn three_shards_on_three_nodes_are_one_each_also_after_one_died_and_came_back() {
    let (_dir, etcd) = one_member().await;
    let start = |node: &str| Elector::start(&cluster(&etcd, node, "shards: 3"), None);
    let (a, b, c) = (start("a"), start("b"), start("c"));
    for elector in [&a, &b, &c] {
        elector.leads(1).await;
    }
    let died = c.kill().await;
    wait::until("the others to lead everything", LIMIT, async || {
        let led = a.terms.led().len() + b.terms.led().len();
        // Counted later: a shard that it holds now, it also held when the survivors were counted.
        let of_the_dead = died.led().len();
        assert!(led + of_the_dead <= 3, "a shard with two masters");
        ensure!(led == 3, "they lead {led}");
        assert_eq!(of_the_dead, 0);
        Ok(())
    })
    .await
    .unwrap();
    let again = start("c");
    for elector in [&a, &b, &again] {
        elector.leads(1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_term_ends_before_etcd_forgets_its_master() {
    let (_dir, etcd) = one_member().await;
    let config = cluster(&etcd, "a", "shards: 1");
    let elector = Elector::start(&config, None);
    let (term, _) = term_of(&elector).await;
    let mut client = client(&config).await;
    let (start, end) = ("/tollgate/masters/", "/tollgate/masters0");
    elector.kill().await;
    wait::until("etcd to forget the master", LIMIT, async || {
        let range = etcd_client::GetOptions::new().with_range(end);
        let held_before = term.holds();
        let found = client.get(start, Some(range)).await?;
        let forgotten = found.kvs().is_empty();
        assert!(
            !(forgotten && term.holds()),
            "another could be master already"
        );
        ensure!(forgotten, "still known, and the term holds: {held_before}");
        Ok(())
    })
    .await
    .unwrap();
}

/// As a process that was stopped, or a machine that was asleep.
#[test]
fn a_master_that_was_stopped_past_its_term_knows_when_it_wakes() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let (awake, sleepy) = (runtime(), runtime());
    let (_dir, etcd) = awake.block_on(one_member());
    let (preferred, other) = of_two();
    let config = cluster(&etcd, preferred, "shards: 1");
    let (elector, term) = sleepy.block_on(async {
        let elector = Elector::start(&config, None);
        let (term, _) = term_of(&elector).await;
        (elector, term)
    });
    // Nothing of it runs from here on: a runtime of one thread runs only while it is waited for.
    let next = awake.block_on(async {
        let next = Elector::start(&cluster(&etcd, other, "shards: 1"), None);
        let (next_term, _) = term_of(&next).await;
        assert!(!term.holds(), "two masters");
        assert!(next_term.epoch() > term.epoch());
        next
    });
    assert!(!term.holds(), "it woke up and went on");
    let (done, is_done) = tokio::sync::oneshot::channel::<()>();
    let again = std::thread::scope(|scope| {
        scope.spawn(|| awake.block_on(is_done));
        let (again, _) = sleepy.block_on(term_of(&elector));
        drop(done);
        again
    });
    assert_eq!(next.terms.led().len(), 0, "it has handed over");
    assert!(again.epoch() > term.epoch());
    assert!(!term.holds(), "a term that was lost never holds again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_etcd_does_not_answer_stops_and_goes_on_when_it_is_back() {
    let (_dir, mut etcd) = one_member().await;
    let elector = Elector::start(&cluster(&etcd, "a", "shards: 1"), None);
    let (before, _) = term_of(&elector).await;
    etcd.freeze(0).unwrap();
    elector.leads(0).await;
    etcd.thaw(0).unwrap();
    let (after, _) = term_of(&elector).await;
    assert!(after.epoch() >= before.epoch());

    etcd.kill(0).unwrap();
    elector.leads(0).await;
    etcd.restart(0).await.unwrap();
    let (last, _) = term_of(&elector).await;
    assert!(last.epoch() >= after.epoch());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_members_that_hangs_costs_nobody_its_office() {
    let dir = tempfile::tempdir().unwrap();
    let etcd = Etcd::start(dir.path(), 3).await.unwrap();
    let etcd_config = format!("endpoints: {}, lease: 12s", etcd.endpoints_yaml());
    let config = |node: &str| with_etcd(node, "shards: 1", &etcd_config);
    let (preferred, other) = of_two();
    let elector = Elector::start(&config(preferred), None);
    let (term, _) = term_of(&elector).await;
    etcd.freeze(0).unwrap();
    // Only through the other members can this one get known.
    let second = Elector::start(&config(other), None);
    wait::until("the second node to be seen", LIMIT, async || {
        assert!(term.holds());
        let members = elector.masters.borrow().members.len();
        ensure!(members == 2, "there are {members}");
        Ok(())
    })
    .await
    .unwrap();
    etcd.thaw(0).unwrap();
    assert_eq!(second.terms.led().len(), 0);
    assert_eq!(term_of(&elector).await.0.epoch(), term.epoch());
}

#[tokio::test(flavor = "multi_thread")]
async fn books_of_an_earlier_term_are_not_taken() {
    let (_dir, etcd) = one_member().await;
    let config = cluster(&etcd, "a", "shards: 1");
    let first = Elector::start(&config, Some(snapshot(100)));
    first.leads(1).await;
    first.stop().await;
    let mut client = client(&config).await;
    let prefix = || Some(etcd_client::GetOptions::new().with_prefix());
    let left = client
        .get("/tollgate/shards/0/books/", prefix())
        .await
        .unwrap();
    assert_eq!(left.kvs().len(), 2, "a head and one part");

    let second = Elector::start(&config, None);
    let (term, taken) = term_of(&second).await;
    assert_eq!(taken, Some(snapshot(100)));
    let rest = client
        .get("/tollgate/shards/0/books/", prefix())
        .await
        .unwrap();
    assert_eq!(
        rest.kvs().len(),
        0,
        "taken, so that nobody takes them again"
    );
    second.kill().await;
    for pair in left.kvs() {
        client.put(pair.key(), pair.value(), None).await.unwrap();
    }
    let third = Elector::start(&config, None);
    let (later, taken) = term_of(&third).await;
    assert!(later.epoch() > term.epoch());
    assert_eq!(taken, None, "there was a term in between");
}

#[tokio::test(flavor = "multi_thread")]
async fn books_that_are_not_whole_are_not_taken() {
    let (_dir, etcd) = one_member().await;
    let config = cluster(&etcd, "a", "shards: 1");
    let first = Elector::start(&config, Some(snapshot(100)));
    first.leads(1).await;
    first.stop().await;
    let mut client = client(&config).await;
    let part = "/tollgate/shards/0/books/00000";
    client.put(part, &snapshot(99)[..], None).await.unwrap();
    let second = Elector::start(&config, None);
    assert_eq!(term_of(&second).await.1, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_node_has_written_elects_nobody() {
    let (_dir, etcd) = one_member().await;
    let config = cluster(&etcd, "a", "shards: 2");
    let mut client = client(&config).await;
    let (b, no_peer) = (r#"{"node":"b","grpc":"b:1","http":"b:2"}"#, "{}");
    for (key, value) in [
        ("members/b", b),
        ("members/c", no_peer),
        ("masters/0/1", b),
        ("masters/1/1", no_peer),
        ("masters/2/1", b),
        ("masters/x/1", b),
        ("shards/0/term", "soon"),
        ("shards/1/books/head", "none"),
    ] {
        let key = format!("/tollgate/{key}");
        client.put(key, value, None).await.unwrap();
    }
    let elector = Elector::start(&config, None);
    elector.leads(2).await;
    assert_eq!(elector.masters.borrow().members.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_fit_is_told_so() {
    let (_dir, etcd) = one_member().await;
    let first = Elector::start(&cluster(&etcd, "a", "shards: 2"), None);
    first.leads(2).await;
    let error = Elector::start(&cluster(&etcd, "b", "shards: 3"), None)
        .error()
        .await;
    assert!(matches!(error, ElectionError::Shards { .. }));
    let want = "cluster.shards: is 3, but the cluster at \"/tollgate/cluster\" in etcd has 2; all \
                nodes must have the same";
    assert_eq!(error.to_string(), want);
    assert_eq!(first.terms.led().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_nodes_with_one_name_the_second_waits() {
    let (_dir, etcd) = one_member().await;
    let config = cluster(&etcd, "a", "shards: 1");
    let first = Elector::start(&config, None);
    let (term, _) = term_of(&first).await;
    let second = Elector::start(&config, None);
    // Nothing says that it waits; it has had the time to do otherwise.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(second.terms.led().len(), 0);
    assert!(term.holds());
    first.stop().await;
    assert!(term_of(&second).await.0.epoch() > term.epoch());
}
