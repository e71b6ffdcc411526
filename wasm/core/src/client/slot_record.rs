//! Slot record: the state of a scope as bytes, for the memory that an Envoy's workers share.
//!
//! Little-endian fields in the order of the code below, behind a version: workers of an older and a
//! newer filter share the memory during an upgrade, and each must leave alone what it does not
//! understand. Decoding accepts any numbers (all arithmetic on them saturates), but no unknown version, no
//! unknown tag and no other length.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::concurrency_limiter::draw::PermitDraws;
use super::concurrency_limiter::{ConcurrencyLimiter, WorkerShare};
use super::demand_estimator::DemandEstimator;
use super::draws::{Draws, KnownQuota};
use super::process_lease::{Phase, ProcessLease};
use super::rate_limiter::RateLimiter;
use super::scope_state::ScopeState;
use crate::bucket::{BucketState, TokenBucket};
use crate::cluster::ShardId;
use crate::lease::{Epoch, ID_LEN_MAX, Origin, Unit};
use crate::lease_client::{HeldLease, LeaseClient};
use crate::traffic::{Counts, OpenTally};
use crate::units::{Capacity, Instant, Rate, RatePeriod, Tokens};

/// Versions 1 and 2 were a rate limiter for requests alone. Version 3 had no shards, in version 4 a
/// concurrency limiter kept no lease but the last one, before version 6 neither the burst of a limit was
/// known nor what a bucket lacks beyond its burst, before version 7 nothing was drawn, before version 8
/// neither quotas nor the period of a limit were known, and before version 9 nothing came back; all are still read, so that an upgrade loses no lease.
const VERSIONS: RangeInclusive<u8> = 3..=9;

/// Value with a place in the record.
trait Field: Sized {
    /// Appends the value to `bytes`.
    fn write(&self, bytes: &mut Vec<u8>);

    /// Takes the value out; none if there is no such value.
    fn read(reader: &mut Reader<'_>) -> Option<Self>;
}

/// Bytes of a record that are not read yet.
struct Reader<'a> {
    bytes: &'a [u8],
    version: u8,
}

/// Fields that are integers.
macro_rules! integers {
    ($($name:ident)*) => {$(
        impl Field for $name {
            fn write(&self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }

            fn read(reader: &mut Reader<'_>) -> Option<Self> {
                let (field, rest) = reader.bytes.split_first_chunk()?;
                reader.bytes = rest;
                Some(Self::from_le_bytes(*field))
            }
        }
    )*};
}

/// Fields that are written as a value of another type.
macro_rules! wrappers {
    ($($name:ident as $inner:ty: $get:expr, $make:expr;)*) => {$(
        impl Field for $name {
            fn write(&self, bytes: &mut Vec<u8>) {
                let inner: $inner = $get(*self);
                inner.write(bytes);
            }

            fn read(reader: &mut Reader<'_>) -> Option<Self> {
                <$inner>::read(reader).and_then($make)
            }
        }
    )*};
}

/// Structures, written field by field in this order. A field may have come with a later version;
/// one behind a `;` is not written.
macro_rules! records {
    ($($name:ident {
        $($field:ident $(since $version:literal or $before:expr)?),* $(; $unwritten:ident: $value:expr)?
    })*) => {$(
        impl Field for $name {
            fn write(&self, bytes: &mut Vec<u8>) {
                $(self.$field.write(bytes);)*
            }

            fn read(reader: &mut Reader<'_>) -> Option<Self> {
                Some(Self {
                    $($field: match reader.version {
                        $(version if version < $version => $before,)?
                        _ => Field::read(reader)?,
                    },)*
                    $($unwritten: $value,)?
                })
            }
        }
    )*};
}

integers! { u8 u16 u32 u64 i64 }

wrappers! {
    bool as u8: u8::from, |byte| (byte <= 1).then_some(byte == 1);
    Instant as u64: Instant::as_nanos, |nanos| Some(Self::from_nanos(nanos));
    Tokens as u64: Tokens::as_micros, |micros| Some(Self::from_micros(micros));
    Rate as u64: Rate::as_micros, |micros| Some(Self::from_micros(micros));
    Capacity as u64: Capacity::as_micros, |micros| Some(capacity(micros));
    Epoch as u64: |epoch: Self| epoch.0, |epoch| Some(Self(epoch));
    ShardId as u16: |shard: Self| shard.0, |shard| Some(Self(shard));
    RatePeriod as u8: |period| period as u8, |index| Self::ALL.get(usize::from(index)).copied();
    TokenBucket as BucketState: Self::to_parts, |parts| Some(Self::from_parts(parts));
}

records! {
    BucketState { balance, last, remainder, rate, burst, lacking since 6 or Tokens::ZERO }
    HeldLease { capacity, burst, expiry, fingerprint }
    Origin { epoch, shard since 4 or None }
    Counts { attempts, refused }
    OpenTally { since, counts, reported }
    DemandEstimator { attempts, opened_at, average, low_since, low_max, measured }
    Draws {
        account, offered, granted, left, owed, needs, first, requested, reserved, held_until, next, next_for,
        fleet, grows_from, standby, is_unanswered, spent_at, on_credit, reported, cost, quota since 8 or None,
        refunds since 9 or Tokens::ZERO, refunds_from since 9 or Instant::ZERO, settles_until since 9 or Instant::ZERO
    }
    KnownQuota { amount, left, length_ms, resets_at, uncounted }
    RateLimiter {
        bucket, fresh, lease, demand, last_attempt, draws since 7 or Draws::default();
        unit: Unit::Requests
    }
    WorkerShare { worker, held, peak, waiting since 7 or 0, seen }
    PermitDraws { offered, begun, most, ended, held_until, none_until, vain_answers, wanted_more, lacks,
        learns }
    ConcurrencyLimiter {
        lease, gets since 5 or Capacity::UNLIMITED, admitted, refused, opened_at, last, last_attempt,
        draws since 7 or PermitDraws::default(), shares
    }
}

impl<T: Field> Field for Box<T> {
    fn write(&self, bytes: &mut Vec<u8>) {
        T::write(self, bytes);
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        T::read(reader).map(Self::new)
    }
}

impl<T: Field> Field for Option<T> {
    fn write(&self, bytes: &mut Vec<u8>) {
        self.is_some().write(bytes);
        if let Some(value) = self {
            value.write(bytes);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        if bool::read(reader)? {
            T::read(reader).map(Some)
        } else {
            Some(None)
        }
    }
}

impl Field for Phase {
    fn write(&self, bytes: &mut Vec<u8>) {
        let (tag, until) = match self {
            Self::Idle => (0_u8, None),
            Self::Awake => (1, None),
            Self::Pending { until } => (2, Some(until)),
            Self::Lapsed => (3, None),
            Self::Growing { until } => (4, Some(until)),
        };
        tag.write(bytes);
        if let Some(until) = until {
            until.write(bytes);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(match u8::read(reader)? {
            0 => Self::Idle,
            1 => Self::Awake,
            2 => Self::Pending {
                until: Field::read(reader)?,
            },
            3 => Self::Lapsed,
            4 => Self::Growing {
                until: Field::read(reader)?,
            },
            _ => return None,
        })
    }
}

impl Field for ProcessLease {
    fn write(&self, bytes: &mut Vec<u8>) {
        let client = &self.client;
        self.phase.write(bytes);
        client.lease.write(bytes);
        client.origin.write(bytes);
        client.safe.write(bytes);
        client.capacity.write(bytes);
        client.burst.write(bytes);
        self.reported.write(bytes);
        client.sequence.write(bytes);
        client.asked_at.write(bytes);
        client.due.write(bytes);
        client.failures.write(bytes);
        client.tally.write(bytes);
        client.period.write(bytes);
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let phase = Field::read(reader)?;
        let mut client = LeaseClient {
            lease: Field::read(reader)?,
            origin: Field::read(reader)?,
            safe: Field::read(reader)?,
            capacity: Field::read(reader)?,
            burst: match reader.version {
                ..6 => None,
                _ => Field::read(reader)?,
            },
            ..LeaseClient::default()
        };
        let reported = Field::read(reader)?;
        client.sequence = Field::read(reader)?;
        client.asked_at = Field::read(reader)?;
        client.due = Field::read(reader)?;
        client.failures = Field::read(reader)?;
        client.tally = match reader.version {
            ..7 => OpenTally::default(),
            _ => Field::read(reader)?,
        };
        client.period = match reader.version {
            ..8 => None,
            _ => Field::read(reader)?,
        };
        Some(Self {
            client,
            phase,
            reported,
        })
    }
}

impl Field for Vec<WorkerShare> {
    fn write(&self, bytes: &mut Vec<u8>) {
        (self.len() as u16).write(bytes);
        self.iter().for_each(|share| share.write(bytes));
    }

    /// Takes out shares in the order of their workers, each worker once.
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let len = u16::read(reader)?;
        let shares = (0..len).map(|_| WorkerShare::read(reader));
        let shares: Self = shares.collect::<Option<_>>()?;
        let ascends = shares.is_sorted_by(|one, next| one.worker < next.worker);
        ascends.then_some(shares)
    }
}

// === impl ScopeState ===

impl ScopeState {
    /// Bytes that an encoded state takes where requests alone are limited, at most.
    pub const ENCODED_LEN_USUAL: usize = 336;

    /// Appends the state to `bytes`.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let canonical = self.canonical().map_or("", |canonical| canonical);
        VERSIONS.end().write(bytes);
        (canonical.len() as u16).write(bytes);
        bytes.extend_from_slice(canonical.as_bytes());
        self.requests.write(bytes);
        self.request_bytes.write(bytes);
        self.response_bytes.write(bytes);
        self.concurrency.write(bytes);
    }

    /// Reads the state in `bytes`; none if they are of another version, truncated, too long, or
    /// hostile.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (&version, bytes) = bytes.split_first()?;
        if !VERSIONS.contains(&version) {
            return None;
        }
        let mut reader = Reader { bytes, version };
        let canonical = reader.canonical()?;
        let of = |unit| move |limiter: Box<RateLimiter>| Box::new(RateLimiter { unit, ..*limiter });
        let scope_state = Self {
            canonical,
            requests: Field::read(&mut reader)?,
            request_bytes: Option::read(&mut reader)?.map(of(Unit::RequestBytes)),
            response_bytes: Option::read(&mut reader)?.map(of(Unit::ResponseBytes)),
            concurrency: Field::read(&mut reader)?,
        };
        reader.bytes.is_empty().then_some(scope_state)
    }
}

// === impl Reader ===

impl Reader<'_> {
    /// Takes out the canonical scope, if there is one.
    fn canonical(&mut self) -> Option<Option<Arc<str>>> {
        let len = usize::from(u16::read(self)?);
        let (text, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        let text = str::from_utf8(text).ok().filter(|_| len <= ID_LEN_MAX)?;
        Some((len > 0).then(|| text.into()))
    }
}

// === free functions ===

/// The value with all bits set is "unlimited", everything else a number.
fn capacity(micros: u64) -> Capacity {
    match micros {
        u64::MAX => Capacity::UNLIMITED,
        micros => Capacity::from_micros(micros),
    }
}

#[cfg(test)]
mod tests;
