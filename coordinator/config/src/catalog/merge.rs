//! One ordered view of the file's objects, which win, and the API's.

use std::iter;
use std::ops::Bound;
use std::sync::Arc;

use super::{Catalog, CatalogEntry, Group, GroupKind, ObjectKind};

// === impl Catalog ===

impl Catalog {
    /// The object of `kind` called `name`.
    pub fn find<K: ObjectKind>(&self, kind: K, name: &str) -> Option<CatalogEntry<K::Object>> {
        let (file, stored) = kind.objects(self);
        if let Some((name, value)) = file.get_key_value(name) {
            return Some(CatalogEntry::of_file(name, value));
        }
        let (name, stored) = stored.get_key_value(name)?;
        Some(CatalogEntry::stored(name, stored))
    }

    /// The group called `name`.
    pub fn group(&self, name: &str) -> Option<CatalogEntry<Arc<Group>>> {
        self.find(GroupKind, name)
    }

    /// The objects of `kind` whose names come after `after`, by name.
    pub fn list<'a, K: ObjectKind>(
        &'a self,
        kind: K,
        after: &'a str,
    ) -> impl Iterator<Item = CatalogEntry<K::Object>> + 'a {
        let (file, stored) = kind.objects(self);
        let range = (Bound::Excluded(after), Bound::Unbounded);
        let mut of_file = file.range::<str, _>(range).peekable();
        let mut of_api = stored.range::<str, _>(range).peekable();
        iter::from_fn(move || {
            if let (Some((file, _)), Some((stored, _))) = (of_file.peek(), of_api.peek())
                && file == stored
            {
                // The file's wins.
                of_api.next();
            }
            let next_of_api = of_api.peek().map(|(name, _)| *name);
            let from_file =
                of_file.next_if(|(name, _)| next_of_api.is_none_or(|other| *name < other));
            if let Some((name, value)) = from_file {
                return Some(CatalogEntry::of_file(name, value));
            }
            let (name, stored) = of_api.next()?;
            Some(CatalogEntry::stored(name, stored))
        })
    }
}
