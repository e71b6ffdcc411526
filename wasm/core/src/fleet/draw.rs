//! A draw of one client, which is charged to all limits of its resource, or to none.

use core::time::Duration;

use super::mode::DRAWN_BELOW;
use super::promises::Promise;
use super::{DrawingMember, FleetBucket, FleetLimit, FleetSums, QuotaLevel};
use crate::units::{Capacity, Instant, Tokens, mul_div};

/// The longest time for which clients may have the fleet's bucket owe: that of the filter's `max_debt_ms`.
const DEBT_MAX: Duration = Duration::from_secs(60 * 60);

/// Part of the burst that clients may have drawn ahead together.
const AHEAD_PARTS: u64 = 8;

/// Part of the burst that may be lacking when clients draw ahead.
const SPARE_PARTS: u64 = 4;

/// Part of the burst that is kept from members that have drawn more than their share, while others that have
/// drawn less need it. With more of it tokens would be lost that nobody comes for in time.
const HELD_BACK_PARTS: u64 = 3;

/// Limits that one draw is charged to: of the resource, and of its pool.
#[derive(Debug)]
pub(crate) struct ChargedLimits<'a>(pub(crate) [Option<ChargedLimit<'a>>; 2]);

/// A limit that a draw is charged to.
#[derive(Debug)]
pub(crate) struct ChargedLimit<'a> {
    fleet: &'a mut FleetLimit,
    sums: FleetSums,
    /// The member whose client draws, if there are several.
    member: Option<DrawingMember<'a>>,
    /// Tokens that are kept from the client for others.
    kept: Tokens,
    /// Tokens that this limit lets it have.
    gives: Tokens,
}

/// A draw that is to be granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw {
    /// The client, by its tie-break.
    pub(crate) client: u64,
    /// Tokens for which requests wait.
    pub(crate) needs: Tokens,
    /// Tokens that the first of these takes, or usually takes.
    pub(crate) usual: Tokens,
    pub(crate) wants: Capacity,
    /// Time of the client's last token.
    pub(crate) served_at: Instant,
    /// Whether it asks for more than an equal part all the time.
    pub(crate) asks_for_more: bool,
    /// Time after which it may draw again where no token is earned.
    pub(crate) after: Duration,
    /// The longest time after which it may draw again.
    pub(crate) latest: Duration,
}

/// Tokens that a draw got.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrantedDraw {
    pub(crate) tokens: Tokens,
    /// Time after which to draw again, if they are too few.
    pub(crate) next: Option<Duration>,
}

// === impl ChargedLimits ===

impl<'a> ChargedLimits<'a> {
    fn limits(&mut self) -> impl Iterator<Item = &mut ChargedLimit<'a>> {
        self.0.iter_mut().flatten()
    }

    /// Fills the buckets until `now`.
    pub(crate) fn fill(&mut self, now: Instant) {
        for limit in self.limits() {
            limit.fleet.fill(now, &limit.sums);
        }
    }

    /// Tokens that are left in all buckets.
    pub(crate) fn left(&mut self, now: Instant) -> Tokens {
        let left = self.limits().map(|limit| limit.fleet.left(now));
        left.min().unwrap_or(Tokens::ZERO)
    }

    /// The quota that is nearest to its end.
    pub(crate) fn strictest_quota(&mut self, now: Instant) -> Option<QuotaLevel> {
        let levels = self
            .limits()
            .filter_map(|limit| limit.fleet.quotas.strictest(now));
        levels.min_by_key(|level| level.left)
    }

    /// Notes that a client has spent `room` tokens, the last of them `age` ago, and gives back `returns`.
    pub(crate) fn note_spent(
        &mut self,
        now: Instant,
        age: Duration,
        room: Tokens,
        returns: Tokens,
    ) {
        for ChargedLimit { fleet, sums, .. } in self.limits() {
            if let Some(bucket) = &mut fleet.bucket {
                bucket.earn_late(now, age, room, sums.held());
                bucket.give_back(now, returns);
            }
            fleet.quotas.note_spent(now, age, room);
            fleet.quotas.give_back(returns);
        }
    }

    /// The limits without that of the pool.
    pub(crate) fn without_pool(self) -> Self {
        let [own, _] = self.0;
        Self([own, None])
    }

    /// Takes back `tokens` that clients spent from `taken_at` on, for requests turned out to cost less.
    pub(crate) fn refund(&mut self, now: Instant, taken_at: Instant, tokens: Tokens) {
        for ChargedLimit { fleet, .. } in self.limits() {
            if let Some(bucket) = &mut fleet.bucket {
                bucket.give_back(now, tokens);
            }
            fleet.quotas.refund(now, taken_at, tokens);
        }
    }

    /// Pays for `owed` tokens that were spent before they were drawn, with a debt of `debt_max` at most. Returns those
    /// that count as granted.
    pub(crate) fn pay(&mut self, now: Instant, owed: Tokens, debt_max: Tokens) -> Tokens {
        let paid = self.limits().map(|limit| limit.pay(now, owed, debt_max));
        paid.max().unwrap_or(Tokens::ZERO)
    }

    /// Takes `most` tokens, or what is there: of the whole in all buckets.
    pub(crate) fn take_part(&mut self, now: Instant, most: Tokens) -> Tokens {
        let tokens = self.left(now).min(most);
        self.charge(now, tokens);
        tokens
    }

    /// Takes a token that is not there yet, if each bucket may lack it.
    pub(crate) fn advance(&mut self, now: Instant) -> Tokens {
        let may = |limit: &mut ChargedLimit<'_>| {
            let bucket = limit.fleet.bucket;
            let is_left = limit.fleet.quotas.left() >= Tokens::ONE;
            is_left && bucket.is_some_and(|bucket| bucket.may_advance(now))
        };
        if !self.limits().all(may) {
            return Tokens::ZERO;
        }
        self.charge(now, Tokens::ONE);
        Tokens::ONE
    }

    /// Grants the tokens of `draw` that all limits let the client have.
    pub(crate) fn grant(&mut self, now: Instant, draw: &Draw) -> GrantedDraw {
        let given = self.limits().map(|limit| limit.offer(now, draw));
        let tokens = given.min().unwrap_or(Tokens::ZERO);
        self.charge(now, tokens);
        let next = self
            .limits()
            .filter_map(|limit| limit.note_draw(now, draw, tokens))
            .max();
        GrantedDraw { tokens, next }
    }

    /// Whole tokens that a client that wants `wants` may have beside those that its requests wait for: as many as it
    /// expects to spend until its next regular request, where all buckets are nearly full. With them its next requests
    /// need no call.
    pub(crate) fn ahead(&mut self, now: Instant, wants: Capacity, expected: Tokens) -> Tokens {
        let ahead = self.limits().map(|limit| limit.ahead(now, wants, expected));
        ahead.min().unwrap_or(Tokens::ZERO)
    }

    /// Takes `most` tokens, or as many whole ones as are there.
    pub(crate) fn take_whole(&mut self, now: Instant, most: Tokens) -> Tokens {
        let left = self.left(now);
        let tokens = if left >= most {
            most
        } else {
            Tokens::from_whole(left.whole())
        };
        self.charge(now, tokens);
        tokens
    }

    fn charge(&mut self, now: Instant, tokens: Tokens) {
        for limit in self.limits() {
            limit.fleet.charge(now, tokens);
        }
    }
}

// === impl ChargedLimit ===

impl<'a> ChargedLimit<'a> {
    /// The limit of `fleet`, of which a client of `member` draws; none without a bucket.
    pub(crate) fn new(
        fleet: &'a mut FleetLimit,
        sums: FleetSums,
        member: Option<DrawingMember<'a>>,
    ) -> Option<Self> {
        fleet.bucket.is_some().then_some(Self {
            fleet,
            sums,
            member,
            kept: Tokens::ZERO,
            gives: Tokens::ZERO,
        })
    }

    /// Tokens that one turn needs: of bytes any lets a request go on.
    fn first(&self, draw: &Draw) -> Tokens {
        if self.sums.unit.is_bytes() {
            Tokens::ONE
        } else {
            draw.usual
        }
    }

    /// Tokens that this limit lets the client of `draw` have.
    fn offer(&mut self, now: Instant, draw: &Draw) -> Tokens {
        self.forget_short(now);
        let reserved = self.kept_from(now, draw);
        let first = self.first(draw);
        let Some(bucket) = &self.fleet.bucket else {
            return Tokens::ZERO;
        };
        self.kept = bucket.keeps(reserved, first);
        let of_quota = self.fleet.quotas.left();
        let left = bucket.left(now).saturating_sub(self.kept).min(of_quota);
        self.gives = if self.sums.unit.is_bytes() {
            let usual = draw.usual.min(self.sums.burst);
            // Of the bucket more than is there, for nobody knows how many a request will bring; not of a quota.
            usual_part(left, draw.needs, usual).min(of_quota)
        } else {
            whole_part(left, draw.needs, first)
        };
        self.gives
    }

    /// Forgets which members drew in vain once the bucket is full.
    fn forget_short(&mut self, now: Instant) {
        let is_full = self.fleet.left(now) >= self.sums.room();
        if let Some(member) = self.member.as_mut().filter(|_| is_full) {
            member.note_full();
        }
    }

    /// Tokens that are kept from the client for others.
    fn kept_from(&mut self, now: Instant, draw: &Draw) -> Tokens {
        let promises = &mut self.fleet.promises;
        let reserved = if draw.asks_for_more {
            promises.for_others(now, draw.wants, draw.served_at)
        } else {
            Tokens::ZERO
        };
        if self.is_held_back(now) {
            reserved.max(Tokens::from_whole(
                self.sums.burst_part(HELD_BACK_PARTS).whole(),
            ))
        } else {
            reserved
        }
    }

    fn is_held_back(&self, now: Instant) -> bool {
        let member = self.member.as_ref();
        member.is_some_and(|member| member.is_held_back(now))
    }

    /// Notes that `draw` got `tokens`. Returns the time after which this limit lets its client draw again.
    fn note_draw(&mut self, now: Instant, draw: &Draw, tokens: Tokens) -> Option<Duration> {
        let is_served = tokens > Tokens::ZERO;
        if is_served {
            let client = self.key(draw);
            self.fleet.promises.end(client);
        }
        if let Some(opens_in) = self.quota_opens_in(now, draw) {
            return Some(opens_in);
        }
        let next = self.next(now, draw)?;
        if self.gives < draw.needs && self.first(draw) <= self.sums.burst {
            let served_at = if is_served { now } else { draw.served_at };
            self.promise(now, draw, served_at, next);
        }
        Some(next)
    }

    /// Time until a quota has the tokens that `draw` lacks, if one refuses it.
    fn quota_opens_in(&self, now: Instant, draw: &Draw) -> Option<Duration> {
        if self.gives >= draw.needs {
            return None;
        }
        let opens_in = self.fleet.quotas.opens_in(now, self.first(draw));
        opens_in.map(|opens_in| opens_in.min(draw.latest))
    }

    /// Returns the time after which the client of `draw` may draw again, if it got too little, or all that will be there
    /// is promised.
    fn next(&mut self, now: Instant, draw: &Draw) -> Option<Duration> {
        let first = self.first(draw).saturating_add(self.kept);
        let turns = self.fleet.turns(&self.sums, draw.wants);
        let two_turns = self.fleet.time_of_two_turns(&self.sums);
        let bucket = self.fleet.bucket.as_mut()?;
        let is_short = self.gives < draw.needs;
        if is_short {
            bucket.note_short();
        }
        let has_turn = is_short || (draw.needs > Tokens::ZERO && bucket.is_exhausted(now));
        if draw.needs > Tokens::ZERO && !has_turn {
            bucket.note_granted();
        }
        let member = self.member.as_mut();
        let member = member.filter(|member| is_short && member.is_held_back(now));
        let next = match member {
            Some(member) => {
                let free_in = bucket.time_until(now, first);
                Some(member.turn(now, turns.cost, free_in, two_turns))
            }
            None if has_turn => Some(bucket.promise(now, first, turns, draw.after)),
            None => bucket.debt_paid_in(now),
        };
        next.map(|next| next.min(draw.latest))
    }

    /// Keeps the next tokens for the client of `draw`, which had its last one at `served_at` and may draw again after
    /// `next`.
    fn promise(&mut self, now: Instant, draw: &Draw, served_at: Instant, next: Duration) {
        let two_turns = self.fleet.time_of_two_turns(&self.sums);
        if let Some(member) = &mut self.member {
            member.note_short(now, two_turns);
        }
        if self.is_held_back(now) {
            return;
        }
        let promise = Promise {
            client: self.key(draw),
            served_at,
            wants: draw.wants,
            tokens: draw.usual,
            until: now.saturating_add(next.saturating_add(two_turns)),
        };
        self.fleet.promises.make(now, promise);
    }

    /// Key of the client of `draw`: members of a pool may have the same ones.
    fn key(&self, draw: &Draw) -> u64 {
        let member = self.member.as_ref();
        draw.client ^ member.map_or(0, DrawingMember::hash)
    }

    fn pay(&mut self, now: Instant, owed: Tokens, debt_max: Tokens) -> Tokens {
        let earned = self.sums.capacity.as_rate().tokens_in(DEBT_MAX);
        let debt_max = debt_max.min(earned.max(self.sums.burst));
        let pay = |bucket: &mut FleetBucket| bucket.pay(now, owed, debt_max);
        let paid = self.fleet.bucket.as_mut().map_or(Tokens::ZERO, pay);
        // A quota forgives nothing: it was used.
        self.fleet.quotas.charge(now, owed);
        self.fleet.is_used |= paid > Tokens::ZERO;
        paid
    }

    fn ahead(&self, now: Instant, wants: Capacity, expected: Tokens) -> Tokens {
        let sums = &self.sums;
        let lacking = sums.burst_part(SPARE_PARTS);
        let is_full = self.fleet.left(now) >= sums.burst.saturating_sub(lacking);
        if self.fleet.in_requests(sums, sums.capacity) < DRAWN_BELOW || !is_full {
            return Tokens::ZERO;
        }
        let most = sums.burst_part(AHEAD_PARTS).as_micros();
        let part = mul_div(most, wants.as_micros(), sums.wants.max(1));
        let ahead = expected.min(Tokens::from_micros(part));
        let ahead = ahead.min(self.fleet.quotas.ahead_max());
        Tokens::from_whole(ahead.whole())
    }
}

// === free functions ===

/// Returns `needs`, or else as many times `first` as are `left`: a part of what a request needs would be missing for the
/// others.
pub(super) fn whole_part(left: Tokens, needs: Tokens, first: Tokens) -> Tokens {
    let first = first.max(Tokens::ONE).as_micros();
    let rest = left.as_micros().checked_rem(first).unwrap_or(0);
    if left >= needs {
        needs
    } else {
        left.saturating_sub(Tokens::from_micros(rest))
    }
}

/// Returns `needs`, or what is `left`, but `usual` at least where there is any: nobody knows how many a request will
/// bring, so one that is left lets it go on.
fn usual_part(left: Tokens, needs: Tokens, usual: Tokens) -> Tokens {
    if left < Tokens::ONE {
        Tokens::ZERO
    } else {
        left.max(usual).min(needs)
    }
}
