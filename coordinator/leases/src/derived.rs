//! Calls with requests that an adapter derives from what is known of its client, for protocols that say
//! less than ours.
//!
//! The task that owns the lease table looks the client up when it answers, so that nothing comes between;
//! the adapter sees only that client.

use std::fmt;

use tollgate_core::lease::{Answer, ClientRun, LeaseRequest, ResourceId};
use tollgate_core::limit::Limit;
use tollgate_core::resource::{ClientSnapshot, Resource};
use tollgate_core::units::Instant;

pub use crate::driver::LeaseError;

/// Client of a resource, as the lease table knows it.
#[derive(Clone, Debug)]
pub struct KnownClient {
    /// Its latest request, and the leases that it may be using.
    pub state: ClientSnapshot,
    /// Whether the resource is in learning mode.
    pub is_learning: bool,
}

/// Derivation of a request from what is known of its client.
pub trait DeriveRequest: fmt::Debug + Send {
    /// Returns the request of a client. `client` is `None` if it has no lease and waits for none.
    fn derive(&self, client: Option<&KnownClient>) -> LeaseRequest;
}

/// A call for several resources.
#[derive(Debug)]
pub struct DerivedCall {
    /// The client.
    pub client: ClientRun,
    /// The requests; a resource may be here twice.
    pub requests: Vec<(ResourceId, Box<dyn DeriveRequest>)>,
}

/// Answer to one request of a call.
#[derive(Clone, Debug)]
pub struct DerivedAnswer {
    /// The answer.
    pub answer: Answer,
    /// The limit behind it.
    pub limit: Limit,
    /// Number of clients between which the capacity is divided.
    pub subclients: u64,
}

/// Results of a call's requests, in order.
pub type DerivedAnswers = Vec<Result<DerivedAnswer, LeaseError>>;

// === impl KnownClient ===

impl KnownClient {
    /// Returns what is known of `client` at `resource`.
    pub fn of(now: Instant, client: &ClientRun, resource: &Resource) -> Option<Self> {
        Some(Self {
            state: resource.client_snapshot(now, client)?,
            is_learning: now < resource.learning_until(),
        })
    }
}
