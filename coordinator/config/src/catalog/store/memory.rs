//! A store in memory.

use std::collections::BTreeMap;

use super::{ApplyOutcome, RecordKey, Store, StoreContent, StoreError, WriteBatch};

/// Keeps records until it is dropped.
#[derive(Debug, Default)]
pub struct MemoryStore {
    revision: u64,
    records: BTreeMap<RecordKey, Vec<u8>>,
}

// === impl MemoryStore ===

#[tonic::async_trait]
impl Store for MemoryStore {
    async fn load(&mut self) -> Result<StoreContent, StoreError> {
        let records = self.records.clone().into_iter().collect();
        Ok(StoreContent {
            revision: self.revision,
            records,
            ..StoreContent::default()
        })
    }

    async fn apply(&mut self, batch: WriteBatch) -> Result<ApplyOutcome, StoreError> {
        self.revision = batch.revision;
        for (key, record) in batch.changes {
            match record {
                Some(record) => self.records.insert(key, record),
                None => self.records.remove(&key),
            };
        }
        Ok(ApplyOutcome::Alone)
    }
}
