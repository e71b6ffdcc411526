//! The one task that changes the catalog.
//!
//! A write is checked against the newest state, made durable, and only then published, so that
//! nothing is ever in force that a restart would forget. It is answered last: by then the driver
//! has the new state, and the next refresh of any client follows it. Writes that wait together are
//! made durable together, so many callers at a time cost one flush of the disk.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use crate::catalog::{Catalog, Expect, FileCatalog, Kind, Object, WriteError as Refusal, Written};
use crate::clock::Clock;
use crate::config::{ConfigErrors, check_attachment, check_group, check_override};
use crate::metrics::Metrics;
use crate::spec::{AttachmentSpec, GroupSpec, LimitsSpec};
use crate::store::{Batch, Key, KeyKind, Store, StoreError, decode, encode};

/// Writes that wait for the keeper.
const QUEUE_LEN: usize = 1024;

/// Writes that are made durable together, at most: so many that a flush is cheap for each, and so
/// few that the first does not wait long for the last.
const BATCH_MAX: usize = 256;

/// Changes the catalog until the last [`Handle`] is gone.
#[derive(Debug)]
pub struct Keeper {
    store: Box<dyn Store>,
    clock: Clock,
    metrics: Metrics,
    revision: u64,
    catalog: watch::Sender<Arc<Catalog>>,
    commands: mpsc::Receiver<Command>,
}

/// Sends writes to a [`Keeper`], and knows the newest catalog.
#[derive(Clone, Debug)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
    catalog: watch::Receiver<Arc<Catalog>>,
}

/// Why something was not written.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WriteError {
    /// What is to be written is wrong in itself.
    #[error(transparent)]
    Invalid(#[from] ConfigErrors),
    /// It does not go with what is there.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It could not be made durable.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The keeper has ended.
    #[error("the coordinator is shutting down")]
    Stopped,
}

#[derive(Debug)]
enum Command {
    Write(Write, oneshot::Sender<Result<Written, WriteError>>),
    Reload(Arc<FileCatalog>, oneshot::Sender<Result<(), WriteError>>),
}

#[derive(Debug)]
struct Write {
    key: Key,
    object: Option<Object>,
    expect: Expect,
}

// === impl Keeper ===

impl Keeper {
    /// A keeper of what `store` has and `file` says, and the way to reach it.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn new(
        mut store: Box<dyn Store>,
        file: Arc<FileCatalog>,
        clock: Clock,
        metrics: Metrics,
    ) -> Result<(Self, Handle), StoreError> {
        let stored = store.load().await?;
        let mut catalog = Catalog::new(file);
        let count = stored.records.len();
        for (key, record) in stored.records {
            catalog.restore(&key, decode(&key, &record)?);
        }
        for (group, count) in catalog.missing_groups() {
            tracing::warn!(%group, count, "attached to a group that is not there any more");
        }
        tracing::info!(records = count, "read the store");
        let (commands, queue) = mpsc::channel(QUEUE_LEN);
        let (publish, newest) = watch::channel(Arc::new(catalog));
        let keeper = Self {
            store,
            clock,
            metrics,
            revision: stored.revision,
            catalog: publish,
            commands: queue,
        };
        let catalog = newest;
        Ok((keeper, Handle { commands, catalog }))
    }

    /// Writes until the last handle is gone.
    pub async fn run(mut self) {
        let mut commands = Vec::with_capacity(BATCH_MAX);
        while self.commands.recv_many(&mut commands, BATCH_MAX).await > 0 {
            self.handle(&mut commands).await;
        }
    }

    async fn handle(&mut self, commands: &mut Vec<Command>) {
        let mut catalog = Catalog::clone(&self.catalog.borrow());
        let mut batch = Batch::default();
        let mut revision = self.revision;
        let mut writes = Vec::new();
        let mut reloads = Vec::new();
        for command in commands.drain(..) {
            match command {
                Command::Write(write, reply) => {
                    let next = revision + 1;
                    let written = write.make(&mut catalog, next, &mut batch);
                    revision = written.as_ref().map_or(revision, |_| next);
                    writes.push((reply, written));
                }
                Command::Reload(file, reply) => {
                    let next = catalog.with_file(file);
                    let done = next.map(|next| catalog = next);
                    reloads.push((reply, done.map_err(WriteError::from)));
                }
            }
        }
        batch.revision = revision;
        // Who follows the catalog forgets what it has worked out of the last one.
        let changed = revision > self.revision || reloads.iter().any(|(_, done)| done.is_ok());
        match self.apply(batch).await {
            Ok(()) => {
                self.revision = revision;
                if changed {
                    self.catalog.send_replace(Arc::new(catalog));
                }
                writes
                    .into_iter()
                    .for_each(|(to, written)| answer(to, written));
                reloads.into_iter().for_each(|(to, done)| answer(to, done));
            }
            Err(error) => {
                tracing::error!(%error, "cannot write");
                let error = WriteError::Store(error);
                // Also those that were refused: what refused them may not have been written.
                writes
                    .into_iter()
                    .for_each(|(to, _)| answer(to, Err(error.clone())));
                reloads
                    .into_iter()
                    .for_each(|(to, _)| answer(to, Err(error.clone())));
            }
        }
    }

    async fn apply(&mut self, batch: Batch) -> Result<(), StoreError> {
        if batch.changes.is_empty() {
            return Ok(());
        }
        let start = self.clock.now();
        let applied = self.store.apply(batch).await;
        let duration = self.clock.now().saturating_since(start);
        self.metrics.count_store_write(duration, applied.is_ok());
        applied
    }
}

// === impl Write ===

impl Write {
    /// Makes this write, as number `revision`, in `catalog` and `batch`.
    fn make(
        self,
        catalog: &mut Catalog,
        revision: u64,
        batch: &mut Batch,
    ) -> Result<Written, WriteError> {
        let Self {
            key,
            object,
            expect,
        } = self;
        let record = object.as_ref().map(Object::written);
        let record = record.map(|written| encode(&written, revision));
        let written = catalog.write(&key, object, expect, revision)?;
        batch.changes.push((key, record));
        Ok(written)
    }
}

// === impl Handle ===

impl Handle {
    /// The newest catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.borrow().clone()
    }

    /// Follows the newest catalog.
    pub fn watch(&self) -> watch::Receiver<Arc<Catalog>> {
        self.catalog.clone()
    }

    /// Creates the group called `name`, or replaces it as a whole.
    ///
    /// # Errors
    /// Why not; nothing has changed then.
    pub async fn put_group(
        &self,
        name: &str,
        spec: GroupSpec,
        expect: Expect,
    ) -> Result<Written, WriteError> {
        let group = Object::Group(Arc::new(check_group(name, spec)?));
        let key = Key::new(KeyKind::Group, name);
        self.write(key, Some(group), expect).await
    }

    /// Deletes the group called `name`.
    ///
    /// # Errors
    /// Why not, for instance because something is attached to it; nothing has changed then.
    pub async fn delete_group(&self, name: &str, expect: Expect) -> Result<Written, WriteError> {
        self.write(Key::new(KeyKind::Group, name), None, expect)
            .await
    }

    /// Attaches the tenant or namespace called `name` to a group, whatever it was attached to.
    ///
    /// # Errors
    /// Why not, for instance because the group is not there; nothing has changed then.
    pub async fn put_attachment(
        &self,
        kind: Kind,
        name: &str,
        spec: AttachmentSpec,
        expect: Expect,
    ) -> Result<Written, WriteError> {
        let attachment = Object::Attachment(check_attachment(kind, name, spec)?);
        let key = Key::new(KeyKind::Attachment(kind), name);
        self.write(key, Some(attachment), expect).await
    }

    /// Detaches the tenant or namespace called `name` from its group.
    ///
    /// # Errors
    /// Why not; nothing has changed then.
    pub async fn delete_attachment(
        &self,
        kind: Kind,
        name: &str,
        expect: Expect,
    ) -> Result<Written, WriteError> {
        let key = Key::new(KeyKind::Attachment(kind), name);
        self.write(key, None, expect).await
    }

    /// Replaces all that the file's globs say of `scope`.
    ///
    /// # Errors
    /// Why not, for instance because the file names the scope itself; nothing has changed then.
    pub async fn put_override(
        &self,
        scope: &str,
        spec: LimitsSpec,
        expect: Expect,
    ) -> Result<Written, WriteError> {
        let limits = Object::Override(Arc::new(check_override(scope, &spec)?));
        let key = Key::new(KeyKind::Override, scope);
        self.write(key, Some(limits), expect).await
    }

    /// Gives `scope` back the limits that the file's globs say.
    ///
    /// # Errors
    /// Why not; nothing has changed then.
    pub async fn delete_override(
        &self,
        scope: &str,
        expect: Expect,
    ) -> Result<Written, WriteError> {
        self.write(Key::new(KeyKind::Override, scope), None, expect)
            .await
    }

    /// Puts `file` in the place of the file's part.
    ///
    /// # Errors
    /// If what was written through the API does not go with it; nothing has changed then.
    pub async fn reload(&self, file: Arc<FileCatalog>) -> Result<(), WriteError> {
        self.call(|reply| Command::Reload(file, reply)).await
    }

    async fn write(
        &self,
        key: Key,
        object: Option<Object>,
        expect: Expect,
    ) -> Result<Written, WriteError> {
        let write = Write {
            key,
            object,
            expect,
        };
        self.call(|reply| Command::Write(write, reply)).await
    }

    async fn call<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, WriteError>>) -> Command,
    ) -> Result<T, WriteError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.commands.send(command(reply)).await;
        sent.map_err(|_| WriteError::Stopped)?;
        answer.await.map_err(|_| WriteError::Stopped)?
    }
}

// === free functions ===

/// Says how it went to whoever still waits for it.
fn answer<T>(to: oneshot::Sender<T>, outcome: T) {
    let _ = to.send(outcome);
}

#[cfg(test)]
mod tests;
