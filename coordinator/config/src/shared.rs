//! Sections that the nodes of a cluster may share instead of having them in a file of each: limits,
//! groups, attachments, and the scopes of Doorman's resources, of descriptors and of RLQS' buckets.

use serde::Deserialize;
use serde_saphyr::Location;

use super::attach::{self, RawAttach};
use super::doorman::{DoormanScopes, RawDoorman, doorman};
use super::groups::{RawGroups, groups};
use super::limits::{RawLimit, limits};
use super::rlqs::{RawRlqs, RlqsDomains, rlqs};
use super::rls::{RawRls, RlsDomains, rls};
use crate::catalog::check::Check;
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
    pub(super) rls: Option<RawRls>,
    pub(super) rlqs: Option<RawRlqs>,
}

/// Values of these sections.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) catalog: FileCatalog,
    pub(super) doorman: DoormanScopes,
    pub(super) rls: RlsDomains,
    pub(super) rlqs: RlqsDomains,
}

// === impl RawShared ===

impl RawShared {
    /// Checks the sections, with the node's own bounds; `None` if they have errors, which are noted.
    pub(super) fn check(&self, check: &mut Check, bounds: CatalogBounds) -> Option<Shared> {
        let doorman = doorman(check, self.doorman.as_ref());
        let rls = rls(check, self.rls.as_ref());
        let rlqs = rlqs(check, self.rlqs.as_ref());
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
        Some(Shared {
            catalog,
            doorman,
            rls,
            rlqs,
        })
    }

    /// Refuses every section that is there, because it is in etcd.
    pub(super) fn refuse(&self, check: &mut Check) {
        let at = |there: bool| there.then_some(Location::UNKNOWN);
        let sections = [
            ("limits", self.limits.as_ref().map(|raw| raw.at)),
            ("groups", self.groups.as_ref().map(|raw| raw.at)),
            ("attach", at(self.attach.is_some())),
            ("doorman", at(self.doorman.is_some())),
            ("rls", at(self.rls.is_some())),
            ("rlqs", at(self.rlqs.is_some())),
        ];
        for (section, at) in sections {
            if let Some(at) = at {
                let rule = "is in etcd, the same for all nodes, because of \
                            `cluster.shared_config`";
                check.refuse(at, section, rule);
            }
        }
    }
}

// === impl Shared ===

impl Shared {
    /// Empty values, until those in etcd are read.
    pub(super) fn unread(bounds: CatalogBounds) -> Self {
        let catalog = FileCatalog {
            bounds,
            ..FileCatalog::default()
        };
        Self {
            catalog,
            doorman: DoormanScopes::default(),
            rls: RlsDomains::default(),
            rlqs: RlqsDomains::default(),
        }
    }
}
