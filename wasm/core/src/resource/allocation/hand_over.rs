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
        if gets > leased && self.begins_with_tokens(now, entry) {
            let has = self.part(leased).saturating_add(entry.draws.holds);
            let lacks = self.part(gets).saturating_sub(has);
            let tokens = self.take_for_lease(now, entry, lacks);
            self.note_tokens(entry, tokens);
        }
        // What it holds, and what is on its way, is soon in its bucket, which counts with its lease.
        let before = entry.totals();
        entry.draws.holds = entry.draws.holds.saturating_sub(self.part(gets));
        self.replace_totals(before, entry.totals());
        self.fill(now);
    }

    /// Tokens of the fleet's bucket for a lease whose bucket lacks so many.
    fn take_for_lease(&mut self, now: Instant, entry: &ClientEntry, lacks: Tokens) -> Tokens {
        let Some(bucket) = &mut self.fleet else {
            return Tokens::ZERO;
        };
        let tokens = bucket.take(now, lacks, Tokens::ONE, Tokens::ZERO);
        // What brought a new client may pass.
        let is_new = entry.draws.granted == Tokens::ZERO;
        match tokens < Tokens::ONE && is_new {
            true => bucket.advance(now),
            false => tokens,
        }
    }

    /// Part of the burst that goes with a lease.
    fn part(&self, leased: Capacity) -> Tokens {
        match leased {
            Capacity::ZERO => Tokens::ZERO,
            leased => self.limit.burst_for(leased),
        }
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
