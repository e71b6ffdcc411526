//! Result of a batch of writes, before it is made durable.

use crate::catalog::store::{RecordKey, WriteBatch, encode};
use crate::catalog::{Catalog, CatalogObject, Precondition, WriteOutcome};

use super::WriteError;

/// A requested write.
#[derive(Debug)]
pub(super) struct WriteRequest {
    key: RecordKey,
    object: Option<CatalogObject>,
    /// Written form of the object.
    written: Option<Box<str>>,
    expect: Precondition,
}

/// Result of several writes, one after the other, on top of one catalog.
#[derive(Debug)]
pub(super) struct Draft {
    /// The catalog after all of them.
    pub(super) catalog: Catalog,
    /// The batch that makes it durable.
    pub(super) batch: WriteBatch,
    /// Result of each write if the batch is applied.
    pub(super) outcomes: Vec<Result<WriteOutcome, WriteError>>,
}

// === impl WriteRequest ===

impl WriteRequest {
    /// A write of `object` as `key`, or its deletion, if `expect` holds.
    pub(super) fn new(key: RecordKey, object: Option<CatalogObject>, expect: Precondition) -> Self {
        let written = object.as_ref().map(CatalogObject::written);
        Self {
            key,
            object,
            written,
            expect,
        }
    }

    /// Its approximate size in bytes.
    pub(super) fn len(&self) -> usize {
        self.key.name.len() + self.written.as_ref().map_or(0, |written| written.len())
    }
}

// === impl Draft ===

impl Draft {
    /// Applies `writes` to `catalog`, whose last revision is `revision`.
    pub(super) fn new<'a>(
        writes: impl Iterator<Item = &'a WriteRequest>,
        catalog: &Catalog,
        revision: u64,
    ) -> Self {
        let mut draft = Self {
            catalog: catalog.clone(),
            batch: WriteBatch {
                revision,
                ..WriteBatch::default()
            },
            outcomes: Vec::new(),
        };
        for write in writes {
            let outcome = draft.make(write);
            draft.outcomes.push(outcome);
        }
        draft
    }

    /// Whether anything changes.
    pub(super) fn changes(&self) -> bool {
        !self.batch.changes.is_empty()
    }

    fn make(&mut self, write: &WriteRequest) -> Result<WriteOutcome, WriteError> {
        let WriteRequest {
            key,
            object,
            written,
            expect,
        } = write;
        let next = self.batch.revision + 1;
        let done = self.catalog.write(key, object.clone(), *expect, next)?;
        let record = written.as_ref().map(|written| encode(written, next));
        self.batch.changes.push((key.clone(), record));
        self.batch.revision = next;
        Ok(done)
    }
}
