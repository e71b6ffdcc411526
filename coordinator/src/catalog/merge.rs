//! One ordered view of two maps: the file's, which wins, and the API's.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::{CatalogEntry, StoredMap};

/// The entry called `name`.
pub(super) fn find<T: Clone>(
    file: &BTreeMap<Arc<str>, T>,
    stored: &StoredMap<T>,
    name: &str,
) -> Option<CatalogEntry<T>> {
    if let Some((name, value)) = file.get_key_value(name) {
        return Some(CatalogEntry::of_file(name, value));
    }
    let (name, stored) = stored.get_key_value(name)?;
    Some(CatalogEntry::stored(name, stored))
}

/// The entries whose names come after `after`, by name.
pub(super) fn merge<'a, T: Clone>(
    file: &'a BTreeMap<Arc<str>, T>,
    stored: &'a StoredMap<T>,
    after: &'a str,
) -> impl Iterator<Item = CatalogEntry<T>> + 'a {
    let range = (Bound::Excluded(after), Bound::Unbounded);
    let mut of_file = file.range::<str, _>(range).peekable();
    let mut of_kept = stored.range::<str, _>(range).peekable();
    std::iter::from_fn(move || {
        let from_file = match (of_file.peek(), of_kept.peek()) {
            (Some((file, _)), Some((stored, _))) => {
                if file == stored {
                    // The file's wins.
                    of_kept.next();
                    true
                } else {
                    file < stored
                }
            }
            (file, _) => file.is_some(),
        };
        if from_file {
            return of_file
                .next()
                .map(|(name, value)| CatalogEntry::of_file(name, value));
        }
        of_kept
            .next()
            .map(|(name, stored)| CatalogEntry::stored(name, stored))
    })
}
