//! Sizes of a fleet's tables, for soaks: none of them may grow for good.

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Write};

/// Sizes of the tables of all processes and all masters at one moment, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableSizes(BTreeMap<&'static str, u64>);

/// Counter of characters.
struct Length(u64);

// === impl TableSizes ===

impl TableSizes {
    /// Adds to a size.
    pub(crate) fn add(&mut self, name: &'static str, size: u64) {
        *self.0.entry(name).or_default() += size;
    }

    /// Adds the length of the debug output of a value to a size: any collection in it makes that longer.
    pub(crate) fn add_debug(&mut self, name: &'static str, value: &impl Debug) {
        let mut length = Length(0);
        // Counting cannot fail.
        let _ = write!(length, "{value:?}");
        self.add(name, length.0);
    }

    /// Returns all sizes with their names.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(name, size)| (*name, *size))
    }
}

// === impl Length ===

impl Write for Length {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len() as u64;
        Ok(())
    }
}
