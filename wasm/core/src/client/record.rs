//! A holder as bytes, for the memory that an Envoy's workers share.
//!
//! Little-endian fields in the order of the code below, behind a version: workers of an older and a
//! newer filter share the memory during an upgrade, and each must leave alone what it does not
//! understand. Decoding accepts any numbers (all arithmetic on them saturates), but no unknown version, no
//! unknown tag and no other length.

use alloc::vec::Vec;

use super::demand::Demand;
use super::holder::{Holder, Lease, Phase};
use crate::bucket::{Parts, TokenBucket};
use crate::lease::Epoch;
use crate::units::{Capacity, Instant, Rate, Tokens};

const VERSION: u8 = 2;

/// Writes fields one after the other.
struct Writer<'a>(&'a mut Vec<u8>);

/// Reads the same fields back.
struct Reader<'a>(&'a [u8]);

// === impl Holder ===

impl Holder {
    /// The most bytes that an encoded holder takes.
    pub const ENCODED_LEN_MAX: usize = 195;

    /// Appends the holder to `bytes`.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let mut w = Writer(bytes);
        w.u8(VERSION);
        w.bucket(self.bucket.to_parts());
        w.u8(self.fresh.into());
        w.phase(self.phase);
        w.option(self.lease, |w, lease| {
            w.u64(lease.capacity.as_micros());
            w.u64(lease.burst.as_micros());
            w.u64(lease.expiry.as_nanos());
            w.u64(lease.basis);
        });
        w.u64(self.epoch.0);
        w.option(self.safe, |w, safe| w.u64(safe.as_micros()));
        w.option(self.capacity, |w, capacity| w.u64(capacity.as_micros()));
        w.demand(&self.demand);
        w.u64(self.reported.as_micros());
        w.u64(self.last_attempt.as_nanos());
        w.u64(self.sequence);
        w.option(self.asked_at, |w, at| w.u64(at.as_nanos()));
        w.option(self.due, |w, at| w.u64(at.as_nanos()));
        w.u8(self.failures);
    }

    /// The holder in `bytes`; none if they are of another version, truncated, too long, or hostile.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let holder = reader.holder()?;
        reader.0.is_empty().then_some(holder)
    }
}

// === impl Writer ===

impl Writer<'_> {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
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

    fn bucket(&mut self, parts: Parts) {
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
            Phase::Cold { until } => {
                self.u8(2);
                self.u64(until.as_nanos());
            }
        }
    }

    fn demand(&mut self, demand: &Demand) {
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
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
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

    fn holder(&mut self) -> Option<Holder> {
        if self.u8()? != VERSION {
            return None;
        }
        Some(Holder {
            bucket: self.bucket()?,
            fresh: self.bool()?,
            phase: self.phase()?,
            lease: self.option(Self::lease)?,
            epoch: Epoch(self.u64()?),
            safe: self.option(Self::capacity)?,
            capacity: self.option(Self::capacity)?,
            demand: self.demand()?,
            reported: self.capacity()?,
            last_attempt: self.instant()?,
            sequence: self.u64()?,
            asked_at: self.option(Self::instant)?,
            due: self.option(Self::instant)?,
            failures: self.u8()?,
        })
    }

    fn bucket(&mut self) -> Option<TokenBucket> {
        Some(TokenBucket::from_parts(Parts {
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
            2 => Some(Phase::Cold {
                until: self.instant()?,
            }),
            _ => None,
        }
    }

    fn lease(&mut self) -> Option<Lease> {
        Some(Lease {
            capacity: self.capacity()?,
            burst: Tokens::from_micros(self.u64()?),
            expiry: self.instant()?,
            basis: self.u64()?,
        })
    }

    fn demand(&mut self) -> Option<Demand> {
        Some(Demand {
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
mod tests {
    use super::*;

    /// Holders with every optional field absent and with every one present.
    fn holders() -> [Holder; 2] {
        let now = Instant::from_nanos(5);
        let idle = Holder::new(now, &crate::client::Policy::default());
        let at = Some(Instant::from_nanos(7));
        let lease = Lease {
            capacity: Capacity::UNLIMITED,
            burst: Tokens::ONE,
            expiry: now,
            basis: 7,
        };
        let full = Holder {
            phase: Phase::Cold { until: now },
            lease: Some(lease),
            safe: Some(Capacity::ZERO),
            capacity: Some(Capacity::UNLIMITED),
            demand: Demand {
                low_since: at,
                measured: true,
                average: 9,
                ..idle.demand
            },
            asked_at: at,
            due: at,
            failures: 3,
            ..idle.clone()
        };
        [idle, full]
    }

    fn encoded(holder: &Holder) -> Vec<u8> {
        let mut bytes = Vec::new();
        holder.encode(&mut bytes);
        bytes
    }

    #[test]
    fn decode_takes_back_what_encode_gave() {
        for holder in holders() {
            assert_eq!(Holder::decode(&encoded(&holder)), Some(holder));
        }
        assert_eq!(encoded(&holders()[1]).len(), Holder::ENCODED_LEN_MAX);
    }

    #[test]
    fn decode_refuses_what_it_does_not_know() {
        for bytes in holders().map(|holder| encoded(&holder)) {
            for len in 0..bytes.len() {
                assert_eq!(Holder::decode(&bytes[..len]), None, "truncated to {len}");
            }
            assert_eq!(
                Holder::decode(&[bytes.as_slice(), &[0]].concat()),
                None,
                "longer"
            );
            assert_eq!(
                Holder::decode(&[&[VERSION + 1], &bytes[1..]].concat()),
                None,
                "newer"
            );
        }
    }

    #[test]
    fn hostile_numbers_do_no_harm() {
        let policy = crate::client::Policy::default();
        for bytes in holders().map(|holder| encoded(&holder)) {
            for position in 1..bytes.len() {
                let mut bytes = bytes.clone();
                bytes[position] = 0xff;
                let Some(mut holder) = Holder::decode(&bytes) else {
                    continue;
                };
                let now = Instant::from_nanos(u64::MAX / 2);
                holder.count(now, u64::MAX);
                holder.draw(now, &policy, Tokens::ONE, 2);
                holder.ask(now, &policy);
                holder.give_back(now, &policy, Tokens::from_micros(u64::MAX));
            }
        }
    }
}
