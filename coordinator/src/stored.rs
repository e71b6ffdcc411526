//! Opening of the store, and the epoch of a run in it.

use std::sync::Arc;

use tollgate_cluster::election::RunEpoch;
use tollgate_config::Config;
use tollgate_config::catalog::metrics::CatalogMetrics;
#[cfg(feature = "etcd")]
use tollgate_config::catalog::store::EtcdStore;
use tollgate_config::catalog::store::{MemoryStore, RedbStore, Store, StoreError};
use tollgate_core::lease::Epoch;
#[cfg(feature = "etcd")]
use tollgate_leases::buckets::EtcdBuckets;
use tollgate_leases::buckets::{BucketStore, RedbBuckets};

use super::ServerError;

/// The store that `config` names.
pub(super) fn open_store(
    config: &Config,
    metrics: &CatalogMetrics,
) -> Result<Box<dyn Store>, StoreError> {
    #[cfg(feature = "etcd")]
    if let Some(cluster) = &config.cluster {
        return Ok(Box::new(EtcdStore::new(&cluster.etcd, metrics.clone())));
    }
    let store = match config.store_path() {
        None => return Ok(Box::new(MemoryStore::default())),
        Some((path, true)) => RedbStore::create(path)?,
        Some((path, false)) => RedbStore::open_or_later(path)?,
    };
    Ok(Box::new(store.with_metrics(metrics.clone())))
}

/// The store of the fleet's slow buckets: beside the one that `config` names.
pub(super) fn open_buckets(config: &Config) -> Option<Arc<dyn BucketStore>> {
    #[cfg(feature = "etcd")]
    if let Some(cluster) = &config.cluster {
        return Some(Arc::new(EtcdBuckets::new(&cluster.etcd, cluster.shards)));
    }
    let (path, _) = config.store_path()?;
    let mut name = path.clone();
    if path
        .extension()
        .is_some_and(|extension| extension == "redb")
    {
        name.set_extension("");
    }
    let mut name = name.into_os_string();
    name.push(".buckets.redb");
    Some(Arc::new(RedbBuckets::at(name.into())))
}

/// The epoch of this run, which `store` keeps from now on.
pub(super) async fn begin(store: &mut dyn Store, wanted: RunEpoch) -> Result<Epoch, ServerError> {
    let stored = store.epoch().await?;
    let epoch = wanted.after(stored)?;
    store.keep_epoch(epoch).await?;
    if let (RunEpoch::AtLeast(clock), Some(stored)) = (wanted, stored)
        && clock < epoch
    {
        let (clock, stored) = (clock.0, stored.0);
        tracing::warn!(
            clock,
            stored,
            "epoch: the wall clock is behind the last run"
        );
    }
    tracing::info!(epoch = epoch.0, "epoch: chosen for this run");
    Ok(epoch)
}
