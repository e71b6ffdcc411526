//! Answers of several shards and nodes, merged into one.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Place;

use crate::lease_view::{ScopeDetail, ScopeSummary};

/// Answer about a thing that several lease tables know.
pub(super) trait Merge {
    /// Adds the answer of another lease table.
    fn merge(&mut self, other: Self);
}

/// Entry of a list.
pub(super) trait Entry: Merge {
    /// Returns the id by which the list is ordered.
    fn key(&self) -> &str;
}

// === impl Merge ===

impl Merge for ScopeSummary {
    /// Adds units that only `other` has: a scope that has just moved is in two lease tables.
    fn merge(&mut self, other: Self) {
        for (name, unit) in other.units {
            self.units.entry(name).or_insert(unit);
        }
    }
}

impl Entry for ScopeSummary {
    fn key(&self) -> &str {
        &self.scope
    }
}

impl Merge for ScopeDetail {
    fn merge(&mut self, other: Self) {
        for (name, unit) in other.units {
            self.units.entry(name).or_insert(unit);
        }
    }
}

// === free functions ===

/// Returns all answers as one; none if there are none.
pub(super) fn one<T: Merge>(answers: impl IntoIterator<Item = T>) -> Option<T> {
    answers.into_iter().reduce(|mut one, other| {
        one.merge(other);
        one
    })
}

/// Returns the first `limit` entries of `pages` by their keys, and the last key if more follow. Each
/// page has the first entries of its list, and whether more follow there.
pub(super) fn page<T: Entry>(
    pages: impl IntoIterator<Item = (Vec<T>, bool)>,
    limit: usize,
) -> (Vec<T>, Option<String>) {
    let mut more = false;
    let mut entries: BTreeMap<String, T> = BTreeMap::new();
    for (page, follows) in pages {
        more |= follows;
        for entry in page {
            match entries.entry(entry.key().to_owned()) {
                Place::Occupied(mut one) => one.get_mut().merge(entry),
                Place::Vacant(place) => drop(place.insert(entry)),
            }
        }
    }
    more |= entries.len() > limit;
    let first: Vec<T> = entries.into_values().take(limit).collect();
    let last = first.last().map(|last| last.key().to_owned());
    (first, last.filter(|_| more))
}

#[cfg(test)]
mod tests {
    use crate::lease_view::{Amount, TrafficView, UnitSummary};

    use super::*;

    fn scope(name: &str, units: &[(&str, usize)]) -> ScopeSummary {
        let unit = |(unit, client_count): &(&str, usize)| {
            let summary = UnitSummary {
                capacity: Amount::Unlimited,
                safe: None,
                learning_ms: 0,
                sum_has: Amount::Number(0.0),
                sum_wants: Amount::Number(0.0),
                client_count: *client_count,
                limited_by: None,
                written: None,
                bucket: None,
                quotas: Vec::new(),
                traffic: TrafficView::default(),
            };
            ((*unit).to_owned(), summary)
        };
        ScopeSummary {
            scope: name.to_owned(),
            units: units.iter().map(unit).collect(),
        }
    }

    #[test]
    fn pages_become_one_page() {
        /// Names of a page, and whether more follow.
        type Page = (&'static [&'static str], bool);
        let rows: [(&[Page], &[&str], Option<&str>); 4] = [
            (&[], &[], None),
            (&[(&["b"], false), (&["a"], false)], &["a", "b"], None),
            (
                &[(&["b", "c"], false), (&["a"], false)],
                &["a", "b"],
                Some("b"),
            ),
            (
                &[(&["a", "d"], true), (&["a"], false)],
                &["a", "d"],
                Some("d"),
            ),
        ];
        for (pages, want, next) in rows {
            let pages = pages.iter().map(|(names, more)| {
                let scopes = names.iter().map(|name| scope(name, &[]));
                (scopes.collect(), *more)
            });
            let (found, after) = page(pages, 2);
            let names: Vec<&str> = found.iter().map(|scope| &*scope.scope).collect();
            assert_eq!((&names[..], after.as_deref()), (want, next));
        }
    }

    #[test]
    fn a_scope_in_two_lease_tables_has_the_units_of_both() {
        let mut one = scope("a", &[("requests", 1)]);
        one.merge(scope("a", &[("requests", 2), ("concurrency", 3)]));
        assert_eq!(one, scope("a", &[("requests", 1), ("concurrency", 3)]));
    }
}
