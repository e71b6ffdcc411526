//! Tokens of the fleet's bucket that go with leases.

use super::{Allocation, ClientEntry};
use crate::lease::DrawAnswer;
use crate::units::{Capacity, Instant, Tokens};

// === impl Allocation ===

impl Allocation {
    /// Gives the client of `entry`, whose lease was of `leased` before, its part of the tokens that are there:
    /// where its lease grows, the fleet's bucket can hold so much less.
    pub(super) fn hand_over(&mut self, now: Instant, entry: &mut ClientEntry, leased: Capacity) {
        let gets = entry.granted.capacity;
        if gets <= leased || !self.begins_with_tokens(now, entry) {
            return;
        }
        let part = |capacity| match capacity {
            Capacity::ZERO => Tokens::ZERO,
            capacity => self.limit.burst_for(capacity),
        };
        let has = part(leased).saturating_add(entry.draws.holds);
        let lacks = part(gets).saturating_sub(has);
        let Some(bucket) = &mut self.fleet else {
            return;
        };
        let mut tokens = bucket.take(now, lacks, Tokens::ONE, Tokens::ZERO);
        // What brought a new client may pass.
        if tokens < Tokens::ONE && entry.draws.granted == Tokens::ZERO {
            tokens = bucket.advance(now);
        }
        self.note_tokens(now, entry, tokens);
    }

    /// The answer for a client with a lease: its bucket begins with no more than what it was handed over.
    pub(super) fn handed_over(&self, now: Instant, entry: &ClientEntry) -> Option<DrawAnswer> {
        self.begins_with_tokens(now, entry).then(|| DrawAnswer {
            granted: entry.draws.granted,
            left: self.left(now),
            next: None,
        })
    }

    /// Whether the client of `entry` has a lease out of a limit that is drawn at other times.
    fn begins_with_tokens(&self, now: Instant, entry: &ClientEntry) -> bool {
        self.fleet.is_some()
            && self.may_be_drawn()
            && entry.can_draw()
            && entry.told(now).capacity > Capacity::ZERO
            && now >= self.learning_until
    }
}
