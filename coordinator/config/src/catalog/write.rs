//! Writes to a catalog: rules, and effects.

use std::sync::Arc;

use super::{
    Attachment, Catalog, FileCatalog, Group, MemberKind, Override, Raise, StoredMap, StoredObject,
};
use crate::catalog::store::{RecordKey, RecordKind};

/// Object that can be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogObject {
    /// A group.
    Group(Arc<Group>),
    /// The attachment of a tenant or namespace.
    Attachment(Attachment),
    /// The override of a scope.
    Override(Arc<Override>),
    /// The raise of a scope.
    Raise(Arc<Raise>),
}

/// Condition of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precondition {
    /// None.
    #[default]
    Anything,
    /// The object does not exist: `If-None-Match: *`.
    Nothing,
    /// The object exists: `If-Match: *`.
    Something,
    /// The object has this revision: `If-Match: "<revision>"`.
    Revision(u64),
}

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOutcome {
    /// Its revision.
    pub revision: u64,
    /// Whether the object did not exist before.
    pub created: bool,
}

/// Reason for which a write is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteRefusal {
    /// The object to delete does not exist.
    #[error("there is no such {what}")]
    NotFound {
        /// Kind of object.
        what: &'static str,
    },
    /// The file defines it, and only the file can change it.
    #[error("the configuration file defines this {what}: change the file")]
    DefinedInFile {
        /// Kind of object.
        what: &'static str,
    },
    /// The group is in use.
    #[error("{count} are attached to this group, such as the {} {name:?}", kind.name())]
    Attached {
        /// Number of attachments.
        count: usize,
        /// Kind of one of them.
        kind: MemberKind,
        /// Its name.
        name: Arc<str>,
    },
    /// The group to attach to does not exist.
    #[error("there is no group called {0:?}")]
    NoGroup(Arc<str>),
    /// The condition of the write does not hold.
    #[error("{}", mismatch(*found))]
    Mismatch {
        /// The object's revision, if it exists.
        found: Option<u64>,
    },
    /// The bound is reached.
    #[error("there are {max} {what}, the most this coordinator keeps (bounds.max_{what})")]
    Bound {
        /// Kind of objects.
        what: &'static str,
        /// The bound.
        max: usize,
    },
}

// === impl Catalog ===

impl Catalog {
    /// Writes `object` as `key`, or deletes it; `revision` is the number of the write.
    ///
    /// # Errors
    /// The reason; nothing has changed then.
    pub fn write(
        &mut self,
        key: &RecordKey,
        object: Option<CatalogObject>,
        expect: Precondition,
        revision: u64,
    ) -> Result<WriteOutcome, WriteRefusal> {
        let what = key.kind.what();
        let found = self.check_write(key, expect)?;
        match object {
            Some(object) => {
                if found.is_none() {
                    self.check_bound(key.kind)?;
                }
                self.put(key, object, revision)?;
            }
            None if found.is_none() => return Err(WriteRefusal::NotFound { what }),
            None => self.delete(key)?,
        }
        Ok(WriteOutcome {
            revision,
            created: found.is_none(),
        })
    }

    /// Checks whether the object called `key` may be written if it is as `expect` says. Returns its revision.
    ///
    /// # Errors
    /// The reason.
    pub fn check_write(
        &self,
        key: &RecordKey,
        expect: Precondition,
    ) -> Result<Option<u64>, WriteRefusal> {
        let what = key.kind.what();
        if self.in_file(key) {
            // An object of the file has no revision.
            return Err(match expect {
                Precondition::Revision(_) => WriteRefusal::Mismatch { found: None },
                _ => WriteRefusal::DefinedInFile {
                    what: match key.kind {
                        // The file has a limit whose `match` is exactly this scope.
                        RecordKind::Override => "scope's limits",
                        RecordKind::Group | RecordKind::Attachment(_) | RecordKind::Raise => what,
                    },
                },
            });
        }
        let found = self.revision(key);
        if expect.allows(found) {
            Ok(found)
        } else {
            Err(WriteRefusal::Mismatch { found })
        }
    }

    /// Restores a stored object, regardless of the file and the bounds: it was acknowledged once.
    pub(crate) fn restore(&mut self, key: &RecordKey, object: StoredObject<CatalogObject>) {
        self.insert(key, object.value, object.revision);
    }

    /// Removes a stored object, regardless of its users: its writer has checked them.
    pub(crate) fn forget(&mut self, key: &RecordKey) {
        match key.kind {
            RecordKind::Group => self.groups.remove_mut(&key.name),
            RecordKind::Attachment(kind) => {
                self.detach(kind, &key.name);
                self.stored_mut(kind).remove_mut(&key.name)
            }
            RecordKind::Override => self.overrides.remove_mut(&key.name),
            RecordKind::Raise => self.raises.remove_mut(&key.name),
        };
    }

    /// The file's part of this catalog.
    pub(crate) fn file_only(&self) -> Self {
        Self::new(self.file.clone())
    }

    /// This catalog with another file.
    ///
    /// # Errors
    /// If something is attached through the API to a group that only the old file has.
    pub fn with_file(&self, file: Arc<FileCatalog>) -> Result<Self, WriteRefusal> {
        let next = Self {
            file,
            ..self.clone()
        };
        let lost = self
            .attached
            .iter()
            .find(|(group, _)| self.group(group).is_some() && next.group(group).is_none());
        match lost {
            Some((group, _)) => Err(self.attached_error(group)),
            None => Ok(next),
        }
    }

    /// Groups with attachments that do not exist, each with the number of its attachments.
    pub fn missing_groups(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        let attached = self.attached.iter();
        let missing = attached.filter(|(group, _)| self.group(group).is_none());
        missing.map(|(group, count)| (group, *count))
    }

    fn in_file(&self, key: &RecordKey) -> bool {
        let name = &*key.name;
        match key.kind {
            RecordKind::Group => self.file.groups.contains_key(name),
            RecordKind::Attachment(kind) => self.file.attached(kind).contains_key(name),
            RecordKind::Override => self.file.limits.exact(name).is_some(),
            RecordKind::Raise => false,
        }
    }

    fn revision(&self, key: &RecordKey) -> Option<u64> {
        match key.kind {
            RecordKind::Group => self.groups.get(&key.name).map(|stored| stored.revision),
            RecordKind::Attachment(kind) => self
                .stored(kind)
                .get(&key.name)
                .map(|stored| stored.revision),
            RecordKind::Override => self.overrides.get(&key.name).map(|stored| stored.revision),
            RecordKind::Raise => self.raises.get(&key.name).map(|stored| stored.revision),
        }
    }

    /// Checks the bound for a new object of `kind`.
    fn check_bound(&self, kind: RecordKind) -> Result<(), WriteRefusal> {
        let bounds = &self.file.bounds;
        let attached = self.tenants.size() + self.namespaces.size();
        let (count, max, what) = match kind {
            RecordKind::Group => (self.groups.size(), bounds.max_groups, "groups"),
            RecordKind::Attachment(_) => (attached, bounds.max_attachments, "attachments"),
            RecordKind::Override => (self.overrides.size(), bounds.max_overrides, "overrides"),
            RecordKind::Raise => (self.raises.size(), bounds.max_raises, "raises"),
        };
        if count < max {
            Ok(())
        } else {
            Err(WriteRefusal::Bound { what, max })
        }
    }

    fn put(
        &mut self,
        key: &RecordKey,
        object: CatalogObject,
        revision: u64,
    ) -> Result<(), WriteRefusal> {
        if let CatalogObject::Attachment(attachment) = &object
            && self.group(&attachment.group).is_none()
        {
            return Err(WriteRefusal::NoGroup(attachment.group.clone()));
        }
        self.insert(key, object, revision);
        Ok(())
    }

    fn insert(&mut self, key: &RecordKey, object: CatalogObject, revision: u64) {
        let name = key.name.clone();
        match (key.kind, object) {
            (RecordKind::Group, CatalogObject::Group(value)) => {
                self.groups
                    .insert_mut(name, StoredObject { value, revision });
            }
            (RecordKind::Override, CatalogObject::Override(value)) => {
                self.overrides
                    .insert_mut(name, StoredObject { value, revision });
            }
            (RecordKind::Raise, CatalogObject::Raise(value)) => {
                self.raises
                    .insert_mut(name, StoredObject { value, revision });
            }
            (RecordKind::Attachment(kind), CatalogObject::Attachment(mut value)) => {
                self.detach(kind, &name);
                // All members of a group share one allocation of its name.
                if let Some((group, _)) = self.attached.get_key_value(&value.group) {
                    value.group = group.clone();
                }
                self.count(&value.group, 1);
                let stored = StoredObject { value, revision };
                self.stored_mut(kind).insert_mut(name, stored);
            }
            (kind, object) => debug_assert!(false, "{object:?} is no {kind:?}"),
        }
    }

    fn delete(&mut self, key: &RecordKey) -> Result<(), WriteRefusal> {
        if key.kind == RecordKind::Group && self.attached.contains_key(&key.name) {
            return Err(self.attached_error(&key.name));
        }
        self.forget(key);
        Ok(())
    }

    /// Subtracts the attachment of `name` from its group's count.
    fn detach(&mut self, kind: MemberKind, name: &str) {
        let stored = self.stored(kind).get(name);
        if let Some(group) = stored.map(|stored| stored.value.group.clone()) {
            self.count(&group, -1);
        }
    }

    fn count(&mut self, group: &Arc<str>, by: isize) {
        let count = self.attached.get(group).copied().unwrap_or(0);
        match count.saturating_add_signed(by) {
            0 => {
                self.attached.remove_mut(group);
            }
            count => self.attached.insert_mut(group.clone(), count),
        }
    }

    /// The error that something is attached to `group`.
    fn attached_error(&self, group: &str) -> WriteRefusal {
        let count = self.attached.get(group).copied().unwrap_or(0);
        let found = MemberKind::ALL.into_iter().find_map(|kind| {
            let mut stored = self.stored(kind).iter();
            let (name, _) = stored.find(|(_, stored)| &*stored.value.group == group)?;
            Some((kind, name.clone()))
        });
        match found {
            Some((kind, name)) => WriteRefusal::Attached { count, kind, name },
            None => WriteRefusal::NoGroup(group.into()),
        }
    }

    fn stored_mut(&mut self, kind: MemberKind) -> &mut StoredMap<Attachment> {
        match kind {
            MemberKind::Tenant => &mut self.tenants,
            MemberKind::Namespace => &mut self.namespaces,
        }
    }
}

// === impl Precondition ===

impl Precondition {
    fn allows(self, found: Option<u64>) -> bool {
        match self {
            Self::Anything => true,
            Self::Nothing => found.is_none(),
            Self::Something => found.is_some(),
            Self::Revision(revision) => found == Some(revision),
        }
    }
}

// === impl CatalogObject ===

impl CatalogObject {
    /// Written form, as JSON.
    pub(crate) fn written(&self) -> Box<str> {
        match self {
            Self::Group(group) => group.written().into(),
            Self::Attachment(attachment) => super::written(&attachment.spec()),
            Self::Override(limits) => limits.written.clone(),
            Self::Raise(raise) => raise.written().into(),
        }
    }
}

// === impl RecordKind ===

impl RecordKind {
    fn what(self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::Attachment(_) => "attachment",
            Self::Override => "override",
            Self::Raise => "raise",
        }
    }
}

// === free functions ===

fn mismatch(found: Option<u64>) -> String {
    match found {
        Some(revision) => format!("the current revision is {revision}"),
        None => "it does not exist".to_owned(),
    }
}
