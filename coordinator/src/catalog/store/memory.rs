//! A store that forgets.

use std::collections::BTreeMap;

use super::{Applied, Batch, Key, Store, StoreError, Stored};

/// Keeps records until it is dropped.
#[derive(Debug, Default)]
pub struct MemoryStore {
    revision: u64,
    records: BTreeMap<Key, Vec<u8>>,
}

// === impl MemoryStore ===

#[tonic::async_trait]
impl Store for MemoryStore {
    async fn load(&mut self) -> Result<Stored, StoreError> {
        let records = self.records.clone().into_iter().collect();
        Ok(Stored {
            revision: self.revision,
            records,
            ..Stored::default()
        })
    }

    async fn apply(&mut self, batch: Batch) -> Result<Applied, StoreError> {
        self.revision = batch.revision;
        for (key, record) in batch.changes {
            match record {
                Some(record) => self.records.insert(key, record),
                None => self.records.remove(&key),
            };
        }
        Ok(Applied::Alone)
    }
}
