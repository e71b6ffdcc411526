use std::num::NonZeroU64;
use std::time::Duration;

use tokio::time::timeout;
use tollgate_core::lease::{Run, Unit};
use tollgate_proto::request::SCOPES_MAX;

use super::open::{CLIENT_NUDGES_MAX, NODE_NUDGES_MAX};
use super::*;

fn id(client: &str) -> ClientId {
    ClientId::new(client).unwrap()
}

fn watch_of(client: &str, run: u64) -> Watcher {
    let run = Run::Incarnation(NonZeroU64::new(run).unwrap());
    Watcher::Client(ClientRun {
        id: id(client),
        run,
    })
}

fn node_of(name: &str) -> Watcher {
    Watcher::Node(name.to_owned())
}

fn resource(scope: &str) -> ResourceId {
    ResourceId::new(scope, Unit::Requests).unwrap()
}

/// All messages that wait for `watch`: the client and its scopes.
fn taken(watch: &NudgeWatch) -> Vec<(Option<String>, Vec<String>)> {
    let messages = std::iter::from_fn(|| watch.take());
    let text = |nudged: Nudged| {
        let client = nudged.client.map(|client| client.as_str().to_owned());
        let scopes = nudged.resources.iter();
        (client, scopes.map(|id| id.scope.to_string()).collect())
    };
    messages.map(text).collect()
}

fn message(client: Option<&str>, scopes: &[&str]) -> (Option<String>, Vec<String>) {
    let scopes = scopes.iter().map(|scope| (*scope).to_owned());
    (client.map(str::to_owned), scopes.collect())
}

const NONE: [(Option<String>, Vec<String>); 0] = [];

#[test]
fn a_nudge_goes_to_the_client_if_it_watches_here_and_else_to_all_nodes() {
    let nudges = Nudges::default();
    let a = nudges.open(watch_of("a", 1)).unwrap();
    let nodes = ["n1", "n2"].map(|name| nudges.open(node_of(name)).unwrap());
    for (client, scope) in [("a", "x"), ("b", "z"), ("c", "x"), ("b", "y"), ("b", "y")] {
        nudges.nudge(&id(client), &resource(scope));
    }
    assert_eq!(taken(&a), [message(None, &["x"])]);
    for node in &nodes {
        let of_others = [message(Some("b"), &["y", "z"]), message(Some("c"), &["x"])];
        assert_eq!(taken(node), of_others);
    }
    assert_eq!(nudges.0.metrics.nudges.get(), 1, "those of clients count");
    assert_eq!(nudges.0.metrics.watches.get(), 3);
}

/// Otherwise two nodes would send it to and fro.
#[test]
fn a_nudge_of_another_master_goes_to_clients_only() {
    let nudges = Nudges::default();
    let a = nudges.open(watch_of("a", 1)).unwrap();
    let node = nudges.open(node_of("n1")).unwrap();
    for client in [Some(id("a")), Some(id("b")), None] {
        let resources = vec![resource("x"), resource("y")];
        nudges.deliver(&Nudged { client, resources });
    }
    assert_eq!(taken(&a), [message(None, &["x", "y"])]);
    assert_eq!(taken(&node), NONE);
}

#[test]
fn a_later_watch_takes_the_place_of_the_earlier_one_of_its_run() {
    let nudges = Nudges::default();
    let earlier = nudges.open(watch_of("a", 1)).unwrap();
    let other = nudges.open(watch_of("a", 2)).unwrap();
    let later = nudges.open(watch_of("a", 1)).unwrap();
    nudges.nudge(&id("a"), &resource("x"));
    assert_eq!(taken(&earlier), NONE);
    assert_eq!(taken(&other), [message(None, &["x"])], "of another run");
    drop(earlier);
    nudges.nudge(&id("a"), &resource("y"));
    assert_eq!(taken(&later), [message(None, &["x", "y"])]);
    assert_eq!(nudges.0.metrics.watches.get(), 2);
}

#[tokio::test]
async fn a_node_has_one_watch_and_the_later_one_stays() {
    let nudges = Nudges::default();
    let earlier = nudges.open(node_of("n1")).unwrap();
    let later = nudges.open(node_of("n1")).unwrap();
    assert_eq!(nudges.0.metrics.watches.get(), 1);
    nudges.nudge(&id("b"), &resource("x"));
    assert_eq!(earlier.filled().await, Err(Replaced));
    drop(earlier);
    assert_eq!(taken(&later), [message(Some("b"), &["x"])]);
    assert_eq!(nudges.0.metrics.watches.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_waits_until_there_is_a_nudge_or_it_is_replaced() {
    let nudges = Nudges::default();
    let watch = nudges.open(watch_of("a", 1)).unwrap();
    let soon = Duration::from_secs(1);
    assert!(timeout(soon, watch.filled()).await.is_err());
    let (filled, ()) = tokio::join!(watch.filled(), async {
        tokio::task::yield_now().await;
        nudges.nudge(&id("a"), &resource("x"));
    });
    assert_eq!(filled, Ok(()));
    assert_eq!(watch.filled().await, Ok(()), "until it is taken");
    taken(&watch);
    assert!(timeout(soon, watch.filled()).await.is_err());
    let (filled, _later) = tokio::join!(watch.filled(), async {
        tokio::task::yield_now().await;
        nudges.open(watch_of("a", 1)).unwrap()
    });
    assert_eq!(filled, Err(Replaced));
}

#[test]
fn what_waits_is_bounded_and_told_in_messages_of_a_thousand() {
    let nudges = Nudges::default();
    let a = nudges.open(watch_of("a", 1)).unwrap();
    let node = nudges.open(node_of("n1")).unwrap();
    let too_many = 20;
    for i in 0..CLIENT_NUDGES_MAX + too_many {
        nudges.nudge(&id("a"), &resource(&i.to_string()));
    }
    assert_eq!(nudges.0.metrics.dropped.get(), too_many as u64);
    let counts = |messages: Vec<(_, Vec<_>)>| -> Vec<usize> {
        messages.iter().map(|(_, scopes)| scopes.len()).collect()
    };
    assert_eq!(counts(taken(&a)), [CLIENT_NUDGES_MAX]);
    assert_eq!(
        counts(taken(&node)),
        [too_many],
        "another node may have a place"
    );
    for i in 0..NODE_NUDGES_MAX + too_many {
        nudges.nudge(&id("b"), &resource(&i.to_string()));
    }
    assert_eq!(nudges.0.metrics.dropped.get(), 2 * too_many as u64);
    let messages = counts(taken(&node));
    assert_eq!(messages, vec![SCOPES_MAX; NODE_NUDGES_MAX / SCOPES_MAX]);
    // There is room again.
    nudges.nudge(&id("b"), &resource("x"));
    assert_eq!(taken(&node), [message(Some("b"), &["x"])]);
}

#[test]
fn watches_are_bounded_and_closed_ones_make_room() {
    let nudges = Nudges::default();
    let nodes: Vec<_> = (0..NODES_MAX)
        .map(|i| nudges.open(node_of(&i.to_string())).unwrap())
        .collect();
    let refused = nudges.open(node_of("a")).unwrap_err();
    assert_eq!(refused, WatchError::TooManyNodes(NODES_MAX));
    let mut clients: Vec<_> = (NODES_MAX..WATCHES_MAX)
        .map(|i| nudges.open(watch_of(&i.to_string(), 1)).unwrap())
        .collect();
    let refused = nudges.open(watch_of("a", 1)).unwrap_err();
    assert_eq!(refused, WatchError::TooMany(WATCHES_MAX));
    // One in the place of another is none more.
    let again = nudges.open(watch_of(&NODES_MAX.to_string(), 1)).unwrap();
    clients.pop();
    let a = nudges.open(watch_of("a", 1)).unwrap();
    assert!(*nudges.has_clients().borrow());
    assert_eq!(nudges.0.metrics.watches.get(), WATCHES_MAX as u64);
    drop((nodes, clients, again, a));
    assert!(!*nudges.has_clients().borrow());
    assert_eq!(nudges.0.metrics.watches.get(), 0);
}

#[tokio::test]
async fn the_oldest_of_too_many_runs_of_a_client_is_replaced() {
    let nudges = Nudges::default();
    let runs = 1..=RUNS_MAX as u64 + 1;
    let watches: Vec<_> = runs
        .map(|run| nudges.open(watch_of("a", run)).unwrap())
        .collect();
    nudges.nudge(&id("a"), &resource("x"));
    let mut ends = Vec::new();
    for watch in &watches {
        ends.push(watch.filled().await.is_err());
    }
    assert_eq!(ends, [true, false, false, false, false]);
    assert_eq!(nudges.0.metrics.watches.get(), RUNS_MAX as u64);
}
