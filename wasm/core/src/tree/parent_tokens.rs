//! Tokens that come with the lease of a parent.

use crate::lease::{DrawAnswer, DrawRequest};
use crate::units::{Instant, Tokens};

/// Tokens of one resource that its parent has given, and that go back to it.
#[derive(Debug, Default)]
pub(super) struct ParentTokens {
    /// Tells accounts apart: the time of its first request, in nanoseconds.
    account: u64,
    /// Whether the parent counts tokens; else its leases bring their burst.
    counts: bool,
    /// All tokens that were ever granted.
    granted: Tokens,
    /// Tokens of the last answer, until the resource takes them.
    received: Tokens,
    /// Tokens of a resource that has no clients any more. They have no room at the parent before it has lowered the lease.
    left: Tokens,
    /// Tokens that the next request gives back.
    returns: Tokens,
}

// === impl ParentTokens ===

impl ParentTokens {
    /// The draw of a request to the parent: it gives back `returns`, and asks for `lacks`, for which there is room.
    pub(super) fn request(&mut self, now: Instant, returns: Tokens, lacks: Tokens) -> DrawRequest {
        if self.account == 0 {
            self.account = now.as_nanos();
        }
        DrawRequest {
            account: self.account,
            drawn: self.granted,
            needs: lacks,
            first: Tokens::ONE,
            returns: core::mem::take(&mut self.returns).saturating_add(returns),
            ..DrawRequest::default()
        }
    }

    /// Takes an answer, with which the burst of the lease has grown by `grown`.
    pub(super) fn apply(&mut self, answer: Option<&DrawAnswer>, grown: Tokens) {
        self.counts = answer.is_some();
        let granted = answer.map_or(self.granted, |answer| answer.granted);
        let tokens = if self.counts {
            granted.saturating_sub(self.granted)
        } else {
            grown
        };
        self.granted = granted;
        self.received = self.received.saturating_add(tokens);
        self.returns = self.returns.saturating_add(core::mem::take(&mut self.left));
    }

    /// Returns the tokens that have come since the last time, or were left before.
    pub(super) fn take(&mut self) -> Tokens {
        let left = core::mem::take(&mut self.left);
        core::mem::take(&mut self.received).saturating_add(left)
    }

    /// Takes what is left of a resource without clients.
    pub(super) fn leave(&mut self, tokens: Tokens) {
        if self.counts {
            self.left = self.left.saturating_add(tokens);
        }
    }

    /// Whether there are tokens that the parent is to get back.
    pub(super) fn are_left(&self) -> bool {
        self.left.saturating_add(self.returns) > Tokens::ZERO
    }

    /// Forgets the tokens of a lease that has ended.
    pub(super) fn end(&mut self) {
        (self.received, self.left) = (Tokens::ZERO, Tokens::ZERO);
        self.returns = Tokens::ZERO;
    }
}
