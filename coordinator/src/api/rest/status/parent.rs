//! The coordinator above, and what is borrowed of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tollgate_core::lease::Unit;
use utoipa::ToSchema;

use crate::leases::parent::Parent;
use crate::leases::stats::BorrowedStats;
use crate::leases::view::ms;

/// The coordinator above.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct ParentStatus {
    /// Where it is asked.
    pub address: String,
    /// How long ago it last answered; null if never. It is asked while somebody wants something.
    pub answered_ms_ago: Option<u64>,
    /// Why the last call failed; null if it did not.
    pub error: Option<String>,
    /// The names of the coordinators above this one, the nearest first.
    pub above: Vec<String>,
    /// What is borrowed, by unit.
    pub units: BTreeMap<String, BorrowedStatus>,
}

/// What is borrowed of a unit.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
pub struct BorrowedStatus {
    /// What the parent lends now, of resources that it limits.
    #[schema(minimum = 0)]
    pub borrowed: f64,
    /// The resources that it does not limit.
    pub unlimited_count: usize,
    /// What it is asked for, by priority band.
    pub wants: BTreeMap<String, f64>,
}

// === impl ParentStatus ===

impl ParentStatus {
    pub(super) fn of(parent: &Parent, borrowed: &BTreeMap<Unit, BorrowedStats>) -> Self {
        let seen = parent.seen();
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
            address: seen.address,
            answered_ms_ago: seen.answered_ago.map(ms),
            error: seen.error,
            above: parent.above().to_vec(),
            units: borrowed.iter().map(unit).collect(),
        }
    }

    /// Adds what another node of the cluster borrows. One that cannot reach the parent is seen,
    /// whatever the others can.
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
