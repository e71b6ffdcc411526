//! Errors in the fields of a message.

use tollgate_core::lease::{DemandError, Epoch, IdError};
use tollgate_core::limit::LimitError;
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
    /// An id longer than there is room for beside what is put in front of it.
    #[error("has {len} bytes, more than {max}")]
    IdTooLong {
        /// The bytes that were sent.
        len: usize,
        /// The most that are accepted.
        max: usize,
    },
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
    /// A shard out of range.
    #[error("{0} is more than the highest shard, 65536")]
    Shard(u32),
    /// A number of millionths that is neither a capacity nor the word for none.
    #[error("{0} millionths are more than the largest capacity, 1e12")]
    Micros(u64),
    /// A part of more than the whole.
    #[error("{0} millionths are more than the whole")]
    Part(u32),
    /// An algorithm that is unspecified or newer than this build.
    #[error("{0} is not an algorithm that is known here")]
    UnknownAlgorithm(i32),
    /// An index beyond the end of the list that it points into.
    #[error("{index} is not in the list, which has {len} entries")]
    Index {
        /// The index.
        index: u32,
        /// Length of the list.
        len: usize,
    },
    /// Bands that are not a demand.
    #[error(transparent)]
    Demand(#[from] DemandError),
    /// A limit whose fields contradict each other.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// No run of a client.
    #[error("is 0: a client chooses a random number when it starts, and says it in every call")]
    NoIncarnation,
    /// A term of a client that has said its incarnation.
    #[error(
        "{0} must be 0 beside an incarnation: only a coordinator says its term, instead of one"
    )]
    TermOfIncarnation(u64),
    /// A term that no coordinator has.
    #[error("{0} is more than the highest term, {max}", max = Epoch::MAX.0)]
    Term(u64),
    /// Snapshot of another form than this build reads.
    #[error("{0} is not the form that is read here, {form}", form = crate::snapshot::FORM)]
    Form(u32),
    /// A band that speaks for no client.
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
