//! Errors of a configuration.

use std::fmt;

use serde_saphyr::Location;

use super::Rule;

/// All errors of a configuration; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

/// Broken rule of one field: `7:22: limits[1].requests.rate: -5 is negative`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The line, from 1; 0 if the field stands in no file.
    pub line: u64,
    /// The column, from 1; 0 if the field stands in no file.
    pub column: u64,
    /// The path to the field from the root; empty for the whole file.
    pub field: String,
    /// The value, unless it is no scalar or may be secret.
    pub value: Option<String>,
    /// The rule, with the value that breaks it unless that may be secret.
    pub rule: String,
}

// === impl ConfigErrors ===

impl ConfigErrors {
    /// One error, of `field`, which stands in no file.
    pub(crate) fn nowhere(field: &str, rule: impl Into<Rule>) -> Self {
        Self(vec![ConfigError::new(Location::UNKNOWN, field, rule)])
    }
}

impl fmt::Display for ConfigErrors {
    /// One line for each error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            let separator = if i == 0 { "" } else { "\n" };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

// === impl ConfigError ===

impl ConfigError {
    /// The field called `field`, which stands `at`, breaks `rule`.
    pub(crate) fn new(at: Location, field: impl Into<String>, rule: impl Into<Rule>) -> Self {
        Self {
            line: at.line(),
            column: at.column(),
            field: field.into(),
            value: None,
            rule: rule.into().0,
        }
    }

    /// The same error, of `value`. It is kept only where the rule quotes it: a rule about a secret
    /// does not.
    pub(crate) fn of_value(self, value: &str) -> Self {
        let quoted = [value, &value.escape_debug().to_string()];
        let value = quoted.iter().any(|value| self.rule.contains(value));
        Self {
            value: value.then(|| quoted[0].to_owned()),
            ..self
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            line,
            column,
            field,
            rule,
            ..
        } = self;
        if *line > 0 {
            write!(f, "{line}:{column}: ")?;
        }
        if !field.is_empty() {
            write!(f, "{field}: ")?;
        }
        f.write_str(rule)
    }
}

impl std::error::Error for ConfigError {}
