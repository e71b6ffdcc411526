//! Buckets of slow limits and quotas in etcd.

use std::num::NonZeroU16;
use std::time::Duration;

use tollgate_config::Config;
use tollgate_core::cluster::ShardId;
use tollgate_core::fleet::{BucketChange, QuotaRecord, StoredBucket, StoredLimit, UsedPart};
use tollgate_core::lease::{Epoch, Origin, ResourceId, Unit};
use tollgate_core::units::{Rate, Tokens, WallTime};
use tollgate_leases::buckets::{BucketStore as _, EtcdBuckets};

use super::Etcd;

const NOW: Duration = Duration::from_secs(1_790_000_000);
const WINDOW_END: WallTime = WallTime::from_millis(1_790_003_600_000);

fn store(etcd: &Etcd, shards: u16) -> EtcdBuckets {
    let yaml = format!(
        "limits: []\ncluster: {{node: a, etcd: {{endpoints: ['http://{}'], prefix: /test}}}}",
        etcd.address()
    );
    let config = Config::parse(&yaml).unwrap();
    EtcdBuckets::new(
        &config.cluster.unwrap().etcd,
        NonZeroU16::new(shards).unwrap(),
    )
}

/// The master of a shard, which has been elected.
async fn elected(etcd: &Etcd, shard: u16) -> Origin {
    let mut client = etcd.client().await;
    let term = format!("/test/shards/{shard}/term");
    client.put(term, "7", None).await.unwrap();
    Origin {
        shard: Some(ShardId(shard)),
        epoch: Epoch(7),
    }
}

fn resource(scope: &str) -> ResourceId {
    ResourceId::new(scope, Unit::Requests).unwrap()
}

/// Of a quota so much is used.
fn change(scope: &str, used: u64) -> BucketChange {
    let bucket = StoredBucket {
        whole: Tokens::from_whole(10),
        rate: Rate::from_micros(2777),
        missing: Tokens::from_whole(used.min(10)),
        held: Tokens::ZERO,
        held_for: Duration::ZERO,
        lasts: Duration::from_secs(3600),
        age: Duration::ZERO,
    };
    let quota = QuotaRecord {
        name: "hour".to_owned(),
        parts: vec![UsedPart {
            until: WINDOW_END,
            used: Tokens::from_whole(used),
            credited: Tokens::ZERO,
        }],
        ..QuotaRecord::default()
    };
    BucketChange {
        resource: resource(scope),
        bucket: Some(StoredLimit {
            bucket,
            quotas: vec![quota],
        }),
        is_urgent: true,
    }
}

#[tokio::test]
async fn what_is_used_outlives_another_number_of_shards() {
    let etcd = Etcd::start().await;
    let (two, three) = (store(&etcd, 2), store(&etcd, 3));
    let (first, second) = (elected(&etcd, 0).await, elected(&etcd, 1).await);
    let used = async |store: &EtcdBuckets, origin, now| {
        let loaded = store.load(origin, now).await.unwrap();
        let mut stored = loaded.own;
        stored.extend(loaded.others);
        let used = stored.iter().map(|(id, limit)| {
            let used = limit.quotas[0].parts[0].used.whole();
            (
                id.scope.as_ref().to_owned(),
                used,
                limit.bucket.missing.whole(),
            )
        });
        used.collect::<Vec<_>>()
    };
    let of = |scope: &str, used: u64| (scope.to_owned(), used, used.min(10));
    two.write(first, NOW, vec![change("tenant/a", 4)])
        .await
        .unwrap();
    two.write(second, NOW, vec![change("tenant/b", 5)])
        .await
        .unwrap();
    assert_eq!(
        used(&two, first, NOW).await,
        [of("tenant/a", 4)],
        "its own alone"
    );
    // A master finds those of all shards of before, and the driver takes its own.
    let both = [of("tenant/a", 4), of("tenant/b", 5)];
    assert_eq!(used(&three, first, NOW).await, both);
    // A person says that less is used: the record of before is over with the first write.
    three
        .write(first, NOW, vec![change("tenant/a", 1)])
        .await
        .unwrap();
    let less = [of("tenant/a", 1), of("tenant/b", 5)];
    assert_eq!(used(&three, first, NOW).await, less);
    assert_eq!(used(&three, second, NOW).await, [of("tenant/b", 5)]);
    // Back again: what was used meanwhile counts.
    assert_eq!(used(&two, first, NOW).await, [of("tenant/a", 1)]);
    let later = NOW.saturating_add(Duration::from_secs(3600));
    assert_eq!(used(&three, first, later).await, []);
    let mut client = etcd.client().await;
    let options = etcd_client::GetOptions::new().with_prefix();
    let left = client.get("/test/buckets/", Some(options)).await.unwrap();
    assert_eq!(left.count(), 0, "all are dropped when they are full");
}
