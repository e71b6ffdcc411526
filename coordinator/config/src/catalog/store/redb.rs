//! A store in one file, by redb: copy-on-write trees, so a crash at any moment leaves the last
//! whole transaction.
//!
//! Every page has a checksum, and all are verified when the file is opened. redb would rather go
//! back to an older transaction than refuse a damaged one, because it cannot tell it from one that a
//! crash cut short. Therefore transactions are committed in two phases: then the newest one is never
//! cut short, and redb refuses the file if that is damaged.

use std::fmt;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use redb::{Builder, Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use tollgate_core::lease::Epoch;
use tollgate_net::files::FileReader;

use self::file::{DetachCause, PinnedFile};
use super::{
    ApplyOutcome, FORMAT, RecordKey, Store, StoreContent, StoreError, StoreUpdate, WriteBatch,
};
use crate::catalog::metrics::CatalogMetrics;

mod file;

/// The records by the text of their keys.
const RECORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("records");

/// Numbers about the store: `format`, `revision` and [`EPOCH`].
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");

/// The number that is the epoch of the last run.
const EPOCH: &str = "epoch";

/// redb's cache. Records are read once, at the start; writes touch a few pages.
const CACHE_BYTES: usize = 8 << 20;

/// Interval of checks of the path while nothing is written.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);

/// Keeps records in a file.
pub struct RedbStore {
    path: PathBuf,
    /// `None` before the file exists, and after a failure, so that the next use opens it anew.
    database: Option<Arc<Database>>,
    /// The file that was opened first; no other file is ever written to.
    pinned: Option<Arc<PinnedFile>>,
    /// Reason for which the path does not lead to that file, as it was last logged.
    detached: Option<DetachCause>,
    files: FileReader,
    metrics: Option<CatalogMetrics>,
    /// The epoch of this run.
    epoch: Option<Epoch>,
}

/// Result of a call to redb.
type RedbResult<T> = Result<T, redb::Error>;

// === impl RedbStore ===

impl RedbStore {
    /// Opens the store in the file `path`, and creates it if it does not exist.
    ///
    /// # Errors
    /// If it cannot be opened, or another process has it open.
    pub fn create(path: PathBuf) -> Result<Self, StoreError> {
        let mut store = Self::at(path);
        store.open(true)?;
        Ok(store)
    }

    /// Opens the store in the file `path`; the first write creates it if it does not exist.
    ///
    /// # Errors
    /// If it exists and cannot be opened, or another process has it open.
    pub fn open_or_later(path: PathBuf) -> Result<Self, StoreError> {
        let mut store = Self::at(path);
        store.open(false)?;
        Ok(store)
    }

    /// Shows in `metrics` whether the file is at its path.
    pub fn with_metrics(self, metrics: CatalogMetrics) -> Self {
        Self {
            metrics: Some(metrics),
            ..self
        }
    }

    fn at(path: PathBuf) -> Self {
        Self {
            path,
            database: None,
            pinned: None,
            detached: None,
            files: FileReader::default(),
            metrics: None,
            epoch: None,
        }
    }

    fn open(&mut self, create: bool) -> Result<Option<Arc<Database>>, StoreError> {
        if let Some(database) = &self.database {
            return Ok(Some(database.clone()));
        }
        let exists = file::exists(&self.path).map_err(|error| self.failed(error))?;
        if !exists && !create {
            return Ok(None);
        }
        let database = if exists {
            open(&self.path).map_err(|error| self.unusable(&error))?
        } else {
            make(&self.path).map_err(|error| self.failed(error))?
        };
        if self.pinned.is_none() {
            let pinned = PinnedFile::open(&self.path).map_err(|error| self.failed(error))?;
            self.pinned = Some(Arc::new(pinned));
        }
        let database = Arc::new(database);
        self.database = Some(database.clone());
        Ok(Some(database))
    }

    /// Returns a check whether the path still leads to the open file. The check may block.
    fn attached(&self) -> impl Fn() -> Result<(), DetachCause> + Send + 'static {
        let (path, pinned) = (self.path.clone(), self.pinned.clone());
        move || pinned.as_ref().map_or(Ok(()), |pinned| pinned.check(&path))
    }

    /// Logs a change of the path's state, and sets its metric.
    fn note(&mut self, attached: Result<(), DetachCause>) -> Result<(), StoreError> {
        if let Some(metrics) = &self.metrics {
            metrics.set_store_detached(attached.is_err());
        }
        let store = self.path.display().to_string();
        let before = std::mem::replace(&mut self.detached, attached.clone().err());
        let error = attached.err().map(|cause| StoreError::Detached {
            store: store.clone(),
            cause: cause.to_string(),
        });
        match &error {
            Some(error) if self.detached != before => tracing::error!("store: {error}"),
            None if before.is_some() => tracing::info!(store, "store: file is back in its place"),
            _ => {}
        }
        error.map_or(Ok(()), Err)
    }

    fn unusable(&self, cause: &redb::Error) -> StoreError {
        match cause {
            redb::Error::Corrupted(cause) => StoreError::Damaged {
                store: self.path.display().to_string(),
                cause: cause.clone(),
            },
            cause => self.failed(cause),
        }
    }

    fn check_format(&self, format: u64) -> Result<(), StoreError> {
        if format <= FORMAT {
            return Ok(());
        }
        let store = self.path.display().to_string();
        Err(StoreError::Newer { store, format })
    }

    fn failed(&self, cause: impl fmt::Display) -> StoreError {
        StoreError::Failed {
            store: self.path.display().to_string(),
            cause: cause.to_string(),
        }
    }

    /// Runs `work` where it may block.
    async fn blocking<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> RedbResult<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let done = tokio::task::spawn_blocking(work).await;
        let done = done.map_err(|error| self.failed(error))?;
        done.map_err(|error| {
            // After a failure of the disk redb refuses everything until the file is opened anew.
            self.database = None;
            self.unusable(&error)
        })
    }

    /// Checks whether the path leads to the open file.
    async fn check_attached(&mut self) -> Result<(), StoreError> {
        let looked = tokio::task::spawn_blocking(self.attached()).await;
        let attached = looked.map_err(|error| self.failed(error))?;
        self.note(attached)
    }

    /// Makes `batch` durable in the file that is open.
    async fn write(&mut self, batch: WriteBatch) -> Result<(), StoreError> {
        let opened = self.open(true)?;
        let database = opened.ok_or_else(|| self.failed("it was not made"))?;
        let epoch = self.epoch;
        self.blocking(move || apply(&database, &batch, epoch))
            .await?;
        // If the path leads elsewhere now, a restart may or may not find this batch.
        self.check_attached().await.map_err(unsure)
    }
}

#[tonic::async_trait]
impl Store for RedbStore {
    async fn load(&mut self) -> Result<StoreContent, StoreError> {
        let Some(database) = self.open(false)? else {
            return Ok(StoreContent::default());
        };
        let (format, loaded) = self
            .blocking(move || unless_panics(|| load(&database)))
            .await?;
        self.check_format(format)?;
        let records = loaded.records.into_iter().map(|(key, record)| {
            let known = RecordKey::parse(&key);
            let known = known.ok_or_else(|| StoreError::Record {
                key,
                cause: "no record is called so".to_owned(),
            })?;
            Ok((known, record))
        });
        Ok(StoreContent {
            revision: loaded.revision,
            records: records.collect::<Result<_, StoreError>>()?,
            ..StoreContent::default()
        })
    }

    async fn apply(&mut self, batch: WriteBatch) -> Result<ApplyOutcome, StoreError> {
        // Also before the file is opened anew after a failure: the path may lead to another one
        // now.
        self.check_attached().await?;
        self.write(batch).await?;
        Ok(ApplyOutcome::Alone)
    }

    async fn next_update(&mut self) -> StoreUpdate {
        loop {
            tokio::time::sleep(WATCH_INTERVAL).await;
            // A check that hangs would otherwise go unnoticed.
            let hangs = |error: io::Error| Err(DetachCause::Unreadable(error.to_string()));
            let attached = self.files.run(self.attached()).await;
            // It is logged and shown here; the next write fails with it as well.
            let _ = self.note(attached.unwrap_or_else(hangs));
        }
    }

    async fn epoch(&mut self) -> Result<Option<Epoch>, StoreError> {
        let Some(database) = self.open(false)? else {
            return Ok(None);
        };
        let numbers = move || Ok((number(&database, "format")?, number(&database, EPOCH)?));
        let (format, epoch) = self.blocking(move || unless_panics(numbers)).await?;
        self.check_format(format.unwrap_or(FORMAT))?;
        Ok(epoch.map(Epoch))
    }

    async fn keep_epoch(&mut self, epoch: Epoch) -> Result<(), StoreError> {
        self.epoch = Some(epoch);
        let Some(database) = self.open(false)? else {
            return Ok(());
        };
        self.blocking(move || keep_epoch(&database, epoch)).await
    }
}

impl fmt::Debug for RedbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.database.is_some();
        let mut debug = f.debug_struct("RedbStore");
        debug
            .field("path", &self.path)
            .field("open", &open)
            .finish()
    }
}

/// Content of a file, not yet decoded.
#[derive(Default)]
struct RawContent {
    revision: u64,
    records: Vec<(String, Vec<u8>)>,
}

// === free functions ===

/// Creates a store in the new file `path`, whole or not at all.
fn make(path: &Path) -> RedbResult<Database> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = PathBuf::from(draft);
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let database = builder().create(&draft)?;
    let transaction = begin_write(&database)?;
    transaction.open_table(NUMBERS)?.insert("format", FORMAT)?;
    transaction.open_table(RECORDS)?;
    transaction.commit()?;
    fs::rename(&draft, path)?;
    file::sync_directory(path)?;
    Ok(database)
}

/// Opens the store in the file `path` and verifies all of it.
fn open(path: &Path) -> RedbResult<Database> {
    let newest = file::newer_commit_is_in_force(path);
    unless_panics(|| {
        let mut database = builder().open(path)?;
        if !newest? {
            let store = path.display();
            tracing::error!(
                %store,
                "store: has a commit newer than the one in force; a crash cut a write short, or the \
                 file is damaged and the last acknowledged write is missing"
            );
        }
        // The whole file is read anyway.
        if !database.check_integrity()? {
            let store = path.display();
            tracing::error!(
                %store,
                "store: was damaged and has been repaired; its last writes may be missing"
            );
        }
        Ok(database)
    })
}

/// Runs `work` on a file and catches panics: redb panics at some kinds of damage.
fn unless_panics<T>(work: impl FnOnce() -> RedbResult<T>) -> RedbResult<T> {
    // Nothing that it touched is used after a panic.
    let done = catch_unwind(AssertUnwindSafe(work));
    done.unwrap_or_else(|_| {
        let cause = "redb cannot make sense of it";
        Err(redb::Error::Corrupted(cause.to_owned()))
    })
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

/// Begins a transaction that is committed in two phases.
fn begin_write(database: &Database) -> RedbResult<redb::WriteTransaction> {
    let mut transaction = database.begin_write()?;
    transaction.set_two_phase_commit(true);
    Ok(transaction)
}

/// The format, and the content if the format is known.
fn load(database: &Database) -> RedbResult<(u64, RawContent)> {
    let transaction = database.begin_read()?;
    let numbers = match transaction.open_table(NUMBERS) {
        Ok(numbers) => numbers,
        // Created, but the process ended before its first transaction.
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok((FORMAT, RawContent::default())),
        Err(error) => return Err(error.into()),
    };
    let number = |name| {
        let number = numbers.get(name);
        number.map(|number| number.map(|number| number.value()))
    };
    let format = number("format")?.unwrap_or(FORMAT);
    let mut loaded = RawContent::default();
    if format > FORMAT {
        return Ok((format, loaded));
    }
    loaded.revision = number("revision")?.unwrap_or(0);
    for entry in transaction.open_table(RECORDS)?.iter()? {
        let (key, record) = entry?;
        let entry = (key.value().to_owned(), record.value().to_owned());
        loaded.records.push(entry);
    }
    Ok((format, loaded))
}

/// The number called `name`, if there is one.
fn number(database: &Database, name: &str) -> RedbResult<Option<u64>> {
    match database.begin_read()?.open_table(NUMBERS) {
        Ok(numbers) => Ok(numbers.get(name)?.map(|number| number.value())),
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn keep_epoch(database: &Database, epoch: Epoch) -> RedbResult<()> {
    let transaction = begin_write(database)?;
    transaction.open_table(NUMBERS)?.insert(EPOCH, epoch.0)?;
    transaction.commit()?;
    Ok(())
}

/// Error of a check of the path after a write, which is durable, but perhaps not where the path
/// leads.
fn unsure(error: StoreError) -> StoreError {
    match error {
        StoreError::Detached { store, cause } | StoreError::Failed { store, cause } => {
            StoreError::Unsure { store, cause }
        }
        error => error,
    }
}

fn apply(database: &Database, batch: &WriteBatch, epoch: Option<Epoch>) -> RedbResult<()> {
    let transaction = begin_write(database)?;
    {
        let mut numbers = transaction.open_table(NUMBERS)?;
        numbers.insert("format", FORMAT)?;
        numbers.insert("revision", batch.revision)?;
        if let Some(epoch) = epoch {
            numbers.insert(EPOCH, epoch.0)?;
        }
        let mut records = transaction.open_table(RECORDS)?;
        for (key, record) in &batch.changes {
            let key = key.to_string();
            match record {
                Some(record) => records.insert(key.as_str(), record.as_slice())?,
                None => records.remove(key.as_str())?,
            };
        }
    }
    transaction.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests;
