//! Draws of clients from the bucket of the whole fleet.

use core::time::Duration;

use super::grant::suffices;
use super::mode::DRAWN_BELOW;
use super::{Allocation, ClientEntry, Promise, TieBreak};
use crate::lease::{DrawAnswer, DrawRequest};
use crate::limit::Limit;
use crate::pool::PoolLink;
use crate::resource::{ClientDraws, FleetBucket, StoredBucket};
use crate::units::{Capacity, Instant, Rate, Tokens, mul_div};

/// The longest time for which clients may have the fleet's bucket owe: that of the filter's `max_debt_ms`.
const DEBT_MAX: Duration = Duration::from_secs(60 * 60);

/// Part of the burst that clients may have drawn ahead together.
const AHEAD_PARTS: u64 = 8;

/// Part of the burst that may be lacking when clients draw ahead.
const SPARE_PARTS: u64 = 4;

// === impl DrawRequest ===

impl DrawRequest {
    /// The same, but no more is given back than its client may have had, if that was `held`.
    pub(super) fn of_what_was_held(self, held: Tokens) -> Self {
        let returns = self.returns.min(held.saturating_sub(self.holds));
        Self { returns, ..self }
    }
}

// === impl ClientDraws ===

impl ClientDraws {
    /// Draws after `request`, of a client that draws if `is_offered`. What it owes was spent before it was granted.
    fn after(self, request: &DrawRequest, is_offered: bool) -> Self {
        // Each answer tells again of tokens that it has not received.
        let under_way = match self.account == request.account {
            true => self.granted.saturating_sub(request.drawn),
            false => Tokens::ZERO,
        };
        Self {
            account: request.account,
            is_offered,
            granted: request.drawn.saturating_add(under_way),
            holds: under_way
                .saturating_sub(request.owed)
                .saturating_add(request.holds),
            standby: self.standby,
        }
    }
}

// === impl Allocation ===

impl Allocation {
    /// Whether the client of `entry` draws tokens, or will from its next request on.
    pub(super) fn is_to_draw(&self, entry: &ClientEntry) -> bool {
        entry.draws.is_offered || (self.is_drawn && entry.can_draw() && !self.unit.is_concurrency())
    }

    /// Whether the client of `entry` draws each permit: it has a lease of those in use, and no more.
    pub(super) fn draws_permits(&self, entry: &ClientEntry) -> bool {
        self.is_drawn && entry.can_draw() && self.unit.is_concurrency()
    }

    /// Notes whether the client of `entry` draws, and the tokens that it holds.
    pub(super) fn note_draw(
        &mut self,
        now: Instant,
        entry: &mut ClientEntry,
        request: Option<&DrawRequest>,
    ) {
        let may = self.may_be_drawn();
        self.note_cost(request.map_or(Tokens::ZERO, |request| request.first));
        self.decide_draws(now, may);
        let Some(request) = request else {
            entry.draws.is_offered = false;
            return;
        };
        if self.unit.is_concurrency() {
            entry.draws.account = request.account;
            return;
        }
        if may && self.fleet.is_none() {
            self.fleet = Some(FleetBucket::full(now, self.limit.burst));
        }
        let before = entry.totals();
        let is_same = entry.draws.account == request.account;
        entry.draws = entry
            .draws
            .after(request, self.is_drawn && now >= self.learning_until);
        self.replace_totals(before, entry.totals());
        let spent = before.holds.saturating_sub(entry.draws.holds);
        let spent = spent.saturating_sub(request.returns);
        let held = self.held();
        if let Some(bucket) = &mut self.fleet {
            // A client that has forgotten what it held does not know when it was spent.
            let room = if is_same { spent } else { Tokens::ZERO };
            bucket.earn_late(now, request.spent_for, room, held);
            bucket.give_back(now, request.returns);
        }
    }

    /// Grants the tokens that a client needs, as far as they are there, or that go with its lease, which was
    /// of `leased` before; without a `request`, which was answered before, none.
    pub(super) fn draw(
        &mut self,
        now: Instant,
        client: TieBreak,
        entry: &mut ClientEntry,
        request: Option<&DrawRequest>,
        leased: Capacity,
    ) -> Option<DrawAnswer> {
        entry.gives_back = self.draws_permits(entry);
        if entry.gives_back {
            return Some(self.permits(now, entry));
        }
        entry.draws.is_offered |= self.waits_for_lease(now, entry);
        self.set_standby(now, entry);
        if !entry.draws.is_offered {
            if request.is_some() {
                self.bring_tokens(now, entry, leased);
            }
            return self.brought_tokens(now, entry);
        }
        self.fill(now);
        let next = request.and_then(|request| self.grant_tokens(now, client, entry, request));
        Some(DrawAnswer {
            granted: entry.draws.granted,
            left: self.left(now),
            next,
            standby: entry.draws.standby,
        })
    }

    /// Tokens that are left in the fleet's bucket.
    pub(in crate::resource) fn left(&self, now: Instant) -> Tokens {
        self.fleet.map_or(Tokens::ZERO, |bucket| bucket.left(now))
    }

    /// Notes that the client of `entry` has so many tokens more of the fleet's bucket.
    pub(super) fn note_tokens(&mut self, entry: &mut ClientEntry, tokens: Tokens) {
        let before = entry.totals();
        entry.draws.granted = entry.draws.granted.saturating_add(tokens);
        entry.draws.holds = entry.draws.holds.saturating_add(tokens);
        self.is_used |= tokens > Tokens::ZERO;
        self.replace_totals(before, entry.totals());
    }

    /// Permits up to which the client of `entry` may begin requests: its share of those that it is leased, for
    /// it may have more in flight. With the time after which to ask again if others have to give back first.
    /// While it is not known what others have, some are left for all that is known.
    fn permits(&self, now: Instant, entry: &ClientEntry) -> DrawAnswer {
        let (entitled, leased) = (self.entitled(entry), entry.granted.capacity);
        let learns = now < self.learning_until;
        let lacks = !learns && !suffices(leased, entitled);
        DrawAnswer {
            granted: Tokens::from_micros(leased.min(entitled).as_micros()),
            left: match learns {
                true => Tokens::ONE,
                false => Tokens::ZERO,
            },
            next: lacks.then(|| self.times(now).min_refresh),
            standby: Capacity::ZERO,
        }
    }

    /// Grants tokens. Returns the time after which to draw again if they are too few.
    fn grant_tokens(
        &mut self,
        now: Instant,
        client: TieBreak,
        entry: &mut ClientEntry,
        request: &DrawRequest,
    ) -> Option<Duration> {
        let turns = self.turns_of(entry);
        // Others will soon draw instead of using leases, and will have spent the tokens that they hold; or clients
        // that are cut off come back.
        let times = self.times(now);
        let (after, latest) = match self.sum_cut_off {
            0 => (times.min_refresh, Duration::MAX),
            _ => (times.refresh, times.refresh),
        };
        let kept = match self.asks_for_more(now, entry) {
            true => self
                .promises
                .for_others(now, entry.wants(), entry.served_at),
            false => Tokens::ZERO,
        };
        let two_turns = self.time_of_two_turns();
        let is_bytes = self.unit.is_bytes();
        let ahead = self.ahead(now, entry, request);
        self.pay_owed(now, entry, request);
        let bucket = self.fleet.as_mut()?;
        let needs = request.needs.saturating_sub(entry.draws.holds);
        let usual = request.first.saturating_sub(entry.draws.holds);
        let usual = usual.max(Tokens::ONE);
        let first = if is_bytes { Tokens::ONE } else { usual };
        let kept = bucket.keeps(kept, first);
        let granted = match is_bytes {
            true => bucket.take_usual(now, needs, usual.min(self.limit.burst), kept),
            false => bucket.take(now, needs, first, kept),
        };
        let is_short = granted < needs;
        if is_short {
            bucket.note_short();
        }
        let has_turn = is_short || (needs > Tokens::ZERO && bucket.is_exhausted(now));
        let next = match has_turn {
            true => Some(bucket.promise(now, first.saturating_add(kept), turns, after)),
            false => bucket.debt_paid_in(now),
        };
        let next = next.map(|next| next.min(latest));
        if granted > Tokens::ZERO {
            entry.served_at = now;
            self.promises.end(client);
        }
        if needs > Tokens::ZERO {
            if let Some(next) = next.filter(|_| is_short && first <= self.limit.burst) {
                let promise = Promise {
                    client,
                    served_at: entry.served_at,
                    wants: entry.wants(),
                    tokens: usual,
                    until: now.saturating_add(next.saturating_add(two_turns)),
                };
                self.promises.make(now, promise);
            }
            entry.note_shortage(now, is_short);
            if !has_turn {
                bucket.note_granted();
            }
        }
        let ahead = bucket.take(now, ahead, Tokens::ONE, Tokens::ZERO);
        let tokens = granted.saturating_add(ahead);
        if is_short && self.sum_has > 0 {
            // Others still have leases of a limit that is drawn now.
            self.note_lack(now, entry.wants(), &mut PoolLink(None));
        }
        self.drawn = self.drawn.saturating_add(tokens);
        self.note_tokens(entry, tokens);
        self.fill(now);
        next
    }

    /// Has the fleet's bucket pay what the client of `entry` owes, but for what was paid with an answer that it has not
    /// received.
    fn pay_owed(&mut self, now: Instant, entry: &mut ClientEntry, request: &DrawRequest) {
        let debt_max = request.debt_max.min(self.longest_debt());
        let Some(bucket) = &mut self.fleet else {
            return;
        };
        let paid = entry.draws.granted.saturating_sub(request.drawn);
        let owed = bucket.pay(now, request.owed.saturating_sub(paid), debt_max);
        entry.draws.granted = entry.draws.granted.saturating_add(owed);
        self.drawn = self.drawn.saturating_add(owed);
        self.is_used |= owed > Tokens::ZERO;
    }

    /// The most that clients may have the fleet's bucket owe, whatever they say.
    fn longest_debt(&self) -> Tokens {
        let earned = self.limit.capacity.as_rate().tokens_in(DEBT_MAX);
        earned.max(self.limit.burst)
    }

    /// Whole tokens that a client of `request` may have beside those that its requests wait for: as many as it
    /// will want in a refresh interval, where the bucket is nearly full. With them its next requests need no
    /// call.
    fn ahead(&self, now: Instant, entry: &ClientEntry, request: &DrawRequest) -> Tokens {
        let Limit {
            capacity, burst, ..
        } = self.limit;
        let is_full = self.left(now) >= burst.saturating_sub(part_of(burst, SPARE_PARTS));
        if self.in_requests(capacity) < DRAWN_BELOW || !is_full {
            return Tokens::ZERO;
        }
        let most = part_of(burst, AHEAD_PARTS).as_micros();
        let wants = entry.wants().as_micros();
        let part = mul_div(most, wants, self.shares.sum_wants().max(1));
        let ahead = self.expected(now, entry).min(Tokens::from_micros(part));
        let spare = entry.draws.holds.saturating_sub(request.needs);
        Tokens::from_whole(ahead.whole()).saturating_sub(spare)
    }

    /// Tokens that a client will want until its next regular request.
    pub(super) fn expected(&self, now: Instant, entry: &ClientEntry) -> Tokens {
        let rate = entry.wants().as_rate();
        rate.tokens_in(self.times(now).refresh)
    }

    /// Time until which the fleet's bucket is to be remembered without clients: until it is full, if any of
    /// them has drawn of it.
    pub(in crate::resource) fn full_at(&self) -> Option<Instant> {
        let rate = self.limit.capacity.as_rate();
        let bucket = self.fleet.filter(|_| self.is_used);
        bucket.and_then(|bucket| bucket.full_at(rate))
    }

    /// Tokens that clients have drawn of the fleet's bucket and may not have spent.
    pub(in crate::resource) fn held_by_clients(&self) -> Tokens {
        Tokens::from_micros(u64::try_from(self.sum_holds).unwrap_or(u64::MAX))
    }

    /// Tokens that the client of `entry` may have, drawn or in the bucket of its lease.
    pub(super) fn held_by(&self, entry: &ClientEntry) -> Tokens {
        let of_lease = match entry.has() {
            Capacity::ZERO => Tokens::ZERO,
            has => self.limit.burst_for(has),
        };
        entry.draws.holds.saturating_add(of_lease)
    }

    /// The most that the client of `entry` may give back: what it has. Of bytes also what it has told as spent, for
    /// requests took as many as usual, and had fewer.
    pub(super) fn returnable(&self, entry: &ClientEntry) -> Tokens {
        let held = self.held_by(entry);
        match self.unit.is_bytes() {
            true => held.saturating_add(entry.draws.granted.min(self.limit.burst)),
            false => held,
        }
    }

    /// Begins with the bucket that a store has.
    pub(crate) fn restore_bucket(&mut self, now: Instant, stored: StoredBucket) {
        self.fleet = Some(FleetBucket::restored(now, self.limit.burst, stored));
        (self.is_used, self.is_stored) = (true, true);
    }

    /// Returns what is to be stored of the fleet's bucket, and whether before an answer tells of its tokens.
    pub(crate) fn bucket_to_store(&mut self, now: Instant) -> Option<(StoredBucket, bool)> {
        let (rate, lease) = (self.limit.capacity.as_rate(), self.limit.lease);
        let withheld = Capacity::from_sum(self.sum_cut_off)
            .as_rate()
            .tokens_in(lease);
        let held = (self.held(), withheld);
        let bucket = self.fleet.as_mut().filter(|_| self.is_used)?;
        let change = bucket.store_change(now, rate, held, lease);
        self.is_stored |= change.is_some();
        change
    }

    /// Notes that the store does not have the fleet's bucket.
    pub(crate) fn bucket_not_stored(&mut self) {
        if let Some(bucket) = &mut self.fleet {
            bucket.not_stored();
        }
    }

    /// Forgets the fleet's bucket if a new one would hold no more.
    pub(in crate::resource) fn forget_if_full(&mut self, now: Instant) {
        let lasts = self.full_at().is_some_and(|at| at > now);
        self.fleet = self.fleet.filter(|_| lasts);
    }

    /// Part of the burst that clients hold, or may gather in the buckets of their leases.
    fn held(&self) -> Tokens {
        let gathered = self.burst_of_leases(self.sum_has);
        gathered.saturating_add(self.held_by_clients())
    }

    /// Part of the burst that goes with leases of so many micro-units together.
    pub(super) fn burst_of_leases(&self, sum: u128) -> Tokens {
        let (whole, burst) = (self.limit.capacity, self.limit.burst);
        let leased = Capacity::from_sum(sum).min(whole).as_micros();
        Tokens::from_micros(mul_div(burst.as_micros(), leased, whole.as_micros().into()))
    }

    /// Fills the fleet's bucket until `now`, by the leases until then, and from then on by those of now.
    /// Tokens that clients hold, or may gather in their own buckets, are part of the burst.
    pub(in crate::resource) fn fill(&mut self, now: Instant) {
        let used = self.sum_has.saturating_add(self.sum_cut_off);
        let left = self.limit.capacity.left_of(used);
        let rate = match left.is_unlimited() {
            true => Rate::ZERO,
            false => left.as_rate(),
        };
        let held = self.held();
        if let Some(bucket) = &mut self.fleet {
            bucket.set(now, rate, held);
        }
    }
}

// === free functions ===

/// One of so many parts of a burst.
pub(super) fn part_of(burst: Tokens, parts: u64) -> Tokens {
    Tokens::from_micros(burst.as_micros().checked_div(parts).unwrap_or(0))
}
