//! The one task that changes the catalog.
//!
//! A write is checked against the newest state, made durable, and only then published, so that
//! nothing is ever in force that a restart would forget. It is answered last: by then the driver
//! has the new state, and every later refresh follows it. Waiting writes are made durable together,
//! so many callers at a time cost one flush of the disk.
//!
//! With several coordinators on one store, the store decides the newest state: each of them takes
//! all batches, its own among them, in the store's order. The store refuses a batch that was
//! checked against an older state as a whole; it is then checked again against the newer one.

use std::sync::Arc;
use std::time::Duration;

use draft::{Change, Draft, WriteRequest};
use tokio::sync::{mpsc, oneshot, watch};
use tollgate_net::clock::{Clock, unix_time};

use crate::Config;
use crate::catalog::check::ConfigErrors;
use crate::catalog::metrics::{CatalogMetrics, Reloaded};
use crate::catalog::store::{
    ApplyOutcome, LogPosition, RecordKey, RecordKind, Store, StoreError, StoreUpdate, WriteBatch,
    decode,
};
use crate::catalog::{Catalog, Precondition, WriteOutcome, WriteRefusal};

mod draft;
mod handle;

pub use handle::CatalogHandle;

/// Writes that wait for the writer.
const QUEUE_LEN: usize = 1024;

/// The most writes in a batch: enough to make a flush cheap for each, and few enough that the first
/// does not wait long for the last and that etcd takes them in one transaction (at most 128
/// operations).
const BATCH_MAX: usize = 100;

/// The most bytes in a batch: etcd takes at most 1.5 MiB in a request.
const BATCH_LEN_MAX: usize = 1 << 20;

/// Time for which a batch is tried again while other writers are faster.
const OVERTAKEN_FOR: Duration = Duration::from_secs(3);

/// The longest time between two looks for raises that have ended.
const RAISES_CHECK: Duration = Duration::from_secs(60);

/// Longest wait for an update that must come.
const UPDATE_WAIT: Duration = Duration::from_secs(2);

/// Changes the catalog until the last [`CatalogHandle`] is gone.
#[derive(Debug)]
pub struct CatalogWriter {
    store: Box<dyn Store>,
    clock: Clock,
    metrics: CatalogMetrics,
    revision: u64,
    /// Position after the last update taken.
    position: LogPosition,
    catalog: watch::Sender<Arc<Catalog>>,
    /// The file, and the configuration that the nodes of the cluster share.
    config: watch::Sender<Arc<Config>>,
    commands: mpsc::Receiver<WriterCommand>,
}

/// Reason for which a write failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WriteError {
    /// The object is not valid.
    #[error(transparent)]
    Invalid(#[from] ConfigErrors),
    /// It conflicts with the catalog.
    #[error(transparent)]
    Refused(#[from] WriteRefusal),
    /// It could not be made durable.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The writer has ended.
    #[error("the coordinator is shutting down")]
    Stopped,
}

/// Receives the result of a write.
type WriteReply = oneshot::Sender<Result<WriteOutcome, WriteError>>;

#[derive(Debug)]
enum WriterCommand {
    Write(WriteRequest, WriteReply),
    Reload(Box<Config>, oneshot::Sender<Result<(), WriteError>>),
}

// === impl CatalogWriter ===

impl CatalogWriter {
    /// Creates a writer from the content of `store` and `config`, and a handle to it.
    ///
    /// # Errors
    /// If the store cannot be read, or lacks a valid shared configuration that the cluster needs.
    pub async fn new(
        mut store: Box<dyn Store>,
        config: Config,
        clock: Clock,
        metrics: CatalogMetrics,
    ) -> Result<(Self, CatalogHandle), StoreError> {
        let stored = store.load().await?;
        let config = match store.shared_key().filter(|_| config.shares()) {
            Some(key) => shared(key, &config, stored.shared.as_deref())?,
            None => config,
        };
        metrics.set_limits(config.catalog.limits.count());
        let (commands, queue) = mpsc::channel(QUEUE_LEN);
        let (catalog, newest) = watch::channel(Arc::new(Catalog::new(config.catalog.clone())));
        let (config, newest_config) = watch::channel(Arc::new(config));
        let mut writer = Self {
            store,
            clock,
            metrics,
            revision: stored.revision,
            position: stored.position,
            catalog,
            config,
            commands: queue,
        };
        writer.restore_all(stored.records)?;
        let handle = CatalogHandle {
            commands,
            catalog: newest,
            config: newest_config,
        };
        Ok((writer, handle))
    }

    /// Writes until the last handle is gone.
    pub async fn run(mut self) {
        let mut commands = Vec::with_capacity(BATCH_MAX);
        loop {
            let next_end = tokio::time::sleep(self.until_raise_ends());
            tokio::select! {
                count = self.commands.recv_many(&mut commands, BATCH_MAX) => {
                    if count == 0 {
                        return;
                    }
                    self.handle(&mut commands).await;
                }
                update = self.store.next_update() => self.take(update),
                () = next_end => self.end_raises().await,
            }
        }
    }

    async fn handle(&mut self, commands: &mut Vec<WriterCommand>) {
        let (mut writes, mut len) = (Vec::new(), 0);
        for command in commands.drain(..) {
            match command {
                WriterCommand::Reload(config, reply) => answer(reply, self.reload(*config)),
                WriterCommand::Write(write, reply) => {
                    if !writes.is_empty() && len + write.len() > BATCH_LEN_MAX {
                        self.write(std::mem::take(&mut writes)).await;
                        len = 0;
                    }
                    len += write.len();
                    writes.push((write, reply));
                }
            }
        }
        if !writes.is_empty() {
            self.write(writes).await;
        }
    }

    /// Time until a raise ends, at most [`RAISES_CHECK`]: the wall clock may be set.
    fn until_raise_ends(&self) -> Duration {
        let now = unix_time();
        let catalog = self.catalog.borrow();
        let ends = catalog.raises().map(|(_, raise)| {
            let end = Duration::from_secs(raise.until());
            end.saturating_sub(now)
        });
        ends.min().unwrap_or(RAISES_CHECK).min(RAISES_CHECK)
    }

    /// Deletes the raises that have ended. Without the store they end all the same.
    async fn end_raises(&mut self) {
        let now = unix_time();
        let catalog = self.catalog.borrow().clone();
        let ended = catalog.raises().filter(|(_, raise)| raise.has_ended(now));
        let keys: Vec<_> = ended
            .map(|(scope, _)| RecordKey::new(RecordKind::Raise, scope))
            .collect();
        if keys.is_empty() {
            return;
        }
        let delete = |key: &RecordKey| {
            let write = WriteRequest::new(key.clone(), Change::Delete, Precondition::Anything);
            (write, oneshot::channel().0)
        };
        self.write(keys.iter().map(delete).collect()).await;
        let mut catalog = Catalog::clone(&self.catalog.borrow());
        for key in &keys {
            tracing::info!(scope = %key.name, "catalog: a raise has ended");
            catalog.forget(key);
        }
        self.catalog.send_replace(Arc::new(catalog));
    }

    fn reload(&self, config: Config) -> Result<(), WriteError> {
        let current = self.config.borrow().clone();
        self.enforce(config.instead_of(&current)?)
    }

    /// Puts `config` in force.
    fn enforce(&self, config: Config) -> Result<(), WriteError> {
        let next = self.catalog.borrow().with_file(config.catalog.clone())?;
        self.metrics.set_limits(config.catalog.limits.count());
        self.catalog.send_replace(Arc::new(next));
        self.config.send_replace(Arc::new(config));
        Ok(())
    }

    /// Puts the shared configuration `text` in force, or logs its errors.
    fn take_shared(&self, text: &[u8]) {
        let current = self.config.borrow().clone();
        if !current.shares() || current.shared.as_deref() == Some(text) {
            return;
        }
        let next = current.with_shared(text).map_err(WriteError::from);
        let result = match next.and_then(|next| self.enforce(next)) {
            Ok(()) => {
                tracing::info!("configuration: applied the change in etcd");
                Reloaded::Taken
            }
            Err(error) => {
                tracing::error!(
                    "configuration: refused the change in etcd, the previous one stays: {error}"
                );
                Reloaded::Refused
            }
        };
        self.metrics.count_reload(result);
    }

    async fn write(&mut self, writes: Vec<(WriteRequest, WriteReply)>) {
        match self.outcomes(&writes).await {
            Ok(outcomes) => {
                let replies = writes.into_iter().map(|(_, reply)| reply);
                replies
                    .zip(outcomes)
                    .for_each(|(to, outcome)| answer(to, outcome));
            }
            Err(error) => {
                tracing::error!(%error, "catalog: write failed");
                let error = WriteError::Store(error);
                // Also those that were refused: the write that refused them may not be durable.
                writes
                    .into_iter()
                    .for_each(|(_, to)| answer(to, Err(error.clone())));
            }
        }
    }

    /// Applies `writes`; returns the result of each. By then they are in force.
    async fn outcomes(
        &mut self,
        writes: &[(WriteRequest, WriteReply)],
    ) -> Result<Vec<Result<WriteOutcome, WriteError>>, StoreError> {
        let until = self.clock.now().saturating_add(OVERTAKEN_FOR);
        loop {
            let catalog = self.catalog.borrow().clone();
            let writes = writes.iter().map(|(write, _)| write);
            let mut draft = Draft::new(writes, &catalog, self.revision);
            if !draft.changes() && !self.store.is_shared() {
                return Ok(draft.outcomes);
            }
            let revision = draft.batch.revision;
            match self.apply(std::mem::take(&mut draft.batch)).await? {
                ApplyOutcome::Alone => {
                    self.revision = revision;
                    self.catalog.send_replace(Arc::new(draft.catalog));
                    return Ok(draft.outcomes);
                }
                ApplyOutcome::Shared(position) => {
                    let is_followed = self.follow(position).await;
                    return is_followed
                        .then_some(draft.outcomes)
                        .ok_or(StoreError::Unseen);
                }
                ApplyOutcome::Overtaken(position) => {
                    if !self.follow(position).await || self.clock.now() > until {
                        return Err(StoreError::Overtaken);
                    }
                }
            }
        }
    }

    async fn apply(&mut self, batch: WriteBatch) -> Result<ApplyOutcome, StoreError> {
        let start = self.clock.now();
        let applied = self.store.apply(batch).await;
        let duration = self.clock.now().saturating_since(start);
        self.metrics.count_store_write(duration, applied.is_ok());
        applied
    }

    /// Takes updates up to `position`; returns whether they came.
    async fn follow(&mut self, position: LogPosition) -> bool {
        while self.position < position {
            let Ok(update) = tokio::time::timeout(UPDATE_WAIT, self.store.next_update()).await
            else {
                return false;
            };
            self.take(update);
        }
        true
    }

    fn take(&mut self, update: StoreUpdate) {
        match update {
            StoreUpdate::Changes(batch, position) => {
                if let Some(text) = &batch.shared {
                    self.take_shared(text);
                }
                let mut catalog = Catalog::clone(&self.catalog.borrow());
                for (key, record) in batch.changes {
                    match record {
                        None => catalog.forget(&key),
                        Some(record) => self.restore_or_skip(&mut catalog, &key, &record),
                    }
                }
                self.revision = self.revision.max(batch.revision);
                self.position = position;
                self.catalog.send_replace(Arc::new(catalog));
            }
            StoreUpdate::All(stored) => {
                self.revision = self.revision.max(stored.revision);
                self.position = stored.position;
                // Errors are skipped: only stores with several writers have updates.
                let _ = self.restore_all(stored.records);
                if let Some(text) = &stored.shared {
                    self.take_shared(text);
                }
            }
        }
    }

    /// Replaces the API's part of the catalog by `records`.
    fn restore_all(&mut self, records: Vec<(RecordKey, Vec<u8>)>) -> Result<(), StoreError> {
        let mut catalog = self.catalog.borrow().file_only();
        let count = records.len();
        for (key, record) in records {
            if self.store.is_shared() {
                self.restore_or_skip(&mut catalog, &key, &record);
            } else {
                catalog.restore(&key, decode(&key, &record)?);
            }
        }
        for (group, count) in catalog.missing_groups() {
            tracing::warn!(%group, count, "catalog: attachments name a group that does not exist");
        }
        tracing::info!(records = count, "catalog: read the store");
        self.catalog.send_replace(Arc::new(catalog));
        Ok(())
    }

    /// Restores one record into `catalog`. An unreadable one changes nothing.
    fn restore_or_skip(&mut self, catalog: &mut Catalog, key: &RecordKey, record: &[u8]) {
        match decode(key, record) {
            Ok(object) => {
                self.revision = self.revision.max(object.revision);
                catalog.restore(key, object);
            }
            Err(error) => {
                tracing::error!(%error, "catalog: skipped a record");
                self.metrics.count_bad_record();
            }
        }
    }
}

// === free functions ===

/// `config` with the configuration that its cluster shares, which is `text` under `key`.
fn shared(key: String, config: &Config, text: Option<&[u8]>) -> Result<Config, StoreError> {
    let Some(text) = text else {
        return Err(StoreError::NothingShared { key });
    };
    let shared = config.with_shared(text);
    shared.map_err(|errors| StoreError::Shared { key, errors })
}

/// Sends a result to a caller that may have gone.
fn answer<T>(to: oneshot::Sender<T>, outcome: T) {
    let _ = to.send(outcome);
}

#[cfg(test)]
mod tests;
