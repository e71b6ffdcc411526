//! The shape of the file, with the place of every value.
//!
//! All scalars are text here: what a number or a duration may be is checked section by section,
//! with messages that quote what stands in the file.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::admin::RawAdmin;
use super::attach::RawAttach;
use super::bounds::RawBounds;
use super::cluster::RawCluster;
use super::connections::RawConnections;
use super::doorman::RawDoorman;
use super::error::{ConfigErrors, Problem};
use super::groups::RawGroups;
use super::limits::RawLimit;
use super::listen::RawListen;
use super::parent::RawParent;
use super::shape;
use super::shared::RawShared;
use super::store::RawStore;
use super::tls::RawTls;
use super::{ENTRIES_MAX, FILE_LEN_MAX};
use crate::catalog::spec::Placed;

/// The most scalars, lists and mappings in a file, also those that aliases stand for.
pub(super) const NODES_MAX: usize = 50 * ENTRIES_MAX;

/// The most beginnings and ends of them.
pub(super) const EVENTS_MAX: usize = 2 * NODES_MAX;

/// How deep an alias may lead to what has aliases itself.
pub(super) const ALIAS_DEPTH_MAX: usize = 8;

/// The sections of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawConfig {
    pub(super) listen: Option<RawListen>,
    pub(super) tls: Option<RawTls>,
    pub(super) admin: Option<RawAdmin>,
    pub(super) cluster: Option<Placed<RawCluster>>,
    pub(super) parent: Option<Placed<RawParent>>,
    pub(super) store: Option<RawStore>,
    pub(super) bounds: Option<RawBounds>,
    pub(super) connections: Option<RawConnections>,
    pub(super) limits: Option<Placed<Vec<Placed<RawLimit>>>>,
    pub(super) groups: Option<Placed<RawGroups>>,
    pub(super) attach: Option<RawAttach>,
    pub(super) doorman: Option<RawDoorman>,
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
        }
    }
}

// === free functions ===

/// Reads the YAML of a file.
pub(super) fn read<T: DeserializeOwned + Default>(text: &str) -> Result<T, ConfigErrors> {
    if text.len() > FILE_LEN_MAX {
        return Err(ConfigErrors::whole(Problem::FileTooLarge(text.len())));
    }
    // The reader's own bounds, made wide enough for the most entries of every section: a node is a
    // scalar or a collection, and a generous limit has about forty. What aliases stand for counts,
    // so it does not matter how many of them lead to one anchor.
    let options = |duplicate_keys| {
        serde_saphyr::options! {
            duplicate_keys: duplicate_keys,
            with_snippet: false,
            budget: serde_saphyr::budget! {
                max_events: EVENTS_MAX,
                max_nodes: NODES_MAX,
                enforce_alias_anchor_ratio: false,
            },
            alias_limits: serde_saphyr::alias_limits! {
                max_total_replayed_events: EVENTS_MAX,
                max_replay_stack_depth: ALIAS_DEPTH_MAX,
            },
        }
    };
    let raw: Option<T> = shape::read(text, options).map_err(|error| ConfigErrors(vec![error]))?;
    Ok(raw.unwrap_or_default())
}
