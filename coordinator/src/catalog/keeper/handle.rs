//! The way to the keeper.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use super::draft::Write;
use super::{Command, WriteError};
use crate::catalog::spec::{AttachmentSpec, GroupSpec, LimitsSpec};
use crate::catalog::store::{Key, KeyKind};
use crate::catalog::{Catalog, Expect, Kind, Object, Written};
use crate::config::{Config, check_attachment, check_group, check_override};

/// Sends writes to a [`Keeper`](super::Keeper), and knows the newest catalog.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) catalog: watch::Receiver<Arc<Catalog>>,
    pub(super) config: watch::Receiver<Arc<Config>>,
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

    /// Puts `config` in force, but for what is shared with other nodes and what needs a restart.
    ///
    /// # Errors
    /// If what was written through the API does not go with it; nothing has changed then.
    pub async fn reload(&self, config: Config) -> Result<(), WriteError> {
        let config = Box::new(config);
        self.call(|reply| Command::Reload(config, reply)).await
    }

    async fn write(
        &self,
        key: Key,
        object: Option<Object>,
        expect: Expect,
    ) -> Result<Written, WriteError> {
        let write = Write::new(key, object, expect);
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
