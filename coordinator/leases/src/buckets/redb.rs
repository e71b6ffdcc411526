//! Buckets in one file, by redb.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition, TableError};
use tokio::sync::Semaphore;
use tollgate_core::fleet::BucketChange;
use tollgate_core::lease::Origin;

use super::{BucketRecord, BucketStore, BucketStoreError, LoadedBuckets, StoredBuckets, key, read};

/// The records by the text of their keys.
const BUCKETS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("buckets");

/// redb's cache: what is written is small, and read once.
const CACHE_BYTES: usize = 8 << 20;

/// The longest time for which an answer waits: an Envoy goes on by its safe capacity after 250 ms, and a rate
/// limit filter often after less.
const MAX_WAIT: Duration = Duration::from_millis(50);

/// Keeps buckets in a file, which is made at the start, for that takes longer than a client waits; clones share
/// it.
#[derive(Clone, Debug)]
pub struct RedbBuckets(Arc<BucketFile>);

#[derive(Debug)]
struct BucketFile {
    path: PathBuf,
    /// None before the file is needed, and after a failure, so that the next use opens it anew.
    database: Mutex<Option<Arc<Database>>>,
    /// Permit of the one use at a time: a disk that hangs holds one thread.
    permit: Arc<Semaphore>,
}

// === impl RedbBuckets ===

impl RedbBuckets {
    /// Keeps them in the file `path`.
    pub fn at(path: PathBuf) -> Self {
        Self(Arc::new(BucketFile {
            path,
            database: Mutex::new(None),
            permit: Arc::new(Semaphore::new(1)),
        }))
    }

    /// Runs `work` on the file where it may block.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, BucketStoreError> {
        let permit = self.0.permit.clone().acquire_owned().await;
        let file = self.0.clone();
        // redb panics at some kinds of damage; that ends the task only.
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            file.run(work)
        });
        let done = done.await.map_err(|error| error.to_string());
        let done = done.and_then(|done| done.map_err(|error| error.to_string()));
        done.map_err(|cause| BucketStoreError::new(self.0.path.display(), cause))
    }
}

// === impl BucketFile ===

impl BucketFile {
    fn run<T>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, redb::Error> {
        let done = work(&*self.open()?);
        if done.is_err() {
            *self.database() = None;
        }
        done
    }

    fn open(&self) -> Result<Arc<Database>, redb::Error> {
        let mut open = self.database();
        if let Some(database) = &*open {
            return Ok(database.clone());
        }
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES);
        let database = Arc::new(builder.create(&self.path)?);
        *open = Some(database.clone());
        Ok(database)
    }

    fn database(&self) -> std::sync::MutexGuard<'_, Option<Arc<Database>>> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tonic::async_trait]
impl BucketStore for RedbBuckets {
    async fn load(&self, _: Origin, now: Duration) -> Result<LoadedBuckets, BucketStoreError> {
        if !self.0.path.exists() {
            let written = self.run(|database| write(database, [].into_iter())).await;
            if let Err(error) = written {
                // As in a folder that is read-only. Each write says so again.
                tracing::warn!(%error, "buckets: cannot be stored; a crash of this coordinator would fill them");
            }
            return Ok(LoadedBuckets::default());
        }
        let loaded = self.run(move |database| {
            let (buckets, over) = load(database, now)?;
            let dropped = over.into_iter().map(|key| (key, None));
            if let Err(error) = write(database, dropped) {
                tracing::warn!(%error, "buckets: cannot drop those that are full");
            }
            Ok(LoadedBuckets {
                own: buckets,
                others: StoredBuckets::new(),
            })
        });
        loaded.await
    }

    async fn write(
        &self,
        _: Origin,
        now: Duration,
        changes: Vec<BucketChange>,
    ) -> Result<(), BucketStoreError> {
        let written = self.run(move |database| {
            let changes = changes.iter().map(|change| {
                let record = change.bucket.as_ref();
                let record = record.map(|bucket| BucketRecord::new(now, bucket).encode());
                (key(&change.resource), record)
            });
            write(database, changes)
        });
        written.await
    }

    fn max_wait(&self) -> Duration {
        MAX_WAIT
    }

    fn timed_out(&self) -> BucketStoreError {
        BucketStoreError::new(self.0.path.display(), "the disk does not answer")
    }
}

// === free functions ===

fn load(database: &Database, now: Duration) -> Result<(StoredBuckets, Vec<String>), redb::Error> {
    let transaction = database.begin_read()?;
    let table = match transaction.open_table(BUCKETS) {
        // The file is there, but the process ended before its first transaction.
        Err(TableError::TableDoesNotExist(_)) => return Ok(Default::default()),
        table => table?,
    };
    let mut records = Vec::new();
    for entry in table.iter()? {
        let (key, record) = entry?;
        records.push((key.value().to_owned(), record.value().to_owned()));
    }
    let records = records.iter();
    Ok(read(
        now,
        records.map(|(key, record)| (key.clone(), &**key, &**record)),
    ))
}

fn write(
    database: &Database,
    changes: impl Iterator<Item = (String, Option<Vec<u8>>)>,
) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut table = transaction.open_table(BUCKETS)?;
        for (key, record) in changes {
            match record {
                Some(record) => table.insert(&*key, &*record)?,
                None => table.remove(&*key)?,
            };
        }
    }
    transaction.commit()?;
    Ok(())
}
