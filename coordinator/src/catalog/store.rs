//! Where what is written through the API is kept over restarts.
//!
//! A [`Store`] keeps records by key and knows nothing of what they mean: on one machine it is a
//! redb file, in a cluster etcd, in tests memory. A batch is whole or not there, and durable before
//! [`Store::apply`] returns, so whoever acknowledges a write after that never takes it back.
//!
//! A store that others write to as well is a log that all of them read in one order: a batch is
//! made only on top of everything that came before it, and what is in it is taken when it comes
//! back as [`StoreUpdate`], like what the others wrote.
//!
//! A record is JSON, `{"revision": 7, "spec": {...}}`, with what was written as it was written. The
//! format of the whole has a number; a store with a higher one is refused rather than guessed at.

use std::fmt;

use tollgate_core::lease::Epoch;

use crate::config::ConfigErrors;

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

/// The format that this version writes, and the highest that it reads.
pub const FORMAT: u64 = 1;

/// Keeps records.
#[tonic::async_trait]
pub trait Store: Send + fmt::Debug {
    /// Everything that is kept.
    ///
    /// # Errors
    /// If it cannot be read.
    async fn load(&mut self) -> Result<StoreContent, StoreError>;

    /// Makes all changes of `batch`, or none. They are durable when this returns.
    ///
    /// # Errors
    /// If they could not be made durable; after a failure of the disk they may be there at the next
    /// start all the same.
    async fn apply(&mut self, batch: WriteBatch) -> Result<ApplyOutcome, StoreError>;

    /// The epoch of the last run that kept one here.
    ///
    /// # Errors
    /// If it cannot be read.
    async fn epoch(&mut self) -> Result<Option<Epoch>, StoreError> {
        Ok(None)
    }

    /// Keeps `epoch`, that of this run, for the next one. It is durable when this returns, or, if
    /// nothing is kept yet, with the first batch.
    ///
    /// # Errors
    /// If it could not be made durable.
    async fn keep_epoch(&mut self, _: Epoch) -> Result<(), StoreError> {
        Ok(())
    }

    /// What was written next, by others or by [`Store::apply`]; never resolves if nobody else can
    /// write. Giving up waiting loses nothing.
    async fn next_update(&mut self) -> StoreUpdate {
        std::future::pending().await
    }

    /// What the text is called that all nodes of a cluster share; none if none is kept here.
    fn shared_key(&self) -> Option<String> {
        None
    }

    /// Whether others write to it as well. A record that this version cannot read is then no reason
    /// to stop: a newer version may have written it.
    fn is_shared(&self) -> bool {
        false
    }
}

/// What came of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyOutcome {
    /// It is durable, and everything is as the batch says.
    Alone,
    /// It is durable, and is among the update up to this place.
    Shared(LogPosition),
    /// Others wrote first, so that nothing was done; what they wrote is among the update up to this
    /// place.
    Overtaken(LogPosition),
}

/// A place in the order of all writes to a store that others write to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPosition(pub u64);

/// What was written to a store that others write to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUpdate {
    /// Everything that is kept now, in the place of whatever was known.
    All(StoreContent),
    /// What has changed, whole writes only, and the place that this leads to.
    Changes(WriteBatch, LogPosition),
}

/// Everything that a store keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreContent {
    /// The highest revision that was given to a write.
    pub revision: u64,
    /// The records, each key once.
    pub records: Vec<(RecordKey, Vec<u8>)>,
    /// The text of what all nodes of a cluster share, if it is kept here.
    pub shared: Option<Vec<u8>>,
    /// The place at which it is so.
    pub place: LogPosition,
}

/// Changes that belong together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteBatch {
    /// The highest revision that was given to a write.
    pub revision: u64,
    /// The new text of what all nodes of a cluster share, if it changes; before everything else.
    pub shared: Option<Vec<u8>>,
    /// The new record of each key, later ones last; none removes it.
    pub changes: Vec<(RecordKey, Option<Vec<u8>>)>,
}

/// Why a store cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StoreError {
    /// It cannot be read or written.
    #[error("the store {store}: {cause}")]
    Failed {
        /// Which.
        store: String,
        /// What the library or the system says.
        cause: String,
    },
    /// It cannot be reached, so nothing was changed.
    #[error("the store {store} cannot be reached: {cause}")]
    Away {
        /// Which.
        store: String,
        /// What the library or the system says.
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
        /// The reason as the library gives it.
        cause: String,
    },
    /// It did not answer, or not in time.
    #[error("the store {store} did not say whether it was written: {cause}")]
    Unsure {
        /// Which.
        store: String,
        /// What the library or the system says.
        cause: String,
    },
    /// Others wrote at the same time, each time that it was tried; nothing was changed.
    #[error("other coordinators wrote to the store at the same time, again and again")]
    Overtaken,
    /// It is durable, but does not come back, so that it is not in force here yet.
    #[error("it was written, but this coordinator does not see it in the store yet")]
    Unseen,
    /// What all nodes of a cluster share is not there.
    #[error("there is no {key} in etcd: `tollgate config put` puts one there")]
    NothingShared {
        /// Its key.
        key: String,
    },
    /// What all nodes of a cluster share makes no sense.
    #[error("{key} in etcd is wrong:\n{errors}")]
    Shared {
        /// Its key.
        key: String,
        /// Everything that is wrong.
        errors: ConfigErrors,
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
    #[error("the store's record {key:?} is invalid: {cause}")]
    Record {
        /// Its key.
        key: String,
        /// Why.
        cause: String,
    },
}
