//! What the nodes of a cluster may have in common instead of in a file of each: limits, groups,
//! attachments, and the scopes of Doorman's resources.

use serde::Deserialize;
use serde_saphyr::Location;

use super::attach::{self, RawAttach};
use super::check::Check;
use super::doorman::{RawDoorman, doorman};
use super::error::Problem;
use super::groups::{RawGroups, groups};
use super::limits::{RawLimit, limits};
use crate::api::doorman::Scopes;
use crate::catalog::spec::LocatedValue;
use crate::catalog::{CatalogBounds, FileCatalog, MemberKind};

/// The sections that can be shared.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawShared {
    pub(super) limits: Option<LocatedValue<Vec<LocatedValue<RawLimit>>>>,
    pub(super) groups: Option<LocatedValue<RawGroups>>,
    pub(super) attach: Option<RawAttach>,
    pub(super) doorman: Option<RawDoorman>,
}

/// What they say.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) catalog: FileCatalog,
    pub(super) doorman: Scopes,
}

// === impl RawShared ===

impl RawShared {
    /// What the sections say, with the node's own bounds; none if something is wrong, which is
    /// noted.
    pub(super) fn check(&self, check: &mut Check, bounds: CatalogBounds) -> Option<Shared> {
        let doorman = doorman(check, self.doorman.as_ref());
        let groups = groups(check, self.groups.as_ref());
        let limits = limits(check, self.limits.as_ref(), &groups);
        let mut attached = |kind| {
            let raw = self.attach.as_ref().and_then(|raw| raw.of(kind));
            attach::attachments(check, kind, raw, &groups)
        };
        let (tenants, namespaces) = (
            attached(MemberKind::Tenant),
            attached(MemberKind::Namespace),
        );
        let catalog = FileCatalog {
            limits: limits?,
            groups,
            tenants,
            namespaces,
            bounds,
        };
        Some(Shared { catalog, doorman })
    }

    /// Refuses every section that is there, because it is in etcd.
    pub(super) fn refuse(&self, check: &mut Check) {
        let at = |there: bool| there.then_some(Location::UNKNOWN);
        let sections = [
            ("limits", self.limits.as_ref().map(|raw| raw.at)),
            ("groups", self.groups.as_ref().map(|raw| raw.at)),
            ("attach", at(self.attach.is_some())),
            ("doorman", at(self.doorman.is_some())),
        ];
        for (section, at) in sections {
            if let Some(at) = at {
                check.refuse(at, section, Problem::Shared);
            }
        }
    }
}

// === impl Shared ===

impl Shared {
    /// Nothing, until it is read from etcd.
    pub(super) fn unread(bounds: CatalogBounds) -> Self {
        let catalog = FileCatalog {
            bounds,
            ..FileCatalog::default()
        };
        let doorman = Scopes::default();
        Self { catalog, doorman }
    }
}
