//! Exchanges of leases in the last event, for laws that have to know where a lease comes from.

use tollgate_core::lease::{Answer, ResourceId};
use tollgate_core::message::{Refresh, Refreshed};
use tollgate_core::units::Instant;

use super::Simulation;
use super::reached::Case;
use crate::topology::Node;

/// Exchange of a lease.
#[derive(Clone, Debug)]
pub enum Exchange {
    /// A coordinator has answered a request.
    Answered(AnsweredRequest),
    /// An answer has come to a process that lives.
    Delivered {
        /// Number of the answer.
        answer: u64,
        /// Place of the Envoy.
        envoy: usize,
    },
    /// A coordinator has taken its parent's answer for a resource.
    Borrowed {
        /// Number of the answer.
        answer: u64,
        /// Place of the coordinator.
        coordinator: usize,
        /// Time at which it sent the request.
        sent_at: Instant,
        /// The resource.
        resource: ResourceId,
        /// The content of the answer.
        content: Answer,
    },
}

/// Request that a coordinator has answered.
#[derive(Clone, Debug)]
pub struct AnsweredRequest {
    /// Number of the answer, for this run.
    pub answer: u64,
    /// Place of the coordinator.
    pub coordinator: usize,
    /// The client.
    pub client: Node,
    /// Time at which it sent the request.
    pub sent_at: Instant,
    /// The request.
    pub request: Refresh,
    /// The content of the answer.
    pub content: Refreshed,
}

/// Call that an answer is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnsweredCall {
    /// Number of the answer.
    pub(super) number: u64,
    pub(super) sent_at: Instant,
}

// === impl Simulation ===

impl Simulation {
    /// Returns the exchanges of the last event, if the simulation is inspected.
    pub fn exchanges(&self) -> &[Exchange] {
        &self.exchanges
    }

    /// Numbers the answer of a coordinator to a client's request, and notes it.
    pub(super) fn number_answer(
        &mut self,
        (coordinator, client): (usize, Node),
        (request, sent_at): (Refresh, Instant),
        answer: &Result<Refreshed, String>,
    ) -> Option<AnsweredCall> {
        let content = answer.as_ref().ok()?;
        self.answers += 1;
        let number = self.answers;
        self.note_exchange(|| {
            Exchange::Answered(AnsweredRequest {
                answer: number,
                coordinator,
                client,
                sent_at,
                request,
                content: content.clone(),
            })
        });
        Some(AnsweredCall { number, sent_at })
    }

    /// Notes an answer of its parent that a coordinator has taken.
    pub(super) fn note_borrowed(
        &mut self,
        coordinator: usize,
        resource: ResourceId,
        content: Answer,
        call: Option<AnsweredCall>,
    ) {
        let Some(AnsweredCall { number, sent_at }) = call else {
            return;
        };
        if content.lease.is_some() {
            self.reached.count(Case::Borrowed);
        }
        self.note_exchange(|| Exchange::Borrowed {
            answer: number,
            coordinator,
            sent_at,
            resource,
            content,
        });
    }

    /// Notes an exchange, if the simulation is inspected.
    pub(super) fn note_exchange(&mut self, exchange: impl FnOnce() -> Exchange) {
        if self.inspection.is_some() {
            self.exchanges.push(exchange());
        }
    }
}
