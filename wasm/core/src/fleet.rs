//! Limits that the clients of a whole fleet draw of: a resource's own, and that of its pool.
//!
//! Each has a [`FleetBucket`] with the tokens that no client has. A draw is charged to all limits of its
//! resource, or to none (`docs/design-fleet-bucket.md`).

use core::time::Duration;

mod bands;
mod cost;
mod draw;
mod fleet_bucket;
mod member;
mod mode;
mod promises;
mod quotas;
mod reports;
mod short_members;
mod stored_bucket;
mod sums;
mod turns;

pub(crate) use self::bands::DrawingBands;
pub(crate) use self::draw::{ChargedLimit, ChargedLimits, Draw};
pub use self::fleet_bucket::{FleetBucket, FleetBucketSnapshot};
pub(crate) use self::member::{DrawingMember, MemberDraws};
use self::promises::Promises;
pub(crate) use self::quotas::FleetQuotas;
pub use self::quotas::{
    EndedWindow, QuotaChange, QuotaChangeRequest, QuotaCredit, QuotaError, QuotaEvent, QuotaLevel,
    QuotaRecord, QuotaThreshold, QuotaUsage, UsedPart,
};
pub(crate) use self::reports::Report;
pub(crate) use self::short_members::ShortMembers;
pub use self::stored_bucket::{BucketChange, SLOW_FROM, StoredBucket, StoredLimit, is_slow};
pub(crate) use self::sums::{DrawSums, FleetSums};
use crate::units::{Capacity, Instant, Tokens};

/// A limit that clients may draw of, with its bucket.
#[derive(Debug, Default)]
pub(crate) struct FleetLimit {
    /// Bucket of the whole fleet, if clients may draw of it: the tokens that nobody has.
    pub(crate) bucket: Option<FleetBucket>,
    /// Whether clients draw of it, instead of having leases.
    pub(crate) is_drawn: bool,
    /// Time since when clients want much of a limit of which they might have leases.
    busy_since: Option<Instant>,
    /// Whether clients have drawn of it.
    pub(crate) is_used: bool,
    /// Whether a store has it.
    pub(crate) is_stored: bool,
    /// Tokens that a request usually takes; none if that is not known.
    cost: Tokens,
    /// Tokens that are kept for clients below their part.
    promises: Promises,
    /// Its quotas.
    pub(crate) quotas: FleetQuotas,
}

// === impl FleetLimit ===

impl FleetLimit {
    /// Begins with a full bucket of `burst`, if there is none yet.
    pub(crate) fn begin(&mut self, now: Instant, burst: Tokens) {
        self.bucket
            .get_or_insert_with(|| FleetBucket::full(now, burst));
    }

    /// Begins with an empty bucket that may hold `burst`, if there is none yet.
    pub(crate) fn begin_empty(&mut self, now: Instant, burst: Tokens) {
        self.bucket
            .get_or_insert_with(|| FleetBucket::empty(now, burst));
    }

    /// Begins with the bucket that a store has, of a limit that has `burst` now.
    pub(crate) fn restore_stored(&mut self, now: Instant, burst: Tokens, stored: &StoredLimit) {
        let StoredLimit { bucket, quotas } = stored;
        let mut restored = FleetBucket::restored(now, burst, *bucket);
        if !is_slow(bucket.rate, bucket.whole) {
            // Its record is for the quotas, and may be older than what was drawn since.
            restored.charge(now, restored.left(now));
        }
        self.bucket = Some(restored);
        let held_for = bucket.held_for.saturating_sub(bucket.age);
        let held = (bucket.held(), now.saturating_add(held_for));
        self.quotas.restore(quotas, held);
        (self.is_used, self.is_stored) = (true, true);
    }

    /// Begins with the bucket and the quotas of a snapshot.
    pub(crate) fn restore(
        &mut self,
        now: Instant,
        bucket: Option<&FleetBucketSnapshot>,
        quotas: &[QuotaRecord],
    ) {
        self.quotas.restore(quotas, (Tokens::ZERO, now));
        self.bucket = bucket.map(|bucket| FleetBucket::of(now, bucket));
        self.is_used = bucket.is_some();
    }

    /// Takes another burst of the limit.
    pub(crate) fn set_burst(&mut self, now: Instant, burst: Tokens) {
        if let Some(bucket) = &mut self.bucket {
            bucket.set_burst(now, burst);
        }
        self.promises.clear();
    }

    /// Fits the bucket to another borrowed part of the limit, which adds no token; without one the bucket ends. Returns
    /// the tokens for which there is no room any more.
    pub(crate) fn set_borrowed(&mut self, now: Instant, sums: Option<&FleetSums>) -> Tokens {
        let left = self.left(now);
        let bucket = self.bucket.as_mut();
        match bucket.zip(sums) {
            Some((bucket, sums)) => bucket.resize(now, sums.burst, sums.rate(), sums.held()),
            // Its tokens end with the lease.
            None => self.bucket = None,
        }
        left.saturating_sub(self.left(now))
    }

    /// Takes tokens that come with a lease, or back from one.
    pub(crate) fn give_back(&mut self, now: Instant, tokens: Tokens) {
        if let Some(bucket) = &mut self.bucket {
            bucket.give_back(now, tokens);
        }
    }

    /// Fills the bucket until `now`, by the leases until then, and from then on by those of now.
    /// Tokens that clients hold, or may gather in their own buckets, are part of the burst.
    pub(crate) fn fill(&mut self, now: Instant, sums: &FleetSums) {
        if let Some(bucket) = &mut self.bucket {
            bucket.set(now, sums.rate(), sums.held());
        }
    }

    /// Takes tokens that the bucket, of a limit with `burst`, has earned in the stead of a client that was cut off.
    pub(crate) fn take_back(&mut self, now: Instant, tokens: Tokens, burst: Tokens) {
        if let Some(bucket) = &mut self.bucket {
            bucket.charge(now, tokens.min(burst));
        }
    }

    /// Tokens that are left in the bucket, and of the quotas.
    pub(crate) fn left(&self, now: Instant) -> Tokens {
        let left = self.bucket.map_or(Tokens::ZERO, |bucket| bucket.left(now));
        left.min(self.quotas.left())
    }

    /// Makes a change of a quota of a limit with `burst`, of which clients hold `held`.
    ///
    /// # Errors
    /// If it is unknown, or there is no room for a credit, or it is none.
    pub(crate) fn change_quota(
        &mut self,
        now: Instant,
        (burst, held): (Tokens, Tokens),
        request: &QuotaChangeRequest,
    ) -> Result<(), QuotaError> {
        self.quotas.change(now, held, request)?;
        self.begin(now, burst);
        self.is_used = true;
        Ok(())
    }

    /// Takes `tokens` for a client, if need be by going into debt.
    fn charge(&mut self, now: Instant, tokens: Tokens) {
        if let Some(bucket) = &mut self.bucket {
            bucket.charge(now, tokens);
            self.quotas.charge(now, tokens);
            self.is_used |= tokens > Tokens::ZERO;
        }
    }

    /// Time until which the bucket is to be remembered without clients: until it is full, if any of
    /// them has drawn of it, and nothing is used of the quotas.
    pub(crate) fn full_at(&self, capacity: Capacity) -> Option<Instant> {
        let bucket = self.bucket.filter(|_| self.is_used)?;
        let full_at = bucket.full_at(capacity.as_rate());
        full_at.max(self.quotas.unused_at())
    }

    /// Forgets the bucket if a new one would hold no more.
    pub(crate) fn forget_if_full(&mut self, now: Instant, capacity: Capacity) {
        let lasts = self.full_at(capacity).is_some_and(|at| at > now);
        self.bucket = self.bucket.filter(|_| lasts);
    }

    /// Returns what is to be stored of the bucket and the quotas, and whether before an answer tells of their tokens.
    /// Nobody holds or earns what they do now after `lease`.
    pub(crate) fn store_change(
        &mut self,
        now: Instant,
        sums: &FleetSums,
        lease: Duration,
    ) -> Option<(StoredLimit, bool)> {
        let withheld = Capacity::from_sum(sums.draws.cut_off)
            .as_rate()
            .tokens_in(lease);
        let held = (sums.held(), withheld);
        let bucket = self.bucket.as_mut().filter(|_| self.is_used)?;
        let has_news = self.quotas.are_beyond_stored();
        let rate = sums.capacity.as_rate();
        let change = bucket.store_change(now, rate, held, lease, has_news)?;
        self.is_stored = true;
        let (mut bucket, is_urgent) = change;
        let unused_in = self
            .quotas
            .unused_at()
            .map(|unused_at| unused_at.saturating_since(now));
        bucket.lasts = bucket.lasts.max(unused_in.unwrap_or_default());
        let quotas = self.quotas.store();
        Some((StoredLimit { bucket, quotas }, is_urgent))
    }

    /// Notes what the store has of the bucket, which is known. Of its quotas the store may know more: the master before
    /// may not have read it.
    pub(crate) fn note_stored(&mut self, stored: Option<StoredLimit>) {
        if let Some(stored) = stored {
            self.is_stored = true;
            self.quotas.merge(&stored.quotas);
        }
    }

    /// Notes that the store does not have the bucket.
    pub(crate) fn not_stored(&mut self) {
        if let Some(bucket) = &mut self.bucket {
            bucket.not_stored();
        }
        self.quotas.not_stored();
    }
}
