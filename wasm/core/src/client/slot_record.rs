//! Slot record: the state of a scope as bytes, for the memory that an Envoy's workers share.
//!
//! Little-endian fields in the order of the code below, behind a version: workers of an older and a
//! newer filter share the memory during an upgrade, and each must leave alone what it does not
//! understand. Decoding accepts any numbers (all arithmetic on them saturates), but no unknown version, no
//! unknown tag and no other length.

use alloc::vec::Vec;

use super::concurrency_limiter::{ConcurrencyLimiter, WorkerShare};
use super::demand_estimator::DemandEstimator;
use super::process_lease::{Phase, ProcessLease};
use super::rate_limiter::RateLimiter;
use super::scope_state::ScopeState;
use crate::bucket::{BucketState, TokenBucket};
use crate::cluster::ShardId;
use crate::lease::{Epoch, ID_LEN_MAX, Origin, Unit};
use crate::lease_client::{HeldLease, LeaseClient};
use crate::units::{Capacity, Instant, Rate, Tokens};

/// Versions 1 and 2 were a rate limiter for requests alone.
const VERSION: u8 = 5;
/// In version 4 a concurrency limiter kept no lease but the last one; still read, so that an
/// upgrade loses no lease.
const VERSION_4: u8 = 4;
/// Nor were there shards.
const VERSION_3: u8 = 3;

/// Writes fields one after the other.
struct Writer<'a>(&'a mut Vec<u8>);

/// Reads the same fields back.
struct Reader<'a> {
    bytes: &'a [u8],
    version: u8,
}

// === impl ScopeState ===

impl ScopeState {
    /// Bytes that an encoded state takes where requests alone are limited, at most.
    pub const ENCODED_LEN_USUAL: usize = 192;

    /// Appends the state to `bytes`.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let mut w = Writer(bytes);
        w.u8(VERSION);
        w.text(self.canonical().map_or("", |canonical| canonical));
        w.limiter(&self.requests);
        w.option(self.request_bytes.as_ref(), Writer::limiter);
        w.option(self.response_bytes.as_ref(), Writer::limiter);
        w.option(self.concurrency.as_ref(), Writer::concurrency);
    }

    /// Reads the state in `bytes`; none if they are of another version, truncated, too long, or
    /// hostile.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, bytes) = bytes.split_first()?;
        let version = *version;
        if !matches!(version, VERSION | VERSION_4 | VERSION_3) {
            return None;
        }
        let mut reader = Reader { bytes, version };
        let scope_state = reader.scope_state()?;
        reader.bytes.is_empty().then_some(scope_state)
    }
}

// === impl Writer ===

impl Writer<'_> {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// A tag and, if there is a value, the value.
    fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.u8(value.is_some().into());
        if let Some(value) = value {
            write(self, value);
        }
    }

    /// At most 65535 bytes, with their length.
    fn text(&mut self, text: &str) {
        self.u16(text.len() as u16);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn limiter(&mut self, limiter: &RateLimiter) {
        self.bucket(limiter.bucket.to_parts());
        self.u8(limiter.fresh.into());
        self.process_lease(&limiter.lease);
        self.demand(&limiter.demand);
        self.u64(limiter.last_attempt.as_nanos());
    }

    fn concurrency(&mut self, concurrency: &ConcurrencyLimiter) {
        self.process_lease(&concurrency.lease);
        self.u64(concurrency.gets.as_micros());
        self.u32(concurrency.admitted);
        self.u32(concurrency.refused);
        self.u64(concurrency.opened_at.as_nanos());
        self.u32(concurrency.last);
        self.u64(concurrency.last_attempt.as_nanos());
        self.u16(concurrency.shares.len() as u16);
        for share in &concurrency.shares {
            self.u64(share.worker);
            self.u32(share.held);
            self.u32(share.peak);
            self.u64(share.seen.as_nanos());
        }
    }

    fn process_lease(&mut self, lease: &ProcessLease) {
        let client = &lease.client;
        self.phase(lease.phase);
        self.option(client.lease, |w, lease| {
            w.u64(lease.capacity.as_micros());
            w.u64(lease.burst.as_micros());
            w.u64(lease.expiry.as_nanos());
            w.u64(lease.fingerprint);
        });
        self.u64(client.origin.epoch.0);
        self.option(client.origin.shard, |w, shard| w.u16(shard.0));
        self.option(client.safe, |w, safe| w.u64(safe.as_micros()));
        self.option(client.capacity, |w, capacity| w.u64(capacity.as_micros()));
        self.u64(lease.reported.as_micros());
        self.u64(client.sequence);
        self.option(client.asked_at, |w, at| w.u64(at.as_nanos()));
        self.option(client.due, |w, at| w.u64(at.as_nanos()));
        self.u8(client.failures);
    }

    fn bucket(&mut self, parts: BucketState) {
        self.0.extend_from_slice(&parts.balance.to_le_bytes());
        self.u64(parts.last.as_nanos());
        self.u64(parts.remainder.into());
        self.u64(parts.rate.as_micros());
        self.u64(parts.burst.as_micros());
    }

    fn phase(&mut self, phase: Phase) {
        match phase {
            Phase::Idle => self.u8(0),
            Phase::Awake => self.u8(1),
            Phase::Pending { until } => {
                self.u8(2);
                self.u64(until.as_nanos());
            }
            Phase::Lapsed => self.u8(3),
            Phase::Growing { until } => {
                self.u8(4);
                self.u64(until.as_nanos());
            }
        }
    }

    fn demand(&mut self, demand: &DemandEstimator) {
        self.u64(demand.attempts);
        self.u64(demand.opened_at.as_nanos());
        self.u64(demand.average);
        self.option(demand.low_since, |w, since| w.u64(since.as_nanos()));
        self.u64(demand.low_max);
        self.u8(demand.measured.into());
    }
}

// === impl Reader ===

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*field)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn bool(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn instant(&mut self) -> Option<Instant> {
        self.u64().map(Instant::from_nanos)
    }

    /// The value with all bits set is "unlimited", everything else a number.
    fn capacity(&mut self) -> Option<Capacity> {
        Some(match self.u64()? {
            u64::MAX => Capacity::UNLIMITED,
            micros => Capacity::from_micros(micros),
        })
    }

    /// The outer option is about the bytes, the inner one is the field.
    fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.bool()? {
            read(self).map(Some)
        } else {
            Some(None)
        }
    }

    fn text(&mut self) -> Option<&str> {
        let len = usize::from(self.u16()?);
        let (text, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        core::str::from_utf8(text).ok()
    }

    fn scope_state(&mut self) -> Option<ScopeState> {
        let canonical = self.text()?;
        if canonical.len() > ID_LEN_MAX {
            return None;
        }
        let canonical = (!canonical.is_empty()).then(|| canonical.into());
        Some(ScopeState {
            canonical,
            requests: self.limiter(Unit::Requests)?,
            request_bytes: self.option(|r| r.limiter(Unit::RequestBytes))?,
            response_bytes: self.option(|r| r.limiter(Unit::ResponseBytes))?,
            concurrency: self.option(Self::concurrency)?,
        })
    }

    fn limiter(&mut self, unit: Unit) -> Option<RateLimiter> {
        Some(RateLimiter {
            bucket: self.bucket()?,
            fresh: self.bool()?,
            lease: self.process_lease()?,
            demand: self.demand()?,
            last_attempt: self.instant()?,
            unit,
        })
    }

    fn concurrency(&mut self) -> Option<ConcurrencyLimiter> {
        Some(ConcurrencyLimiter {
            lease: self.process_lease()?,
            gets: match self.version {
                VERSION_3 | VERSION_4 => Capacity::UNLIMITED,
                _ => self.capacity()?,
            },
            admitted: self.u32()?,
            refused: self.u32()?,
            opened_at: self.instant()?,
            last: self.u32()?,
            last_attempt: self.instant()?,
            shares: self.shares()?,
        })
    }

    /// Shares in the order of their workers, each worker once.
    fn shares(&mut self) -> Option<Vec<WorkerShare>> {
        let len = usize::from(self.u16()?);
        let mut shares = Vec::new();
        for _ in 0..len {
            let share = WorkerShare {
                worker: self.u64()?,
                held: self.u32()?,
                peak: self.u32()?,
                seen: self.instant()?,
            };
            let last: Option<&WorkerShare> = shares.last();
            if last.is_some_and(|last| last.worker >= share.worker) {
                return None;
            }
            shares.push(share);
        }
        Some(shares)
    }

    fn process_lease(&mut self) -> Option<ProcessLease> {
        let phase = self.phase()?;
        let lease = self.option(Self::lease)?;
        let origin = self.origin()?;
        let safe = self.option(Self::capacity)?;
        let capacity = self.option(Self::capacity)?;
        let reported = self.capacity()?;
        let client = LeaseClient {
            lease,
            origin,
            safe,
            capacity,
            sequence: self.u64()?,
            asked_at: self.option(Self::instant)?,
            due: self.option(Self::instant)?,
            failures: self.u8()?,
        };
        Some(ProcessLease {
            client,
            phase,
            reported,
        })
    }

    fn origin(&mut self) -> Option<Origin> {
        let epoch = Epoch(self.u64()?);
        let shard = match self.version {
            VERSION_3 => None,
            _ => self.option(|r| r.u16().map(ShardId))?,
        };
        Some(Origin { shard, epoch })
    }

    fn bucket(&mut self) -> Option<TokenBucket> {
        Some(TokenBucket::from_parts(BucketState {
            balance: i64::from_le_bytes(self.take()?),
            last: self.instant()?,
            remainder: u32::try_from(self.u64()?).ok()?,
            rate: Rate::from_micros(self.u64()?),
            burst: Tokens::from_micros(self.u64()?),
        }))
    }

    fn phase(&mut self) -> Option<Phase> {
        match self.u8()? {
            0 => Some(Phase::Idle),
            1 => Some(Phase::Awake),
            2 => Some(Phase::Pending {
                until: self.instant()?,
            }),
            3 => Some(Phase::Lapsed),
            4 => Some(Phase::Growing {
                until: self.instant()?,
            }),
            _ => None,
        }
    }

    fn lease(&mut self) -> Option<HeldLease> {
        Some(HeldLease {
            capacity: self.capacity()?,
            burst: Tokens::from_micros(self.u64()?),
            expiry: self.instant()?,
            fingerprint: self.u64()?,
        })
    }

    fn demand(&mut self) -> Option<DemandEstimator> {
        Some(DemandEstimator {
            attempts: self.u64()?,
            opened_at: self.instant()?,
            average: self.u64()?,
            low_since: self.option(Self::instant)?,
            low_max: self.u64()?,
            measured: self.bool()?,
        })
    }
}

#[cfg(test)]
mod tests;
