//! Draws of clients from the buckets of the whole fleet.

use core::time::Duration;

use super::grant::suffices;
use super::{Allocation, ClientEntry, TieBreak};
use crate::fleet::{ChargedLimit, ChargedLimits, Draw, FleetSums, StoredLimit};
use crate::lease::{Band, DrawAnswer, DrawRequest};
use crate::lendable::LendableSource;
use crate::limit::Algorithm;
use crate::pool::PoolLink;
use crate::resource::ClientDraws;
use crate::units::{Capacity, Instant, Tokens};

/// The longest time for which a message may be under way, beyond that for which its client waits for an answer.
const UNDER_WAY_MAX: Duration = Duration::from_secs(1);

// === impl DrawRequest ===

impl DrawRequest {
    /// The same, but no more is given back than its client may have had, if that was `held`, and no more comes back
    /// than `spent`.
    pub(super) fn within(self, held: Tokens, spent: Tokens) -> Self {
        let returns = self.returns.min(held.saturating_sub(self.holds));
        let refunds = self.refunds.min(spent);
        Self {
            returns,
            refunds,
            ..self
        }
    }
}

// === impl ClientDraws ===

impl ClientDraws {
    /// Draws after `request`, of a client that draws if `is_offered`. What it owes was spent before it was granted.
    fn after(self, request: &DrawRequest, is_offered: bool) -> Self {
        // Each answer tells again of tokens that it has not received.
        let under_way = if self.account == request.account {
            self.granted.saturating_sub(request.drawn)
        } else {
            Tokens::ZERO
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
        let may = entry.can_draw() && !entry.lends_on() && !self.unit.is_concurrency();
        entry.draws.is_offered || (self.is_drawn && may)
    }

    /// Whether the client of `entry` draws each permit: it has a lease of those in use, and no more.
    pub(super) fn draws_permits(&self, entry: &ClientEntry) -> bool {
        let may = entry.can_draw() && !entry.lends_on();
        self.is_drawn && may && self.unit.is_concurrency()
    }

    /// Whether there may be a bucket of the whole fleet.
    pub(super) fn may_be_drawn(&self) -> bool {
        let is_fair = self.limit.algorithm == Algorithm::FairShare;
        let drawable = self.drawable();
        let drawable = drawable.filter(|_| is_fair || self.has_quota());
        drawable.is_some_and(|(capacity, _)| {
            capacity.min(self.pool_capacity()) > Capacity::ZERO
                && (self.pool.is_some() || !capacity.is_unlimited())
        })
    }

    /// Capacity and burst of which clients may draw: its own limit, and of one that is borrowed what a lease of the
    /// parent lends. None while there is no such lease.
    pub(super) fn drawable(&self) -> Option<(Capacity, Tokens)> {
        let own = (self.limit.capacity, self.limit.burst);
        let lendable = match self.lendable {
            None => return Some(own),
            Some(lendable) if lendable.source == LendableSource::Own => return Some(own),
            Some(lendable) => lendable,
        };
        let (capacity, burst) = lendable.lease()?;
        match (own.0.is_unlimited(), capacity.is_unlimited()) {
            (_, true) => Some(own),
            (true, false) => Some((capacity, burst)),
            (false, false) => Some((own.0.min(capacity), own.1.min(burst))),
        }
    }

    /// The resource's own limit with its sums; none without one.
    pub(in crate::resource) fn own_sums(&self) -> Option<FleetSums> {
        let (capacity, burst) = self.drawable()?;
        (!capacity.is_unlimited()).then(|| FleetSums {
            unit: self.unit,
            capacity,
            burst,
            is_borrowed: self.is_borrowed(),
            subclients: self.shares.subclients(),
            wants: self.shares.sum_wants(),
            has: self.sum_has,
            draws: self.draws,
        })
    }

    /// The limits with their sums: its own, and its pool's with what other members last reported.
    pub(super) fn limits(&self) -> impl Iterator<Item = FleetSums> {
        let pool = self.pool.map(|pool| FleetSums {
            has: pool
                .sums
                .has
                .saturating_sub(pool.of_member.has)
                .saturating_add(self.sum_has),
            draws: pool.sums.draws.replaced(pool.of_member.draws, self.draws),
            ..pool.sums
        });
        [self.own_sums(), pool].into_iter().flatten()
    }

    /// The limits that a draw is charged to.
    pub(super) fn charged<'a>(
        &'a mut self,
        now: Instant,
        pool: &'a mut PoolLink<'_>,
    ) -> ChargedLimits<'a> {
        self.charged_of(now, None, pool)
    }

    /// The same of a draw of a client that is of `band`, where there are several.
    fn charged_of<'a>(
        &'a mut self,
        now: Instant,
        band: Option<&Band>,
        pool: &'a mut PoolLink<'_>,
    ) -> ChargedLimits<'a> {
        let sums = self.own_sums();
        let own = sums.and_then(|sums| {
            let bands = band.map(|band| (self.bands.get_or_insert_default(), band));
            let member = bands.and_then(|(bands, band)| bands.member(now, band, sums.burst));
            ChargedLimit::new(&mut self.fleet, sums, member)
        });
        ChargedLimits([own, pool.charged(now)])
    }

    /// Notes whether the client of `entry` draws, and the tokens that it holds.
    pub(super) fn note_draw(
        &mut self,
        now: Instant,
        entry: &mut ClientEntry,
        request: Option<&DrawRequest>,
        pool: &mut PoolLink<'_>,
    ) {
        self.deserted_until = None;
        let may = self.may_be_drawn();
        let cost = request.map_or(Tokens::ZERO, |request| request.first);
        self.decide_draws(now, may, cost, pool);
        let Some(request) = request else {
            entry.draws.is_offered = false;
            return;
        };
        if self.unit.is_concurrency() {
            entry.draws.account = request.account;
            return;
        }
        if may {
            self.begin_buckets(now, pool);
        }
        let before = entry.totals();
        let is_same = entry.draws.account == request.account;
        let is_offered = self.is_drawn && self.may_offer(now) && !entry.lends_on();
        entry.draws = entry.draws.after(request, is_offered);
        self.replace_totals(before, entry.totals());
        let spent = before.draws.held().saturating_sub(entry.draws.holds);
        let spent = spent.saturating_sub(request.returns);
        pool.count(|| self.pool_totals());
        // A client that has forgotten what it held does not know when it was spent.
        let room = if is_same { spent } else { Tokens::ZERO };
        let age = request.refunded_for.saturating_add(UNDER_WAY_MAX);
        let taken_at = now.saturating_sub(age);
        let is_member = pool.is_joined_since(taken_at);
        let mut limits = self.charged(now, pool);
        limits.note_spent(now, request.spent_for, room, request.returns);
        if !is_member {
            limits = limits.without_pool();
        }
        limits.refund(now, taken_at, request.refunds);
        self.report(now, pool);
    }

    /// Whether clients may draw at `now`: of a quota also while others' leases are not known, for it has none, and what
    /// was drawn is stored.
    pub(super) fn may_offer(&self, now: Instant) -> bool {
        now >= self.learning_until || self.has_quota()
    }

    /// Whether a quota bounds it, or its pool.
    pub(super) fn has_quota(&self) -> bool {
        self.fleet.quotas.has_any() || self.pool.is_some_and(|pool| pool.has_quota)
    }

    /// Decides whether clients draw of any of the limits, of a request that takes `cost`.
    fn decide_draws(&mut self, now: Instant, may: bool, cost: Tokens, pool: &mut PoolLink<'_>) {
        let own = self
            .own_sums()
            .filter(|sums| sums.capacity > Capacity::ZERO);
        if let Some(sums) = &own {
            self.fleet.note_cost(sums, cost);
            self.fleet.decide_draws(now, sums, may);
        }
        let own = own.is_some() && self.fleet.is_drawn;
        self.is_drawn = own | pool.decide_draws(now, may, cost);
    }

    fn begin_buckets(&mut self, now: Instant, pool: &mut PoolLink<'_>) {
        // A limit of which clients draw while the coordinator learns may have been drawn before.
        let is_unknown = now < self.learning_until && !self.fleet.is_stored;
        match self.own_sums() {
            Some(sums) if self.is_borrowed() => self.begin_borrowed(now, &sums),
            Some(sums) if is_unknown && self.has_quota() => {
                self.fleet.begin_empty(now, sums.burst);
            }
            Some(sums) => self.fleet.begin(now, sums.burst),
            None => {}
        }
        pool.begin_bucket(now);
    }

    /// Grants the tokens that a client needs, as far as they are there, or that go with its lease, which was
    /// of `leased` before; without a `request`, which was answered before, none.
    pub(super) fn draw(
        &mut self,
        now: Instant,
        client: TieBreak,
        entry: &mut ClientEntry,
        (request, leased): (Option<&DrawRequest>, Capacity),
        pool: &mut PoolLink<'_>,
    ) -> Option<DrawAnswer> {
        entry.gives_back = self.draws_permits(entry);
        if entry.gives_back {
            return Some(self.permits(now, entry));
        }
        entry.draws.is_offered |= self.waits_for_lease(now, entry);
        self.set_standby(now, entry);
        if !entry.draws.is_offered {
            if let Some(request) = request {
                self.bring_tokens(now, entry, (leased, request.needs), pool);
            }
            return self.brought_tokens(now, entry, pool);
        }
        self.report(now, pool);
        self.charged(now, pool).fill(now);
        let next = request.and_then(|request| self.grant_tokens(now, client, entry, request, pool));
        Some(DrawAnswer {
            granted: entry.draws.granted,
            left: self.charged(now, pool).left(now),
            next,
            standby: entry.draws.standby,
            quota: self.charged(now, pool).strictest_quota(now),
        })
    }

    /// Notes that the client of `entry` has so many tokens more of the fleet's buckets.
    pub(super) fn note_tokens(&mut self, entry: &mut ClientEntry, tokens: Tokens) {
        let before = entry.totals();
        entry.draws.granted = entry.draws.granted.saturating_add(tokens);
        entry.draws.holds = entry.draws.holds.saturating_add(tokens);
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
            left: if learns { Tokens::ONE } else { Tokens::ZERO },
            next: lacks.then(|| self.times(now).min_refresh),
            standby: Capacity::ZERO,
            quota: None,
        }
    }

    /// Grants tokens. Returns the time after which to draw again if they are too few.
    fn grant_tokens(
        &mut self,
        now: Instant,
        client: TieBreak,
        entry: &mut ClientEntry,
        request: &DrawRequest,
        pool: &mut PoolLink<'_>,
    ) -> Option<Duration> {
        let draw = self.draw_of(now, client, entry, request);
        let band = self.band_of(entry);
        let expected = self.expected(now, entry);
        let spare = entry.draws.holds.saturating_sub(request.needs);
        let mut limits = self.charged_of(now, band.as_ref(), pool);
        let ahead = limits
            .ahead(now, draw.wants, expected)
            .saturating_sub(spare);
        // But for what was paid with an answer that it has not received.
        let paid = entry.draws.granted.saturating_sub(request.drawn);
        let paid = limits.pay(now, request.owed.saturating_sub(paid), request.debt_max);
        let grant = limits.grant(now, &draw);
        let ahead = limits.take_whole(now, ahead);
        entry.draws.granted = entry.draws.granted.saturating_add(paid);
        let granted = paid.saturating_add(grant.tokens).saturating_add(ahead);
        self.drawn = self.drawn.saturating_add(granted);
        let is_short = grant.tokens < draw.needs;
        if grant.tokens > Tokens::ZERO {
            entry.served_at = now;
        }
        if draw.needs > Tokens::ZERO {
            entry.note_shortage(now, is_short);
        }
        if is_short && self.limits().any(|sums| sums.has > 0) {
            // Others still have leases of a limit that is drawn now.
            self.note_lack(now, draw.wants, pool);
        }
        let tokens = grant.tokens.saturating_add(ahead);
        self.note_tokens(entry, tokens);
        let (_, burst) = self.drawable().unwrap_or_default();
        if let Some((bands, band)) = self.bands.as_mut().zip(band) {
            bands.note_granted(now, &band, tokens, burst);
        }
        pool.note_granted(now, tokens);
        self.fill(now);
        self.report(now, pool);
        grant.next
    }

    /// The band of the client of `entry` with its part of the limit, if there are several.
    fn band_of(&self, entry: &ClientEntry) -> Option<Band> {
        let (capacity, _) = self.drawable()?;
        let guaranteed = &self.limit.guaranteed;
        self.shares.band_of(&entry.handles, capacity, guaranteed)
    }

    fn draw_of(
        &self,
        now: Instant,
        client: TieBreak,
        entry: &ClientEntry,
        request: &DrawRequest,
    ) -> Draw {
        // Others will soon draw instead of using leases, and will have spent the tokens that they hold; or clients
        // that are cut off come back.
        let times = self.times(now);
        let (after, latest) = if self.limits().all(|sums| sums.draws.cut_off == 0) {
            (times.min_refresh, Duration::MAX)
        } else {
            (times.refresh, times.refresh)
        };
        let usual = request.first.saturating_sub(entry.draws.holds);
        Draw {
            client,
            needs: request.needs.saturating_sub(entry.draws.holds),
            usual: usual.max(Tokens::ONE),
            wants: entry.wants(),
            served_at: entry.served_at,
            asks_for_more: self.asks_for_more(now, entry),
            after,
            latest,
        }
    }

    /// Tokens that a client will want until its next regular request.
    pub(super) fn expected(&self, now: Instant, entry: &ClientEntry) -> Tokens {
        let rate = entry.wants().as_rate();
        rate.tokens_in(self.times(now).refresh)
    }

    /// Time until which the fleet's bucket is to be remembered without clients: until it is full, if any of
    /// them has drawn of it.
    pub(in crate::resource) fn full_at(&self) -> Option<Instant> {
        if self.is_borrowed() {
            self.fleet.bucket.and(self.deserted_until)
        } else {
            self.fleet.full_at(self.limit.capacity)
        }
    }

    /// Forgets the bucket if a new one would hold no more. There are no clients.
    pub(in crate::resource) fn forget_bucket_if_full(&mut self, now: Instant) {
        if self.is_borrowed() {
            self.give_bucket_back(now)
        } else {
            self.fleet.forget_if_full(now, self.limit.capacity)
        }
    }

    /// Tokens that clients have drawn of the fleet's bucket and may not have spent.
    pub(in crate::resource) fn held_by_clients(&self) -> Tokens {
        self.draws.held()
    }

    /// Tokens that the client of `entry` may have, drawn or in the bucket of its lease.
    pub(super) fn held_by(&self, entry: &ClientEntry) -> Tokens {
        let of_lease = match entry.has() {
            Capacity::ZERO => Tokens::ZERO,
            has => self.burst(has),
        };
        entry.draws.holds.saturating_add(of_lease)
    }

    /// The most that the client of `entry` may give back: what it has. Of bytes also what it has told as spent, for
    /// requests took as many as usual, and had fewer.
    pub(super) fn returnable(&self, entry: &ClientEntry) -> Tokens {
        let held = self.held_by(entry);
        let burst = self.whole_burst().unwrap_or(Tokens::ZERO);
        if self.unit.is_bytes() {
            held.saturating_add(entry.draws.granted.min(burst))
        } else {
            held
        }
    }

    /// The most that the client of `entry` may say that came back of what it has spent.
    pub(super) fn refundable(&self, entry: &ClientEntry) -> Tokens {
        let burst = self.whole_burst().unwrap_or(Tokens::ZERO);
        // The bucket bounds itself.
        if self.has_quota() {
            entry.draws.granted
        } else {
            entry.draws.granted.min(burst)
        }
    }

    /// Begins with the bucket that a store has.
    pub(crate) fn restore_bucket(&mut self, now: Instant, stored: &StoredLimit) {
        self.fleet.restore_stored(now, self.limit.burst, stored);
    }

    /// Returns what is to be stored of the fleet's bucket, and whether before an answer tells of its tokens.
    pub(crate) fn bucket_to_store(&mut self, now: Instant) -> Option<(StoredLimit, bool)> {
        let sums = self.own_sums().filter(|_| self.lendable.is_none())?;
        self.fleet.store_change(now, &sums, self.limit.lease)
    }

    /// Fills the fleet's bucket until `now`, by the leases until then, and from then on by those of now.
    pub(in crate::resource) fn fill(&mut self, now: Instant) {
        if let Some(sums) = self.own_sums() {
            self.fleet.fill(self.lent_until(now), &sums);
        }
    }
}
