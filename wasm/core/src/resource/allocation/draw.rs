//! Draws of clients from the bucket of the whole fleet.

use core::time::Duration;

use super::{Allocation, ClientEntry};
use crate::lease::{DrawAnswer, DrawRequest, Unit};
use crate::limit::Algorithm;
use crate::resource::{ClientDraws, FleetBucket};
use crate::units::{Capacity, Instant, Rate, Tokens, mul_div};

/// Capacity of a limit below which clients draw each token of it and have no lease: a bucket that earns
/// so little overflows at one client while another starves.
const DRAWN_BELOW: Capacity = Capacity::from_whole(20);

/// Time whose demand is granted ahead, as long as there is plenty.
const AHEAD: Duration = Duration::from_millis(100);

/// Part of the burst that a client may hold for a refresh interval.
const HELD_PARTS: u64 = 8;

/// Part of the tokens that are left that may be granted ahead, to all clients together.
const AHEAD_PART: u64 = 16;

// === impl Allocation ===

impl Allocation {
    /// Whether clients may draw at `now`. Not in a pool, nor of what is borrowed, where a draw would
    /// have to be charged twice.
    fn lets_draw(&self, now: Instant) -> bool {
        self.unit == Unit::Requests
            && self.limit.algorithm == Algorithm::FairShare
            && self.limit.capacity < DRAWN_BELOW
            && self.limit.capacity > Capacity::ZERO
            && self.pool.is_none()
            && self.lendable.is_none()
            && now >= self.learning_until
    }

    /// Notes whether the client of `entry` draws, and what it holds.
    pub(super) fn note_draw(
        &mut self,
        now: Instant,
        entry: &mut ClientEntry,
        request: Option<&DrawRequest>,
    ) {
        let before = entry.totals();
        entry.draws.is_offered = request.is_some() && self.lets_draw(now);
        if entry.draws.is_offered && self.fleet.is_none() {
            self.fleet = Some(FleetBucket::full(now, self.limit.burst));
        }
        if let Some(request) = request {
            let draws = &mut entry.draws;
            if draws.account != request.account {
                *draws = ClientDraws {
                    account: request.account,
                    granted: request.drawn,
                    is_offered: draws.is_offered,
                    ..ClientDraws::default()
                };
            }
            let under_way = draws.granted.saturating_sub(request.drawn);
            draws.granted = draws.granted.max(request.drawn);
            draws.holds = under_way.saturating_add(request.holds);
        }
        self.replace_totals(before, entry.totals());
    }

    /// Grants the tokens that a client needs, as far as they are there; without a `request`, which was
    /// answered before, none.
    pub(super) fn draw(
        &mut self,
        now: Instant,
        entry: &mut ClientEntry,
        request: Option<&DrawRequest>,
    ) -> Option<DrawAnswer> {
        if !entry.draws.is_offered {
            return None;
        }
        self.fill(now);
        let next = request.and_then(|request| self.grant_tokens(now, entry, request));
        Some(DrawAnswer {
            granted: entry.draws.granted,
            left: self.fleet.map_or(Tokens::ZERO, |bucket| bucket.left(now)),
            next,
        })
    }

    /// Grants tokens. Returns the time after which to draw again if they are too few.
    fn grant_tokens(
        &mut self,
        now: Instant,
        entry: &mut ClientEntry,
        request: &DrawRequest,
    ) -> Option<Duration> {
        let clients = usize::try_from(self.shares.subclients()).unwrap_or(usize::MAX);
        let (ahead, after) = (self.ahead(now, entry), self.times(now).refresh);
        let bucket = self.fleet.as_mut()?;
        let needs = request.needs.saturating_sub(entry.draws.holds);
        let mut granted = bucket.take(now, needs);
        let next = match granted < needs {
            true => Some(bucket.promise(now, request.first, clients, after)),
            false => None,
        };
        if next.is_none() && needs > Tokens::ZERO {
            bucket.note_granted();
            granted = granted.saturating_add(bucket.take(now, ahead));
        }
        if needs > Tokens::ZERO {
            entry.note_shortage(now, next.is_some());
        }
        let before = entry.totals();
        entry.draws.granted = entry.draws.granted.saturating_add(granted);
        entry.draws.holds = entry.draws.holds.saturating_add(granted);
        self.drawn = self.drawn.saturating_add(granted);
        self.replace_totals(before, entry.totals());
        self.fill(now);
        next
    }

    /// Interval after which the client of `entry` should ask again that would otherwise do so after
    /// `interval`. Tokens that it has spent have no room in the bucket before it reports that: where they are
    /// much of the burst, it should report soon.
    pub(super) fn interval(
        &self,
        now: Instant,
        entry: &ClientEntry,
        interval: Duration,
    ) -> Duration {
        let held = entry.draws.holds.as_micros().saturating_mul(HELD_PARTS);
        match entry.draws.is_offered && held > self.limit.burst.as_micros() {
            true => interval.min(self.times(now).min_refresh),
            false => interval,
        }
    }

    /// Tokens that the client of `entry` may get beside those that it needs.
    fn ahead(&self, now: Instant, entry: &ClientEntry) -> Tokens {
        let left = self.fleet.map_or(Tokens::ZERO, |bucket| bucket.left(now));
        let parts = self.shares.subclients().saturating_mul(AHEAD_PART).max(1);
        let most = left.whole().checked_div(parts).unwrap_or(0);
        let soon = entry.wants().as_rate().tokens_in(AHEAD).whole();
        Tokens::from_whole(most.min(soon))
    }

    /// Time until which the fleet's bucket is to be remembered without clients: until it is full.
    pub(in crate::resource) fn full_at(&self) -> Option<Instant> {
        let rate = self.limit.capacity.as_rate();
        self.fleet.as_ref().and_then(|bucket| bucket.full_at(rate))
    }

    /// Tokens that clients have drawn of the fleet's bucket and may not have spent.
    pub(in crate::resource) fn held_by_clients(&self) -> Tokens {
        Tokens::from_micros(u64::try_from(self.sum_holds).unwrap_or(u64::MAX))
    }

    /// Forgets the fleet's bucket if a new one would hold no more.
    pub(in crate::resource) fn forget_if_full(&mut self, now: Instant) {
        let lasts = self.full_at().is_some_and(|at| at > now);
        self.fleet = self.fleet.filter(|_| lasts);
    }

    /// Part of the burst that clients hold, or may gather in the buckets of their leases.
    fn held(&self) -> Tokens {
        let (whole, burst) = (self.limit.capacity, self.limit.burst);
        let leased = Capacity::from_sum(self.sum_has).min(whole).as_micros();
        let gathered = mul_div(burst.as_micros(), leased, whole.as_micros().into());
        Tokens::from_micros(gathered).saturating_add(self.held_by_clients())
    }

    /// Fills the fleet's bucket until `now`, by the leases until then, and from then on by those of now.
    /// Tokens that clients hold, or may gather in their own buckets, are part of the burst.
    pub(in crate::resource) fn fill(&mut self, now: Instant) {
        let left = self.limit.capacity.left_of(self.sum_has);
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
