//! What is wrong with a configuration, and where.

use std::fmt;

use serde_saphyr::Location;
use tollgate_core::lease::IdError;
use tollgate_core::limit::LimitError;

use super::FILE_LEN_MAX;
use super::admin::Exposed;
use super::client_tls::ClientTlsProblem;
use super::cluster::ClusterProblem;
use super::connections::CALL_BYTES_MIN;
use super::listen::PlainGrpc;
use super::parent::ParentProblem;
use crate::api::auth::TOKENS_MAX;
use crate::catalog::limits::{CHOICES_MAX, GLOB_CHOICES_MAX};
use crate::catalog::name::NameError;
use crate::catalog::quantity::QuantityError;

/// Everything that is wrong with a configuration; never empty.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

/// One thing that is wrong: `7:22: limits[1].requests.rate: -5 is negative`.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigError {
    /// The line, from 1; 0 if it is nowhere in particular.
    pub line: u64,
    /// The column, from 1; 0 if it is nowhere in particular.
    pub column: u64,
    /// The way to the field from the root; empty if the problem names it.
    pub field: String,
    /// What is wrong.
    pub problem: Problem,
}

/// What can be wrong with a value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Problem {
    /// Not the YAML that is expected here; as the reader says it.
    #[error("{0}")]
    Shape(String),
    /// A file that is too large to be read.
    #[error("the file has {0} bytes, more than {FILE_LEN_MAX}")]
    FileTooLarge(usize),
    /// A field that must be there.
    #[error("is missing")]
    Missing,
    /// Not an address.
    #[error("{0:?} is not an address like 127.0.0.1:7710")]
    Address(String),
    /// Both doors in one place.
    #[error("is the same address as listen.grpc")]
    SameAddress,
    /// Open to others.
    #[error(transparent)]
    Exposed(#[from] Exposed),
    /// Readable for others.
    #[error(transparent)]
    PlainGrpc(#[from] PlainGrpc),
    /// Not a role.
    #[error("{0:?} is neither `viewer` nor `admin`")]
    Role(String),
    /// Not a name for a token.
    #[error("{0:?} is not 1 to 64 letters, digits, spaces or any of `-_.@/`")]
    TokenName(String),
    /// Not a hash, but so many bytes of something that may be secret.
    #[error(
        "has {0} characters, which are not a SHA-256 hash: 64 hexadecimal digits, as `tollgate \
         token` prints them"
    )]
    TokenHash(usize),
    /// Two tokens that have the same.
    #[error("{0} is here twice")]
    DuplicateToken(String),
    /// Too many tokens.
    #[error("has {0} tokens, more than {TOKENS_MAX}")]
    TooManyTokens(usize),
    /// Not a page that can be public.
    #[error("{0:?} is neither `metrics` nor `status`")]
    NoSuchPage(String),
    /// Not a truth value.
    #[error("{0:?} is neither `true` nor `false`")]
    NotYesOrNo(String),
    /// Not a count.
    #[error("{0:?} is not a whole number from 1 to 1000000000")]
    Count(String),
    /// Not a number, where there is a word for no limit.
    #[error("{0:?} is neither a number nor `unlimited`")]
    NotAnAmount(String),
    /// Not a number, where there is a word for a part of the capacity.
    #[error("{0:?} is neither a number nor `dynamic`")]
    NotSafe(String),
    /// Not a quantity.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// Not one of a few words.
    #[error("{text:?} is none of {words}")]
    Word {
        /// What stands there.
        text: String,
        /// What may stand there.
        words: &'static str,
    },
    /// Not a duration.
    #[error("{text:?} is not a duration like 10s or 100ms: {cause}")]
    NotADuration {
        /// What stands there.
        text: String,
        /// What is wrong with it.
        cause: humantime::DurationError,
    },
    /// So little memory for calls that not even one may be made.
    #[error(
        "{0:?} is less than 8MiB ({CALL_BYTES_MIN}): one connection may hold an eighth, and a call \
         has up to 1 MiB"
    )]
    CallBytes(String),
    /// A duration that is no deadline for a connection.
    #[error("{0:?} is not a time from 1ms to 1h")]
    Timeout(String),
    /// Less time than a client may be silent that lives.
    #[error(
        "{0:?} is less than 45s: an HTTP/2 client is asked for a sign of life after 30s of silence, \
         and has 10s to give it"
    )]
    IdleTimeout(String),
    /// A duration that a client cannot be told, because the protocol counts in milliseconds.
    #[error("{0:?} is not a whole number of milliseconds")]
    SubMillisecond(String),
    /// Not a part of a whole.
    #[error("{0:?} is not a part between 0 and 1")]
    Part(String),
    /// Not a priority band.
    #[error("{0:?} is not a band, a whole number from 0 to 15")]
    Band(String),
    /// Not a weight.
    #[error("{0:?} is not a weight, a whole number from 1 to 1000000")]
    Weight(String),
    /// A value of `cluster`.
    #[error(transparent)]
    Cluster(#[from] ClusterProblem),
    /// A value of `parent`.
    #[error(transparent)]
    Parent(#[from] ParentProblem),
    /// A value of a `tls` section of one whom this coordinator calls.
    #[error(transparent)]
    ClientTls(#[from] ClientTlsProblem),
    /// Nothing where something must be.
    #[error("is empty")]
    Empty,
    /// A store of its own for a node whose cluster has one.
    #[error(
        "cannot be here together with `cluster.etcd`, which is where a cluster keeps what is \
         written through the API"
    )]
    StoreInCluster,
    /// A section that is in etcd.
    #[error("is in etcd, the same for all nodes, because of `cluster.shared_config`")]
    Shared,
    /// A field that is looked at only at the start, and on which others depend.
    #[error("can only change with a restart")]
    NeedsRestart,
    /// An entry that limits nothing.
    #[error(
        "names no unit; one of requests, request_bytes, response_bytes and concurrency is needed"
    )]
    NoUnit,
    /// An attachment to nothing.
    #[error("there is no group called {0:?} in this file")]
    NoGroup(String),
    /// A limit for the scope of a group.
    #[error("{0:?} is a group of this file; its limits are there")]
    GroupScope(String),
    /// A name that nothing can have.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Fields that do not go together; the error names the field.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A `match` that no scope can have.
    #[error(transparent)]
    Id(#[from] IdError),
    /// A glob that cannot be read.
    #[error("{0}")]
    Glob(#[from] globset::Error),
    /// A glob whose matcher would be too large.
    #[error(
        "has {0} wildcards, classes and alternatives, more than {GLOB_CHOICES_MAX}; a class counts \
         as 4"
    )]
    GlobChoices(usize),
    /// Globs whose matcher would be too large together.
    #[error(
        "with this glob there are {0} wildcards, classes and alternatives in all globs, more than \
         {CHOICES_MAX}; a class counts as 4"
    )]
    Choices(usize),
    /// The largest of globs whose matcher is too large, and why.
    #[error("is the largest of all globs, and the matcher of all is too large: {0}")]
    Matcher(String),
    /// The same `match` twice.
    #[error("{pattern:?} is matched by limits[{first}] already")]
    Duplicate {
        /// What both match.
        pattern: String,
        /// The index of the first.
        first: usize,
    },
    /// A limit after the one that matches everything.
    #[error("`*` matches every scope, so it must be the last limit; {after} come after it")]
    RestNotLast {
        /// How many.
        after: usize,
    },
    /// Too many entries of a section.
    #[error("has {count} entries, more than {max}")]
    TooMany {
        /// How many.
        count: usize,
        /// The most there may be.
        max: usize,
    },
}

// === impl ConfigErrors ===

impl ConfigErrors {
    /// `problem` of the file as a whole.
    pub(super) fn whole(problem: Problem) -> Self {
        Self::nowhere("", problem)
    }

    /// `problem` of `field`, which is not in the file.
    pub(super) fn nowhere(field: &str, problem: Problem) -> Self {
        Self(vec![ConfigError::new(Location::UNKNOWN, field, problem)])
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
    /// The field called `field`, which stands `at`, has `problem`.
    pub(super) fn new(at: Location, field: impl Into<String>, problem: impl Into<Problem>) -> Self {
        Self {
            line: at.line(),
            column: at.column(),
            field: field.into(),
            problem: problem.into(),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            line,
            column,
            field,
            problem,
        } = self;
        if *line > 0 {
            write!(f, "{line}:{column}: ")?;
        }
        match problem {
            // These say which of the fields below `field` is at fault.
            Problem::Limit(error) => write!(f, "{field}.{error}"),
            problem if field.is_empty() => write!(f, "{problem}"),
            problem => write!(f, "{field}: {problem}"),
        }
    }
}

impl std::error::Error for ConfigError {}
