//! The catalog: limits, groups, attachments and overrides.
//!
//! A [`Catalog`] is one state of the whole configuration: the file's part and that of the API. It
//! never changes. A writer makes the next one, which shares everything else with it (the maps are
//! persistent trees): a change costs O(log n), and readers keep a whole and unchanging state
//! without a lock. The [`crate::writer`] makes catalogs, the driver and the APIs read them.
//!
//! The file wins: an object of the same name that the API wrote before the file named it is kept,
//! but has no effect until the file no longer names it. A raise wins over both, until its end.

use std::num::NonZeroU32;
use std::sync::Arc;

use rpds::RedBlackTreeMapSync;

use crate::catalog::limits::UnitLimits;
use crate::catalog::spec::{AttachmentSpec, LimitsSpec, LocatedValue, Scalar};

pub mod check;
mod file;
mod group;
mod kind;
pub mod limits;
mod merge;
pub mod metrics;
pub mod name;
mod raise;
mod resolve;
mod resolver;
pub mod scope_kinds;
pub mod spec;
pub mod store;
pub mod template;
mod write;

pub use file::FileCatalog;
pub use group::{FairBetween, Group};
pub use kind::{GroupKind, ObjectKind, OverrideKind, RaiseKind};
pub use raise::Raise;
pub use resolve::{GroupMembership, LimitSource, OwnLimits, ResolvedScope};
pub use resolver::Resolver;
pub use scope_kinds::rule_name;

pub use write::{CatalogObject, Precondition, WriteOutcome, WriteRefusal};

/// Objects written through the API, by name.
type StoredMap<T> = RedBlackTreeMapSync<Arc<str>, StoredObject<T>>;

/// One state of the configuration.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    file: Arc<FileCatalog>,
    groups: StoredMap<Arc<Group>>,
    tenants: StoredMap<Attachment>,
    namespaces: StoredMap<Attachment>,
    overrides: StoredMap<Arc<Override>>,
    /// By scope, also that of a group; they win over everything else.
    raises: StoredMap<Arc<Raise>>,
    /// Number of API attachments of each group.
    attached: RedBlackTreeMapSync<Arc<str>, usize>,
}

/// Bounds of the objects written through the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogBounds {
    /// Groups.
    pub max_groups: usize,
    /// Attachments, tenants' and namespaces' together.
    pub max_attachments: usize,
    /// Overrides.
    pub max_overrides: usize,
    /// Raises.
    pub max_raises: usize,
}

/// Kind of object that can be attached to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberKind {
    /// A tenant, such as `acme`.
    Tenant,
    /// A namespace of a tenant, such as `acme/orders`.
    Namespace,
}

/// Attachment to a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The group's name.
    pub group: Arc<str>,
    /// Weight of the member's part, where the group is divided between members.
    pub weight: NonZeroU32,
}

/// Limits of one scope written through the API; they replace those of the file's globs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    limits: Arc<UnitLimits>,
    written: Box<str>,
}

/// An object written through the API, and the write's number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredObject<T> {
    /// The object.
    pub value: T,
    /// Number of the write, counted over the whole store.
    pub revision: u64,
}

/// A configured object and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogEntry<T> {
    /// Its name.
    pub name: Arc<str>,
    /// The object.
    pub value: T,
    /// Its revision; `None` if the file defines it, where the API cannot change it.
    pub revision: Option<u64>,
}

// === impl CatalogEntry ===

impl<T> CatalogEntry<T> {
    /// Returns the entry with `change` of its value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> CatalogEntry<U> {
        let Self {
            name,
            value,
            revision,
        } = self;
        let value = change(value);
        CatalogEntry {
            name,
            value,
            revision,
        }
    }
}

// === impl Catalog ===

impl Catalog {
    /// A catalog of `file` alone.
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

    /// Number of tenants and namespaces attached to the group called `name`.
    pub fn attached_count(&self, name: &str) -> usize {
        let stored = self.attached.get(name).copied().unwrap_or(0);
        stored + self.file.attached_count(name)
    }

    /// The scopes of all overrides, in order.
    pub(crate) fn overrides(&self) -> impl Iterator<Item = &Arc<str>> {
        self.overrides.keys()
    }

    /// All raises, by scope.
    pub(crate) fn raises(&self) -> impl Iterator<Item = (&Arc<str>, &Raise)> {
        let raises = self.raises.iter();
        raises.map(|(scope, stored)| (scope, &*stored.value))
    }

    /// The group as it is now: with the limits of its raise, if it has one.
    pub fn in_force(&self, group: Arc<Group>) -> Arc<Group> {
        match self.raises.get(group.scope()) {
            Some(raise) => Arc::new(group.raised(&raise.value)),
            None => group,
        }
    }

    fn stored(&self, kind: MemberKind) -> &StoredMap<Attachment> {
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
            max_raises: 1000,
        }
    }
}

// === impl MemberKind ===

impl MemberKind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Tenant, Self::Namespace];

    /// Name of one, with which its scope's id begins.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Namespace => "namespace",
        }
    }

    /// Name of several.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Tenant => "tenants",
            Self::Namespace => "namespaces",
        }
    }
}

// === impl Attachment ===

impl Attachment {
    /// The largest weight: far more than is useful, and few enough digits that no sum of weights
    /// overflows.
    pub const WEIGHT_MAX: u32 = 1_000_000;

    /// The written form.
    pub fn spec(&self) -> AttachmentSpec {
        AttachmentSpec {
            group: Some(LocatedValue::nowhere(self.group.as_ref().into())),
            weight: Some(LocatedValue::nowhere(Scalar(self.weight.to_string()))),
        }
    }
}

// === impl Override ===

impl Override {
    /// An override with `limits`, which are those of the valid `spec`.
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

    /// The written form.
    pub fn spec(&self) -> LimitsSpec {
        serde_json::from_str(&self.written).unwrap_or_default()
    }
}

// === impl CatalogEntry ===

impl<T: Clone> CatalogEntry<T> {
    fn stored(name: &Arc<str>, stored: &StoredObject<T>) -> Self {
        Self {
            name: name.clone(),
            value: stored.value.clone(),
            revision: Some(stored.revision),
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

/// JSON of a spec. It is stored instead of the spec, which is ten times as large and mostly empty.
fn written(spec: &impl serde::Serialize) -> Box<str> {
    let written = serde_json::to_string(spec);
    written.unwrap_or_default().into()
}
