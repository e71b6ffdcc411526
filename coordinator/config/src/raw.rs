//! Shape of the file, with the place of every value.
//!
//! All scalars are text here: what a number or a duration may be is checked section by section,
//! with messages that quote what stands in the file.

use serde::Deserialize;

use super::admin::RawAdmin;
use super::attach::RawAttach;
use super::bounds::RawBounds;
use super::cluster::RawCluster;
use super::connections::RawConnections;
use super::doorman::RawDoorman;
use super::groups::RawGroups;
use super::limits::RawLimit;
use super::listen::RawListen;
use super::parent::RawParent;
use super::rlqs::RawRlqs;
use super::rls::RawRls;
use super::shared::RawShared;
use super::store::RawStore;
use super::tls::RawTls;
use crate::catalog::spec::LocatedValue;

/// The sections of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawConfig {
    pub(super) listen: Option<RawListen>,
    pub(super) tls: Option<RawTls>,
    pub(super) admin: Option<RawAdmin>,
    pub(super) cluster: Option<LocatedValue<RawCluster>>,
    pub(super) parent: Option<LocatedValue<RawParent>>,
    pub(super) store: Option<RawStore>,
    pub(super) bounds: Option<RawBounds>,
    pub(super) connections: Option<RawConnections>,
    pub(super) limits: Option<LocatedValue<Vec<LocatedValue<RawLimit>>>>,
    pub(super) groups: Option<LocatedValue<RawGroups>>,
    pub(super) attach: Option<RawAttach>,
    pub(super) doorman: Option<RawDoorman>,
    pub(super) rls: Option<RawRls>,
    pub(super) rlqs: Option<RawRlqs>,
}

// === impl RawConfig ===

impl RawConfig {
    /// Takes out the sections that the nodes of a cluster may have in common.
    pub(super) fn take_shared(&mut self) -> RawShared {
        RawShared {
            limits: self.limits.take(),
            groups: self.groups.take(),
            attach: self.attach.take(),
            doorman: self.doorman.take(),
            rls: self.rls.take(),
            rlqs: self.rlqs.take(),
        }
    }
}
