//! Handle of the catalog writer.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use super::draft::{Change, WriteRequest};
use super::{WriteError, WriterCommand};
use crate::Config;
use crate::catalog::check::ConfigErrors;
use crate::catalog::store::RecordKey;
use crate::catalog::{Catalog, CatalogObject, ObjectKind, Precondition, WriteOutcome};

/// Sends writes to a [`CatalogWriter`](super::CatalogWriter), and knows the newest catalog.
#[derive(Clone, Debug)]
pub struct CatalogHandle {
    pub(super) commands: mpsc::Sender<WriterCommand>,
    pub(super) catalog: watch::Receiver<Arc<Catalog>>,
    pub(super) config: watch::Receiver<Arc<Config>>,
}

// === impl CatalogHandle ===

impl CatalogHandle {
    /// The newest catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.borrow().clone()
    }

    /// Follows the newest catalog.
    pub fn watch(&self) -> watch::Receiver<Arc<Catalog>> {
        self.catalog.clone()
    }

    /// Follows the newest configuration.
    pub fn config(&self) -> watch::Receiver<Arc<Config>> {
        self.config.clone()
    }

    /// Creates the object of `kind` called `name`, or replaces it as a whole.
    ///
    /// # Errors
    /// The reason, such as a group that does not exist; nothing has changed then.
    pub async fn put<K: ObjectKind>(
        &self,
        kind: K,
        name: &str,
        spec: K::Spec,
        expect: Precondition,
    ) -> Result<WriteOutcome, WriteError> {
        let object = kind.check(name, spec)?;
        self.write(kind, name, Change::put(object), expect).await
    }

    /// Writes the object of `kind` called `name` that `make` returns for the catalog of that moment, which nothing
    /// changes in between. It may be called several times, and the last one counts.
    ///
    /// # Errors
    /// The reason; nothing has changed then.
    pub async fn patch(
        &self,
        kind: impl ObjectKind,
        name: &str,
        make: impl Fn(&Catalog) -> Result<CatalogObject, ConfigErrors> + Send + Sync + 'static,
        expect: Precondition,
    ) -> Result<WriteOutcome, WriteError> {
        let change = Change::Patch(Box::new(make));
        self.write(kind, name, change, expect).await
    }

    /// Deletes the object of `kind` called `name`.
    ///
    /// # Errors
    /// The reason, such as an attachment to the group; nothing has changed then.
    pub async fn delete(
        &self,
        kind: impl ObjectKind,
        name: &str,
        expect: Precondition,
    ) -> Result<WriteOutcome, WriteError> {
        self.write(kind, name, Change::Delete, expect).await
    }

    /// Puts `config` in force, except for its shared part and for settings that need a restart.
    ///
    /// # Errors
    /// If it conflicts with an object written through the API; nothing has changed then.
    pub async fn reload(&self, config: Config) -> Result<(), WriteError> {
        let config = Box::new(config);
        self.call(|reply| WriterCommand::Reload(config, reply))
            .await
    }

    async fn write(
        &self,
        kind: impl ObjectKind,
        name: &str,
        change: Change,
        expect: Precondition,
    ) -> Result<WriteOutcome, WriteError> {
        let key = RecordKey::new(kind.record(), name);
        let write = WriteRequest::new(key, change, expect);
        self.call(|reply| WriterCommand::Write(write, reply)).await
    }

    async fn call<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, WriteError>>) -> WriterCommand,
    ) -> Result<T, WriteError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.commands.send(command(reply)).await;
        sent.map_err(|_| WriteError::Stopped)?;
        answer.await.map_err(|_| WriteError::Stopped)?
    }
}
