//! Sizes of a fleet's tables, for soaks: none of them may grow for good.

use std::fmt::{self, Debug, Write};

/// Sizes of the tables of all processes and all masters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableSizes {
    /// Processes that run.
    pub processes: u64,
    /// Records in their shared data.
    pub records: u64,
    /// Slots in these that hold a lease, demand or debts of a scope.
    pub slots: u64,
    /// Slots in their dirty queues.
    pub dirty: u64,
    /// Requests that wait.
    pub waiting: u64,
    /// Characters of the processes' debug output, which any collection makes longer.
    pub process_chars: u64,
    /// Resources that masters lend.
    pub resources: u64,
    /// Leases of all resources.
    pub leases: u64,
    /// Pools with members.
    pub pools: u64,
    /// Characters of the masters' debug output, which any collection makes longer.
    pub master_chars: u64,
    /// Events that are planned, such as messages on their way.
    pub planned: u64,
}

/// Counter of characters.
struct Length(u64);

// === impl TableSizes ===

impl TableSizes {
    /// Returns all sizes with their names.
    pub fn named(&self) -> [(&'static str, u64); 11] {
        [
            ("processes", self.processes),
            ("records", self.records),
            ("slots in use", self.slots),
            ("dirty slots", self.dirty),
            ("waiting requests", self.waiting),
            ("process debug output", self.process_chars),
            ("resources", self.resources),
            ("leases", self.leases),
            ("pools", self.pools),
            ("master debug output", self.master_chars),
            ("planned events", self.planned),
        ]
    }
}

// === impl Length ===

impl Write for Length {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len() as u64;
        Ok(())
    }
}

// === free functions ===

/// Returns the length of the debug output of `value`.
pub(crate) fn debug_len(value: &impl Debug) -> u64 {
    let mut length = Length(0);
    // Counting cannot fail.
    let _ = write!(length, "{value:?}");
    length.0
}
