//! Records that the engines of this process share.

use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};

use foldhash::fast::FixedState;
use tollgate_engine::SharedMemory;
use tollgate_filter::{Cas, Written};

/// Number of locks: more than there are workers, so that two of them seldom meet.
const LOCKS: usize = 64;

/// Records with the rules of Envoy's shared data, each behind one of several locks.
#[derive(Debug)]
pub(crate) struct SharedRecords {
    parts: Vec<Mutex<SharedMemory>>,
    hasher: FixedState,
}

// === impl SharedRecords ===

impl SharedRecords {
    /// Returns a memory without records.
    pub(crate) fn new() -> Self {
        let parts = (0..LOCKS).map(|_| Mutex::default());
        Self {
            parts: parts.collect(),
            hasher: FixedState::with_seed(0),
        }
    }

    /// Returns a record and its version.
    pub(crate) fn get(&self, key: &str) -> Option<(Vec<u8>, Cas)> {
        let part = self.part(key)?;
        // A write is whole or has not begun, so what a panic leaves behind is valid.
        let part = part.lock().unwrap_or_else(PoisonError::into_inner);
        part.get(key)
    }

    /// Writes a record if it still has the version `cas`.
    pub(crate) fn set(&self, key: &str, value: &[u8], cas: Cas) -> Written {
        let Some(part) = self.part(key) else {
            return Written::Lost;
        };
        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
        part.set(key, value, cas)
    }

    fn part(&self, key: &str) -> Option<&Mutex<SharedMemory>> {
        let hash = self.hasher.hash_one(key);
        let index = usize::try_from(hash).unwrap_or_default() % LOCKS;
        self.parts.get(index)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn of_several_writers_with_one_version_one_wins() {
        let records = Arc::new(SharedRecords::new());
        records.set("count", &0_u64.to_le_bytes(), 0);
        let add = |records: &SharedRecords| {
            for _ in 0..1000 {
                loop {
                    let (value, cas) = records.get("count").unwrap();
                    let count = u64::from_le_bytes(value.try_into().unwrap()) + 1;
                    if records.set("count", &count.to_le_bytes(), cas) == Written::Stored {
                        break;
                    }
                }
            }
        };
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let records = Arc::clone(&records);
                thread::spawn(move || add(&records))
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let (value, _) = records.get("count").unwrap();
        assert_eq!(value, 4000_u64.to_le_bytes());
        assert_eq!(records.get("other"), None);
    }
}
