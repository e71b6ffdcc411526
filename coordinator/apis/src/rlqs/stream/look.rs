//! Decides what a proxy is told of one bucket.

use std::time::Duration;

use tollgate_core::units::{Capacity, Instant, Tokens};

use super::{Action, StreamState};
use crate::rlqs::assignment::{Assignment, Strategy, is_too_short, time_to_live};
use crate::rlqs::bucket::Bucket;
use crate::rlqs::scope_lease::BucketPart;

/// Time to live of what a proxy is told without a lease that lasts long enough.
const FALLBACK_TIME: Duration = Duration::from_secs(5);

/// Limit that a bucket should have now.
#[derive(Clone, Copy, Debug)]
struct Wish {
    assignment: Assignment,
    share: Capacity,
    /// Whether it is a part of a lease.
    is_leased: bool,
}

// === impl Wish ===

impl Wish {
    fn new(
        bucket: &Bucket,
        share: Capacity,
        burst: Tokens,
        time_to_live: Duration,
        is_leased: bool,
    ) -> Self {
        let strategy = Strategy::of(share, burst);
        let before = bucket.sent.map(|sent| sent.strategy);
        let same = before.filter(|before| strategy.is_same_rate(*before));
        Self {
            assignment: Assignment {
                strategy: same.unwrap_or_else(|| strategy.after(before)),
                time_to_live,
            },
            share,
            is_leased,
        }
    }
}

// === impl StreamState ===

impl StreamState {
    /// Looks at the bucket `id` and returns what is to be sent of it.
    pub(super) fn look(&mut self, now: Instant, id: u64) -> Option<Action> {
        let bucket = self.buckets.get(&id)?;
        let idle_at = bucket.idle_at(self.domain.abandon_after);
        if idle_at <= now {
            return self.abandon(now, id);
        }
        let wish = self.wish(now, id, bucket);
        let resumed_until = bucket.known_at.saturating_add(self.resumed_for(bucket));
        let is_quiet = wish.is_some_and(|wish| {
            let is_sure = self.is_known && wish.is_leased || wish.share >= bucket.wants();
            bucket.is_resumed && bucket.sent.is_none() && !is_sure && now < resumed_until
        });
        let wish = wish.filter(|_| !is_quiet);
        let action = match wish.filter(|wish| is_due(now, bucket, wish.assignment)) {
            Some(wish) => self.assign(now, id, wish.assignment, wish.is_leased),
            None => None,
        };
        let next = if is_quiet {
            Some(resumed_until)
        } else {
            self.next_look(now, id)
        };
        self.queue_bucket(id, next.map_or(idle_at, |next| next.min(idle_at)));
        action
    }

    /// When the bucket's assignment has to be renewed, or is over.
    fn next_look(&self, now: Instant, id: u64) -> Option<Instant> {
        let sent = self.buckets.get(&id)?.sent?;
        let times = [sent.renew_at(), sent.until];
        times.into_iter().find(|at| *at > now)
    }

    /// The limit that `bucket` should have now; none if the proxy is to go on with what it has.
    fn wish(&self, now: Instant, id: u64, bucket: &Bucket) -> Option<Wish> {
        let part = self.part(now, id);
        let leased = part.and_then(|part| of_lease(now, bucket, part));
        leased.or_else(|| {
            if bucket.sent.is_some_and(|sent| sent.until > now) {
                None
            } else {
                self.without_lease(id, bucket, part)
            }
        })
    }

    /// The limit of `bucket` without a lease that can be assigned. `part` is of one that is over
    /// soon.
    fn without_lease(&self, id: u64, bucket: &Bucket, part: Option<BucketPart>) -> Option<Wish> {
        let wish = |share: Capacity| {
            let burst = Tokens::from_micros(share.as_micros());
            Wish::new(bucket, share, burst, FALLBACK_TIME, false)
        };
        match self.safe(id) {
            Some(safe) => Some(wish(safe)),
            // No assignment of such leases can be expressed. Without one everything might pass.
            None if part.is_some() && self.is_too_short(id) => Some(wish(Capacity::ZERO)),
            None => None,
        }
    }

    /// The smallest part of the bucket in the leases of its scopes; none unless all are valid.
    fn part(&self, now: Instant, id: u64) -> Option<BucketPart> {
        let mut smallest: Option<BucketPart> = None;
        for scope in self.scopes_of(id) {
            let part = self.scopes.get(&scope)?.part(now, id)?;
            smallest = Some(smallest.map_or(part, |other| BucketPart {
                share: part.share.min(other.share),
                burst: part.burst.min(other.burst),
                expiry: part.expiry.min(other.expiry),
            }));
        }
        smallest
    }

    /// Whether the leases of the bucket are too short for any assignment.
    fn is_too_short(&self, id: u64) -> bool {
        let scopes = self.scopes_of(id);
        let mut leases = scopes.iter().filter_map(|scope| self.scopes.get(scope));
        leases.any(|lease| is_too_short(lease.length))
    }

    fn safe(&self, id: u64) -> Option<Capacity> {
        let scopes = self.scopes_of(id);
        let leases = scopes.iter().filter_map(|scope| self.scopes.get(scope));
        leases.filter_map(|lease| lease.safe()).min()
    }
}

// === free functions ===

/// The limit of `bucket` as a part of its lease; none if the lease is over too soon to be assigned,
/// and what the proxy has is no more.
fn of_lease(now: Instant, bucket: &Bucket, part: BucketPart) -> Option<Wish> {
    let BucketPart {
        share,
        burst,
        expiry,
    } = part;
    let lives = time_to_live(expiry, now);
    let has_more = || {
        let sent = bucket.sent.filter(|sent| sent.until > now);
        sent.is_some_and(|sent| sent.strategy.rate() > share)
    };
    let wish = |share, lives| Some(Wish::new(bucket, share, burst, lives, true));
    match Strategy::of(share, burst) {
        // Nothing may be had for longer than its lease.
        Strategy::DenyAll => wish(share, lives.max(FALLBACK_TIME)),
        _ if !lives.is_zero() => wish(share, lives),
        // The more is lent to others by now.
        _ if has_more() => wish(Capacity::ZERO, FALLBACK_TIME),
        _ => None,
    }
}

/// Whether `assignment` is to be sent for `bucket`: if it differs from what the proxy has, after
/// each report, and before that ends.
fn is_due(now: Instant, bucket: &Bucket, assignment: Assignment) -> bool {
    let Some(sent) = bucket.sent.filter(|sent| sent.until > now) else {
        return true;
    };
    let until = now.saturating_add(assignment.time_to_live);
    let renews = now >= sent.renew_at() && until > sent.until;
    assignment.strategy != sent.strategy || bucket.is_owed || renews
}
