//! What comes of writes, before they are made.

use crate::catalog::store::{RecordKey, WriteBatch, encode};
use crate::catalog::{Catalog, CatalogObject, Precondition, WriteOutcome};

use super::WriteError;

/// Something that somebody wants to have written.
#[derive(Debug)]
pub(super) struct WriteRequest {
    key: RecordKey,
    object: Option<CatalogObject>,
    /// The object as it is kept.
    written: Option<Box<str>>,
    expect: Precondition,
}

/// What comes of some writes, one after the other, on top of one catalog.
#[derive(Debug)]
pub(super) struct Draft {
    /// The catalog after all of them.
    pub(super) catalog: Catalog,
    /// What is to be made durable for it.
    pub(super) batch: WriteBatch,
    /// What each of them is told if that has been done.
    pub(super) outcomes: Vec<Result<WriteOutcome, WriteError>>,
}

// === impl WriteRequest ===

impl WriteRequest {
    /// To have `object` as `key`, or nothing, on top of what is expected.
    pub(super) fn new(key: RecordKey, object: Option<CatalogObject>, expect: Precondition) -> Self {
        let written = object.as_ref().map(CatalogObject::written);
        Self {
            key,
            object,
            written,
            expect,
        }
    }

    /// How many bytes it needs, more or less.
    pub(super) fn len(&self) -> usize {
        self.key.name.len() + self.written.as_ref().map_or(0, |written| written.len())
    }
}

// === impl Draft ===

impl Draft {
    /// `writes` on top of `catalog`, in which `revision` is the last.
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

    /// Whether something changes.
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
