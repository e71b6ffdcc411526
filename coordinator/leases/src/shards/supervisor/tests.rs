use std::num::NonZeroU16;

use tokio::sync::oneshot;
use tollgate_config::Config;
use tollgate_core::lease::{ClientId, ClientRun, Epoch, LeaseRequest, Unit};
use tollgate_core::lease_server::LeaseServer;
use tollgate_core::units::Capacity;
use tollgate_proto::request::{Refresh, Release, ScopeRefresh};

use super::super::MastershipError;
use super::*;

/// A mastership of a shard that lends at once, and its driver, which is not running yet.
fn mastership(term: Term) -> (Mastership, Driver) {
    let settings = DriverSettings::alone(
        Config::parse("limits: [{match: '*', requests: {rate: 100, headroom: 0}}]").unwrap(),
    );
    let (driver, handle) = Driver::new(&settings, Origin::alone(term.epoch()));
    let shard = ShardId::default();
    let mastership = Mastership {
        shard,
        term,
        driver: handle,
    };
    (mastership, driver)
}

fn asks() -> Refresh {
    let ask = LeaseRequest::new(1, Capacity::ZERO, Capacity::from_whole(60));
    Refresh {
        client: ClientRun::only(ClientId::new("envoy/x").unwrap()),
        scopes: vec![ScopeRefresh {
            scope: "tenant/acme".into(),
            asks: vec![(Unit::Requests, ask)],
        }],
    }
}

async fn sum_has(mastership: &Mastership) -> u128 {
    let sum = |node: &LeaseServer, _| {
        node.resources()
            .map(|(_, resource)| resource.sum_has())
            .sum()
    };
    mastership.driver.view(sum).await.unwrap()
}

/// A call may wait long while the process is stopped; its late answer is dropped, and its leases
/// stay counted.
#[tokio::test(start_paused = true)]
async fn a_term_that_ends_while_the_driver_is_asked_gives_no_answer() {
    let over = Err(MastershipError::Over(ShardId::default()));
    let term = Term::for_ever(Epoch(7));
    let (mastership, driver) = mastership(term.clone());
    let (one, other) = (mastership.clone(), mastership.clone());
    let answer = tokio::spawn(async move { one.refresh(asks()).await });
    let release = tokio::spawn(async move {
        let release = Release {
            client: ClientRun::only(ClientId::new("envoy/y").unwrap()),
            resources: Vec::new(),
        };
        other.release(release).await
    });
    // Both wait for the driver, which has not been woken yet.
    tokio::task::yield_now().await;
    assert!(mastership.holds() && !answer.is_finished() && !release.is_finished());
    term.end();
    tokio::spawn(driver.run());
    assert_eq!(answer.await.unwrap().map(drop), over);
    assert_eq!(release.await.unwrap(), over);
    assert_eq!(
        sum_has(&mastership).await,
        60_000_000,
        "what was lent is counted"
    );
    // Now the driver is not even asked.
    assert_eq!(mastership.refresh(asks()).await.map(drop), over);
}

/// A master that is told to step down and loses its term meanwhile still hands its lease table
/// over: its leases were granted in time.
#[tokio::test(start_paused = true)]
async fn a_term_that_ends_during_the_hand_over_leaves_the_lease_table_whole() {
    let term = Term::for_ever(Epoch(7));
    let (mastership, driver) = mastership(term.clone());
    let (reply, snapshot) = oneshot::channel();
    let (one, two) = (mastership.clone(), mastership.clone());
    let first = tokio::spawn(async move { one.refresh(asks()).await });
    tokio::task::yield_now().await;
    let handing = tokio::spawn(async move { two.hand_over(reply).await });
    tokio::task::yield_now().await;
    term.end();
    tokio::spawn(driver.run());
    assert!(first.await.unwrap().is_err(), "not in that term any more");
    handing.await.unwrap();
    assert!(snapshot.await.unwrap().is_some());
    assert!(!mastership.holds());
}

#[tokio::test(start_paused = true)]
async fn a_new_term_ends_the_one_before_it_on_the_same_node() {
    let settings = DriverSettings {
        shards: NonZeroU16::new(1),
        ..DriverSettings::alone(Config::parse("limits: []").unwrap())
    };
    let (mut supervisor, shards) = ShardSupervisor::new(settings, None);
    let shard = ShardId::default();
    let [first, second] = [7, 8].map(|epoch| Term::for_ever(Epoch(epoch)));
    supervisor.take(shard, first.clone(), None, None);
    let before = shards.get(shard).unwrap();
    supervisor.take(shard, second.clone(), None, None);
    assert!(!first.holds() && second.holds());
    let over = Err(MastershipError::Over(shard));
    assert_eq!(before.refresh(asks()).await.map(drop), over);
    assert_eq!(shards.get(shard).unwrap().epoch(), Epoch(8));
}
