//! A store in one file, by redb: copy-on-write trees, so a crash at any moment leaves the last
//! whole transaction.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Builder, Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};

use super::{Applied, Batch, FORMAT, Key, Store, StoreError, Stored};

/// The records by the text of their keys.
const RECORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("records");

/// Numbers about the whole: `format` and `revision`.
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");

/// redb's cache. Records are read once, at the start; writes touch a few pages.
const CACHE_BYTES: usize = 8 << 20;

/// Keeps records in a file.
pub struct RedbStore {
    path: PathBuf,
    /// Closed before the file exists, and after a failure, so that the next use opens it anew.
    database: Option<Arc<Database>>,
}

/// Everything that redb returns is one of these.
type RedbResult<T> = Result<T, redb::Error>;

// === impl RedbStore ===

impl RedbStore {
    /// The store in the file `path`, which is made now if it is not there.
    ///
    /// # Errors
    /// If it cannot be opened, or another process has it open.
    pub fn create(path: PathBuf) -> Result<Self, StoreError> {
        let mut store = Self::at(path);
        store.open(true)?;
        Ok(store)
    }

    /// The store in the file `path`, which is made when something is written if it is not there.
    ///
    /// # Errors
    /// If it is there and cannot be opened, or another process has it open.
    pub fn open_or_later(path: PathBuf) -> Result<Self, StoreError> {
        let mut store = Self::at(path);
        store.open(false)?;
        Ok(store)
    }

    fn at(path: PathBuf) -> Self {
        let database = None;
        Self { path, database }
    }

    fn open(&mut self, create: bool) -> Result<Option<Arc<Database>>, StoreError> {
        if let Some(database) = &self.database {
            return Ok(Some(database.clone()));
        }
        if !create && !self.path.exists() {
            return Ok(None);
        }
        let database = Arc::new(open(&self.path).map_err(|error| self.failed(error))?);
        self.database = Some(database.clone());
        Ok(Some(database))
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
            // After a failure of the disk redb refuses everything until it is opened anew.
            self.database = None;
            self.failed(error)
        })
    }
}

#[tonic::async_trait]
impl Store for RedbStore {
    async fn load(&mut self) -> Result<Stored, StoreError> {
        let Some(database) = self.open(false)? else {
            return Ok(Stored::default());
        };
        let (format, loaded) = self.blocking(move || load(&database)).await?;
        if format > FORMAT {
            let store = self.path.display().to_string();
            return Err(StoreError::Newer { store, format });
        }
        let records = loaded.records.into_iter().map(|(key, record)| {
            let known = Key::parse(&key);
            let known = known.ok_or_else(|| StoreError::Record {
                key,
                cause: "no record is called so".to_owned(),
            })?;
            Ok((known, record))
        });
        Ok(Stored {
            revision: loaded.revision,
            records: records.collect::<Result<_, StoreError>>()?,
            ..Stored::default()
        })
    }

    async fn apply(&mut self, batch: Batch) -> Result<Applied, StoreError> {
        let opened = self.open(true)?;
        let database = opened.ok_or_else(|| self.failed("it was not made"))?;
        self.blocking(move || apply(&database, &batch)).await?;
        Ok(Applied::Alone)
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

/// What stands in a file, not yet understood.
#[derive(Default)]
struct Loaded {
    revision: u64,
    records: Vec<(String, Vec<u8>)>,
}

// === free functions ===

fn open(path: &Path) -> RedbResult<Database> {
    let new = !path.exists();
    let database = Builder::new().set_cache_size(CACHE_BYTES).create(path)?;
    if new {
        let transaction = database.begin_write()?;
        transaction.open_table(NUMBERS)?.insert("format", FORMAT)?;
        transaction.open_table(RECORDS)?;
        transaction.commit()?;
        sync_directory(path)?;
    }
    Ok(database)
}

/// Sees to it that the file itself is found after a crash of the machine.
fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    File::open(directory)?.sync_all()
}

/// The format, and everything that stands there if the format is known.
fn load(database: &Database) -> RedbResult<(u64, Loaded)> {
    let transaction = database.begin_read()?;
    let numbers = match transaction.open_table(NUMBERS) {
        Ok(numbers) => numbers,
        // Made, but the process ended before its first transaction.
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok((FORMAT, Loaded::default())),
        Err(error) => return Err(error.into()),
    };
    let number = |name| {
        let number = numbers.get(name);
        number.map(|number| number.map(|number| number.value()))
    };
    let format = number("format")?.unwrap_or(FORMAT);
    let mut loaded = Loaded::default();
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

fn apply(database: &Database, batch: &Batch) -> RedbResult<()> {
    let transaction = database.begin_write()?;
    {
        let mut numbers = transaction.open_table(NUMBERS)?;
        numbers.insert("format", FORMAT)?;
        numbers.insert("revision", batch.revision)?;
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
