//! Names of buckets.

use std::collections::BTreeMap;

/// Name of a bucket: its keys and values.
pub(super) type BucketName = BTreeMap<String, String>;

/// Returns the bytes of the keys and values of `name`.
pub(super) fn name_len(name: &BucketName) -> usize {
    let pairs = name.iter().map(|(key, value)| key.len() + value.len());
    pairs.sum()
}
