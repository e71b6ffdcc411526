use std::fs;

use tempfile::TempDir;

use super::*;
use crate::catalog::store::RecordKind;

fn batch(revision: u64, changes: &[(&str, Option<&str>)]) -> WriteBatch {
    let change = |(name, record): &(&str, Option<&str>)| {
        let record = record.map(|record| record.as_bytes().to_vec());
        (RecordKey::new(RecordKind::Group, name), record)
    };
    WriteBatch {
        revision,
        changes: changes.iter().map(change).collect(),
        ..WriteBatch::default()
    }
}

/// The revision and the records of a store.
async fn stored(store: &mut RedbStore) -> (u64, Vec<(String, String)>) {
    let stored = store.load().await.unwrap();
    let text =
        |(key, record): (RecordKey, Vec<u8>)| (key.to_string(), String::from_utf8(record).unwrap());
    (
        stored.revision,
        stored.records.into_iter().map(text).collect(),
    )
}

fn record(name: &str, record: &str) -> (String, String) {
    (format!("group/{name}"), record.to_owned())
}

#[tokio::test]
async fn what_was_applied_is_there_after_it_is_opened_again() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("x.redb");
    let mut store = RedbStore::create(path.clone()).unwrap();
    assert_eq!(stored(&mut store).await, (0, vec![]));
    store
        .apply(batch(2, &[("a", Some("1")), ("b", Some("2"))]))
        .await
        .unwrap();
    store
        .apply(batch(4, &[("a", None), ("c", Some("4")), ("b", Some("3"))]))
        .await
        .unwrap();
    let want = (4, vec![record("b", "3"), record("c", "4")]);
    assert_eq!(stored(&mut store).await, want);
    drop(store);
    let mut store = RedbStore::open_or_later(path).unwrap();
    assert_eq!(stored(&mut store).await, want);
}

#[tokio::test]
async fn the_epoch_is_kept_for_the_next_run() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("x.redb");
    let mut store = RedbStore::create(path.clone()).unwrap();
    assert_eq!(store.epoch().await, Ok(None));
    store.keep_epoch(Epoch(9)).await.unwrap();
    store.apply(batch(1, &[("a", Some("1"))])).await.unwrap();
    drop(store);
    let mut store = RedbStore::open_or_later(path).unwrap();
    assert_eq!(store.epoch().await, Ok(Some(Epoch(9))));
    assert_eq!(stored(&mut store).await, (1, vec![record("a", "1")]));
}

#[tokio::test]
async fn a_store_that_is_made_later_is_told_the_epoch_with_the_first_write() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("x.redb");
    let mut store = RedbStore::open_or_later(path.clone()).unwrap();
    assert_eq!(store.epoch().await, Ok(None));
    store.keep_epoch(Epoch(9)).await.unwrap();
    assert!(!path.exists(), "nobody asked for it");
    store.apply(batch(1, &[("a", Some("1"))])).await.unwrap();
    assert_eq!(store.epoch().await, Ok(Some(Epoch(9))));
}

#[tokio::test]
async fn a_store_that_nobody_asked_for_is_made_with_the_first_write() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("x.redb");
    let mut store = RedbStore::open_or_later(path.clone()).unwrap();
    assert_eq!(stored(&mut store).await, (0, vec![]));
    assert!(!path.exists());
    store.apply(batch(1, &[("a", Some("1"))])).await.unwrap();
    assert!(path.exists());
    assert_eq!(stored(&mut store).await, (1, vec![record("a", "1")]));
}

#[tokio::test]
async fn a_store_of_a_newer_version_is_refused() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("x.redb");
    let database = make(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    let mut numbers = transaction.open_table(NUMBERS).unwrap();
    numbers.insert("format", FORMAT + 1).unwrap();
    drop(numbers);
    transaction.commit().unwrap();
    drop(database);
    let error = RedbStore::create(path.clone())
        .unwrap()
        .load()
        .await
        .unwrap_err();
    let want = format!(
        "the store {} was written by a newer version of tollgate, in format 2; this one reads up to 1",
        path.display()
    );
    assert_eq!(error.to_string(), want);
}

#[tokio::test]
async fn what_is_no_store_or_no_place_for_one_is_said_with_its_path() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("x.redb");
    fs::write(&path, "limits: []\n".repeat(1000)).unwrap();
    let error = RedbStore::create(path.clone()).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("the store {}: ", path.display())),
        "{error}"
    );

    let nowhere = dir.path().join("no/such/x.redb");
    let error = RedbStore::create(nowhere.clone()).unwrap_err().to_string();
    assert!(error.contains("No such file or directory"), "{error}");
    // A file that cannot be created when it is needed fails the write.
    let mut store = RedbStore::open_or_later(nowhere.clone()).unwrap();
    let error = store
        .apply(batch(1, &[("a", Some("1"))]))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("No such file or directory"),
        "{error}"
    );
    fs::create_dir_all(nowhere.parent().unwrap()).unwrap();
    store.apply(batch(1, &[("a", Some("1"))])).await.unwrap();
}

#[tokio::test]
async fn a_store_belongs_to_one_process() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("x.redb");
    let _store = RedbStore::create(path.clone()).unwrap();
    let error = RedbStore::open_or_later(path).unwrap_err().to_string();
    assert!(error.contains("already open"), "{error}");
}

#[tokio::test]
async fn a_record_that_makes_no_sense_is_refused_with_its_key() {
    let rows = [
        ("{", "EOF while parsing"),
        (
            r#"{"revision": 1, "spec": {"requests": {"rate": -1}}}"#,
            "requests.rate: -1 is negative",
        ),
        (
            r#"{"revision": 1, "spec": {"reqests": {}}}"#,
            "unknown field `reqests`",
        ),
    ];
    for (record, want) in rows {
        let key = RecordKey::new(RecordKind::Group, "gold");
        let error = crate::catalog::store::decode(&key, record.as_bytes())
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("the store's record \"group/gold\" is invalid: "),
            "{error}"
        );
        assert!(error.contains(want), "{error}");
    }
    // Fields of a later version of this format are ignored.
    let later = br#"{"revision": 1, "spec": {}, "note": "x"}"#;
    crate::catalog::store::decode(&RecordKey::new(RecordKind::Group, "gold"), later).unwrap();
    let earlier = br#"{"revision":1,"spec":{"requests":{"rate":5,"learning":"30s"}}}"#;
    crate::catalog::store::decode(&RecordKey::new(RecordKind::Group, "gold"), earlier).unwrap();
}

/// The error of a failed write.
async fn refused(store: &mut RedbStore) -> String {
    let error = store.apply(batch(9, &[("late", Some("9"))])).await;
    error.unwrap_err().to_string()
}

#[tokio::test]
async fn a_store_that_is_deleted_or_replaced_while_it_is_open_takes_nothing_more() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("x.redb");
    let away = dir.path().join("away.redb");
    let mut store = RedbStore::create(path.clone()).unwrap();
    store.apply(batch(1, &[("a", Some("1"))])).await.unwrap();

    fs::rename(&path, &away).unwrap();
    for _ in 0..2 {
        let error = refused(&mut store).await;
        let want = format!("the store {} was deleted or moved away", path.display());
        assert!(error.starts_with(&want), "{error}");
        assert!(!path.exists(), "nothing is made in its place");
    }
    drop(make(&path).unwrap());
    let error = refused(&mut store).await;
    let want = format!("the store {} was replaced by another file", path.display());
    assert!(error.starts_with(&want), "{error}");
    // Also if it has to be opened anew.
    store.database = None;
    let error = refused(&mut store).await;
    assert!(error.starts_with(&want), "{error}");

    fs::rename(&away, &path).unwrap();
    store.apply(batch(2, &[("b", Some("2"))])).await.unwrap();
    drop(store);
    let mut store = RedbStore::create(path).unwrap();
    let want = (2, vec![record("a", "1"), record("b", "2")]);
    assert_eq!(stored(&mut store).await, want);
}

#[tokio::test]
async fn a_write_into_a_store_that_is_moved_away_meanwhile_is_not_called_undone() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("x.redb");
    let away = dir.path().join("away.redb");
    let mut store = RedbStore::create(path.clone()).unwrap();
    store.apply(batch(1, &[("a", Some("1"))])).await.unwrap();

    // After the check of the path, and before the write is durable.
    fs::rename(&path, &away).unwrap();
    let error = store.write(batch(2, &[("b", Some("2"))])).await;
    let error = error.unwrap_err();
    assert!(matches!(error, StoreError::Unsure { .. }), "{error:?}");
    let want = format!(
        "the store {} did not say whether it was written: was deleted or moved away while this \
         coordinator has it open",
        path.display()
    );
    assert_eq!(error.to_string(), want);
    // From then on nothing is written.
    let error = refused(&mut store).await;
    assert!(error.contains("nothing is written any more"), "{error}");
    drop(store);
    let mut store = RedbStore::create(away).unwrap();
    let want = (2, vec![record("a", "1"), record("b", "2")]);
    assert_eq!(stored(&mut store).await, want);
}

#[tokio::test]
async fn an_empty_file_and_what_is_no_file_are_no_store() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("x.redb");
    fs::write(&path, "").unwrap();
    let error = RedbStore::open_or_later(path.clone()).unwrap_err();
    assert!(error.to_string().contains("the file is empty"), "{error}");
    let error = RedbStore::create(dir.path().to_owned()).unwrap_err();
    assert!(error.to_string().contains("is a directory"), "{error}");
    // A draft of a start that was cut short does not matter.
    fs::remove_file(&path).unwrap();
    fs::write(dir.path().join("x.redb.new"), "half").unwrap();
    drop(RedbStore::create(path).unwrap());
    assert!(!dir.path().join("x.redb.new").exists());
}

/// Reads a store that has the bytes `image`.
async fn read(path: &Path, image: &[u8]) -> Result<StoreContent, StoreError> {
    fs::write(path, image).unwrap();
    RedbStore::create(path.to_owned())?.load().await
}

/// The bytes of a store with some hundred records, closed and as a crash leaves it.
async fn images(path: &Path) -> [Vec<u8>; 2] {
    let mut store = RedbStore::create(path.to_owned()).unwrap();
    for revision in 1..=20 {
        let names: Vec<String> = (0..20).map(|i| format!("{revision}-{i}")).collect();
        let record = "x".repeat(100);
        let changes: Vec<_> = names
            .iter()
            .map(|name| (name.as_str(), Some(record.as_str())))
            .collect();
        store.apply(batch(revision, &changes)).await.unwrap();
    }
    let crashed = fs::read(path).unwrap();
    drop(store);
    [fs::read(path).unwrap(), crashed]
}

#[tokio::test]
async fn a_damaged_store_is_refused_or_whole() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("x.redb");
    for (which, image) in images(&path).await.into_iter().enumerate() {
        let whole = read(&path, &image).await.unwrap();
        assert_eq!(whole.records.len(), 400);
        fs::write(&path, &image).unwrap();
        assert!(file::newer_commit_is_in_force(&path).unwrap());
        let used: Vec<usize> = (0..image.len()).filter(|&at| image[at] != 0).collect();
        // Every bit that selects the newest transaction, and the kind of its commit.
        let newest = (0..8).map(|bit| (9, bit));
        let header = (0..320).step_by(6).map(|at| (at, at % 8));
        let header = newest.chain(header);
        let spread = used.iter().step_by(used.len() / 50);
        let spread = spread.map(|&at| (at, at / 7 % 8));
        let (mut refused, mut said) = (0, 0);
        for (at, bit) in header.chain(spread) {
            let mut damaged = image.clone();
            damaged[at] ^= 1 << bit;
            fs::write(&path, &damaged).unwrap();
            let newest = file::newer_commit_is_in_force(&path).unwrap();
            match read(&path, &damaged).await {
                // The log says so.
                Ok(_) if !newest => said += 1,
                Ok(stored) => assert_eq!(stored, whole, "image {which}, byte {at}, bit {bit}"),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > 25 && (1..9).contains(&said), "{refused} {said}");
        for len in [1, 300, 4096, image.len() / 2, image.len() - 1] {
            let read = read(&path, &image[..len]).await;
            assert!(read.is_err(), "image {which}, {len} bytes");
        }
    }
}
