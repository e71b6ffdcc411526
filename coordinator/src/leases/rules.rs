//! Names of the rules whose scopes clients ask for.
//!
//! A limit for a misspelt rule limits nothing, and only the clients know how their rules are called. Names
//! stay when the leases end, so that a rule with little traffic is known, too.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use crate::catalog::rule_name;

/// The most names, far more than a fleet has rules.
const NAMES_MAX: usize = 1000;

/// Names of the rules that this process has been asked for since its start, over all APIs; clones
/// share them.
#[derive(Clone, Debug)]
pub struct RuleNames(Arc<RwLock<Option<BTreeSet<String>>>>);

// === impl RuleNames ===

impl Default for RuleNames {
    fn default() -> Self {
        Self(Arc::new(RwLock::new(Some(BTreeSet::new()))))
    }
}

impl RuleNames {
    /// Adds the name of the rule of `scope`. One name too many, and none is known any more.
    pub(super) fn add(&self, scope: &str) {
        let name = rule_name(scope);
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if names.as_ref().is_none_or(|names| names.contains(name)) {
            return;
        }
        drop(names);
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &mut *names {
            known.insert(name.to_owned());
            if known.len() > NAMES_MAX {
                *names = None;
            }
        }
    }

    /// Returns all names; `None` if there were more than there is room for.
    pub fn all(&self) -> Option<BTreeSet<String>> {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        names.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            names.add(scope);
        }
        let want = ["all", "route", "tenant", "user"].map(str::to_owned);
        assert_eq!(names.all(), Some(BTreeSet::from(want)));
    }

    #[test]
    fn one_name_too_many_and_none_is_known() {
        let names = RuleNames::default();
        for rule in 0..NAMES_MAX {
            names.add(&format!("rule-{rule}/a"));
        }
        names.add("rule-0/b");
        assert_eq!(names.all().map(|names| names.len()), Some(NAMES_MAX));
        names.add("other/a");
        assert_eq!(names.all(), None);
        names.add("rule-0/a");
        assert_eq!(names.all(), None, "for good");
    }
}
