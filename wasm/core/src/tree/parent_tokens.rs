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
    new: Tokens,
    /// Tokens of a resource that has no clients any more. They have no room at the parent before it has lowered the lease.
    left: Tokens,
    /// Tokens that the next request gives back.
    returns: Tokens,
}

// === impl ParentTokens ===

impl ParentTokens {
    /// The part of a request that tells of tokens, of which it gives back `returns`. So many others have room.
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
        let new = match self.counts {
            true => granted.saturating_sub(self.granted),
            false => grown,
        };
        self.granted = granted;
        self.new = self.new.saturating_add(new);
        self.returns = self.returns.saturating_add(core::mem::take(&mut self.left));
    }

    /// Returns the tokens that have come since the last time, or were left before.
    pub(super) fn take(&mut self) -> Tokens {
        let left = core::mem::take(&mut self.left);
        core::mem::take(&mut self.new).saturating_add(left)
    }

    /// Takes what is left of a resource without clients.
    pub(super) fn leave(&mut self, tokens: Tokens) {
        if self.counts {
            self.left = self.left.saturating_add(tokens);
        }
    }

    /// Whether the parent is to get tokens back.
    pub(super) fn are_left(&self) -> bool {
        self.left.saturating_add(self.returns) > Tokens::ZERO
    }

    /// Forgets them, with the lease that they came with.
    pub(super) fn end(&mut self) {
        (self.new, self.left, self.returns) = (Tokens::ZERO, Tokens::ZERO, Tokens::ZERO);
    }
}
