//! Draws of clients from the bucket of the whole fleet.

use core::time::Duration;

use super::{Allocation, ClientEntry};
use crate::lease::{DrawAnswer, DrawRequest, Unit};
use crate::limit::Algorithm;
use crate::resource::{ClientDraws, FleetBucket};
use crate::units::{Capacity, Instant, Rate, Tokens, mul_div};

/// Capacity below which a client gets no lease, but draws each token: a bucket that earns so little
/// overflows at one client while another starves.
const LEASED_FROM: Capacity = Capacity::from_whole(20);

/// Capacity of a limit below which clients draw of it. Of a larger one they have leases alone: what is
/// exact there, such as the pause in a refusal, is not yet where some of it is leased and some is drawn.
pub(super) const DRAWN_BELOW: Capacity = Capacity::from_whole(20);

/// Capacity from which a newcomer gets a lease at once. For less it draws for a second first:
/// one request looks like ten a second, and leases of many that come and go would take what others draw.
const LEASED_AT_ONCE_FROM: Capacity = Capacity::from_whole(100);

/// Time after which a client is no newcomer any more.
const NEW_FOR: Duration = Duration::from_secs(1);

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
            && self.limit.capacity < self.drawn_below
            && self.limit.capacity > Capacity::ZERO
            && self.pool.is_none()
            && self.lendable.is_none()
            && now >= self.learning_until
    }

    /// `capacity`, as a lease of the client of `entry`: nothing if it draws instead.
    pub(super) fn leased(&self, entry: &ClientEntry, capacity: Capacity) -> Capacity {
        let least = match entry.is_newcomer {
            true => LEASED_AT_ONCE_FROM,
            false => LEASED_FROM,
        };
        match entry.draws.is_offered && capacity < least {
            true => Capacity::ZERO,
            false => capacity,
        }
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
        let lease = self.times_alone().lease;
        entry.is_newcomer = entry.presence.has_come_within(now, lease, NEW_FOR);
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
            let under_way = under_way.saturating_sub(draws.in_cap);
            if request.drawn >= draws.granted {
                draws.in_cap = Tokens::ZERO;
            }
            draws.granted = draws.granted.max(request.drawn);
            draws.holds = under_way.saturating_add(request.holds);
        }
        self.replace_totals(before, entry.totals());
    }

    /// Moves tokens into the bucket of a client whose lease has grown from `had`: those that were in the
    /// part of the fleet's bucket that it gathers in its own from now on.
    pub(super) fn move_tokens(&mut self, now: Instant, entry: &mut ClientEntry, had: Capacity) {
        let more = self.cap(entry.has()).saturating_sub(self.cap(had));
        let Some(bucket) = self.fleet.as_mut().filter(|_| entry.draws.is_offered) else {
            return;
        };
        let moved = bucket.share_of(now, more, bucket.room());
        entry.draws.granted = entry.draws.granted.saturating_add(moved);
        entry.draws.in_cap = entry.draws.in_cap.saturating_add(moved);
    }

    /// Part of the burst that clients may gather who have leased `capacity`.
    fn cap(&self, capacity: Capacity) -> Tokens {
        let (whole, burst) = (self.limit.capacity, self.limit.burst);
        if whole.is_unlimited() {
            return Tokens::ZERO;
        }
        let leased = capacity.min(whole).as_micros();
        Tokens::from_micros(mul_div(burst.as_micros(), leased, whole.as_micros().into()))
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
        let has = entry.draws.holds.saturating_add(entry.draws.in_cap);
        let needs = request.needs.saturating_sub(has);
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
        self.replace_totals(before, entry.totals());
        self.fill(now);
        next
    }

    /// Interval after which the client of `entry` should ask again that would otherwise do so after
    /// `interval`. What it has spent has no room in the bucket before it says so: where that is much of the
    /// burst, it should say so soon.
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

    /// Forgets the fleet's bucket if a new one would hold no more.
    pub(in crate::resource) fn forget_if_full(&mut self, now: Instant) {
        let lasts = self.full_at().is_some_and(|at| at > now);
        self.fleet = self.fleet.filter(|_| lasts);
    }

    /// Takes back what the client of `entry` had gathered by its lease, which it has released: it does so
    /// when its bucket is full, and keeps nothing.
    pub(in crate::resource) fn release(&mut self, entry: ClientEntry) {
        let gathered = match entry.draws.is_offered {
            true => self.cap(entry.granted.capacity),
            false => Tokens::ZERO,
        };
        self.forget(entry);
        let held = self.held();
        if let Some(bucket) = &mut self.fleet {
            bucket.take_back(gathered, held);
        }
    }

    /// Part of the burst that clients hold, or may gather.
    fn held(&self) -> Tokens {
        let leased = Capacity::from_sum(self.sum_has);
        let holds = Tokens::from_micros(u64::try_from(self.sum_holds).unwrap_or(u64::MAX));
        self.cap(leased).saturating_add(holds)
    }

    /// Fills the fleet's bucket until `now`, by what was leased until then, and from then on by what is
    /// leased now. What clients hold, and may gather in their own buckets, is part of the burst.
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
