//! Kinds that values of metadata had last.
//!
//! Envoy tells a value of metadata to those only who ask for its kind, and writes an error to its log for
//! each wrong guess; asking for a list is free. So each thread remembers what it has found, and guesses
//! wrong once for each place whose kind is not the likely one, and not for each request.

use core::cell::RefCell;
use core::hash::{Hash, Hasher};
use std::collections::BTreeMap;
use std::hash::DefaultHasher;

use tollgate_filter::MetadataKind;

/// The most places that a thread remembers; more begin anew.
const PLACES_MAX: usize = 1000;

thread_local! {
    static KINDS: RefCell<Kinds> = const { RefCell::new(Kinds(BTreeMap::new())) };
}

/// The last kinds by place. One that is of another place only costs a wrong guess.
#[derive(Debug)]
struct Kinds(BTreeMap<u64, MetadataKind>);

// === impl Kinds ===

impl Kinds {
    fn remember(&mut self, place: u64, kind: MetadataKind) {
        if self.0.len() >= PLACES_MAX {
            self.0.clear();
        }
        self.0.insert(place, kind);
    }
}

// === free functions ===

/// Returns the number of the place with this name or address.
pub(crate) fn place(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Finds a value at `place` by asking `read` for one kind after another, which is `likely` if nothing else
/// is known.
pub(crate) fn find<V>(
    place: u64,
    likely: MetadataKind,
    read: impl Fn(MetadataKind) -> Option<V>,
) -> Option<V> {
    let last = KINDS.with_borrow(|kinds| kinds.0.get(&place).copied());
    let rest = in_order(likely).into_iter();
    let rest = rest.filter(|kind| last != Some(*kind));
    let mut all = last.into_iter().chain(rest);
    let (kind, value) = all.find_map(|kind| Some((kind, read(kind)?)))?;
    if last != Some(kind) {
        KINDS.with_borrow_mut(|kinds| kinds.remember(place, kind));
    }
    Some(value)
}

/// All kinds, the likeliest first of those whose question can cost a line.
fn in_order(likely: MetadataKind) -> [MetadataKind; 4] {
    use MetadataKind::{Flag, Number, Text, Texts};
    match likely {
        Text | Texts => [Texts, Text, Number, Flag],
        Number => [Texts, Number, Text, Flag],
        Flag => [Texts, Flag, Text, Number],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::RefCell;

    /// The kinds that are asked for until a value of `kind` is found.
    fn questions(place: u64, likely: MetadataKind, kind: MetadataKind) -> Vec<MetadataKind> {
        let order = RefCell::new(Vec::new());
        find(place, likely, |question| {
            order.borrow_mut().push(question);
            (question == kind).then_some(())
        });
        order.into_inner()
    }

    #[test]
    fn the_kind_that_was_found_is_asked_for_first() {
        use MetadataKind::{Flag, Number, Text, Texts};
        assert_eq!(questions(1, Number, Number), [Texts, Number]);
        assert_eq!(questions(1, Number, Number), [Number]);
        assert_eq!(questions(1, Number, Text), [Number, Texts, Text]);
        assert_eq!(questions(1, Number, Text), [Text]);
        assert_eq!(questions(2, Flag, Flag), [Texts, Flag]);
        assert_eq!(questions(3, Texts, Texts), [Texts]);
    }

    #[test]
    fn a_thread_remembers_a_bounded_number_of_places() {
        for place in 0..3 * PLACES_MAX as u64 {
            questions(place, MetadataKind::Text, MetadataKind::Text);
            assert!(KINDS.with_borrow(|kinds| kinds.0.len()) <= PLACES_MAX);
        }
    }
}
