//! Events of a driver.

use std::fmt;
use std::time::Duration;

use tokio::sync::oneshot;
use tollgate_core::lease::ClientId;
use tollgate_core::lease_server::{DrainError, LeaseServer};
use tollgate_core::units::Instant;
use tollgate_proto::request::{Refresh, Release};
use tollgate_proto::response::ScopeAnswer;

use super::derived::{DerivedAnswers, DerivedCall};
use super::parent::{ParentBatch, ParentReply};

/// Event that a driver handles.
#[derive(Debug)]
pub(super) enum DriverEvent {
    Refresh(Refresh, oneshot::Sender<Vec<ScopeAnswer>>),
    Release(Release, oneshot::Sender<()>),
    Drain(ClientId, Duration, oneshot::Sender<Result<(), DrainError>>),
    Derived(DerivedCall, oneshot::Sender<DerivedAnswers>),
    HandOver(oneshot::Sender<FinalState>),
    View(ViewRequest),
    /// Asks for the next requests to the parent; answered when one is due.
    ParentBatch(oneshot::Sender<ParentBatch>),
    /// The parent's answers.
    ParentReply(ParentReply, oneshot::Sender<()>),
}

/// The lease table of a driver that ended, and the time at which it did.
pub(super) type FinalState = Box<(LeaseServer, Instant)>;

type ViewFn = dyn FnOnce(&LeaseServer, Instant) + Send;

/// Read-only look at the lease table, which sends its result itself.
pub(super) struct ViewRequest(pub(super) Box<ViewFn>);

// === impl ViewRequest ===

impl fmt::Debug for ViewRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ViewRequest")
    }
}
