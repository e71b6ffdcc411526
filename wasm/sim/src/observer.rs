//! Observer of a simulation: hears of single requests and messages, of which samples have only sums.

use std::fmt;
use std::time::Duration;

use tollgate_core::lease::ResourceId;
use tollgate_core::message::{Refresh, Refreshed, Release};

/// Observer of a simulation. It changes nothing of the course.
pub trait Observer {
    /// Hears that a request goes on, begins to wait, or is refused.
    fn request(&mut self, _event: &RequestEvent) {}

    /// Hears of a message between a coordinator and an Envoy or coordinator below it, lost or not.
    fn message(&mut self, _message: &SentMessage<'_>) {}
}

/// Decision on one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestEvent {
    /// Time since the start.
    pub at: Duration,
    /// Place of the Envoy, in the order of the scenario.
    pub envoy: u32,
    /// Number of its worker.
    pub worker: u32,
    /// Number of the scope, in the order in which the demand names them.
    pub scope: u32,
    /// Tokens that it takes.
    pub cost: u32,
    /// The decision.
    pub outcome: RequestOutcome,
    /// Time that it waited before, by the Envoy's clock; none if it did not.
    pub waited: Option<Duration>,
}

/// Outcome of a decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// It goes on.
    Admitted,
    /// It waits, for its turn or for the first lease.
    Waits,
    /// It is refused.
    Refused,
}

/// Message that is sent.
#[derive(Clone, Copy, Debug)]
pub struct SentMessage<'a> {
    /// Time since the start.
    pub at: Duration,
    /// Level of the upper end: the number of coordinators above it.
    pub level: u32,
    /// Its content.
    pub content: MessageContent<'a>,
}

/// Content of a message.
#[derive(Clone, Copy, Debug)]
pub enum MessageContent<'a> {
    /// Request for leases.
    Refresh(&'a Refresh),
    /// Leases that are given back.
    Release(&'a Release),
    /// Answer to a request for leases.
    Answer(&'a Refreshed),
    /// Name of a resource that the receiver should ask for now.
    Nudge(&'a ResourceId),
}

/// Place of the observer, if there is one.
#[derive(Default)]
pub(crate) struct ObserverSlot(pub(crate) Option<Box<dyn Observer>>);

// === impl ObserverSlot ===

impl ObserverSlot {
    pub(crate) fn request(&mut self, event: impl FnOnce() -> RequestEvent) {
        if let Some(observer) = &mut self.0 {
            observer.request(&event());
        }
    }

    pub(crate) fn message(&mut self, message: &SentMessage<'_>) {
        if let Some(observer) = &mut self.0 {
            observer.message(message);
        }
    }
}

impl fmt::Debug for ObserverSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObserverSlot")
            .field(&self.0.is_some())
            .finish()
    }
}
