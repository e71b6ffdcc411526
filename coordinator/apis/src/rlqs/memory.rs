//! The memory of the buckets of all streams together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::bucket_name::{BucketName, name_len};

/// The most memory of buckets that a node has, in bytes: 150 000 of them with names of 100 bytes.
const BYTES_MAX: usize = 512 << 20;

/// Memory of a bucket beside its name: 2.4 KiB with the lease of its scope, by the resident memory of
/// 20 000 of them, and what a call for that lease takes.
const BUCKET_LEN: usize = 3 << 10;

/// Memory of a key and its value beside their bytes.
const PAIR_LEN: usize = 160;

/// Copies of a name that a bucket has at a time, its scope among them.
const NAME_COPIES: usize = 2;

/// Counts the memory of all buckets; clones share the count.
#[derive(Clone, Debug)]
pub(super) struct BucketMemory(Arc<ChargedBytes>);

#[derive(Debug)]
struct ChargedBytes {
    max: usize,
    bytes: AtomicUsize,
}

/// Memory of one bucket, given back when this is dropped.
#[derive(Debug)]
pub(super) struct BucketCharge {
    memory: BucketMemory,
    bytes: usize,
}

// === impl BucketMemory ===

impl BucketMemory {
    /// At most `max` bytes.
    pub(super) fn new(max: usize) -> Self {
        let bytes = AtomicUsize::new(0);
        Self(Arc::new(ChargedBytes { max, bytes }))
    }

    /// Charges a bucket called `name`; none if there is no memory for it.
    pub(super) fn charge(&self, name: &BucketName) -> Option<BucketCharge> {
        let bytes = BUCKET_LEN + NAME_COPIES * name_len(name) + PAIR_LEN * name.len();
        let max = self.0.max;
        let add = |before: usize| before.checked_add(bytes).filter(|after| *after <= max);
        let order = Ordering::Relaxed;
        self.0.bytes.fetch_update(order, order, add).ok()?;
        Some(BucketCharge {
            memory: self.clone(),
            bytes,
        })
    }
}

impl Default for BucketMemory {
    fn default() -> Self {
        Self::new(BYTES_MAX)
    }
}

// === impl BucketCharge ===

impl Drop for BucketCharge {
    fn drop(&mut self) {
        let bytes = &self.memory.0.bytes;
        bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_charged_with_their_names_and_give_back_what_they_had() {
        let name = |pairs, len| {
            let pair = |i: usize| (format!("{i:0>len$}"), String::new());
            BucketName::from_iter((0..pairs).map(pair))
        };
        let memory = BucketMemory::new(3 * BUCKET_LEN);
        let first = memory.charge(&name(2, 50)).unwrap();
        assert_eq!(first.bytes, BUCKET_LEN + 200 + 2 * PAIR_LEN);
        let second = memory.clone().charge(&name(0, 0)).unwrap();
        assert!(memory.charge(&name(0, 0)).is_none(), "both share the count");
        drop(first);
        let long = (BUCKET_LEN - PAIR_LEN) / 2;
        let third = memory.charge(&name(1, long)).unwrap();
        assert!(memory.charge(&name(0, 0)).is_none());
        drop((second, third));
        assert_eq!(memory.0.bytes.load(Ordering::Relaxed), 0);
    }
}
