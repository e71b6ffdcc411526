//! Messages between a client and a coordinator, whatever carries them: refreshes, releases, answers.
//!
//! They are made of the parts in [`lease`](crate::lease), and of good values only; the checks on
//! what a peer sends are the business of the crate that decodes it.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::lease::{ClientRun, LeaseRequest, Origin, ResourceId, Unit, UnitAnswer};

/// The most scopes in a refresh, and resources in a release. A call is decided without a break, so
/// this bounds how long one client can keep the others waiting.
pub const SCOPES_MAX: usize = 1000;

/// The longest message of a [`ScopeError`] that is kept, in bytes.
pub const MESSAGE_LEN_MAX: usize = 512;

/// Request of a client for the leases of several scopes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refresh {
    /// The client that asks, and its run.
    pub client: ClientRun,
    /// Scopes that it asks for; 1 to [`SCOPES_MAX`], each scope once.
    pub scopes: Vec<ScopeRefresh>,
}

/// Requests of a client for one scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeRefresh {
    /// Scope of the limits.
    pub scope: Arc<str>,
    /// At least one; each unit once.
    pub asks: Vec<(Unit, LeaseRequest)>,
}

/// Leases that a client gives back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The client that releases, and its run.
    pub client: ClientRun,
    /// The resources, each with the sequence of the release; 1 to [`SCOPES_MAX`].
    pub resources: Vec<(ResourceId, u64)>,
}

/// Answer to a refresh.
#[derive(Clone, Debug, PartialEq)]
pub struct Refreshed {
    /// One for each scope asked for, in order; an error if what came is unusable.
    pub scopes: Vec<Result<ScopeAnswer, UnusableAnswer>>,
}

/// Answer for one scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeAnswer {
    /// The scope that was asked for.
    pub scope: Arc<str>,
    /// A scope whose capacity the requests of this one use as well; the same scope if there is none.
    pub canonical: Arc<str>,
    /// The units in which the scope has a limit, in their order, asked for or not.
    pub limited: Vec<Unit>,
    /// Which master has answered.
    pub origin: Origin,
    /// Whether the limit of the scope's requests is that of all scopes with the same first part, but
    /// for those that are named one by one. No limit then is none for any of them. `None` where the
    /// answer says nothing of other scopes.
    pub usual: Option<bool>,
    /// The answers for its units, or the error.
    pub outcome: Result<Vec<UnitAnswer>, ScopeError>,
}

/// Error that a coordinator answers for a scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (code {code})")]
pub struct ScopeError {
    /// A google.rpc.Code.
    pub code: u32,
    /// For a person to read; at most [`MESSAGE_LEN_MAX`] bytes, no control characters.
    pub message: String,
}

/// Answer for a scope that breaks a rule of the protocol, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnusableAnswer(pub String);
