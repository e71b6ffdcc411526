//! What comes of writes, before they are made.

use crate::catalog::store::{Batch, Key, encode};
use crate::catalog::{Catalog, Expect, Object, Written};

use super::WriteError;

/// Something that somebody wants to have written.
#[derive(Debug)]
pub(super) struct Write {
    key: Key,
    object: Option<Object>,
    /// The object as it is kept.
    written: Option<Box<str>>,
    expect: Expect,
}

/// What comes of some writes, one after the other, on top of one catalog.
#[derive(Debug)]
pub(super) struct Draft {
    /// The catalog after all of them.
    pub(super) catalog: Catalog,
    /// What is to be made durable for it.
    pub(super) batch: Batch,
    /// What each of them is told if that has been done.
    pub(super) outcomes: Vec<Result<Written, WriteError>>,
}

// === impl Write ===

impl Write {
    /// To have `object` as `key`, or nothing, on top of what is expected.
    pub(super) fn new(key: Key, object: Option<Object>, expect: Expect) -> Self {
        let written = object.as_ref().map(Object::written);
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
        writes: impl Iterator<Item = &'a Write>,
        catalog: &Catalog,
        revision: u64,
    ) -> Self {
        let mut draft = Self {
            catalog: catalog.clone(),
            batch: Batch {
                revision,
                ..Batch::default()
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

    fn make(&mut self, write: &Write) -> Result<Written, WriteError> {
        let Write {
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
