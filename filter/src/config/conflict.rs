//! Rules that two configurations define differently, such as those of two listeners: a process has one of each name.

use tollgate_engine::RuleConfig;

use super::{Config, Rule};

impl Config {
    /// Returns what the two say differently of rules that they share, in words: of these settings one counts for both.
    pub fn conflicts(&self, later: &Self) -> Vec<String> {
        let is_shared = self.engine.coordinator == later.engine.coordinator;
        if !is_shared || !self.engine.enabled || !later.engine.enabled {
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
    let texts = |rule: &RuleConfig| {
        let policy = &rule.policy;
        [
            ("no_lease", format!("{:?}", policy.no_lease).to_lowercase()),
            ("safe_capacity", policy.safe.to_string()),
            ("safe_bytes", policy.safe_bytes.to_string()),
            ("safe_concurrency", policy.safe_concurrency.to_string()),
            ("priority", policy.priority.level().to_string()),
            (
                "first_lease_wait_ms",
                policy.first_lease_wait.as_millis().to_string(),
            ),
            ("max_debt_ms", policy.max_debt.as_millis().to_string()),
            (
                "call_timeout_ms",
                policy.call_timeout.as_millis().to_string(),
            ),
            ("enforced_percent", rule.enforced.to_string()),
        ]
    };
    let both = texts(a).into_iter().zip(texts(b));
    let differing = both.filter(|(first, second)| first != second);
    let mut all: Vec<String> = differing
        .map(|((field, first), (_, second))| format!("{field} is {first} and {second}"))
        .collect();
    let others = [
        ("on_limit", a.shape != b.shape || a.marks != b.marks),
        ("on_overflow", a.on_overflow != b.on_overflow),
        (
            "final_cost",
            rule_a.final_cost != rule_b.final_cost || a.final_cost != b.final_cost,
        ),
        ("refusal", rule_a.terms != rule_b.terms),
    ];
    let others = others.into_iter().filter(|(_, differs)| *differs);
    all.extend(others.map(|(field, _)| format!("{field} differs")));
    all
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
                r#""enabled": false, "max_debt_ms": 7, "scopes""#,
                None,
            ),
            (
                r#""tenant","#,
                r#""tenant", "refusal": {"body": "no"}, "on_limit": "mark","#,
                Some(
                    "rule tenant: enforced_percent is 100 and 0, on_limit differs, refusal differs",
                ),
            ),
            (
                r#""scopes""#,
                r#""max_debt_ms": 7, "scopes""#,
                Some("rule tenant: max_debt_ms is 10000 and 7"),
            ),
        ];
        for (old, new, want) in rows {
            let later = config(&base.replace(old, new));
            let conflicts = config(&base).conflicts(&later);
            assert_eq!(conflicts.first().map(String::as_str), want, "{new}");
        }
    }
}
