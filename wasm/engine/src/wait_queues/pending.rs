//! Requests that are held for the first lease of a scope.

use std::collections::{BTreeSet, VecDeque};

use tollgate_core::units::Instant;

use super::WaitingRequest;
use crate::admission::Request;
use crate::decision::BucketId;

/// Requests of one worker that are held, in the order of their arrival.
#[derive(Debug, Default)]
pub(crate) struct PendingRequests {
    requests: VecDeque<PendingRequest>,
    /// Buckets where some of them go before requests that come later, as of the last look.
    ordered: BTreeSet<BucketId>,
    /// True if there were more to release than one callback may.
    pub(crate) has_backlog: bool,
}

/// Request that is held.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    pub(crate) waiting: WaitingRequest,
    /// Buckets where it goes before requests that come later.
    pub(crate) first_at: Vec<BucketId>,
    /// Time at which it is decided on, however many first leases are awaited.
    pub(crate) deadline: Instant,
}

// === impl PendingRequests ===

impl PendingRequests {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns whether requests that come later go behind those that are held at a bucket.
    pub(crate) fn is_ordered_at(&self, bucket: BucketId) -> bool {
        self.ordered.contains(&bucket)
    }

    /// Holds a request that has come.
    pub(crate) fn hold(&mut self, pending: PendingRequest) {
        self.ordered.extend(&pending.first_at);
        self.requests.push_back(pending);
    }

    /// Takes out the request that came first.
    pub(crate) fn pop(&mut self) -> Option<PendingRequest> {
        self.requests.pop_front()
    }

    /// Puts a request behind all others; a round over all of them keeps their order.
    pub(crate) fn put_back(&mut self, pending: PendingRequest) {
        self.requests.push_back(pending);
    }

    /// Returns the requests that are held.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &Request> {
        let pending = self.requests.iter();
        pending.map(|pending| &pending.waiting.request)
    }

    /// Forgets the request of a stream that has ended.
    pub(crate) fn leave(&mut self, stream: u32) {
        let others = |pending: &PendingRequest| pending.waiting.stream() != stream;
        self.requests.retain(others);
    }

    /// Finds out where requests that come later go behind those that are held. A request that still
    /// awaits another scope's lease keeps no other waiting where its own has come.
    pub(crate) fn reorder(
        &mut self,
        must_wait: impl Fn(&Request) -> bool,
        awaits: impl Fn(BucketId) -> bool,
    ) {
        let mut ordered = BTreeSet::new();
        for pending in &self.requests {
            let waits = must_wait(&pending.waiting.request);
            let buckets = pending.first_at.iter().copied();
            ordered.extend(buckets.filter(|bucket| !waits || awaits(*bucket)));
        }
        self.ordered = ordered;
    }
}
