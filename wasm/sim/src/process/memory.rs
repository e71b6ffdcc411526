//! Memory that the workers of a process share, with the rules of Envoy's shared data.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use tollgate_core::client::ScopeState;
use tollgate_engine::codec::{DirtyQueue, decode_slot};
use tollgate_engine::{Cas, Written};

/// Middle of the keys under which slots are.
const SLOT: &str = ".slot.";
/// End of the keys under which dirty queues are.
const DIRTY: &str = ".dirty";

/// Records of one process: compare-and-swap, no deletion, version 0 overwrites, and where there is no
/// record any version writes one.
#[derive(Debug)]
pub(super) struct SharedMemory {
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
    pub(super) fn new() -> Self {
        Self {
            records: HashMap::with_hasher(FixedState::with_seed(0)),
            writes: 0,
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<(Vec<u8>, Cas)> {
        let record = self.records.get(key)?;
        // A real host cannot tell an empty value from none.
        (!record.value.is_empty()).then(|| (record.value.clone(), record.cas))
    }

    pub(super) fn set(&mut self, key: &str, value: &[u8], cas: Cas) -> Written {
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

    /// Returns the number of records.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns the number of slots in dirty queues.
    pub(super) fn dirty(&self) -> usize {
        let records = self.records.iter();
        let queues = records.filter(|(key, _)| key.ends_with(DIRTY));
        let slots = queues.map(|(_, record)| DirtyQueue::decode(&record.value).slots.len());
        slots.sum()
    }

    /// Calls `look` with all slots, in an order that means nothing.
    pub(super) fn slots(&self, mut look: impl FnMut(&str, &ScopeState)) {
        for (key, record) in &self.records {
            if key.contains(SLOT)
                && let Some((scope, state)) = decode_slot(&record.value)
            {
                look(scope, &state);
            }
        }
    }
}
