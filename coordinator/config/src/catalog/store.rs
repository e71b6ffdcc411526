//! Storage of the objects that are written through the API.
//!
//! A [`Store`] keeps records by key and does not interpret them: on one machine it is a redb file,
//! in a cluster etcd, in tests memory. A batch is applied as a whole or not at all, and is durable
//! when [`Store::apply`] returns, so a write that is acknowledged after that is never lost.
//!
//! A store with several writers is a log that all of them read in one order. A batch is applied
//! only on top of everything before it, and its writer takes it into its catalog when it comes back
//! as a [`StoreUpdate`], like a batch of another writer.
//!
//! A record is JSON, `{"revision": 7, "spec": {...}}`, with the spec as it was written. The format
//! has a number; a store with a higher one is refused.

use std::fmt;

use tollgate_core::lease::Epoch;

use crate::catalog::check::ConfigErrors;

#[cfg(feature = "etcd")]
mod etcd;
mod key;
mod memory;
mod record;
mod redb;

#[cfg(feature = "etcd")]
pub use self::etcd::EtcdStore;
pub use self::redb::RedbStore;
pub use key::{RecordKey, RecordKind};
pub use memory::MemoryStore;
#[cfg(feature = "etcd")]
pub(crate) use record::REVISION_MAX;
pub(crate) use record::{decode, encode};

/// Format that this version writes, and the highest that it reads.
pub const FORMAT: u64 = 1;

/// Storage of records.
#[tonic::async_trait]
pub trait Store: Send + fmt::Debug {
    /// Reads everything.
    ///
    /// # Errors
    /// If it cannot be read.
    async fn load(&mut self) -> Result<StoreContent, StoreError>;

    /// Applies all changes of `batch`, or none. They are durable when this returns.
    ///
    /// # Errors
    /// If they could not be made durable; after a failure of the disk they may still be there at
    /// the next start.
    async fn apply(&mut self, batch: WriteBatch) -> Result<ApplyOutcome, StoreError>;

    /// The epoch of the last run that stored one.
    ///
    /// # Errors
    /// If it cannot be read.
    async fn epoch(&mut self) -> Result<Option<Epoch>, StoreError> {
        Ok(None)
    }

    /// Stores `epoch`, that of this run, for the next one. It is durable when this returns, or with
    /// the first batch if the store is empty.
    ///
    /// # Errors
    /// If it could not be made durable.
    async fn keep_epoch(&mut self, _: Epoch) -> Result<(), StoreError> {
        Ok(())
    }

    /// Waits for the next update, by another writer or by [`Store::apply`]; never resolves without
    /// other writers. Cancelling loses nothing.
    async fn next_update(&mut self) -> StoreUpdate {
        std::future::pending().await
    }

    /// Key of the configuration that all nodes of a cluster share; `None` if this store has none.
    fn shared_key(&self) -> Option<String> {
        None
    }

    /// Whether there are other writers. An unreadable record is then no reason to stop: a newer
    /// version may have written it.
    fn is_shared(&self) -> bool {
        false
    }
}

/// Result of applying a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyOutcome {
    /// It is durable, and the store is as the batch says.
    Alone,
    /// It is durable, and comes back with the updates up to this position.
    Shared(LogPosition),
    /// Another writer was first, so nothing was applied; its batch is among the updates up to this
    /// position.
    Overtaken(LogPosition),
}

/// Position in the order of all writes to a store with several writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPosition(pub u64);

/// Update of a store with several writers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUpdate {
    /// The whole content, which replaces all that was known.
    All(StoreContent),
    /// Changes of whole batches, and the position after them.
    Changes(WriteBatch, LogPosition),
}

/// Content of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreContent {
    /// The highest revision that was given to a write.
    pub revision: u64,
    /// The records, each key once.
    pub records: Vec<(RecordKey, Vec<u8>)>,
    /// Configuration that all nodes of a cluster share, if this store has it.
    pub shared: Option<Vec<u8>>,
    /// The position of this content.
    pub position: LogPosition,
}

/// Changes that are applied together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteBatch {
    /// The highest revision that was given to a write.
    pub revision: u64,
    /// New configuration that all nodes of a cluster share, if it changes; before everything else.
    pub shared: Option<Vec<u8>>,
    /// New record of each key, later ones last; `None` removes it.
    pub changes: Vec<(RecordKey, Option<Vec<u8>>)>,
}

/// Reason for which a store cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StoreError {
    /// It cannot be read or written.
    #[error("the store {store}: {cause}")]
    Failed {
        /// The store.
        store: String,
        /// The library's or the system's error.
        cause: String,
    },
    /// It cannot be reached, so nothing was changed.
    #[error("the store {store} cannot be reached: {cause}")]
    Away {
        /// The store.
        store: String,
        /// The library's or the system's error.
        cause: String,
    },
    /// Its file is not where it was opened.
    #[error(
        "the store {store} {cause}: nothing is written any more, and a restart begins without what \
         was written before; move it back, or save what is in force before the restart"
    )]
    Detached {
        /// Its path.
        store: String,
        /// The state of the path.
        cause: String,
    },
    /// Its file is not as it was written.
    #[error(
        "the store {store} is damaged, and nothing of it is used: {cause}; put a backup in its \
         place, or move it away to begin without groups, attachments and overrides"
    )]
    Damaged {
        /// Its path.
        store: String,
        /// The library's error.
        cause: String,
    },
    /// It did not answer, or not in time.
    #[error("the store {store} did not say whether it was written: {cause}")]
    Unsure {
        /// The store.
        store: String,
        /// The library's or the system's error.
        cause: String,
    },
    /// Other writers were first at every attempt; nothing was changed.
    #[error("other coordinators wrote to the store at the same time, again and again")]
    Overtaken,
    /// It is durable, but did not come back, so that it is not in force here yet.
    #[error("it was written, but this coordinator does not see it in the store yet")]
    Unseen,
    /// The configuration that all nodes of a cluster share is missing.
    #[error("there is no {key} in etcd: `tollgate config put` puts one there")]
    NothingShared {
        /// Its key.
        key: String,
    },
    /// The configuration that all nodes of a cluster share is not valid.
    #[error("{key} in etcd is wrong:\n{errors}")]
    Shared {
        /// Its key.
        key: String,
        /// All its errors.
        errors: ConfigErrors,
    },
    /// It was written by a newer version.
    #[error(
        "the store {store} was written by a newer version of tollgate, in format {format}; this one \
         reads up to {FORMAT}"
    )]
    Newer {
        /// The store.
        store: String,
        /// Its format.
        format: u64,
    },
    /// A record is not valid.
    #[error("the store's record {key:?} is invalid: {cause}")]
    Record {
        /// Its key.
        key: String,
        /// The reason.
        cause: String,
    },
}
