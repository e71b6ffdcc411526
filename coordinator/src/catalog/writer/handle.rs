//! The way to the writer.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use super::draft::WriteRequest;
use super::{WriteError, WriterCommand};
use crate::catalog::spec::{AttachmentSpec, GroupSpec, LimitsSpec};
use crate::catalog::store::{RecordKey, RecordKind};
use crate::catalog::{Catalog, CatalogObject, MemberKind, Precondition, WriteOutcome};
use crate::config::{Config, check_attachment, check_group, check_override};

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

    /// Creates the group called `name`, or replaces it as a whole.
    ///
    /// # Errors
    /// Why not; nothing has changed then.
    pub async fn put_group(
        &self,
        name: &str,
        spec: GroupSpec,
        expect: Precondition,
    ) -> Result<WriteOutcome, WriteError> {
        let group = CatalogObject::Group(Arc::new(check_group(name, spec)?));
        let key = RecordKey::new(RecordKind::Group, name);
        self.write(key, Some(group), expect).await
    }

    /// Deletes the group called `name`.
    ///
    /// # Errors
    /// Why not, for instance because something is attached to it; nothing has changed then.
    pub async fn delete_group(
        &self,
        name: &str,
        expect: Precondition,
    ) -> Result<WriteOutcome, WriteError> {
        self.write(RecordKey::new(RecordKind::Group, name), None, expect)
            .await
    }

    /// Attaches the tenant or namespace called `name` to a group, whatever it was attached to.
    ///
    /// # Errors
    /// Why not, for instance because the group is not there; nothing has changed then.
    pub async fn put_attachment(
        &self,
        kind: MemberKind,
        name: &str,
        spec: AttachmentSpec,
        expect: Precondition,
    ) -> Result<WriteOutcome, WriteError> {
        let attachment = CatalogObject::Attachment(check_attachment(kind, name, spec)?);
        let key = RecordKey::new(RecordKind::Attachment(kind), name);
        self.write(key, Some(attachment), expect).await
    }

    /// Detaches the tenant or namespace called `name` from its group.
    ///
    /// # Errors
    /// Why not; nothing has changed then.
    pub async fn delete_attachment(
        &self,
        kind: MemberKind,
        name: &str,
        expect: Precondition,
    ) -> Result<WriteOutcome, WriteError> {
        let key = RecordKey::new(RecordKind::Attachment(kind), name);
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
        expect: Precondition,
    ) -> Result<WriteOutcome, WriteError> {
        let limits = CatalogObject::Override(Arc::new(check_override(scope, &spec)?));
        let key = RecordKey::new(RecordKind::Override, scope);
        self.write(key, Some(limits), expect).await
    }

    /// Gives `scope` back the limits that the file's globs say.
    ///
    /// # Errors
    /// Why not; nothing has changed then.
    pub async fn delete_override(
        &self,
        scope: &str,
        expect: Precondition,
    ) -> Result<WriteOutcome, WriteError> {
        self.write(RecordKey::new(RecordKind::Override, scope), None, expect)
            .await
    }

    /// Puts `config` in force, but for what is shared with other nodes and what needs a restart.
    ///
    /// # Errors
    /// If what was written through the API does not go with it; nothing has changed then.
    pub async fn reload(&self, config: Config) -> Result<(), WriteError> {
        let config = Box::new(config);
        self.call(|reply| WriterCommand::Reload(config, reply))
            .await
    }

    async fn write(
        &self,
        key: RecordKey,
        object: Option<CatalogObject>,
        expect: Precondition,
    ) -> Result<WriteOutcome, WriteError> {
        let write = WriteRequest::new(key, object, expect);
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
