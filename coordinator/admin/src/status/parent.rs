//! Parent, and the capacity borrowed from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tollgate_core::lease::Unit;
use tollgate_leases::parent::Parent;
use utoipa::ToSchema;

use crate::lease_view::ms;
use crate::stats::BorrowedStats;

/// Parent of the coordinator.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct ParentStatus {
    /// Its address.
    pub address: String,
    /// The time since it last answered; null if never. It is asked while any client wants something.
    pub answered_ms_ago: Option<u64>,
    /// The error of the last call; null if it did not fail.
    pub error: Option<String>,
    /// The names of the coordinators above this one, the nearest first.
    pub above: Vec<String>,
    /// The borrowed capacity, by unit.
    pub units: BTreeMap<String, BorrowedStatus>,
}

/// Borrowed capacity of one unit.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
pub struct BorrowedStatus {
    /// The capacity that the parent lends now, of resources that it limits.
    #[schema(minimum = 0)]
    pub borrowed: f64,
    /// The resources that it does not limit.
    pub unlimited_count: usize,
    /// The wants sent to it, by priority band.
    pub wants: BTreeMap<String, f64>,
}

// === impl ParentStatus ===

impl ParentStatus {
    pub(super) fn of(parent: &Parent, borrowed: &BTreeMap<Unit, BorrowedStats>) -> Self {
        let contact = parent.seen();
        let unit = |(unit, borrowed): (&Unit, &BorrowedStats)| {
            let wants = borrowed.wants.iter();
            let wants = wants.map(|(priority, wants)| (priority.to_string(), *wants));
            let status = BorrowedStatus {
                borrowed: borrowed.capacity,
                unlimited_count: borrowed.unlimited,
                wants: wants.collect(),
            };
            (unit.name().to_owned(), status)
        };
        Self {
            address: contact.address,
            answered_ms_ago: contact.answered_ago.map(ms),
            error: contact.error,
            above: parent.above().to_vec(),
            units: borrowed.iter().map(unit).collect(),
        }
    }

    /// Adds the loans of another node of the cluster. The error of a node that cannot reach the parent
    /// is kept.
    pub(super) fn join(&mut self, other: Self) {
        let latest = match (self.answered_ms_ago, other.answered_ms_ago) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        self.answered_ms_ago = latest;
        if self.above.is_empty() {
            self.above = other.above;
        }
        if self.error.is_none() && other.error.is_some() {
            (self.error, self.address) = (other.error, other.address);
        }
        for (unit, more) in other.units {
            let sums = self.units.entry(unit).or_default();
            sums.borrowed += more.borrowed;
            sums.unlimited_count += more.unlimited_count;
            for (priority, wants) in more.wants {
                *sums.wants.entry(priority).or_default() += wants;
            }
        }
    }
}
