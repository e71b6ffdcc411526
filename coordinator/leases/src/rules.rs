//! Names of the rules whose scopes clients ask for.
//!
//! A limit for a misspelt rule limits nothing, and only the clients know how their rules are called. Names
//! stay when the leases end, so that a rule with little traffic is known, too.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tollgate_config::catalog::rule_name;
use tollgate_core::units::Instant;

/// The most names, far more than a fleet has rules.
const NAMES_MAX: usize = 1000;

/// Names of the rules that this process has been asked for since its start, over all APIs; clones
/// share them.
#[derive(Clone, Debug, Default)]
pub struct RuleNames(Arc<RwLock<Names>>);

#[derive(Debug, Default)]
struct Names {
    names: BTreeSet<String>,
    /// Since when every client that asks is heard of: the first request, or the last time that the node got a shard,
    /// whose clients another one knew.
    complete_since: Option<Instant>,
}

// === impl RuleNames ===

impl RuleNames {
    /// Notes that the node leads one more shard from `now` on.
    pub(super) fn begin(&self, now: Instant) {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if names.complete_since.is_some() {
            names.complete_since = Some(now);
        }
    }

    /// Adds the name of the rule of `scope`, unless there are too many.
    pub(super) fn add(&self, now: Instant, scope: &str) {
        let name = rule_name(scope);
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if names.names.contains(name) || names.names.len() > NAMES_MAX {
            return;
        }
        drop(names);
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        names.names.insert(name.to_owned());
        names.complete_since.get_or_insert(now);
    }

    /// Returns all names, and the time in which a client that is there has asked; `None` if there were more names than
    /// there is room for.
    pub fn all(&self, now: Instant) -> Option<(BTreeSet<String>, Duration)> {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let since = names.complete_since.unwrap_or(now);
        let few = names.names.len() <= NAMES_MAX;
        few.then(|| (names.names.clone(), now.saturating_since(since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.saturating_add(Duration::from_secs(seconds))
    }

    #[test]
    fn a_rule_is_known_by_any_of_its_scopes() {
        let names = RuleNames::default();
        for scope in [
            "tenant/a",
            "tenant/b/c@d",
            "user@gold/alice",
            "route/@x",
            "all",
        ] {
            names.add(at(0), scope);
        }
        let want = ["all", "route", "tenant", "user"].map(str::to_owned);
        assert_eq!(names.all(at(0)).unwrap().0, BTreeSet::from(want));
    }

    #[test]
    fn the_time_counts_from_the_first_request_and_anew_with_each_shard() {
        let names = RuleNames::default();
        let known_for = |now| names.all(at(now)).unwrap().1.as_secs();
        names.begin(at(10));
        assert_eq!(known_for(100), 0);
        names.add(at(100), "tenant/a");
        names.add(at(150), "route/a");
        assert_eq!(known_for(160), 60);
        names.begin(at(200));
        assert_eq!(known_for(210), 10);
    }

    #[test]
    fn one_name_too_many_and_none_is_known() {
        let names = RuleNames::default();
        for rule in 0..NAMES_MAX {
            names.add(at(0), &format!("rule-{rule}/a"));
        }
        names.add(at(0), "rule-0/b");
        assert_eq!(names.all(at(0)).unwrap().0.len(), NAMES_MAX);
        for other in ["other/a", "another/a", "rule-0/a"] {
            names.add(at(0), other);
            assert_eq!(names.all(at(0)), None, "for good");
        }
        assert_eq!(names.0.read().unwrap().names.len(), NAMES_MAX + 1);
    }
}
