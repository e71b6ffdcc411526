//! The file's part of a catalog.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Attachment, CatalogBounds, Group, MemberKind};
use crate::catalog::limits::LimitTable;

/// What the configuration file says of limits, groups and attachments.
#[derive(Debug, Default)]
pub struct FileCatalog {
    /// Limits by the scopes they match.
    pub limits: LimitTable,
    /// Groups, by name.
    pub groups: BTreeMap<Arc<str>, Arc<Group>>,
    /// Tenants that are attached to a group of the file.
    pub tenants: BTreeMap<Arc<str>, Attachment>,
    /// Namespaces that are.
    pub namespaces: BTreeMap<Arc<str>, Attachment>,
    /// How much may be written through the API.
    pub bounds: CatalogBounds,
}

// === impl FileCatalog ===

impl FileCatalog {
    /// The tenants or the namespaces.
    pub fn attached(&self, kind: MemberKind) -> &BTreeMap<Arc<str>, Attachment> {
        match kind {
            MemberKind::Tenant => &self.tenants,
            MemberKind::Namespace => &self.namespaces,
        }
    }

    /// How many are attached to the group called `name`. Looks through all.
    pub(super) fn attached_count(&self, name: &str) -> usize {
        let all = self.tenants.values().chain(self.namespaces.values());
        all.filter(|attachment| &*attachment.group == name).count()
    }
}
