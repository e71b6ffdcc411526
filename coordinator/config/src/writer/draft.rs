//! Result of a batch of writes, before it is made durable.

use std::fmt;

use crate::catalog::check::ConfigErrors;
use crate::catalog::store::{RecordKey, WriteBatch, encode};
use crate::catalog::{Catalog, CatalogObject, Precondition, WriteOutcome};

use super::WriteError;

/// A requested write.
#[derive(Debug)]
pub(super) struct WriteRequest {
    key: RecordKey,
    change: Change,
    expect: Precondition,
}

/// Change of an object.
pub(super) enum Change {
    Delete,
    /// The object, and its written form.
    Put(CatalogObject, Box<str>),
    /// Makes the object from what there is when it is written.
    Patch(MakeObject),
}

/// Makes an object from a catalog.
pub(super) type MakeObject =
    Box<dyn Fn(&Catalog) -> Result<CatalogObject, ConfigErrors> + Send + Sync>;

/// Bytes that a made object counts for before it is: as many as the largest body.
const MADE_LEN: usize = 64 << 10;

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
    /// A change of the object called `key`, if `expect` holds.
    pub(super) fn new(key: RecordKey, change: Change, expect: Precondition) -> Self {
        Self {
            key,
            change,
            expect,
        }
    }

    /// Its approximate size in bytes.
    pub(super) fn len(&self) -> usize {
        let written = match &self.change {
            Change::Delete => 0,
            Change::Put(_, written) => written.len(),
            Change::Patch(_) => MADE_LEN,
        };
        self.key.name.len() + written
    }
}

// === impl Change ===

impl Change {
    pub(super) fn put(object: CatalogObject) -> Self {
        let written = object.written();
        Self::Put(object, written)
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delete => f.write_str("Delete"),
            Self::Put(object, _) => f.debug_tuple("Put").field(object).finish(),
            Self::Patch(_) => f.write_str("Patch"),
        }
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
            change,
            expect,
        } = write;
        let (object, written) = match change {
            Change::Delete => (None, None),
            Change::Put(object, written) => (Some(object.clone()), Some(written.clone())),
            Change::Patch(make) => {
                self.catalog.check_write(key, *expect)?;
                let object = make(&self.catalog)?;
                let written = object.written();
                (Some(object), Some(written))
            }
        };
        let next = self.batch.revision + 1;
        let done = self.catalog.write(key, object, *expect, next)?;
        let record = written.map(|written| encode(&written, next));
        self.batch.changes.push((key.clone(), record));
        self.batch.revision = next;
        Ok(done)
    }
}
