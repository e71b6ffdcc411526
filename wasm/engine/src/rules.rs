//! Rules of an engine: those of its configurations, and one for the limits of groups.

use tollgate_core::client::{KnownLimit, Policy};

use crate::config::{Estimate, Overflow, RuleConfig, RuleId, Shape};
use crate::refusal::Refusal;
use crate::stats::RuleStats;
use crate::users::{InUse, Users};
use crate::usual::Usual;

/// Name of the rule for canonical scopes that belong to no other; no configuration can have it.
const CANONICAL: &str = "~canonical";
/// The beginning of the keys of a rule's overflow scopes, which others share when the slot table is
/// full; a number follows.
pub const OVERFLOW: &str = "~overflow-";

/// Beginning of a key that has a plan: no header has this byte.
const PLAN: char = '\0';

/// The most rules of all configurations in use at a time.
pub(crate) const IN_USE_MAX: usize = 8192;

/// Rules of an engine, by their ids.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    rules: Vec<Rule>,
}

/// Settings and counters of a rule.
#[derive(Debug)]
struct Rule {
    config: RuleConfig,
    stats: RuleStats,
    usual: Usual,
    users: Users<()>,
}

// === impl Rules ===

impl Rules {
    /// Takes over the settings of a rule for a configuration. It has been known by its name or is new: then it gets
    /// the id of one that nobody uses and that has no scopes, or a new one.
    pub(crate) fn bind(
        &mut self,
        config: &RuleConfig,
        user: &InUse,
        has_scopes: impl Fn(RuleId) -> bool,
    ) -> RuleId {
        let known = self.named(&config.name);
        let Some(id) = known.or_else(|| self.place(config, has_scopes)) else {
            return RuleId::NONE;
        };
        if let Some(rule) = self.rules.get_mut(id.index()) {
            rule.config = config.clone();
            rule.users.add(user, ());
        }
        id
    }

    /// Returns the id of a new rule, if there is a place for it.
    fn place(
        &mut self,
        config: &RuleConfig,
        has_scopes: impl Fn(RuleId) -> bool,
    ) -> Option<RuleId> {
        let ids = (0_u16..).map(RuleId).zip(&self.rules);
        let mut free = ids.filter(|(id, rule)| {
            rule.users.is_empty() && rule.config.name != CANONICAL && !has_scopes(*id)
        });
        if let Some((id, _)) = free.next() {
            *self.rules.get_mut(id.index())? = Rule::new(config.clone());
            return Some(id);
        }
        (self.rules.len() < IN_USE_MAX).then(|| self.add(config.clone()))
    }

    fn add(&mut self, config: RuleConfig) -> RuleId {
        let id = RuleId(self.rules.len() as u16);
        self.rules.push(Rule::new(config));
        id
    }

    /// Gives the limits of groups the policy of `rule`, if there are any.
    pub(crate) fn rebind_canonical(&mut self, rule: &RuleConfig) {
        let mut rules = self.rules.iter_mut();
        if let Some(canonical) = rules.find(|rule| rule.config.name == CANONICAL) {
            canonical.config.policy = rule.policy.clone();
        }
    }

    /// Returns the rule for canonical scopes of no rule; a new one has the policy of `first`.
    pub(crate) fn canonical(&mut self, first: Option<&RuleConfig>) -> RuleId {
        if let Some(known) = self.named(CANONICAL) {
            return known;
        }
        self.add(RuleConfig {
            name: CANONICAL.to_owned(),
            policy: first.map(|rule| rule.policy.clone()).unwrap_or_default(),
            enforced: 100,
            on_overflow: Overflow::Share,
            final_cost: None,
            shape: None,
            marks: false,
        })
    }

    /// Returns the number of rules.
    pub(crate) fn len(&self) -> usize {
        self.rules.len()
    }

    /// Returns the rule called `name`.
    pub(crate) fn named(&self, name: &str) -> Option<RuleId> {
        let mut rules = self.rules.iter();
        let index = rules.position(|rule| rule.config.name == name)?;
        Some(RuleId(index as u16))
    }

    /// Returns the rule and the key of a canonical scope, as far as there is one for it.
    pub(crate) fn of_canonical<'a>(&self, id: &'a str) -> Option<(RuleId, &'a str)> {
        let parts = id.split_once('/');
        let own = parts.and_then(|(rule, key)| Some((self.named(rule)?, key)));
        own.or_else(|| Some((self.named(CANONICAL)?, id)))
    }

    /// Returns the settings of a rule.
    pub(crate) fn get(&self, rule: u16) -> Option<&RuleConfig> {
        Some(&self.rules.get(usize::from(rule))?.config)
    }

    /// Returns the name of a rule.
    pub(crate) fn name(&self, rule: u16) -> &str {
        self.get(rule).map_or("", |rule| &rule.name)
    }

    /// Returns how a rule lets requests wait for their turn, if it does.
    pub(crate) fn shape(&self, rule: u16) -> Option<Shape> {
        self.get(rule)?.shape
    }

    /// Returns the fate of a rule's scopes for which no slot is left.
    pub(crate) fn on_overflow(&self, rule: u16) -> Overflow {
        self.get(rule)
            .map_or(Overflow::Share, |rule| rule.on_overflow)
    }

    /// Returns what a rule's requests take at their beginning, if their cost is known only at their end.
    #[inline]
    pub(crate) fn final_cost(&self, rule: u16) -> Option<Estimate> {
        self.get(rule)?.final_cost
    }

    /// Returns how many of a hundred requests that a rule would refuse it does refuse.
    pub(crate) fn enforced(&self, rule: u16) -> u8 {
        self.get(rule).map_or(100, |rule| rule.enforced)
    }

    /// Returns whether the upstream is told of a rule's refusals, which have no effect.
    pub(crate) fn marks(&self, rule: RuleId) -> bool {
        self.get(rule.0).is_some_and(|rule| rule.marks)
    }

    /// Returns whether no refusal of a rule has any effect, so that its requests do not wait either.
    pub(crate) fn is_shadow(&self, rule: u16) -> bool {
        self.enforced(rule) == 0
    }

    /// Returns the policy of a rule for one of its scopes.
    pub(crate) fn policy(&self, rule: u16, scope: &str) -> Option<Policy> {
        Some(self.rules.get(usize::from(rule))?.policy(scope))
    }

    /// Returns the policy of the rule that `scope` belongs to; the default one if no rule has that
    /// name any more.
    pub(crate) fn policy_of(&self, scope: &str) -> Policy {
        let rule = self.named(rule_of(kind_of(scope)));
        let rule = rule.or_else(|| self.named(CANONICAL));
        let rule = rule.and_then(|rule| self.rules.get(rule.index()));
        rule.map(|rule| rule.policy(scope)).unwrap_or_default()
    }

    /// Takes the limit of one scope for the usual one of its kind, if it `is_usual`. The limits of overflow scopes say
    /// nothing at all.
    pub(crate) fn learn_limit(&mut self, scope: &str, limit: KnownLimit, is_usual: Option<bool>) {
        let scope = scope.split_once('/');
        let Some((kind, _)) = scope.filter(|(_, key)| !key.starts_with(OVERFLOW)) else {
            return;
        };
        let rule = self.named(rule_of(kind));
        if let Some(rule) = rule.and_then(|id| self.rules.get_mut(id.index())) {
            rule.usual.learn(kind, limit, is_usual);
        }
    }

    /// Returns the usual limits that other workers have not been told of, by the kinds of their scopes.
    pub(crate) fn learned_limits(&self) -> Vec<(String, Option<KnownLimit>)> {
        let learned = self.rules.iter().flat_map(|rule| rule.usual.changed());
        let learned = learned.map(|(kind, limit)| (kind.to_owned(), limit));
        learned.collect()
    }

    /// Takes the usual limits of all rules, those that this worker has learned included.
    pub(crate) fn take_usual_limits<'a>(
        &mut self,
        limits: impl Iterator<Item = (&'a str, KnownLimit)> + Clone,
    ) {
        for rule in &mut self.rules {
            let name = &rule.config.name;
            let own = limits.clone().filter(|(kind, _)| rule_of(kind) == name);
            rule.usual.take(own);
        }
    }

    /// Counts a refusal that has an effect.
    pub(crate) fn count_refused(&mut self, refusal: Refusal) {
        if let Some(stats) = self.stats_of(refusal) {
            stats.refused.of(refusal).add_one();
        }
    }

    /// Counts a refusal that has no effect.
    pub(crate) fn count_shadowed(&mut self, refusal: Refusal) {
        if let Some(stats) = self.stats_of(refusal) {
            stats.shadowed.of(refusal).add_one();
        }
    }

    fn stats_of(&mut self, refusal: Refusal) -> Option<&mut RuleStats> {
        let rule = self.rules.get_mut(refusal.rule()?.index())?;
        Some(&mut rule.stats)
    }

    /// Returns the names and counters of all rules; the limits of groups are `canonical`.
    pub(crate) fn stats(&self) -> impl Iterator<Item = (&str, &RuleStats)> {
        self.rules.iter().map(|rule| {
            let name = match rule.config.name.as_str() {
                CANONICAL => "canonical",
                name => name,
            };
            (name, &rule.stats)
        })
    }
}

// === impl Rule ===

impl Rule {
    fn new(config: RuleConfig) -> Self {
        Self {
            config,
            stats: RuleStats::default(),
            usual: Usual::default(),
            users: Users::default(),
        }
    }

    fn policy(&self, scope: &str) -> Policy {
        Policy {
            usual: self.usual.get(kind_of(scope)),
            ..self.config.policy.clone()
        }
    }
}

// === free functions ===

/// Returns the kind of `scope`: its rule's name, and its plan if it has one.
fn kind_of(scope: &str) -> &str {
    scope.split_once('/').map_or(scope, |(kind, _)| kind)
}

/// Returns the name of the rule of scopes of `kind`.
fn rule_of(kind: &str) -> &str {
    kind.split_once('@').map_or(kind, |(rule, _)| rule)
}

/// Returns the scope id of a rule's key, in which its plan follows the rule's name; the keys of canonical scopes are
/// ids themselves.
pub(crate) fn scope_id(rule: &str, key: &str) -> String {
    match key.strip_prefix(PLAN) {
        _ if rule == CANONICAL && !key.starts_with(OVERFLOW) => key.to_owned(),
        Some(planned) => format!("{rule}@{planned}"),
        None => format!("{rule}/{key}"),
    }
}

/// Returns the key of a rule with `plan`, which is a part of the scope's id: `user@gold/alice`. Neither begins with a
/// control character.
pub fn planned_key(plan: &str, key: &str) -> String {
    format!("{PLAN}{plan}/{key}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_has_its_plan_behind_the_rules_name() {
        let rows = [
            ("user", "alice".to_owned(), "user/alice"),
            ("user", planned_key("gold", "alice"), "user@gold/alice"),
            ("user", planned_key("gold", "a/b"), "user@gold/a/b"),
            ("user", "@gold/alice".to_owned(), "user/@gold/alice"),
            (CANONICAL, "group/gold".to_owned(), "group/gold"),
        ];
        for (rule, key, want) in rows {
            assert_eq!(scope_id(rule, &key), want);
        }
    }
}
