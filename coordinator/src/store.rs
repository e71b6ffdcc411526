//! Where what is written through the API is kept over restarts.
//!
//! A [`Store`] keeps records by key and knows nothing of what they mean: on one machine it is a
//! redb file, in tests memory. A batch is whole or not there, and durable before
//! [`Store::apply`] returns, so whoever acknowledges a write after that never takes it back.
//!
//! A record is JSON, `{"revision": 7, "spec": {...}}`, with what was written as it was written. The
//! format of the whole has a number; a store with a higher one is refused rather than guessed at.

use std::fmt;

mod key;
mod memory;
mod record;
mod redb;

pub use self::redb::RedbStore;
pub use key::{Key, KeyKind};
pub use memory::MemoryStore;
pub(crate) use record::{decode, encode};

/// The format that this version writes, and the highest that it reads.
pub const FORMAT: u64 = 1;

/// Keeps records.
#[tonic::async_trait]
pub trait Store: Send + fmt::Debug {
    /// Everything that is kept.
    ///
    /// # Errors
    /// If it cannot be read.
    async fn load(&mut self) -> Result<Stored, StoreError>;

    /// Makes all changes of `batch`, or none. They are durable when this returns.
    ///
    /// # Errors
    /// If they could not be made durable; after a failure of the disk they may be there at the next
    /// start all the same.
    async fn apply(&mut self, batch: Batch) -> Result<(), StoreError>;
}

/// Everything that a store keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// The highest revision that was given to a write.
    pub revision: u64,
    /// The records, each key once.
    pub records: Vec<(Key, Vec<u8>)>,
}

/// Changes that belong together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The highest revision that was given to a write.
    pub revision: u64,
    /// The new record of each key, later ones last; none removes it.
    pub changes: Vec<(Key, Option<Vec<u8>>)>,
}

/// Why a store cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It cannot be read or written.
    #[error("the store {store}: {cause}")]
    Failed {
        /// Which.
        store: String,
        /// What the library or the system says.
        cause: String,
    },
    /// It was written by a newer version.
    #[error(
        "the store {store} was written by a newer version of tollgate, in format {format}; this one \
         reads up to {FORMAT}"
    )]
    Newer {
        /// Which.
        store: String,
        /// Its format.
        format: u64,
    },
    /// A record makes no sense.
    #[error("the store's record {key:?} is not good: {cause}")]
    Record {
        /// Its key.
        key: String,
        /// Why.
        cause: String,
    },
}
