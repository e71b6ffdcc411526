//! Shared data of a process, with Envoy's rules: compare-and-swap, no deletion, version 0
//! overwrites, and where there is no record any version writes one.

use std::collections::BTreeMap;

use tollgate_engine::{Cas, Written};

/// The records that the workers of a process share.
#[derive(Debug, Default)]
pub(super) struct SharedData {
    records: BTreeMap<String, Record>,
    writes: Cas,
}

#[derive(Debug)]
struct Record {
    value: Vec<u8>,
    cas: Cas,
    /// The value that the latest write replaced.
    before: Vec<u8>,
}

// === impl SharedData ===

impl SharedData {
    pub(super) fn get(&self, key: &str) -> Option<(&[u8], Cas)> {
        // A real host cannot tell an empty value from none.
        let record = self.records.get(key)?;
        (!record.value.is_empty()).then_some((&*record.value, record.cas))
    }

    /// Returns the value that the latest write of `key` replaced.
    pub(super) fn before(&self, key: &str) -> &[u8] {
        self.records.get(key).map_or(&[], |record| &record.before)
    }

    pub(super) fn set(&mut self, key: &str, value: &[u8], cas: Cas) -> Written {
        let known = self.records.get_mut(key);
        if known
            .as_ref()
            .is_some_and(|record| cas != 0 && cas != record.cas)
        {
            return Written::Lost;
        }
        self.writes += 1;
        let (value, cas) = (value.to_vec(), self.writes);
        match known {
            Some(record) => {
                record.before = std::mem::replace(&mut record.value, value);
                record.cas = cas;
            }
            None => {
                let before = Vec::new();
                let record = Record { value, cas, before };
                self.records.insert(key.to_owned(), record);
            }
        }
        Written::Stored
    }

    /// Returns all values.
    pub(super) fn values(&self) -> impl Iterator<Item = &[u8]> {
        self.records.values().map(|record| &*record.value)
    }
}
