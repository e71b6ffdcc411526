//! Values of the descriptors with one list of keys, each with its limit.

use super::source::{Descriptor, Level};
use super::target::RequestLimit;

/// Values of a list of keys, and their limit. Of several entries the first that matches decides.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) levels: Vec<Level<'a>>,
    /// The limit; `None` if there is none for these values, though there is for more general ones.
    pub(super) limit: Option<RequestLimit>,
    pub(super) source: Option<&'a Descriptor>,
}

// === free functions ===

/// Adds the lists of keys that a limit stands behind, in the order of the file.
pub(super) fn key_lists<'a>(
    descriptors: Option<&'a [Descriptor]>,
    keys: &mut Vec<&'a str>,
    lists: &mut Vec<Vec<&'a str>>,
) {
    for descriptor in descriptors.into_iter().flatten() {
        keys.push(descriptor.key.as_str());
        if descriptor.rate_limit.is_some() && !lists.contains(keys) {
            lists.push(keys.clone());
        }
        key_lists(descriptor.descriptors.as_deref(), keys, lists);
        keys.pop();
    }
}

/// Returns the entries of `keys`.
pub(super) fn entries<'a>(descriptors: Option<&'a [Descriptor]>, keys: &[&str]) -> Vec<Entry<'a>> {
    let mut all = Vec::new();
    walk(descriptors, keys, &mut Vec::new(), &mut all);
    // To have no limit needs no words, unless a later entry would give one.
    let mut needed: Vec<Entry<'a>> = Vec::new();
    for entry in all.into_iter().rev() {
        let overlaps = |later: &Entry<'_>| {
            let mut levels = entry.levels.iter().zip(&later.levels);
            later.limit.is_some() && levels.all(|(one, other)| one.overlaps(*other))
        };
        if entry.limit.is_some() || needed.iter().any(overlaps) {
            needed.push(entry);
        }
    }
    needed.reverse();
    needed
}

/// Adds the entries of `keys` that come after `levels`. As with envoyproxy/ratelimit, the first
/// descriptor that matches a value decides, even if none of those within matches the next one.
fn walk<'a>(
    descriptors: Option<&'a [Descriptor]>,
    keys: &[&str],
    levels: &mut Vec<Level<'a>>,
    entries: &mut Vec<Entry<'a>>,
) {
    let Some((key, rest)) = keys.split_first() else {
        return;
    };
    let with_key = descriptors.into_iter().flatten();
    let with_key = with_key.filter(|descriptor| descriptor.key.as_str() == *key);
    let mut with_key: Vec<&Descriptor> = with_key.collect();
    with_key.sort_by_key(|descriptor| descriptor.level().rank());
    for descriptor in with_key {
        levels.push(descriptor.level());
        if rest.is_empty() {
            entries.push(Entry {
                levels: levels.clone(),
                limit: descriptor.limit(),
                source: Some(descriptor),
            });
        } else {
            walk(descriptor.descriptors.as_deref(), rest, levels, entries);
        }
        levels.pop();
        if descriptor.level().is_any() {
            return;
        }
    }
    let mut others = levels.clone();
    others.resize(levels.len() + keys.len(), Level::Any);
    entries.push(Entry {
        levels: others,
        limit: None,
        source: None,
    });
}
