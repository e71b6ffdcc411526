//! The configuration that the nodes of a cluster share, read and replaced from outside.
//!
//! It is replaced like everything else in the store: only on top of a state that it was checked
//! against, so that no group goes while something is attached to it.

use std::sync::Arc;

use crate::Config;
use crate::catalog::check::ConfigErrors;
use crate::catalog::metrics::CatalogMetrics;
use crate::catalog::store::{
    ApplyOutcome, EtcdStore, Store as _, StoreContent, StoreError, WriteBatch, decode,
};
use crate::catalog::{Catalog, WriteRefusal};

/// Largest text in bytes: etcd takes at most 1.5 MiB in a request. A larger configuration belongs
/// into the API.
pub const TEXT_LEN_MAX: usize = 1 << 20;

/// Attempts while coordinators write at the same time.
const TRIES_MAX: usize = 20;

/// Reason for which the shared configuration was not read or replaced.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SharedConfigError {
    /// The node's own configuration says that nothing is shared.
    #[error("the configuration does not say `cluster: {{shared_config: true}}`")]
    NotShared,
    /// It is too large.
    #[error("has {0} bytes, more than {TEXT_LEN_MAX}: write groups and attachments with the API")]
    TooLarge(usize),
    /// It is not valid.
    #[error(transparent)]
    Wrong(#[from] ConfigErrors),
    /// It conflicts with an object written through the API.
    #[error(transparent)]
    Refused(#[from] WriteRefusal),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Returns the text that the cluster of `node` shares, if there is one.
///
/// # Errors
/// If it cannot be read, or the cluster shares nothing.
pub async fn get(node: &Config) -> Result<Option<Vec<u8>>, SharedConfigError> {
    let mut store = open(node)?;
    Ok(store.load().await?.shared)
}

/// Replaces the text that the cluster of `node` shares.
///
/// # Errors
/// The reason; nothing has changed then, unless the store is not sure.
pub async fn put(node: &Config, text: &[u8]) -> Result<(), SharedConfigError> {
    if text.len() > TEXT_LEN_MAX {
        return Err(SharedConfigError::TooLarge(text.len()));
    }
    let next = node.with_shared(text)?;
    let mut store = open(node)?;
    for _ in 0..TRIES_MAX {
        let stored = store.load().await?;
        let batch = WriteBatch {
            revision: stored.revision + 1,
            shared: Some(text.to_vec()),
            ..WriteBatch::default()
        };
        catalog(node, stored).with_file(next.catalog.clone())?;
        if let ApplyOutcome::Shared(_) = store.apply(batch).await? {
            return Ok(());
        }
    }
    Err(StoreError::Overtaken.into())
}

// === free functions ===

fn open(node: &Config) -> Result<EtcdStore, SharedConfigError> {
    let cluster = node.cluster.as_ref().filter(|_| node.shares());
    let cluster = cluster.ok_or(SharedConfigError::NotShared)?;
    let metrics = CatalogMetrics::default();
    Ok(EtcdStore::new(&cluster.etcd, metrics))
}

/// The catalog of a node that has read `stored`.
fn catalog(node: &Config, stored: StoreContent) -> Catalog {
    let shared = stored.shared.and_then(|text| node.with_shared(&text).ok());
    let file = shared.map_or_else(Arc::default, |shared| shared.catalog);
    let mut catalog = Catalog::new(file);
    for (key, record) in stored.records {
        if let Ok(object) = decode(&key, &record) {
            catalog.restore(&key, object);
        }
    }
    catalog
}
