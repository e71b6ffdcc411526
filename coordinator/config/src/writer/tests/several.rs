//! Several writers on one store.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::*;
use crate::catalog::store::ApplyOutcome;

/// A store that shares its log with others.
#[derive(Clone, Debug)]
struct SharedStore {
    log: watch::Sender<Vec<WriteBatch>>,
    taken: usize,
    /// No updates come while this is held.
    held: watch::Sender<bool>,
}

// === impl Shared ===

impl SharedStore {
    fn new() -> Self {
        Self {
            log: watch::Sender::new(Vec::new()),
            taken: 0,
            held: watch::Sender::new(false),
        }
    }

    /// Another writer to the same log.
    fn another(&self) -> Self {
        Self {
            held: watch::Sender::new(false),
            ..self.clone()
        }
    }

    /// Writes a record that no coordinator would.
    fn write(&self, key: RecordKey, record: Option<&str>) {
        self.log.send_modify(|log| {
            let record = record.map(|record| record.as_bytes().to_vec());
            log.push(WriteBatch {
                changes: vec![(key, record)],
                ..WriteBatch::default()
            });
        });
    }
}

#[tonic::async_trait]
impl Store for SharedStore {
    async fn load(&mut self) -> Result<StoreContent, StoreError> {
        Ok(StoreContent::default())
    }

    async fn apply(&mut self, batch: WriteBatch) -> Result<ApplyOutcome, StoreError> {
        let mut applied = None;
        self.log.send_if_modified(|log| {
            if log.len() > self.taken {
                applied = Some(ApplyOutcome::Overtaken(LogPosition(log.len() as u64)));
                return false;
            }
            let changes = !batch.changes.is_empty();
            if changes {
                log.push(batch);
            }
            applied = Some(ApplyOutcome::Shared(LogPosition(log.len() as u64)));
            changes
        });
        // As over a network: other writers come in between.
        tokio::task::yield_now().await;
        Ok(applied.unwrap())
    }

    async fn next_update(&mut self) -> StoreUpdate {
        let mut held = self.held.subscribe();
        held.wait_for(|held| !held).await.unwrap();
        let mut log = self.log.subscribe();
        let log = log.wait_for(|log| log.len() > self.taken).await.unwrap();
        let batch = log[self.taken].clone();
        self.taken += 1;
        StoreUpdate::Changes(batch, LogPosition(self.taken as u64))
    }

    fn is_shared(&self) -> bool {
        true
    }
}

async fn pair() -> (SharedStore, CatalogHandle, CatalogHandle) {
    let store = SharedStore::new();
    let a = writer_of(store.another(), FILE).await;
    let b = writer_of(store.another(), FILE).await;
    (store, a, b)
}

/// Waits until the catalog of `handle` is `as_wanted`.
async fn until(
    handle: &CatalogHandle,
    as_wanted: impl FnMut(&Arc<Catalog>) -> bool,
) -> Arc<Catalog> {
    let mut newest = handle.watch();
    newest.wait_for(as_wanted).await.unwrap().clone()
}

#[tokio::test]
async fn what_one_writes_the_other_has() {
    let (_, a, b) = pair().await;
    let first = a.put(GroupKind, "gold", group(5), ANY).await.unwrap();
    let catalog = until(&b, |catalog| catalog.group("gold").is_some()).await;
    assert_eq!(
        catalog.group("gold").unwrap().revision,
        Some(first.revision)
    );
    // The other writer can write on top of it.
    let expect = Precondition::Revision(first.revision);
    let second = b.put(GroupKind, "gold", group(6), expect).await.unwrap();
    assert!(!second.created && second.revision > first.revision);
    let other = Some(second.revision);
    until(&a, |catalog| {
        catalog.group("gold").unwrap().revision == other
    })
    .await;
    b.delete(GroupKind, "gold", ANY).await.unwrap();
    until(&a, |catalog| catalog.group("gold").is_none()).await;
}

#[tokio::test]
async fn what_was_acknowledged_by_one_is_known_to_the_other_when_it_writes() {
    let store = SharedStore::new();
    let a = writer_of(store.another(), FILE).await;
    let late = store.another();
    let held = late.held.clone();
    let b = writer_of(late, FILE).await;
    for round in 0..3 {
        // It gets no update until it has to.
        held.send_replace(true);
        a.put(GroupKind, "gold", group(round), ANY).await.unwrap();
        let release = async {
            tokio::task::yield_now().await;
            held.send_replace(false);
        };
        let (attached, ()) = tokio::join!(b.put(TENANT, "acme", attach("gold"), ANY), release);
        attached.unwrap();
        held.send_replace(true);
        let deleted = a.delete(GroupKind, "gold", ANY).await;
        assert!(said(deleted).contains("attached to this group"), "{round}");
        a.delete(TENANT, "acme", ANY).await.unwrap();
        a.delete(GroupKind, "gold", ANY).await.unwrap();
        held.send_replace(false);
    }
}

#[tokio::test]
async fn one_of_many_writers_on_two_keepers_wins() {
    let (_, a, b) = pair().await;
    let first = a
        .put(GroupKind, "gold", group(1), ANY)
        .await
        .unwrap()
        .revision;
    let mut writers = JoinSet::new();
    for rate in 0..40 {
        let handle = if rate % 2 == 0 { &a } else { &b }.clone();
        let expect = Precondition::Revision(first);
        writers.spawn(async move { handle.put(GroupKind, "gold", group(rate), expect).await });
    }
    let (won, lost): (Vec<_>, Vec<_>) = writers
        .join_all()
        .await
        .into_iter()
        .partition(Result::is_ok);
    assert_eq!(won.len(), 1);
    let found = Some(won[0].clone().unwrap().revision);
    for refused in lost {
        assert_eq!(refused, Err(WriteRefusal::Mismatch { found }.into()));
    }
}

#[tokio::test]
async fn what_holds_between_objects_holds_whoever_writes() {
    let (store, a, b) = pair().await;
    let mut writers = JoinSet::new();
    for writer in 0..6_u32 {
        let handle = if writer % 2 == 0 { &a } else { &b }.clone();
        writers.spawn(async move {
            for step in 0..40_u32 {
                // All write the same few objects; most are refused, for every possible reason.
                let name = ["x", "y", "z"][(writer + step) as usize % 3];
                let _ = match (writer * 7 + step * 5) % 4 {
                    0 => handle
                        .put(GroupKind, name, group(step), ANY)
                        .await
                        .map(drop),
                    1 => handle.delete(GroupKind, name, ANY).await.map(drop),
                    2 => {
                        let put = handle.put(TENANT, "acme", attach(name), ANY);
                        put.await.map(drop)
                    }
                    _ => handle.delete(TENANT, "acme", ANY).await.map(drop),
                };
            }
        });
    }
    writers.join_all().await;
    let written = store.log.borrow().clone();
    assert!(written.len() > 20, "{}", written.len());
    // After every one of the writes, in their order.
    let mut catalog = a.catalog().file_only();
    let (mut last, mut missing) = (0, 0);
    for batch in written {
        assert!(batch.revision > last, "{batch:?}");
        last = batch.revision;
        for (key, record) in batch.changes {
            match record {
                Some(record) => catalog.restore(&key, decode(&key, &record).unwrap()),
                None => catalog.forget(&key),
            }
        }
        missing += catalog.missing_groups().count();
        assert!(
            catalog.list(GroupKind, "").count() <= 3,
            "two, and the file's"
        );
    }
    assert_eq!(missing, 0);
    for handle in [a, b] {
        let same = |seen: &Arc<Catalog>| {
            seen.list(GroupKind, "").eq(catalog.list(GroupKind, ""))
                && seen.list(TENANT, "").eq(catalog.list(TENANT, ""))
        };
        until(&handle, same).await;
    }
}

#[tokio::test]
async fn a_record_that_makes_no_sense_is_skipped_and_the_rest_goes_on() {
    let (store, a, _) = pair().await;
    a.put(GroupKind, "gold", group(5), ANY).await.unwrap();
    let key = |name| RecordKey::new(RecordKind::Group, name);
    store.write(
        key("gold"),
        Some("{\"revision\": 9, \"spec\": {\"requests\": \"no\"}}"),
    );
    store.write(key("other"), Some("\u{0}"));
    store.write(key("plain"), Some("{\"revision\": 9, \"spec\": {}}"));
    let catalog = until(&a, |catalog| catalog.group("plain").is_some()).await;
    assert_eq!(catalog.group("gold").unwrap().value.spec(), group(5));
    assert!(catalog.group("other").is_none());
    // A record written past the API takes effect even if it is in use.
    let attached = a.put(TENANT, "acme", attach("plain"), ANY).await;
    attached.unwrap();
    store.write(key("plain"), None);
    let catalog = until(&a, |catalog| catalog.group("plain").is_none()).await;
    assert_eq!(catalog.missing_groups().count(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_come_back_is_not_acknowledged() {
    let store = SharedStore::new();
    let deaf = store.another();
    let held = deaf.held.clone();
    let handle = writer_of(deaf, FILE).await;
    held.send_replace(true);
    let start = tokio::time::Instant::now();
    let unseen = handle.put(GroupKind, "gold", group(1), ANY).await;
    assert_eq!(unseen, Err(StoreError::Unseen.into()));
    assert!(start.elapsed() <= Duration::from_secs(5), "{start:?}");
    assert!(handle.catalog().group("gold").is_none());
    // It was written all the same, and is in force once it comes back.
    held.send_replace(false);
    until(&handle, |catalog| catalog.group("gold").is_some()).await;
}

#[tokio::test]
async fn a_file_is_taken_while_the_store_is_away() {
    let store = Fragile::default();
    store
        .broken
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let handle = writer_of(store, FILE).await;
    let file = "limits: []\ngroups: {file: {}, more: {}}\n";
    let file = Config::parse(file).unwrap();
    let (write, reload) = tokio::join!(
        handle.put(GroupKind, "gold", group(1), ANY),
        handle.reload(file)
    );
    assert!(write.is_err());
    reload.unwrap();
    assert!(handle.catalog().group("more").is_some());
}
