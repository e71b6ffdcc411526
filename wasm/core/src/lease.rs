//! The words of the lease protocol: who asks, for what, and what is answered.
//!
//! All times are durations, never absolute: the two ends do not share a clock. The client counts a
//! lease from the moment it sent its request and the coordinator from the moment it answered, so
//! the client's copy always ends first.

use alloc::sync::Arc;
use core::time::Duration;

use crate::units::{Capacity, Tokens};

/// The longest scope or client id, in bytes.
pub const ID_LEN_MAX: usize = 256;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// Requests; a capacity is a number of them per second.
    Requests,
}

/// A scope and a unit: what a capacity belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId {
    /// Whom the limit is for, such as `tenant/acme`.
    pub scope: Arc<str>,
    /// What is counted.
    pub unit: Unit,
}

/// One Envoy process, `<node id>/<random>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(Arc<str>);

/// The term of a master; a later master has a higher one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// What a client says of one resource when it refreshes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Grows with every request of this client for this resource. The client applies only the
    /// answer to its latest one, so a higher sequence tells that no earlier answer will be used.
    pub sequence: u64,
    /// What the client holds now: the capacity of its unexpired lease, else zero.
    pub has: Capacity,
    /// What the client would use if nothing held it back.
    pub wants: Capacity,
}

/// What a coordinator says of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The lease; none in learning mode for a client that claims none: it stays in its mode.
    pub lease: Option<LeaseTerms>,
    /// When to ask again.
    pub refresh_interval: Duration,
    /// What to fall back to when the lease has expired; none leaves the client's own setting.
    pub safe: Option<Capacity>,
    /// The capacity of the whole resource, for what a refusal says of the limit.
    pub capacity: Capacity,
}

/// Capacity lent for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    /// What the client gets; may be [`Capacity::UNLIMITED`].
    pub capacity: Capacity,
    /// The client's part of the resource's burst.
    pub burst: Tokens,
    /// How long the lease lasts, counted by the client from when it sent its request.
    pub duration: Duration,
}

/// Why a string is not an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// No bytes at all.
    #[error("is empty")]
    Empty,
    /// More than [`ID_LEN_MAX`] bytes.
    #[error("has {0} bytes, more than 256")]
    TooLong(usize),
    /// A control character, which could forge lines in logs and tables.
    #[error("has a control character")]
    Control,
}

// === impl Unit ===

impl Unit {
    /// The name in configurations, refusals and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
        }
    }
}

// === impl ResourceId ===

impl ResourceId {
    /// The resource that `scope` and `unit` make.
    ///
    /// # Errors
    /// If `scope` is empty, longer than [`ID_LEN_MAX`] or has control characters.
    pub fn new(scope: &str, unit: Unit) -> Result<Self, IdError> {
        Ok(Self {
            scope: checked(scope)?,
            unit,
        })
    }
}

// === impl ClientId ===

impl ClientId {
    /// The client called `id`.
    ///
    /// # Errors
    /// If `id` is empty, longer than [`ID_LEN_MAX`] or has control characters.
    pub fn new(id: &str) -> Result<Self, IdError> {
        Ok(Self(checked(id)?))
    }

    /// The id as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

// === free functions ===

fn checked(id: &str) -> Result<Arc<str>, IdError> {
    if id.is_empty() {
        return Err(IdError::Empty);
    }
    if id.len() > ID_LEN_MAX {
        return Err(IdError::TooLong(id.len()));
    }
    if id.chars().any(char::is_control) {
        return Err(IdError::Control);
    }
    Ok(id.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_bounded_and_printable() {
        let long = "x".repeat(ID_LEN_MAX + 1);
        let rows = [
            ("", Some(IdError::Empty)),
            (long.as_str(), Some(IdError::TooLong(257))),
            ("tenant/a\nb", Some(IdError::Control)),
            ("tenant/bücher", None),
            (&long[1..], None),
        ];
        for (id, want) in rows {
            assert_eq!(ClientId::new(id).err(), want, "{id}");
            assert_eq!(ResourceId::new(id, Unit::Requests).err(), want, "{id}");
        }
    }
}
