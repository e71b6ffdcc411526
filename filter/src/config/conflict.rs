//! Rules that two configurations define differently, such as those of two listeners: a process has one of each name.

use core::fmt::Debug;

use tollgate_engine::RuleConfig;

use super::{Config, Rule};

impl Config {
    /// Returns what the two say differently of rules that they share, in words: of these settings the later ones count
    /// for both.
    pub fn conflicts(&self, later: &Self) -> Vec<String> {
        if self.engine.coordinator != later.engine.coordinator {
            return Vec::new();
        }
        let shared = self.named_rules().flat_map(|(name, first)| {
            let same = later.named_rules().filter(move |(other, _)| *other == name);
            same.map(move |(_, second)| (name, differences(first, second)))
        });
        let differing = shared.filter(|(_, differences)| !differences.is_empty());
        let in_words = |(name, differences): (&str, Vec<String>)| {
            format!("rule {name}: {}", differences.join(", "))
        };
        differing.map(in_words).collect()
    }

    fn named_rules(&self) -> impl Iterator<Item = (&str, (&RuleConfig, &Rule))> {
        let all = self.engine.rules.iter().zip(&self.rules);
        all.map(|(config, rule)| (config.name.as_str(), (config, rule)))
    }
}

// === free functions ===

/// The settings of a rule that its process has once; keys and conditions are each configuration's own.
fn differences(first: (&RuleConfig, &Rule), second: (&RuleConfig, &Rule)) -> Vec<String> {
    let ((a, rule_a), (b, rule_b)) = (first, second);
    let (of_a, of_b) = (&a.policy, &b.policy);
    let differences = [
        difference("no_lease", of_a.no_lease, of_b.no_lease),
        difference("safe_capacity", of_a.safe, of_b.safe),
        difference("safe_bytes", of_a.safe_bytes, of_b.safe_bytes),
        difference(
            "safe_concurrency",
            of_a.safe_concurrency,
            of_b.safe_concurrency,
        ),
        difference("priority", of_a.priority, of_b.priority),
        difference(
            "first_lease_wait_ms",
            of_a.first_lease_wait,
            of_b.first_lease_wait,
        ),
        difference("max_debt_ms", of_a.max_debt, of_b.max_debt),
        difference("enforced_percent", a.enforced, b.enforced),
        difference("on_overflow", a.on_overflow, b.on_overflow),
        difference("shape", a.shape, b.shape),
        difference("plan", a.has_plans, b.has_plans),
        difference("final_cost", &rule_a.final_cost, &rule_b.final_cost),
        difference("refusal", &rule_a.terms, &rule_b.terms),
    ];
    differences.into_iter().flatten().collect()
}

fn difference<T: PartialEq + Debug>(field: &str, first: T, second: T) -> Option<String> {
    (first != second).then(|| format!("{field} is {first:?} and {second:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> Config {
        Config::parse(json.as_bytes()).unwrap().0
    }

    #[test]
    fn settings_that_a_process_has_once_must_be_the_same_everywhere() {
        let tenant = r#"{"name": "tenant", "key": {"header": "x-tenant"}}"#;
        let base = format!(r#"{{"coordinator": "c", "scopes": [{tenant}]}}"#);
        let rows = [
            (r#""x-tenant"}"#, r#""x-org"}, "missing": "deny""#, None),
            (
                r#""x-tenant"}"#,
                r#""x-tenant"}, "when": {"path": "/"}"#,
                None,
            ),
            (r#""tenant","#, r#""user", "enforced_percent": 0,"#, None),
            (r#""c","#, r#""d", "max_debt_ms": 7,"#, None),
            (
                r#""tenant","#,
                r#""tenant", "enforced_percent": 0,"#,
                Some("rule tenant: enforced_percent is 100 and 0"),
            ),
            (
                r#""scopes""#,
                r#""max_debt_ms": 7, "scopes""#,
                Some("rule tenant: max_debt_ms is 10s and 7ms"),
            ),
        ];
        for (old, new, want) in rows {
            let later = config(&base.replace(old, new));
            let conflicts = config(&base).conflicts(&later);
            assert_eq!(conflicts.first().map(String::as_str), want, "{new}");
        }
    }
}
