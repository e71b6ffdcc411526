use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tollgate_config::Config;
use tollgate_config::catalog::Catalog;
use tollgate_core::lease::{Epoch, LeaseRequest};
use tollgate_core::lease_server::Bounds;
use tollgate_core::units::Capacity;

use super::handle::{BULK_CALLS, BULK_CALLS_HELD, BULK_LEN, QUEUE_LEN, QUEUE_WAIT};
use super::*;
use crate::derived::{DeriveRequest, DerivedCall, KnownClient};

/// A driver that lends at once, and a handle to it.
pub(super) fn driver() -> (Driver, DriverHandle) {
    driver_of("limits: [{match: '*', requests: {rate: 100}}]")
}

fn driver_of(config: &str) -> (Driver, DriverHandle) {
    driver_of_term(config, Epoch(1))
}

pub(super) fn driver_of_term(config: &str, epoch: Epoch) -> (Driver, DriverHandle) {
    Driver::new(
        &DriverSettings::alone(Config::parse(config).unwrap()),
        Origin::alone(epoch),
    )
}

fn refresh(client: &str, sequence: u64) -> Refresh {
    let ask = LeaseRequest::new(sequence, Capacity::ZERO, Capacity::from_whole(500));
    Refresh {
        client: ClientRun::only(ClientId::new(client).unwrap()),
        scopes: vec![ScopeRefresh {
            scope: "tenant/acme".into(),
            asks: vec![(Unit::Requests, ask)],
        }],
    }
}

pub(super) async fn gets(handle: &DriverHandle, client: &str, sequence: u64) -> Capacity {
    let answers = handle.refresh(refresh(client, sequence)).await.unwrap();
    let lease = answers[0].outcome.as_ref().unwrap()[0].answer.lease;
    lease.unwrap().capacity
}

/// Number of clients of the lease table.
pub(super) async fn clients(handle: &DriverHandle) -> Result<usize, DriverError> {
    let count = |node: &LeaseServer, _| {
        node.resources()
            .map(|(_, resource)| resource.client_count())
            .sum()
    };
    handle.view(count).await
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_expires_is_forgotten_without_a_call() {
    let (driver, handle) = driver();
    tokio::spawn(driver.run());
    assert_eq!(gets(&handle, "a", 1).await, Capacity::from_whole(100));
    tokio::time::advance(Duration::from_millis(9_900)).await;
    assert_eq!(gets(&handle, "b", 1).await, Capacity::ZERO);
    tokio::time::advance(Duration::from_millis(100)).await;
    assert_eq!(gets(&handle, "b", 2).await, Capacity::from_whole(100));
    // No request comes any more: the timer alone empties the table.
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(clients(&handle).await, Ok(0));
}

fn bulk(client: &str) -> Refresh {
    let mut bulk = refresh(client, 1);
    bulk.scopes = vec![bulk.scopes[0].clone(); BULK_LEN + 1];
    bulk
}

#[tokio::test(start_paused = true)]
async fn a_small_call_waits_for_few_bulk_calls_and_few_of_these_wait() {
    let (driver, handle) = driver();
    let mut waiting = tokio::task::JoinSet::new();
    for client in 0..BULK_CALLS_HELD {
        let handle = handle.clone();
        waiting.spawn(async move { handle.refresh(bulk(&client.to_string())).await });
    }
    tokio::task::yield_now().await;
    waiting.spawn({
        let handle = handle.clone();
        async move { handle.refresh(refresh("small", 1)).await }
    });
    tokio::task::yield_now().await;
    assert_eq!(driver.commands.len(), BULK_CALLS + 1);
    let before = tokio::time::Instant::now();
    let late = handle.refresh(bulk("late")).await;
    assert_eq!(late.unwrap_err(), DriverError::Busy);
    assert_eq!(before.elapsed(), Duration::ZERO, "it does not wait");
    tokio::spawn(driver.run());
    let answers = waiting.join_all().await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert!(handle.refresh(bulk("later")).await.is_ok());
}

/// A request for nothing.
#[derive(Debug)]
struct Nothing;

impl DeriveRequest for Nothing {
    fn derive(&self, _: Option<&KnownClient>) -> LeaseRequest {
        LeaseRequest::new(1, Capacity::ZERO, Capacity::ZERO)
    }
}

#[tokio::test(start_paused = true)]
async fn derived_requests_and_releases_of_many_are_bulk_calls_as_well() {
    let (driver, handle) = driver();
    let resource = ResourceId {
        scope: "tenant/acme".into(),
        unit: Unit::Requests,
    };
    tokio::spawn(driver.run());
    let _permits = handle.bulk_held.try_acquire_many(64).unwrap();
    for (count, want) in [(BULK_LEN, Ok(())), (BULK_LEN + 1, Err(DriverError::Busy))] {
        let request = |_| -> (_, Box<dyn DeriveRequest>) { (resource.clone(), Box::new(Nothing)) };
        let call = DerivedCall {
            client: ClientRun::only(ClientId::new("a").unwrap()),
            requests: (0..count).map(request).collect(),
        };
        let release = Release {
            client: ClientRun::only(ClientId::new("a").unwrap()),
            resources: vec![(resource.clone(), 1); count],
        };
        let answers = handle.refresh_derived(call).await.map(|_| ());
        assert_eq!(answers, want, "{count} requests");
        let released = handle.release(release).await;
        assert_eq!(released, want, "{count} resources");
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_is_said_after_a_second() {
    let (driver, handle) = driver();
    let mut waiting = tokio::task::JoinSet::new();
    for client in 0..QUEUE_LEN {
        let handle = handle.clone();
        waiting.spawn(async move { handle.refresh(refresh(&client.to_string(), 1)).await });
    }
    while handle.commands.capacity() > 0 {
        tokio::task::yield_now().await;
    }
    let before = tokio::time::Instant::now();
    let late = handle.refresh(refresh("late", 1)).await;
    assert_eq!(late.unwrap_err(), DriverError::Busy);
    assert_eq!(before.elapsed(), QUEUE_WAIT);
    // Those in the queue are answered all the same.
    tokio::spawn(driver.run());
    while let Some(answer) = waiting.join_next().await {
        assert!(answer.unwrap().is_ok());
    }
    assert_eq!(clients(&handle).await, Ok(QUEUE_LEN));
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_caller_has_gone_leaves_no_trace() {
    let (driver, handle) = driver();
    let gone = tokio::spawn({
        let handle = handle.clone();
        async move { handle.refresh(refresh("gone", 1)).await }
    });
    while handle.commands.capacity() == QUEUE_LEN {
        tokio::task::yield_now().await;
    }
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    tokio::spawn(driver.run());
    assert_eq!(clients(&handle).await, Ok(0));
}

#[tokio::test]
async fn a_driver_that_has_ended_is_said() {
    let (driver, handle) = driver();
    drop(driver);
    assert_eq!(clients(&handle).await, Err(DriverError::Stopped));
}

#[tokio::test(start_paused = true)]
async fn a_unit_without_a_limit_is_unlimited_and_takes_no_lease() {
    let (driver, handle) = driver_of("limits: [{match: tenant/acme, concurrency: {max: 5}}]");
    tokio::spawn(driver.run());
    let answers = handle.refresh(refresh("a", 1)).await.unwrap();
    assert_eq!(answers[0].limited, [Unit::Concurrency]);
    let answer = answers[0].outcome.as_ref().unwrap()[0].answer;
    assert!(answer.lease.unwrap().capacity.is_unlimited());
    // So that a limit that is configured later is soon found.
    assert_eq!(answer.refresh_interval, Duration::from_secs(1));
    assert_eq!(handle.view(|node, _| node.resource_count()).await, Ok(0));
}

#[tokio::test(start_paused = true)]
async fn an_answer_names_whose_bucket_is_used_as_well() {
    let (driver, handle) = driver_of(
        "limits: []
groups: {gold: {requests: {rate: 60}, fair_between: clients}}
attach: {tenants: {acme: gold}}",
    );
    tokio::spawn(driver.run());
    let answers = handle.refresh(refresh("a", 1)).await.unwrap();
    assert_eq!(&*answers[0].canonical, "group/gold");
    assert_eq!(answers[0].limited, [Unit::Requests]);
    let mut asks = refresh("a", 1);
    asks.scopes[0].scope = "group/gold".into();
    let answers = handle.refresh(asks).await.unwrap();
    let lease = answers[0].outcome.as_ref().unwrap()[0].answer.lease;
    assert_eq!(lease.unwrap().capacity, Capacity::from_whole(60));
}

#[tokio::test(start_paused = true)]
async fn a_published_catalog_holds_for_the_next_call() {
    let parse = |rate| {
        let text = format!("limits: [{{match: '*', requests: {{rate: {rate}}}}}]");
        Arc::new(Catalog::new(Config::parse(&text).unwrap().catalog))
    };
    let (publish, newest) = watch::channel(parse(100));
    let bounds = Bounds {
        max_resources: 1,
        max_clients_per_resource: 9,
        max_leases: 1_000_000,
        max_durable: 100_000,
    };
    let settings = DriverSettings {
        bounds,
        catalog: newest,
        ..DriverSettings::alone(Config::parse("limits: []").unwrap())
    };
    let (driver, handle) = Driver::new(&settings, Origin::alone(Epoch(1)));
    tokio::spawn(driver.run());
    assert_eq!(gets(&handle, "a", 1).await, Capacity::from_whole(100));
    publish.send_replace(parse(30));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(gets(&handle, "a", 2).await, Capacity::from_whole(30));
    // Without a publisher the last catalog stays.
    drop(publish);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(gets(&handle, "a", 3).await, Capacity::from_whole(30));
}

/// The leases of `clients` for the requests of `scope`, after several refreshes.
async fn settled(handle: &DriverHandle, asks: &[(&str, &str, u64)]) -> Vec<f64> {
    let mut has = vec![Capacity::ZERO; asks.len()];
    for sequence in 1..20 {
        for (has, (client, scope, wants)) in has.iter_mut().zip(asks) {
            let ask = LeaseRequest::new(sequence, *has, Capacity::from_whole(*wants));
            let mut refresh = refresh(client, sequence);
            refresh.scopes[0].scope = (*scope).into();
            refresh.scopes[0].asks = vec![(Unit::Requests, ask)];
            let answers = handle.refresh(refresh).await.unwrap();
            let lease = answers[0].outcome.as_ref().unwrap()[0].answer.lease;
            *has = lease.unwrap().capacity;
        }
        tokio::time::advance(Duration::from_millis(200)).await;
    }
    has.into_iter().map(Capacity::as_f64).collect()
}

#[tokio::test(start_paused = true)]
async fn a_group_is_divided_between_its_members_and_then_between_envoys() {
    let (driver, handle) = driver_of(
        "limits: [{match: tenant/capped, requests: {rate: 50}}]
groups: {gold: {requests: {rate: 1000, headroom: 0}}}
attach: {tenants: {greedy: gold, capped: gold, heavy: {group: gold, weight: 3}}}",
    );
    tokio::spawn(driver.run());
    // The capped tenant gets its own limit; the rest is divided 1 : 3, and the greedy tenant's part
    // between its Envoys. A tenant outside the group is not concerned.
    let asks = [
        ("a", "tenant/greedy", 5000),
        ("b", "tenant/greedy", 5000),
        ("a", "tenant/capped", 100),
        ("b", "tenant/heavy", 5000),
        ("b", "tenant/other", 5000),
    ];
    let gets = settled(&handle, &asks).await;
    assert_eq!(gets, [118.75, 118.75, 50.0, 712.5, f64::INFINITY]);
}
