//! Bucket of the whole fleet as it is kept in a store, for a coordinator that starts after a crash.
//!
//! A bucket that is full again soon is not worth it: that of a limit that takes [`SLOW_FROM`] to earn its
//! burst is stored before an answer tells of tokens of it, so that a crash brings none of these back. What is
//! stored may say that more is missing than is, by a small part of the burst; then not each token is stored.

use alloc::vec::Vec;
use core::time::Duration;

use super::QuotaRecord;
use crate::lease::ResourceId;
use crate::units::{Instant, Rate, Tokens};

/// Time for which a limit has to earn its burst for its bucket to be stored.
pub const SLOW_FROM: Duration = Duration::from_secs(10);

/// Part of the burst that a store may say is missing beside what is.
const AHEAD_PART: u64 = 64;

/// Bucket of the whole fleet in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredBucket {
    /// Tokens that it had and lacked: the burst of the limit, or of that before it was lowered.
    pub whole: Tokens,
    /// Rate of the limit: what is missing is earned at this rate.
    pub rate: Rate,
    /// Tokens that it lacked, at least, of those that were ever taken.
    pub missing: Tokens,
    /// The part of these that clients may have held, and not spent.
    pub held: Tokens,
    /// Time for which they may hold it.
    pub held_for: Duration,
    /// Time after which it is full, and nobody holds anything.
    pub lasts: Duration,
    /// Time since it was stored.
    pub age: Duration,
}

/// Limit in a store: its bucket, and what is used of its quotas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLimit {
    /// Its bucket.
    pub bucket: StoredBucket,
    /// Use of its quotas.
    pub quotas: Vec<QuotaRecord>,
}

/// Change of a resource's bucket that is to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketChange {
    /// The resource.
    pub resource: ResourceId,
    /// The bucket; none if it need not be stored any more.
    pub bucket: Option<StoredLimit>,
    /// Whether answers wait for it: the bucket has less than the store says.
    pub is_urgent: bool,
}

/// Record of a bucket in the store, and the time of its write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    bucket: StoredBucket,
    at: Instant,
}

// === impl StoredLimit ===

impl StoredLimit {
    /// Takes what another record says of the same limit, where less is left.
    pub fn merge(&mut self, other: Self) {
        let lasts = self.bucket.lasts.max(other.bucket.lasts);
        if other.bucket.missing() > self.bucket.missing() {
            self.bucket = other.bucket;
        }
        self.bucket.lasts = lasts;
        for record in other.quotas {
            let mut known = self.quotas.iter_mut();
            match known.find(|known| known.name == record.name) {
                Some(known) => known.merge(&record),
                None => self.quotas.push(record),
            }
        }
    }

    /// The same when so much time has passed since.
    #[must_use]
    pub fn after(&self, time: Duration) -> Self {
        let bucket = StoredBucket {
            age: self.bucket.age.saturating_add(time),
            ..self.bucket
        };
        let quotas = self.quotas.clone();
        Self { bucket, quotas }
    }
}

// === impl StoredBucket ===

impl StoredBucket {
    /// Returns the tokens that it lacks now, at least.
    pub(super) fn missing(&self) -> Tokens {
        let earned = self.rate.tokens_in(self.age);
        let missing = self.missing.saturating_sub(earned);
        missing.max(self.held())
    }

    /// Returns the tokens that clients may still hold.
    pub(super) fn held(&self) -> Tokens {
        if self.age < self.held_for {
            self.held
        } else {
            Tokens::ZERO
        }
    }
}

// === impl Stored ===

impl Stored {
    pub(super) fn new(now: Instant, bucket: StoredBucket) -> Self {
        Self { bucket, at: now }
    }

    /// Returns the bucket that it says, as of `now`.
    pub(super) fn aged(&self, now: Instant) -> StoredBucket {
        let age = now.saturating_since(self.at);
        StoredBucket {
            age: self.bucket.age.saturating_add(age),
            ..self.bucket
        }
    }
}

// === free functions ===

/// Whether the bucket of a limit of `rate` and `burst` is stored.
pub fn is_slow(rate: Rate, burst: Tokens) -> bool {
    let time_to_fill = rate.time_for(burst);
    time_to_fill.is_none_or(|time| time >= SLOW_FROM)
}

/// Part of a burst that a store may say is missing beside what is, in whole tokens.
pub(super) fn ahead(whole: Tokens) -> Tokens {
    let part = whole.whole().checked_div(AHEAD_PART);
    Tokens::from_whole(part.unwrap_or(0))
}
