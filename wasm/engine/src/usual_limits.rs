//! Usual limits: of each rule the limit that most of its scopes have, as the coordinator told it with
//! the answer for any of them. It holds for scopes that the process knows nothing of while the
//! coordinator is away.
//!
//! Any worker may get such an answer. All write what they have heard to one record in shared data and
//! read what the others wrote, once a second.

use core::time::Duration;

use tollgate_core::client::KnownLimit;
use tollgate_core::units::{Capacity, Instant, Tokens};

use crate::host::Host;
use crate::rules::Rules;
use crate::shared_table::{SharedTable, TableError};

const VERSION: u8 = 1;
/// Name of the record.
const RECORD: &str = "usual-limits";
/// The most kinds of scopes in the record; a configuration has up to 16 rules, a rule a few plans.
const RECORDED_MAX: usize = 128;
/// Time between two exchanges of a worker.
const EXCHANGE_INTERVAL: Duration = Duration::from_secs(1);

/// Usual limits of a process, by the kinds of its scopes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsualLimits(Vec<(String, KnownLimit)>);

/// Exchange of usual limits between the workers of a process.
#[derive(Debug, Default)]
pub(crate) struct UsualExchange {
    exchanged_at: Option<Instant>,
}

// === impl UsualExchange ===

impl UsualExchange {
    /// Writes what this worker's `rules` have learned and takes what other workers wrote, unless that
    /// was done lately.
    pub(crate) fn exchange<H: Host>(
        &mut self,
        host: &H,
        now: Instant,
        table: &SharedTable,
        rules: &mut Rules,
    ) -> Result<(), TableError> {
        let fresh = |at| now.saturating_since(at) < EXCHANGE_INTERVAL;
        if self.exchanged_at.is_some_and(fresh) {
            return Ok(());
        }
        let learned = rules.learned_limits();
        let limits = table.slots()?.update_record(host, RECORD, |bytes| {
            let mut limits = UsualLimits::decode(bytes);
            let before = limits.clone();
            for (name, limit) in &learned {
                limits.set(name, *limit);
            }
            let changed = (limits != before).then(|| limits.encode());
            (limits, changed)
        })?;
        rules.take_usual_limits(limits.iter());
        self.exchanged_at = Some(now);
        Ok(())
    }
}

// === impl UsualLimits ===

impl UsualLimits {
    /// Returns all, each with the kind of its scopes.
    fn iter(&self) -> impl Iterator<Item = (&str, KnownLimit)> + Clone {
        self.0.iter().map(|(kind, limit)| (kind.as_str(), *limit))
    }

    /// Sets the usual limit of the kind called `name`; the oldest of a plan, or of all, makes room.
    fn set(&mut self, name: &str, limit: Option<KnownLimit>) {
        match (self.0.iter_mut().find(|(rule, _)| rule == name), limit) {
            (Some((_, known)), Some(limit)) => *known = limit,
            (Some(_), None) => self.0.retain(|(rule, _)| rule != name),
            (None, Some(limit)) => {
                if self.0.len() >= RECORDED_MAX {
                    let plan = self.0.iter().position(|(kind, _)| kind.contains('@'));
                    self.0.remove(plan.unwrap_or(0));
                }
                self.0.push((name.to_owned(), limit));
            }
            (None, None) => {}
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        for (name, limit) in &self.0 {
            let name = name.as_bytes();
            bytes.extend_from_slice(&(name.len() as u32).to_le_bytes());
            bytes.extend_from_slice(name);
            let (burst, safe) = (limit.burst, limit.safe);
            bytes.push(u8::from(burst.is_some()) | u8::from(safe.is_some()) << 1);
            for micros in [
                limit.capacity.as_micros(),
                burst.unwrap_or_default().as_micros(),
                safe.unwrap_or_default().as_micros(),
            ] {
                bytes.extend_from_slice(&micros.to_le_bytes());
            }
        }
        bytes
    }

    /// Reads a record, as far as it can be read.
    fn decode(bytes: &[u8]) -> Self {
        let mut limits = Self::default();
        let Some((&VERSION, mut rest)) = bytes.split_first() else {
            return limits;
        };
        while let Some((name, limit, left)) = read_one(rest) {
            limits.set(name, Some(limit));
            rest = left;
        }
        limits
    }
}

// === free functions ===

/// Takes one rule and its limit off `bytes`.
fn read_one(bytes: &[u8]) -> Option<(&str, KnownLimit, &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
    let (name, rest) = rest.split_at_checked(len)?;
    let ([flags], rest) = rest.split_first_chunk()?;
    let (capacity, rest) = rest.split_first_chunk()?;
    let (burst, rest) = rest.split_first_chunk()?;
    let (safe, rest) = rest.split_first_chunk()?;
    let burst = Tokens::from_micros(u64::from_le_bytes(*burst));
    let limit = KnownLimit {
        capacity: read_capacity(*capacity),
        burst: (flags & 1 != 0).then_some(burst),
        safe: (flags & 2 != 0).then(|| read_capacity(*safe)),
    };
    Some((core::str::from_utf8(name).ok()?, limit, rest))
}

/// The capacity in `bytes`: with all bits set there is no limit.
fn read_capacity(bytes: [u8; 8]) -> Capacity {
    match u64::from_le_bytes(bytes) {
        u64::MAX => Capacity::UNLIMITED,
        micros => Capacity::from_micros(micros),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(rate: u64, safe: Option<Capacity>) -> Option<KnownLimit> {
        Some(KnownLimit {
            capacity: Capacity::from_whole(rate),
            burst: safe.map(|_| Tokens::ONE),
            safe,
        })
    }

    #[test]
    fn a_record_decodes_to_what_was_encoded_and_a_broken_one_never_traps() {
        let mut limits = UsualLimits::default();
        limits.set("login", limit(3, None));
        limits.set("tenant", limit(u64::MAX, Some(Capacity::UNLIMITED)));
        limits.set("plan", limit(3, None));
        limits.set("plan", None);
        let bytes = limits.encode();
        assert_eq!(UsualLimits::decode(&bytes), limits);
        let kinds = limits.iter().map(|(kind, _)| kind);
        assert!(kinds.eq(["login", "tenant"]));
        for len in 0..bytes.len() {
            UsualLimits::decode(&bytes[..len]);
        }
        let mut other = bytes;
        other[0] = 9;
        assert_eq!(UsualLimits::decode(&other), UsualLimits::default());
    }

    #[test]
    fn the_record_is_bounded() {
        let mut limits = UsualLimits::default();
        for rate in 0..1000 {
            limits.set(&format!("rule-{rate}"), limit(rate, None));
        }
        assert_eq!(limits.0.len(), RECORDED_MAX);
        assert_eq!(limits.iter().last().map(|(kind, _)| kind), Some("rule-999"));
        assert_eq!(UsualLimits::decode(&limits.encode()), limits);
        // Plans make room for each other.
        for rate in 0..1000 {
            limits.set(&format!("user@{rate}"), limit(rate, None));
        }
        assert_eq!(limits.0.len(), RECORDED_MAX);
        let plans = limits.iter().filter(|(kind, _)| kind.contains('@'));
        assert_eq!(plans.count(), 1, "the last");
    }
}
