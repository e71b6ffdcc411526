//! The file's part of a catalog.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Attachment, CatalogBounds, Group, MemberKind};
use crate::catalog::limits::LimitTable;

/// Limits, groups and attachments of the configuration file.
#[derive(Debug, Default)]
pub struct FileCatalog {
    /// Limits by the scopes they match.
    pub limits: LimitTable,
    /// Groups, by name.
    pub groups: BTreeMap<Arc<str>, Arc<Group>>,
    /// Tenants attached to a group of the file.
    pub tenants: BTreeMap<Arc<str>, Attachment>,
    /// Namespaces attached to a group of the file.
    pub namespaces: BTreeMap<Arc<str>, Attachment>,
    /// Bounds of the objects written through the API.
    pub bounds: CatalogBounds,
}

// === impl FileCatalog ===

impl FileCatalog {
    /// The attachments of one kind.
    pub fn attached(&self, kind: MemberKind) -> &BTreeMap<Arc<str>, Attachment> {
        match kind {
            MemberKind::Tenant => &self.tenants,
            MemberKind::Namespace => &self.namespaces,
        }
    }

    /// Number of attachments of the group called `name`. Looks at all of them.
    pub(super) fn attached_count(&self, name: &str) -> usize {
        let all = self.tenants.values().chain(self.namespaces.values());
        all.filter(|attachment| &*attachment.group == name).count()
    }
}
