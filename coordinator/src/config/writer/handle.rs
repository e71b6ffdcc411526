//! Handle of the catalog writer.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use super::draft::WriteRequest;
use super::{WriteError, WriterCommand};
use crate::catalog::check::{check_attachment, check_group, check_override};
use crate::catalog::spec::{AttachmentSpec, GroupSpec, LimitsSpec};
use crate::catalog::store::{RecordKey, RecordKind};
use crate::catalog::{Catalog, CatalogObject, MemberKind, Precondition, WriteOutcome};
use crate::config::Config;

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
    /// The reason; nothing has changed then.
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
    /// The reason, such as an attachment to it; nothing has changed then.
    pub async fn delete_group(
        &self,
        name: &str,
        expect: Precondition,
    ) -> Result<WriteOutcome, WriteError> {
        self.write(RecordKey::new(RecordKind::Group, name), None, expect)
            .await
    }

    /// Attaches the tenant or namespace called `name` to a group, and detaches it from any other.
    ///
    /// # Errors
    /// The reason, such as a group that does not exist; nothing has changed then.
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
    /// The reason; nothing has changed then.
    pub async fn delete_attachment(
        &self,
        kind: MemberKind,
        name: &str,
        expect: Precondition,
    ) -> Result<WriteOutcome, WriteError> {
        let key = RecordKey::new(RecordKind::Attachment(kind), name);
        self.write(key, None, expect).await
    }

    /// Overrides the limits that the file's globs give to `scope`.
    ///
    /// # Errors
    /// The reason, such as exact limits in the file; nothing has changed then.
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

    /// Removes the override of `scope`.
    ///
    /// # Errors
    /// The reason; nothing has changed then.
    pub async fn delete_override(
        &self,
        scope: &str,
        expect: Precondition,
    ) -> Result<WriteOutcome, WriteError> {
        self.write(RecordKey::new(RecordKind::Override, scope), None, expect)
            .await
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
