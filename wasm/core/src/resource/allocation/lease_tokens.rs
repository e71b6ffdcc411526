//! Tokens of the fleet's bucket that come with leases.

use super::{Allocation, ClientEntry};
use crate::fleet::ChargedLimits;
use crate::lease::DrawAnswer;
use crate::pool::PoolLink;
use crate::units::{Capacity, Instant, Tokens};

// === impl Allocation ===

impl Allocation {
    /// Gives the client of `entry`, whose lease was of `leased` before, its part of the tokens that are there:
    /// where its lease grows, the fleet's bucket can hold so much less. A coordinator gets what its bucket `lacks`, too.
    pub(super) fn bring_tokens(
        &mut self,
        now: Instant,
        entry: &mut ClientEntry,
        (leased, lacks): (Capacity, Tokens),
        pool: &mut PoolLink<'_>,
    ) {
        let gets = entry.granted.capacity;
        let part = self.lease_burst(entry, gets);
        let has = match leased {
            Capacity::ZERO => entry.draws.holds,
            leased => self.burst(leased).saturating_add(entry.draws.holds),
        };
        let grows_by = if gets > leased {
            part.saturating_sub(has)
        } else {
            Tokens::ZERO
        };
        // An answer that it has not received tells of tokens again.
        let lacks = lacks.saturating_sub(entry.draws.holds).min(part);
        if self.begins_with_tokens(now, entry) {
            let lends_on = entry.lends_on();
            let mut limits = self.charged(now, pool);
            let tokens = if lends_on {
                limits.take_part(now, grows_by.max(lacks))
            } else {
                take_for_lease(&mut limits, now, grows_by, has)
            };
            self.note_tokens(entry, tokens);
        }
        // Tokens that it holds, or that are on their way, are soon in its bucket, which counts with its lease.
        let before = entry.totals();
        entry.draws.holds = entry.draws.holds.saturating_sub(part);
        self.replace_totals(before, entry.totals());
        self.fill(now);
        self.report(now, pool);
    }

    /// The answer for a client with a lease: its bucket begins with no more than these tokens.
    pub(super) fn brought_tokens(
        &mut self,
        now: Instant,
        entry: &ClientEntry,
        pool: &mut PoolLink<'_>,
    ) -> Option<DrawAnswer> {
        let counts = if entry.lends_on() {
            self.counts_tokens(entry)
        } else {
            self.begins_with_tokens(now, entry)
        };
        counts.then(|| DrawAnswer {
            granted: entry.draws.granted,
            left: self.charged(now, pool).left(now),
            next: None,
            standby: Capacity::ZERO,
            quota: None,
        })
    }

    /// Whether the client of `entry` has a lease out of a limit that is drawn at other times.
    fn begins_with_tokens(&self, now: Instant, entry: &ClientEntry) -> bool {
        self.lets_draw(now, entry) && entry.told(now).capacity > Capacity::ZERO
    }

    /// Whether the client of `entry` could draw of the fleet's bucket now.
    fn lets_draw(&self, now: Instant, entry: &ClientEntry) -> bool {
        self.counts_tokens(entry) && now >= self.learning_until
    }

    /// Whether tokens of a bucket are counted for the client of `entry`.
    fn counts_tokens(&self, entry: &ClientEntry) -> bool {
        self.has_bucket() && self.may_be_drawn() && entry.can_draw()
    }

    /// Whether the client of `entry` is to have a lease, and others have not given back any of it yet. It draws
    /// what is there meanwhile.
    pub(super) fn waits_for_lease(&self, now: Instant, entry: &ClientEntry) -> bool {
        let has_none = entry.told(now).capacity == Capacity::ZERO;
        self.lets_draw(now, entry) && has_none && !entry.lends_on()
    }
}

// === free functions ===

/// Tokens of the fleet's buckets for a lease whose bucket has `has` and lacks so many. A client that comes with
/// nothing may admit the request that brought it.
fn take_for_lease(
    limits: &mut ChargedLimits<'_>,
    now: Instant,
    lacks: Tokens,
    has: Tokens,
) -> Tokens {
    // Also a part of a token, which is one soon: a debt that is paid with the lease is not paid late.
    let tokens = limits.take_part(now, lacks);
    let has_none = tokens < Tokens::ONE && has == Tokens::ZERO;
    if has_none && lacks >= Tokens::ONE {
        tokens.saturating_add(limits.advance(now))
    } else {
        tokens
    }
}
