use std::sync::Mutex;

use tokio::sync::Semaphore;
use tollgate_config::Config;
use tollgate_core::lease::{ClientId, ClientRun, DrawRequest, Epoch, LeaseRequest, Unit};
use tollgate_core::units::{Capacity, Tokens};
use tollgate_proto::request::{Refresh, ScopeRefresh};

use super::super::{DriverHandle, DriverSettings};
use super::*;
use crate::buckets::StoredBuckets;

const CONFIG: &str = "limits: [{match: '*', requests: {rate: 0.01, burst: 10}}]";

/// A store whose writes wait for permits.
#[derive(Debug)]
struct GatedStore {
    gate: Semaphore,
    max_wait: Duration,
    /// Error of each write.
    error: Option<BucketStoreError>,
    stored: Mutex<StoredBuckets>,
    /// Resources in each write.
    writes: Mutex<Vec<usize>>,
}

// === impl GatedStore ===

impl GatedStore {
    fn new(permits: usize) -> Arc<Self> {
        Arc::new(Self {
            gate: Semaphore::new(permits),
            max_wait: Duration::MAX,
            error: None,
            stored: Mutex::default(),
            writes: Mutex::default(),
        })
    }
}

/// The store of a test, which it looks into as well.
#[derive(Debug)]
struct Shared(Arc<GatedStore>);

#[tonic::async_trait]
impl BucketStore for Shared {
    async fn load(&self, _: Origin, _: Duration) -> Result<LoadedBuckets, BucketStoreError> {
        Ok(LoadedBuckets {
            own: self.0.stored.lock().unwrap().clone(),
            others: StoredBuckets::new(),
        })
    }

    async fn write(
        &self,
        _: Origin,
        _: Duration,
        changes: Vec<BucketChange>,
    ) -> Result<(), BucketStoreError> {
        self.0.gate.acquire().await.unwrap().forget();
        if let Some(error) = &self.0.error {
            return Err(error.clone());
        }
        self.0.writes.lock().unwrap().push(changes.len());
        for BucketChange {
            resource, bucket, ..
        } in changes
        {
            let mut stored = self.0.stored.lock().unwrap();
            match bucket {
                Some(bucket) => stored.insert(resource, bucket),
                None => stored.remove(&resource),
            };
        }
        Ok(())
    }

    fn max_wait(&self) -> Duration {
        self.0.max_wait
    }

    fn timed_out(&self) -> BucketStoreError {
        BucketStoreError::new("a disk", "hangs")
    }
}

fn start(store: &Arc<GatedStore>, epoch: u64) -> DriverHandle {
    let settings = DriverSettings {
        buckets: Some(Arc::new(Shared(store.clone()))),
        ..DriverSettings::alone(Config::parse(CONFIG).unwrap())
    };
    let (driver, handle) = Driver::new(&settings, Origin::alone(Epoch(epoch)));
    tokio::spawn(driver.run());
    handle
}

/// Starts a driver with the lease table of the one before.
fn follow(store: &Arc<GatedStore>, snapshot: Vec<u8>) -> DriverHandle {
    let settings = DriverSettings {
        buckets: Some(Arc::new(Shared(store.clone()))),
        ..DriverSettings::alone(Config::parse(CONFIG).unwrap())
    };
    let (driver, handle) = Driver::new(&settings, Origin::alone(Epoch(9)));
    tokio::spawn(driver.with_snapshot(snapshot).run());
    handle
}

/// A request for `needs` tokens of `scope`, of a client that has drawn nothing before.
fn refresh(client: &str, scope: &str, needs: u64) -> Refresh {
    let wants = Capacity::from_whole(1);
    let ask = LeaseRequest {
        draw: Some(DrawRequest {
            account: 1,
            needs: Tokens::from_whole(needs),
            first: Tokens::ONE,
            ..DrawRequest::default()
        }),
        ..LeaseRequest::new(1, Capacity::ZERO, wants)
    };
    Refresh {
        client: ClientRun::only(ClientId::new(client).unwrap()),
        scopes: vec![ScopeRefresh {
            scope: scope.into(),
            asks: vec![(Unit::Requests, ask)],
        }],
    }
}

/// Draws `needs` tokens of `scope` for a client that has drawn nothing before. Returns those granted.
async fn draw(handle: &DriverHandle, client: &str, scope: &str, needs: u64) -> u64 {
    let answers = handle.refresh(refresh(client, scope, needs)).await;
    let answers = answers.unwrap();
    let answer = &answers[0].outcome.as_ref().unwrap()[0].answer;
    answer.draw.as_ref().unwrap().granted.whole()
}

fn drawing(handle: &DriverHandle, client: &str, scope: &str) -> JoinHandle<u64> {
    let (handle, client, scope) = (handle.clone(), client.to_owned(), scope.to_owned());
    tokio::spawn(async move { draw(&handle, &client, &scope, 4).await })
}

async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_are_told_when_they_are_stored() {
    let store = GatedStore::new(0);
    let handle = start(&store, 1);
    let first = drawing(&handle, "a", "tenant/a");
    settle().await;
    // These are granted while the first is written, and written together.
    let others = [("b", "tenant/a"), ("a", "tenant/b"), ("a", "tenant/c")];
    let others = others.map(|(client, scope)| drawing(&handle, client, scope));
    settle().await;
    assert!(!first.is_finished());
    store.gate.add_permits(1);
    assert_eq!(first.await.unwrap(), 4);
    settle().await;
    assert!(others.iter().all(|other| !other.is_finished()));
    store.gate.add_permits(1);
    for other in others {
        assert_eq!(other.await.unwrap(), 4);
    }
    assert_eq!(*store.writes.lock().unwrap(), [1, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_starts_after_a_crash_goes_on_with_what_is_stored() {
    let store = GatedStore::new(100);
    assert_eq!(draw(&start(&store, 1), "a", "tenant/a", 4).await, 4);
    let handle = start(&store, 2);
    assert_eq!(draw(&handle, "b", "tenant/a", 12).await, 6);
    assert_eq!(draw(&handle, "b", "tenant/b", 12).await, 10);
}

#[tokio::test(start_paused = true)]
async fn a_lease_table_that_is_handed_over_is_newer_than_the_store() {
    let store = GatedStore::new(100);
    let first = start(&store, 1);
    assert_eq!(draw(&first, "a", "tenant/a", 4).await, 4);
    let snapshot = first.hand_over().await.unwrap();
    store.stored.lock().unwrap().clear();
    let second = follow(&store, snapshot);
    assert_eq!(draw(&second, "b", "tenant/a", 4).await, 4);
    // With the first change the store has all of it again.
    assert_eq!(draw(&start(&store, 3), "c", "tenant/a", 12).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_nobody_has_asked_for_outlives_a_hand_over() {
    let store = GatedStore::new(100);
    assert_eq!(draw(&start(&store, 1), "a", "tenant/a", 4).await, 4);
    let snapshot = start(&store, 2).hand_over().await.unwrap();
    let third = follow(&store, snapshot);
    assert_eq!(draw(&third, "b", "tenant/a", 12).await, 6);
}

fn failing(error: BucketStoreError) -> Arc<GatedStore> {
    Arc::new(GatedStore {
        gate: Semaphore::new(100),
        max_wait: Duration::MAX,
        error: Some(error),
        stored: Mutex::default(),
        writes: Mutex::default(),
    })
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_keeps_no_answer() {
    let store = failing(BucketStoreError::new("a disk", "is full"));
    let handle = start(&store, 1);
    assert_eq!(draw(&handle, "a", "tenant/a", 4).await, 4);
    assert_eq!(draw(&handle, "b", "tenant/a", 12).await, 6);
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_may_not_be_master_tells_of_no_token() {
    let mut error = BucketStoreError::new("etcd", "is away");
    error.is_master_unsure = true;
    let store = failing(error);
    let handle = start(&store, 1);
    assert!(
        drawing(&handle, "a", "tenant/a").await.is_err(),
        "no answer"
    );
}

#[tokio::test(start_paused = true)]
async fn other_calls_do_not_wait_for_the_store() {
    let store = GatedStore::new(0);
    let handle = start(&store, 1);
    let waiting = drawing(&handle, "a", "tenant/a");
    settle().await;
    let counted = handle.view(|server, _| server.resource_count()).await;
    assert_eq!(counted, Ok(1));
    assert!(!waiting.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_keeps_no_answer_for_long() {
    let store = GatedStore::new(0);
    let handle = start(&store, 1);
    assert_eq!(draw(&handle, "a", "tenant/a", 4).await, 4);
}

#[tokio::test(start_paused = true)]
async fn an_answer_waits_no_longer_than_the_store_says() {
    let max_wait = Duration::from_millis(50);
    let slow = GatedStore {
        gate: Semaphore::new(0),
        max_wait,
        error: None,
        stored: Mutex::default(),
        writes: Mutex::default(),
    };
    let handle = start(&Arc::new(slow), 1);
    for (client, want) in [("a", 4), ("b", 4), ("c", 2)] {
        let before = tokio::time::Instant::now();
        assert_eq!(draw(&handle, client, "tenant/a", 4).await, want);
        assert!(before.elapsed() <= max_wait, "{client}");
    }
}
