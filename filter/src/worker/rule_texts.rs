//! Rules as refusals, reports and warnings tell of them.

use std::collections::BTreeMap;

use tollgate_engine::{Refusal, RuleId};

use crate::config::{Rule, Terms};
use crate::final_cost::FinalCost;
use crate::refusal::Speaker;

/// Texts of all rules of a worker.
#[derive(Debug, Default)]
pub(super) struct RuleTexts(BTreeMap<RuleId, RuleText>);

/// Texts of a rule, and where its requests' cost is.
#[derive(Debug)]
struct RuleText {
    name: String,
    /// Where the rule looks for a key, in words.
    wanted: String,
    terms: Terms,
    /// Where it finds at a request's end what it has cost in all.
    final_cost: Option<FinalCost>,
}

// === impl RuleTexts ===

impl RuleTexts {
    /// Adds a rule, or puts it in the place of the one before of this id.
    pub(super) fn insert(&mut self, id: RuleId, name: &str, rule: &Rule) {
        let text = RuleText {
            name: name.to_owned(),
            wanted: rule.key.in_words(),
            terms: rule.terms.clone(),
            final_cost: rule.final_cost.clone(),
        };
        self.0.insert(id, text);
    }

    /// Returns the rule that refuses, for what the client is told.
    pub(super) fn speaker(&self, refusal: Refusal) -> Speaker<'_> {
        let text = refusal.rule().and_then(|rule| self.0.get(&rule));
        let told_by = refusal.told_by().and_then(|rule| self.0.get(&rule));
        Speaker {
            rule: refusal.rule().map_or("", |rule| self.name(rule)),
            wanted: text.map_or("", |text| &text.wanted),
            terms: told_by.map_or(Terms::PLAIN, |text| &text.terms),
        }
    }

    /// Returns the name of a rule; the limits of no rule are those of groups.
    pub(super) fn name(&self, rule: RuleId) -> &str {
        self.0.get(&rule).map_or("group", |text| &text.name)
    }

    /// Returns whether a rule has this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.values().any(|text| text.name == name)
    }

    /// Returns where a rule finds what its requests have cost.
    pub(super) fn final_cost(&self, rule: RuleId) -> Option<&FinalCost> {
        self.0.get(&rule)?.final_cost.as_ref()
    }
}
