//! Records that the workers of a process share, for hosts that keep them in memory.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// The version of a record in shared data; zero writes whatever is there.
pub type Cas = u32;

/// A version that no record has: the host counts up from one and accepts any version where there
/// is no record yet. Writing with it creates a record or does nothing.
pub const ABSENT: Cas = u32::MAX;

/// Outcome of a write to shared data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The record is as it was written.
    Stored,
    /// Another worker wrote first.
    Lost,
}

/// Records with the rules of Envoy's shared data: compare-and-swap, no deletion, version 0 overwrites,
/// and where there is no record any version writes one.
///
/// An engine makes up the keys from numbers of slots, so their number is bounded, and no client can
/// choose keys that collide.
#[derive(Debug)]
pub struct SharedMemory {
    records: HashMap<String, Record, FixedState>,
    writes: Cas,
}

#[derive(Debug)]
struct Record {
    value: Vec<u8>,
    cas: Cas,
}

// === impl SharedMemory ===

impl SharedMemory {
    /// Returns a memory without records.
    pub fn new() -> Self {
        Self {
            records: HashMap::with_hasher(FixedState::with_seed(0)),
            writes: 0,
        }
    }

    /// Returns a record and its version.
    pub fn get(&self, key: &str) -> Option<(Vec<u8>, Cas)> {
        let record = self.records.get(key)?;
        // A real host cannot tell an empty value from none.
        (!record.value.is_empty()).then(|| (record.value.clone(), record.cas))
    }

    /// Writes a record if it still has the version `cas`.
    pub fn set(&mut self, key: &str, value: &[u8], cas: Cas) -> Written {
        self.writes = self.writes.wrapping_add(1).max(1);
        match self.records.get_mut(key) {
            Some(known) if cas != 0 && cas != known.cas => Written::Lost,
            Some(known) => {
                value.clone_into(&mut known.value);
                known.cas = self.writes;
                Written::Stored
            }
            None => {
                let record = Record {
                    value: value.to_vec(),
                    cas: self.writes,
                };
                self.records.insert(key.to_owned(), record);
                Written::Stored
            }
        }
    }

    /// Returns all records with their keys, in an order that means nothing.
    pub fn records(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let records = self.records.iter();
        records.map(|(key, record)| (key.as_str(), record.value.as_slice()))
    }
}

impl Default for SharedMemory {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_with_an_old_version_is_lost() {
        let mut memory = SharedMemory::new();
        assert_eq!(memory.get("a"), None);
        assert_eq!(memory.set("a", b"1", ABSENT), Written::Stored);
        let (value, version) = memory.get("a").unwrap();
        assert_eq!(value, b"1");
        assert_eq!(memory.set("a", b"2", ABSENT), Written::Lost);
        assert_eq!(memory.set("a", b"2", version), Written::Stored);
        assert_eq!(memory.set("a", b"3", version), Written::Lost);
        assert_eq!(memory.set("a", b"4", 0), Written::Stored);
        assert_eq!(memory.get("a").unwrap().0, b"4");
        assert_eq!(memory.set("b", b"", 0), Written::Stored);
        assert_eq!(memory.get("b"), None);
        assert_eq!(memory.records().count(), 2);
    }
}
