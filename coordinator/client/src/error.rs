//! Reasons for which a request does not go on.

use std::time::Duration;

use tollgate_engine::Reply;

/// Why a request does not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcquireError {
    /// A limit is reached.
    #[error(transparent)]
    Refused(#[from] Box<Refused>),
    /// A scope is none: its rule is unknown, or its key is empty, longer than 200 bytes or has control
    /// characters.
    #[error("the scope {scope:?}: {rule}")]
    Scope {
        /// The scope as it was given.
        scope: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// More scopes than a request may have.
    #[error("a request has {0} scopes: at most 16 are allowed")]
    TooManyScopes(usize),
    /// The client was closed while the request waited.
    #[error("the client has been closed")]
    Closed,
}

/// Refusal of a request, in the words that the Envoy filter uses.
///
/// [`TollgateLayer`](crate::TollgateLayer) tells it to clients of HTTP and gRPC. For other protocols:
///
/// ```
/// use tollgate_client::AcquireError;
///
/// fn answer(error: &AcquireError) -> String {
///     let Some(refused) = error.refused() else {
///         return format!("ERROR {error}");
///     };
///     match refused.retry_after() {
///         Some(pause) => format!("BUSY {} ms: {refused}", pause.as_millis()),
///         None => format!("NEVER: {refused}"),
///     }
/// }
/// # assert_eq!(answer(&AcquireError::Closed), "ERROR the client has been closed");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .reply.message)]
pub struct Refused {
    pub(crate) rule: String,
    pub(crate) reply: Reply,
}

// === impl AcquireError ===

impl AcquireError {
    /// Returns the refusal, if a limit is reached.
    pub fn refused(&self) -> Option<&Refused> {
        match self {
            Self::Refused(refused) => Some(refused),
            _ => None,
        }
    }
}

// === impl Refused ===

impl Refused {
    /// Returns the rule that refuses and what it is short of, such as `tenant/requests`.
    pub fn reason(&self) -> &str {
        &self.reply.reason
    }

    /// Returns the name of the rule that refuses.
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Returns the reason for programs: `RATE_LIMITED`, or `TEMPORARY_REDUCED_CAPACITY` for a fallback.
    pub fn code(&self) -> &'static str {
        self.reply.code
    }

    /// Returns the time after which the request would pass, if that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        self.reply.pause
    }

    /// Returns whether the limit is a fallback for want of a lease, not the scope's own.
    pub fn is_reduced(&self) -> bool {
        self.code() == "TEMPORARY_REDUCED_CAPACITY"
    }

    /// Returns the header fields that tell an HTTP client, with names in lower case.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let headers = self.reply.headers.iter();
        headers.map(|(name, value)| (*name, value.as_str()))
    }

    /// Returns the body that tells an HTTP client, of type `application/problem+json` (RFC 9457).
    pub fn problem(&self) -> &str {
        &self.reply.body
    }
}
