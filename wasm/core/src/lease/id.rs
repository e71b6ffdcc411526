//! Names of resources and clients.

use alloc::sync::Arc;
use core::num::NonZeroU64;

use super::{Epoch, Unit};

/// The longest scope or client id, in bytes.
pub const ID_LEN_MAX: usize = 256;

/// Resource: a scope and a unit, which have a capacity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId {
    /// Scope of the limit, such as `tenant/acme`.
    pub scope: Arc<str>,
    /// Unit of the capacity.
    pub unit: Unit,
}

/// Client, such as one Envoy process: `<node id>/<random>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(Arc<str>);

/// One run of a client, from its start to its end. Its runs are told apart, because a request of
/// the one before may still be on its way when the next one asks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientRun {
    /// The client.
    pub id: ClientId,
    /// Its run.
    pub run: Run,
}

/// Run of a client, in which [`LeaseRequest::sequence`](super::LeaseRequest::sequence) counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Run {
    /// All runs are one: the protocol of the client does not tell them apart, such as Doorman's.
    Only,
    /// A number that the client chose at random when it started. A run of another number is another
    /// client: the requests of one acknowledge, lower and release nothing of the other.
    Incarnation(NonZeroU64),
    /// The term of a coordinator that borrows of its parent. A run of a higher term takes over the
    /// leases that are counted for the one before, whose later requests do not count any more.
    Term(Epoch),
}

/// Error in an id.
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

    /// The node of the client, and the last part of its id, which an Envoy draws anew each time it
    /// starts. Clients of one node may be runs of one process, and need not.
    pub(crate) fn parts(&self) -> (&str, &str) {
        let at = self.0.rfind('/').unwrap_or(self.0.len());
        self.0.split_at_checked(at).unwrap_or((&self.0, ""))
    }
}

// === impl ClientRun ===

impl ClientRun {
    /// The client called `id`, whose protocol does not tell its runs apart.
    pub const fn only(id: ClientId) -> Self {
        Self { id, run: Run::Only }
    }
}

// === impl Run ===

impl Run {
    /// Orders the runs of one entry: the term, where there is one.
    pub(crate) const fn term(self) -> Epoch {
        match self {
            Self::Term(term) => term,
            Self::Only | Self::Incarnation(_) => Epoch(0),
        }
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
    fn the_node_of_a_client_is_all_but_the_last_part_of_its_id() {
        let rows = [
            ("envoy-1/5f3a", ("envoy-1", "/5f3a")),
            ("a/b/c", ("a/b", "/c")),
            ("/5f3a", ("", "/5f3a")),
            ("doorman", ("doorman", "")),
        ];
        for (id, want) in rows {
            assert_eq!(ClientId::new(id).unwrap().parts(), want);
        }
    }

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
