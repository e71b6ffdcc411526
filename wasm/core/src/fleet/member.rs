//! Members that share a limit: scopes of a pool, or priority bands of a resource.

use core::time::Duration;

use super::ShortMembers;
use crate::units::{Instant, Rate, Tokens};

/// Part of a limit's burst that a member may draw beyond its share before tokens are kept from it.
const ABOVE_PARTS: u64 = 8;

/// A member that drew in vain is remembered for so many times as long as each client needs for two requests.
const SHORT_FOR: u32 = 40;

/// Draws of the clients of one member.
#[derive(Debug, Default)]
pub(crate) struct MemberDraws {
    /// Tokens that they have drawn beyond its share, at the time of the last one.
    excess: (Tokens, Instant),
    /// Time from which its next token is not promised to one of them.
    turn_at: Instant,
}

/// Member whose client draws.
#[derive(Debug)]
pub(crate) struct DrawingMember<'a> {
    /// Its hash, or its priority.
    hash: u64,
    share: Rate,
    /// Number of its clients.
    clients: u32,
    /// Time for which it has drawn more than its share, if it has.
    above_for: Option<Duration>,
    draws: &'a mut MemberDraws,
    /// Members of the limit that drew in vain.
    short_members: &'a mut ShortMembers,
}

// === impl MemberDraws ===

impl MemberDraws {
    /// Notes that a client of a member with this share has drawn `tokens` of a limit with `burst`.
    pub(crate) fn note_granted(
        &mut self,
        now: Instant,
        tokens: Tokens,
        share: Rate,
        burst: Tokens,
    ) {
        let excess = self.excess(now, share).saturating_add(tokens);
        self.excess = (excess.min(burst), now);
    }

    fn excess(&self, now: Instant, share: Rate) -> Tokens {
        let (excess, at) = self.excess;
        excess.saturating_sub(share.tokens_in(now.saturating_since(at)))
    }
}

// === impl DrawingMember ===

impl<'a> DrawingMember<'a> {
    /// The member of `hash` with so many clients, whose part of the limit with `burst` is `share`.
    pub(crate) fn new(
        now: Instant,
        (hash, clients): (u64, u64),
        (share, burst): (Rate, Tokens),
        draws: &'a mut MemberDraws,
        short_members: &'a mut ShortMembers,
    ) -> Self {
        let free = Tokens::from_micros(burst.as_micros() / ABOVE_PARTS);
        let above = draws.excess(now, share).saturating_sub(free);
        let is_above = above > Tokens::ZERO;
        Self {
            hash,
            share,
            clients: u32::try_from(clients).unwrap_or(u32::MAX),
            above_for: is_above.then(|| share.time_for(above).unwrap_or(Duration::MAX)),
            draws,
            short_members,
        }
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    /// Whether tokens are kept from it: it has drawn more than its share, and another one less and in vain.
    pub(super) fn is_held_back(&self, now: Instant) -> bool {
        self.above_for.is_some() && self.short_members.has_others(now, self.hash)
    }

    /// Notes that one of its clients drew in vain, where each client could have two requests in `two_turns`. If it has
    /// drawn less than its share, others leave it tokens for a while.
    pub(super) fn note_short(&mut self, now: Instant, two_turns: Duration) {
        if self.above_for.is_none() {
            let until = now.saturating_add(two_turns.saturating_mul(SHORT_FOR));
            self.short_members.note(self.hash, until);
        }
    }

    /// Notes that the limit's bucket is full: there is enough for all.
    pub(super) fn note_full(&mut self) {
        *self.short_members = ShortMembers::default();
    }

    /// Returns the time until a client of the member has its turn, at the rate of its share, but one in `at_most`: each
    /// client has one at most. In `free_in` there will be tokens of this cost beside those that are kept.
    pub(super) fn turn(
        &mut self,
        now: Instant,
        cost: Tokens,
        free_in: Option<Duration>,
        at_most: Duration,
    ) -> Duration {
        let next = self.above_for.unwrap_or(Duration::ZERO);
        let each = self
            .share
            .time_for(cost)
            .map_or(at_most, |each| each.min(at_most));
        let next = next.min(free_in.unwrap_or(at_most).max(each));
        let first = now.saturating_add(next);
        // A member without a share waits for what others leave.
        let all = match self.share {
            Rate::ZERO => at_most,
            _ => each.saturating_mul(self.clients),
        };
        let last = first.saturating_add(all);
        let at = self.draws.turn_at.max(first).min(last);
        self.draws.turn_at = at.saturating_add(each);
        at.saturating_since(now)
    }
}
