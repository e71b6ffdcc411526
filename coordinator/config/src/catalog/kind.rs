//! Kinds of objects that the API writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_saphyr::Location;

use super::check::{self, Check, ConfigErrors, Rule};
use super::limits::MatchedLimits;
use super::name::{self, NameError};
use super::spec::{AttachmentSpec, GroupSpec, LimitsSpec, LocatedValue, RaiseSpec};
use super::store::RecordKind;
use super::{Attachment, Catalog, CatalogObject, Group, MemberKind, Override, Raise, StoredMap};

/// Kind of object that the API writes: its written form, its rules, and its place in a catalog.
pub trait ObjectKind: Copy + Send + Sync + 'static {
    /// An object.
    type Object: Clone + 'static;
    /// The written form of one.
    type Spec: Clone + DeserializeOwned + Serialize + Send;

    /// Kind of its records.
    fn record(self) -> RecordKind;

    /// Checks the object called `name`, whose `spec` came as JSON.
    ///
    /// # Errors
    /// All errors of it.
    fn check(self, name: &str, spec: Self::Spec) -> Result<CatalogObject, ConfigErrors>;

    /// Returns the written form of `object`.
    fn spec(object: &Self::Object) -> Self::Spec;

    /// Returns the objects of the file, and those written through the API.
    fn objects(self, catalog: &Catalog) -> Objects<'_, Self::Object>;

    /// Returns the written form of what holds where there is no object called `name`.
    fn otherwise(self, _catalog: &Catalog, _name: &str) -> Option<Self::Spec> {
        None
    }
}

/// The objects of the file, and those written through the API.
type Objects<'a, T> = (&'a BTreeMap<Arc<str>, T>, &'a StoredMap<T>);

/// Kind of all groups.
#[derive(Clone, Copy, Debug)]
pub struct GroupKind;

/// Kind of all overrides, which are called as their scopes.
#[derive(Clone, Copy, Debug)]
pub struct OverrideKind;

/// Kind of all raises, which are called as their scopes, also those of groups.
#[derive(Clone, Copy, Debug)]
pub struct RaiseKind;

/// Raises of the file, which has none.
static NO_RAISES: BTreeMap<Arc<str>, Arc<Raise>> = BTreeMap::new();

/// The latest end of a raise, in seconds since 1970: the end of the year 9999.
const UNTIL_MAX: u64 = 253_402_300_799;

/// Overrides of the file, which has none: its limits are no objects of this kind.
static NO_OVERRIDES: BTreeMap<Arc<str>, Arc<Override>> = BTreeMap::new();

// === impl ObjectKind ===

impl ObjectKind for GroupKind {
    type Object = Arc<Group>;
    type Spec = GroupSpec;

    fn record(self) -> RecordKind {
        RecordKind::Group
    }

    fn check(self, name: &str, spec: GroupSpec) -> Result<CatalogObject, ConfigErrors> {
        checked("name", name::check_group(name), |check| {
            let group = check::group(check, "", name, &LocatedValue::nowhere(spec))?;
            Some(CatalogObject::Group(Arc::new(group)))
        })
    }

    fn spec(group: &Arc<Group>) -> GroupSpec {
        group.spec()
    }

    fn objects(self, catalog: &Catalog) -> Objects<'_, Arc<Group>> {
        (&catalog.file.groups, &catalog.groups)
    }
}

impl ObjectKind for MemberKind {
    type Object = Attachment;
    type Spec = AttachmentSpec;

    fn record(self) -> RecordKind {
        RecordKind::Attachment(self)
    }

    fn check(self, name: &str, spec: AttachmentSpec) -> Result<CatalogObject, ConfigErrors> {
        checked("name", self.check_name(name), |check| {
            let attachment = check::attachment(check, "", &LocatedValue::nowhere(spec))?;
            Some(CatalogObject::Attachment(attachment))
        })
    }

    fn spec(attachment: &Attachment) -> AttachmentSpec {
        attachment.spec()
    }

    fn objects(self, catalog: &Catalog) -> Objects<'_, Attachment> {
        (catalog.file.attached(self), catalog.stored(self))
    }
}

impl ObjectKind for OverrideKind {
    type Object = Arc<Override>;
    type Spec = LimitsSpec;

    fn record(self) -> RecordKind {
        RecordKind::Override
    }

    fn check(self, scope: &str, spec: LimitsSpec) -> Result<CatalogObject, ConfigErrors> {
        checked("scope", name::check_scope(scope), |check| {
            let limits = check::scope_limits(check, "", Location::UNKNOWN, spec.units())?;
            let limits = Override::new(limits, &spec);
            Some(CatalogObject::Override(Arc::new(limits)))
        })
    }

    fn spec(limits: &Arc<Override>) -> LimitsSpec {
        limits.spec()
    }

    fn objects(self, catalog: &Catalog) -> Objects<'_, Arc<Override>> {
        (&NO_OVERRIDES, &catalog.overrides)
    }

    fn otherwise(self, catalog: &Catalog, scope: &str) -> Option<LimitsSpec> {
        let limits = &catalog.file.limits;
        limits.by_glob(scope).map(MatchedLimits::spec)
    }
}

impl ObjectKind for RaiseKind {
    type Object = Arc<Raise>;
    type Spec = RaiseSpec;

    fn record(self) -> RecordKind {
        RecordKind::Raise
    }

    fn check(self, scope: &str, spec: RaiseSpec) -> Result<CatalogObject, ConfigErrors> {
        checked("scope", name::check_raised(scope), |check| {
            let limits = check::scope_limits(check, "", Location::UNKNOWN, spec.units());
            let until = check.required(Location::UNKNOWN, &spec.until, "until", until);
            let raise = Raise::new(limits?, until?, &spec);
            Some(CatalogObject::Raise(Arc::new(raise)))
        })
    }

    fn spec(raise: &Arc<Raise>) -> RaiseSpec {
        raise.spec()
    }

    fn objects(self, catalog: &Catalog) -> Objects<'_, Arc<Raise>> {
        (&NO_RAISES, &catalog.raises)
    }

    fn otherwise(self, catalog: &Catalog, scope: &str) -> Option<RaiseSpec> {
        if let Some(group) = scope.strip_prefix("group/") {
            let group = catalog.group(group)?.value;
            return Some(group.spec().into());
        }
        let limits = &catalog.file.limits;
        let of_file = limits.exact(scope).map(MatchedLimits::spec);
        let of_api = || {
            catalog
                .overrides
                .get(scope)
                .map(|stored| stored.value.spec())
        };
        let by_glob = || limits.by_glob(scope).map(MatchedLimits::spec);
        of_file
            .or_else(of_api)
            .or_else(by_glob)
            .map(RaiseSpec::from)
    }
}

// === free functions ===

/// Reads the end of a raise.
fn until(text: &str) -> Result<u64, Rule> {
    let until = text.parse().ok();
    let until = until.filter(|until| (1..=UNTIL_MAX).contains(until));
    until.ok_or_else(|| format!("{text:?} is no whole number of seconds since 1970").into())
}

/// Returns what `object` makes, if that finds no errors and the name, `field`, is `valid`.
fn checked(
    field: &str,
    valid: Result<(), NameError>,
    object: impl FnOnce(&mut Check) -> Option<CatalogObject>,
) -> Result<CatalogObject, ConfigErrors> {
    let mut check = Check::default();
    check.name(Location::UNKNOWN, field, valid);
    let object = object(&mut check);
    check.end(object)
}
