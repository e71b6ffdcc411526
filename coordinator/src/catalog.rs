//! What is leased, and who shares it: limits, groups, attachments and overrides.
//!
//! A [`Catalog`] is one state of all that is configured, the file's part and what was written
//! through the API. It never changes; whoever changes something makes the next one, which shares
//! everything else with it (the maps are persistent trees), so a change costs O(log n) and readers
//! keep a whole and unchanging state without a lock. The [`writer`] makes them, the
//! driver and the doors read them.
//!
//! What the file says wins: an object of the same name that was written through the API before
//! the file named it is kept, but has no effect until the file no longer names it.

use std::num::NonZeroU32;
use std::ops::Bound;
use std::sync::Arc;

use rpds::RedBlackTreeMapSync;

use crate::catalog::limits::UnitLimits;
use crate::catalog::spec::{AttachmentSpec, LimitsSpec, LocatedValue, Scalar};

mod file;
mod group;
pub mod limits;
mod merge;
pub mod name;
pub mod quantity;
mod resolve;
mod resolver;
#[cfg(feature = "etcd")]
pub mod shared_config;
pub mod spec;
pub mod store;
mod write;
pub mod writer;

pub use file::FileCatalog;
pub use group::{FairBetween, Group};
pub use resolve::{GroupMembership, LimitSource, OwnLimits, ResolvedScope};
pub use resolver::Resolver;

pub use write::{CatalogObject, Precondition, WriteOutcome, WriteRefusal};

use merge::{find, merge};

/// A map of what was written through the API, by name.
type StoredMap<T> = RedBlackTreeMapSync<Arc<str>, StoredObject<T>>;

/// One state of everything that is configured.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    file: Arc<FileCatalog>,
    groups: StoredMap<Arc<Group>>,
    tenants: StoredMap<Attachment>,
    namespaces: StoredMap<Attachment>,
    overrides: StoredMap<Arc<Override>>,
    /// How many are attached to each group through the API.
    attached: RedBlackTreeMapSync<Arc<str>, usize>,
}

/// How much may be written through the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogBounds {
    /// Groups.
    pub max_groups: usize,
    /// Attachments, tenants' and namespaces' together.
    pub max_attachments: usize,
    /// Overrides.
    pub max_overrides: usize,
}

/// What can be attached to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberKind {
    /// A tenant, such as `acme`.
    Tenant,
    /// A namespace of a tenant, such as `acme/orders`.
    Namespace,
}

/// Which group something is attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The group's name.
    pub group: Arc<str>,
    /// What its part is in proportion to, where the group is divided between members.
    pub weight: NonZeroU32,
}

/// Limits of one scope that were written through the API; they replace all that the file's globs
/// say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    limits: Arc<UnitLimits>,
    written: Box<str>,
}

/// Something that was written through the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredObject<T> {
    /// What was written.
    pub value: T,
    /// Which write it was, counted over the whole store.
    pub revision: u64,
}

/// Something that is configured, and by what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogEntry<T> {
    /// Its name.
    pub name: Arc<str>,
    /// What it is.
    pub value: T,
    /// Its revision; none if it stands in the file, where the API cannot change it.
    pub revision: Option<u64>,
}

// === impl Catalog ===

impl Catalog {
    /// What `file` says, and nothing else.
    pub fn new(file: Arc<FileCatalog>) -> Self {
        Self {
            file,
            ..Self::default()
        }
    }

    /// The file's part.
    pub fn file(&self) -> &FileCatalog {
        &self.file
    }

    /// The group called `name`.
    pub fn group(&self, name: &str) -> Option<CatalogEntry<Arc<Group>>> {
        find(&self.file.groups, &self.groups, name)
    }

    /// The groups whose names come after `after`, by name.
    pub fn groups<'a>(
        &'a self,
        after: &'a str,
    ) -> impl Iterator<Item = CatalogEntry<Arc<Group>>> + 'a {
        merge(&self.file.groups, &self.groups, after)
    }

    /// What the tenant or namespace called `name` is attached to, itself.
    pub fn attachment(&self, kind: MemberKind, name: &str) -> Option<CatalogEntry<Attachment>> {
        find(self.file.attached(kind), self.kept(kind), name)
    }

    /// The attachments of the tenants or namespaces whose names come after `after`, by name.
    pub fn attachments<'a>(
        &'a self,
        kind: MemberKind,
        after: &'a str,
    ) -> impl Iterator<Item = CatalogEntry<Attachment>> + 'a {
        merge(self.file.attached(kind), self.kept(kind), after)
    }

    /// The override of `scope`.
    pub fn overridden(&self, scope: &str) -> Option<CatalogEntry<Arc<Override>>> {
        let (name, kept) = self.overrides.get_key_value(scope)?;
        Some(CatalogEntry::kept(name, kept))
    }

    /// The overrides of scopes that come after `after`, by scope.
    pub fn overrides<'a>(
        &'a self,
        after: &'a str,
    ) -> impl Iterator<Item = CatalogEntry<Arc<Override>>> + 'a {
        let range = (Bound::Excluded(after), Bound::Unbounded);
        let kept = self.overrides.range::<str, _>(range);
        kept.map(|(name, kept)| CatalogEntry::kept(name, kept))
    }

    /// How many tenants and namespaces are attached to the group called `name`.
    pub fn attached_count(&self, name: &str) -> usize {
        let kept = self.attached.get(name).copied().unwrap_or(0);
        kept + self.file.attached_count(name)
    }

    fn kept(&self, kind: MemberKind) -> &StoredMap<Attachment> {
        match kind {
            MemberKind::Tenant => &self.tenants,
            MemberKind::Namespace => &self.namespaces,
        }
    }
}

// === impl CatalogBounds ===

impl Default for CatalogBounds {
    fn default() -> Self {
        Self {
            max_groups: 20_000,
            max_attachments: 1_000_000,
            max_overrides: 100_000,
        }
    }
}

// === impl MemberKind ===

impl MemberKind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Tenant, Self::Namespace];

    /// What one is called, which is also what its scope's id begins with.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Namespace => "namespace",
        }
    }

    /// What several are called.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Tenant => "tenants",
            Self::Namespace => "namespaces",
        }
    }
}

// === impl Attachment ===

impl Attachment {
    /// The largest weight: far more than anybody means, and few enough digits that no sum of
    /// weights overflows.
    pub const WEIGHT_MAX: u32 = 1_000_000;

    /// What is written to have it.
    pub fn spec(&self) -> AttachmentSpec {
        AttachmentSpec {
            group: Some(LocatedValue::nowhere(self.group.as_ref().into())),
            weight: Some(LocatedValue::nowhere(Scalar(self.weight.to_string()))),
        }
    }
}

// === impl Override ===

impl Override {
    /// What `spec`, which is good, says as `limits`.
    pub(crate) fn new(limits: UnitLimits, spec: &LimitsSpec) -> Self {
        Self {
            limits: Arc::new(limits),
            written: written(spec),
        }
    }

    /// The limits.
    pub fn limits(&self) -> &Arc<UnitLimits> {
        &self.limits
    }

    /// What was written.
    pub fn spec(&self) -> LimitsSpec {
        serde_json::from_str(&self.written).unwrap_or_default()
    }
}

// === impl CatalogEntry ===

impl<T: Clone> CatalogEntry<T> {
    fn kept(name: &Arc<str>, kept: &StoredObject<T>) -> Self {
        Self {
            name: name.clone(),
            value: kept.value.clone(),
            revision: Some(kept.revision),
        }
    }

    fn of_file(name: &Arc<str>, value: &T) -> Self {
        Self {
            name: name.clone(),
            value: value.clone(),
            revision: None,
        }
    }
}

// === free functions ===

/// The JSON of a spec. Kept instead of the spec, which is ten times as large: a place for each of
/// its fields, most of which are absent.
fn written(spec: &impl serde::Serialize) -> Box<str> {
    let written = serde_json::to_string(spec);
    written.unwrap_or_default().into()
}
