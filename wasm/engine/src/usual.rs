//! Usual limits of one rule, as answers tell of them: of all its scopes or, where it has plans, of those of each.

use std::collections::BTreeMap;

use tollgate_core::client::KnownLimit;

/// The most kinds of scopes of a rule of which the limits are known. Further plans have the safe capacity.
const KINDS_MAX: usize = 32;

/// Usual limits of a rule by the kinds of its scopes: the texts before the first slash of their ids.
#[derive(Debug, Default)]
pub(crate) struct Usual {
    by_kind: BTreeMap<String, KnownLimit>,
    /// Those that have changed since the other workers were told; without a limit, those that have none any more.
    changed: BTreeMap<String, Option<KnownLimit>>,
}

// === impl Usual ===

impl Usual {
    /// Returns the usual limit of scopes of `kind`.
    pub(crate) fn get(&self, kind: &str) -> Option<KnownLimit> {
        self.by_kind.get(kind).copied()
    }

    /// Takes the limit of one scope of `kind` for the usual one, if it `is_usual`, and forgets that if there is none. An
    /// answer that says nothing of others ends only that none has a limit.
    pub(crate) fn learn(&mut self, kind: &str, limit: KnownLimit, is_usual: Option<bool>) {
        let known = self.get(kind);
        let learned = match is_usual {
            Some(true) => Some(limit),
            Some(false) => None,
            None => known.filter(|known| !known.capacity.is_unlimited()),
        };
        let has_room = known.is_some() || self.by_kind.len() < KINDS_MAX;
        if learned == known || !has_room || self.changed.len() > 2 * KINDS_MAX {
            return;
        }
        match learned {
            Some(limit) => {
                self.by_kind.insert(kind.to_owned(), limit);
            }
            None => {
                self.by_kind.remove(kind);
            }
        }
        self.changed.insert(kind.to_owned(), learned);
    }

    /// Returns what other workers have not been told of.
    pub(crate) fn changed(&self) -> impl Iterator<Item = (&str, Option<KnownLimit>)> {
        self.changed
            .iter()
            .map(|(kind, limit)| (kind.as_str(), *limit))
    }

    /// Takes the limits that all workers know, its own included.
    pub(crate) fn take<'a>(&mut self, known: impl Iterator<Item = (&'a str, KnownLimit)>) {
        let known = known.take(KINDS_MAX);
        self.by_kind = known
            .map(|(kind, limit)| (kind.to_owned(), limit))
            .collect();
        self.changed.clear();
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::units::Capacity;

    use super::*;

    #[test]
    fn plans_beyond_the_bound_have_no_usual_limit() {
        let limit = |whole| KnownLimit {
            capacity: Capacity::from_whole(whole),
            burst: None,
            safe: None,
        };
        let mut usual = Usual::default();
        for plan in 0..100 {
            usual.learn(&format!("user@{plan}"), limit(plan), Some(true));
        }
        assert_eq!(
            (usual.by_kind.len(), usual.changed.len()),
            (KINDS_MAX, KINDS_MAX)
        );
        usual.learn("user@7", limit(70), Some(true));
        assert_eq!(usual.get("user@7"), Some(limit(70)));
        assert_eq!(usual.get("user@99"), None);
        for plan in 0..100 {
            usual.learn(&format!("user@{plan}"), limit(plan), Some(false));
            usual.learn(&format!("user@x{plan}"), limit(plan), Some(true));
        }
        assert!(usual.changed.len() <= 2 * KINDS_MAX + 1);
    }
}
