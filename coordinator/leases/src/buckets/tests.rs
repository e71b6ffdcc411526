use tollgate_core::fleet::{EndedWindow, QuotaCredit, QuotaEvent, QuotaRecord, UsedPart};
use tollgate_core::lease::Epoch;
use tollgate_core::units::WallTime;

use super::*;

const NOW: Duration = Duration::from_secs(1_790_000_000);

fn resource(scope: &str) -> ResourceId {
    ResourceId::new(scope, Unit::Requests).unwrap()
}

fn bucket(missing: u64) -> StoredLimit {
    let bucket = StoredBucket {
        whole: Tokens::from_whole(10),
        rate: Rate::from_micros(2777),
        missing: Tokens::from_whole(missing),
        held: Tokens::ONE,
        held_for: Duration::from_secs(2),
        lasts: Duration::from_secs(3600),
        age: Duration::ZERO,
    };
    let part = |until, used| UsedPart {
        until: WallTime::from_millis(until),
        used: Tokens::from_whole(used),
        credited: Tokens::from_whole(used / 2),
    };
    let quotas = vec![QuotaRecord {
        name: "month from 15".to_owned(),
        parts: vec![part(1_790_000_000_000, 3), part(1_790_000_001_000, missing)],
        credits: vec![QuotaCredit {
            id: "ticket 7".to_owned(),
            amount: Tokens::from_whole(100),
            left: Tokens::from_whole(missing),
            until: WallTime::from_millis(1_790_000_002_000),
        }],
        ended: vec![EndedWindow {
            start: WallTime::from_millis(1),
            end: WallTime::from_millis(2),
            used: Tokens::from_whole(missing),
        }],
        events: vec![QuotaEvent {
            at: WallTime::from_millis(3),
            by: "operator".to_owned(),
            credit: Some("ticket 7".to_owned()),
            tokens: Tokens::from_whole(100),
        }],
    }];
    StoredLimit { bucket, quotas }
}

fn change(scope: &str, bucket: Option<StoredLimit>) -> BucketChange {
    BucketChange {
        resource: resource(scope),
        bucket,
        is_urgent: true,
    }
}

#[test]
fn a_record_is_as_old_as_the_wall_clock_says() {
    let record = BucketRecord::new(NOW, &bucket(4));
    let age = Duration::from_millis(1500);
    let aged = bucket(4).after(age);
    assert_eq!(record.at(NOW.saturating_add(age)), Some(aged));
    assert_eq!(
        record.at(NOW.saturating_add(Duration::from_secs(3600))),
        None
    );
    let before = NOW.saturating_sub(Duration::from_secs(86_400));
    assert_eq!(record.at(before), Some(bucket(4)), "the clock was set back");
}

#[test]
fn what_cannot_be_read_is_skipped_and_stays() {
    let record = BucketRecord::new(NOW, &bucket(4)).encode();
    let records = [
        ("requests/tenant/a/b", &*record),
        ("requests/", &*record),
        ("apples/tenant/a", &*record),
        ("requests/tenant/c", b"{}"),
    ];
    let records = records.map(|(resource, record)| (resource, resource, record));
    let (buckets, over) = read(NOW, records);
    assert_eq!(buckets, [(resource("tenant/a/b"), bucket(4))].into());
    assert_eq!(over, [""; 0]);
}

#[tokio::test]
async fn a_file_keeps_the_last_change_of_each_bucket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.buckets.redb");
    let origin = Origin::alone(Epoch(1));
    let store = RedbBuckets::at(path.clone());
    assert_eq!(store.load(origin, NOW).await, Ok(LoadedBuckets::default()));
    assert!(
        path.exists(),
        "the first write takes longer than a client waits"
    );
    let changes = vec![
        change("tenant/a", Some(bucket(1))),
        change("tenant/b", Some(bucket(2))),
        change("tenant/a", Some(bucket(3))),
    ];
    store.write(origin, NOW, changes).await.unwrap();
    let changes = vec![change("tenant/b", None)];
    store.write(origin, NOW, changes).await.unwrap();
    drop(store);
    let store = RedbBuckets::at(path);
    let stored = store.load(origin, NOW).await.unwrap();
    assert_eq!(stored.own, [(resource("tenant/a"), bucket(3))].into());
    // Full by now, so it is dropped for good.
    let later = NOW.saturating_add(Duration::from_secs(3600));
    assert_eq!(
        store.load(origin, later).await,
        Ok(LoadedBuckets::default())
    );
    assert_eq!(store.load(origin, NOW).await, Ok(LoadedBuckets::default()));
}

#[tokio::test]
async fn a_file_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing/a.redb");
    let store = RedbBuckets::at(path.clone());
    let loaded = store.load(Origin::alone(Epoch(1)), NOW).await;
    assert_eq!(
        loaded,
        Ok(LoadedBuckets::default()),
        "limits hold all the same"
    );
    let written = store.write(Origin::alone(Epoch(1)), NOW, Vec::new()).await;
    let error = written.unwrap_err().to_string();
    assert!(error.starts_with(path.to_str().unwrap()), "{error}");
}
