//! What is wrong with a message, and where.

use tollgate_core::lease::IdError;
use tollgate_core::units::CapacityError;

/// A field of a message that breaks a rule: `scopes[3].units[0].wants: NaN is not a finite number`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{path}: {rule}")]
pub struct FieldError {
    /// The way to the field, from the message's root.
    pub path: String,
    /// The rule it breaks.
    pub rule: Rule,
}

/// A rule that a field can break, with the values that broke it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Rule {
    /// Not a capacity.
    #[error(transparent)]
    Number(#[from] CapacityError),
    /// Not an id.
    #[error(transparent)]
    Id(#[from] IdError),
    /// A list without entries where nothing could be answered.
    #[error("has no entries")]
    Empty,
    /// A list longer than its bound.
    #[error("has {count} entries, more than {max}")]
    TooMany {
        /// The entries that were sent.
        count: usize,
        /// The most that are accepted.
        max: usize,
    },
    /// The same thing twice, so that it is unclear which one counts.
    #[error("names the same as entry {of}")]
    Duplicate {
        /// The index of the first entry that names it.
        of: usize,
    },
    /// A unit that is unspecified or newer than this build.
    #[error("{0} is not a unit that is known here")]
    UnknownUnit(i32),
    /// A duration out of range.
    #[error("{0} ms is not between 1 ms and a day")]
    Duration(u64),
    /// A time that is left, out of range.
    #[error("{0} ms is more than a day")]
    Remaining(u64),
    /// A priority out of range.
    #[error("{0} is more than the highest priority, 15")]
    Priority(u32),
    /// A band that speaks for nobody.
    #[error("must be at least 1")]
    NoSubclients,
}

// === impl FieldError ===

impl FieldError {
    /// The field called `field` of the message at hand breaks `rule`.
    pub fn new(field: &str, rule: impl Into<Rule>) -> Self {
        Self {
            path: field.to_owned(),
            rule: rule.into(),
        }
    }

    /// The same error seen from one message further out, whose list `list` holds this one's message
    /// at `index`.
    #[must_use]
    pub fn within(self, list: &str, index: usize) -> Self {
        Self {
            path: format!("{list}[{index}].{}", self.path),
            rule: self.rule,
        }
    }
}
