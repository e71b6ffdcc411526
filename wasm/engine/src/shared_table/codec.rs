//! Records in shared data: bytes that other VMs, perhaps of another version, have written.
//!
//! A slot's record is a version, the scope id with its length, and the scope state. The scope id is
//! verified on every access, because a slot changes hands. What cannot be read counts as empty:
//! a record of an unknown version is replaced, never guessed at.

use std::collections::BTreeSet;

use tollgate_core::client::ScopeState;
use tollgate_core::lease::ID_LEN_MAX;
use tollgate_core::units::Instant;

const SLOT_VERSION: u8 = 1;
const PROCESS_VERSION: u8 = 1;
const WORKERS_VERSION: u8 = 2;
const DIRTY_VERSION: u8 = 1;
const MISSING_CLUSTERS_VERSION: u8 = 1;

/// The most slots that a process may have: all are looked at, now and then.
pub const SLOTS_MAX: u32 = 1_000_000;
/// The most workers that are counted; Envoy has one per core.
pub const WORKERS_MAX: usize = 512;
/// The most slots that wait for the sync leader.
pub const DIRTY_MAX: usize = 4096;

/// Facts that the workers of a process have to agree on, written once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessRecord {
    /// The random part of the client id, and the seed of the slots' hash.
    pub random: u128,
    /// The number of slots.
    pub slots: u32,
}

/// Heartbeat of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The worker's number.
    pub worker: u64,
    /// When it last said that it lives.
    pub at: Instant,
    /// Its levels then.
    pub levels: Levels,
}

/// Levels of a worker. It tells these to the other workers, and not to
/// Envoy: what a VM that traps has added to a gauge of Envoy's would stay there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    /// The memory of its VM, in bytes.
    pub memory: u64,
    /// Requests that it makes wait.
    pub waiting: u32,
    /// Streams that it counts until they end.
    pub in_flight: u32,
}

/// Slots that became due early, for the sync leader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirtyQueue {
    /// The slots, each once.
    pub slots: Vec<u32>,
    /// True if more became due than fits: the whole table has to be looked at.
    pub spilled: bool,
}

/// The clusters of coordinators that Envoy does not have, as the operator was told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingClusters {
    /// Their names.
    pub names: BTreeSet<String>,
}

// === free functions ===

/// The record of a slot that belongs to `scope`.
pub fn encode_slot(scope: &str, scope_state: &ScopeState) -> Vec<u8> {
    debug_assert!(scope.len() <= ID_LEN_MAX);
    let room = ScopeState::ENCODED_LEN_USUAL.saturating_add(3);
    let mut bytes = Vec::with_capacity(scope.len().saturating_add(room));
    bytes.push(SLOT_VERSION);
    bytes.extend_from_slice(&(scope.len() as u16).to_le_bytes());
    bytes.extend_from_slice(scope.as_bytes());
    scope_state.encode(&mut bytes);
    bytes
}

/// The scope of a slot and its scope state; none if the slot is empty or cannot be read.
pub fn decode_slot(bytes: &[u8]) -> Option<(&str, ScopeState)> {
    let (scope, scope_state) = split_slot(bytes)?;
    Some((scope, ScopeState::decode(scope_state)?))
}

/// The scope of a slot and its encoded scope state.
pub fn split_slot(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (version, rest) = bytes.split_first()?;
    let (len, rest) = rest.split_first_chunk()?;
    let len = usize::from(u16::from_le_bytes(*len));
    if *version != SLOT_VERSION || len == 0 || len > ID_LEN_MAX {
        return None;
    }
    let (scope, scope_state) = rest.split_at_checked(len)?;
    Some((core::str::from_utf8(scope).ok()?, scope_state))
}

impl ProcessRecord {
    /// Returns the record.
    pub fn encode(self) -> Vec<u8> {
        let mut bytes = vec![PROCESS_VERSION];
        bytes.extend_from_slice(&self.random.to_le_bytes());
        bytes.extend_from_slice(&self.slots.to_le_bytes());
        bytes
    }

    /// Reads a record; none if it cannot be read.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first()?;
        let (random, rest) = rest.split_first_chunk()?;
        let (slots, rest) = rest.split_first_chunk()?;
        let process = Self {
            random: u128::from_le_bytes(*random),
            slots: u32::from_le_bytes(*slots),
        };
        let usable = (1..=SLOTS_MAX).contains(&process.slots);
        (*version == PROCESS_VERSION && rest.is_empty() && usable).then_some(process)
    }
}

/// Returns the record of all workers, of [`WORKERS_MAX`] at most.
pub fn encode_workers(workers: &[Heartbeat]) -> Vec<u8> {
    let mut bytes = vec![WORKERS_VERSION];
    for Heartbeat { worker, at, levels } in workers.iter().take(WORKERS_MAX) {
        let counts = u64::from(levels.waiting) << 32 | u64::from(levels.in_flight);
        for word in [*worker, at.as_nanos(), levels.memory, counts] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }
    bytes
}

/// Reads the record of all workers; none of them if it cannot be read.
pub fn decode_workers(bytes: &[u8]) -> Vec<Heartbeat> {
    let Some((&WORKERS_VERSION, rest)) = bytes.split_first() else {
        return Vec::new();
    };
    let (entries, _) = rest.as_chunks::<32>();
    entries.iter().take(WORKERS_MAX).map(heartbeat).collect()
}

fn heartbeat(entry: &[u8; 32]) -> Heartbeat {
    let (words, _) = entry.as_chunks::<8>();
    let word = |index| words.get(index).map_or(0, |word| u64::from_le_bytes(*word));
    Heartbeat {
        worker: word(0),
        at: Instant::from_nanos(word(1)),
        levels: Levels {
            memory: word(2),
            waiting: (word(3) >> 32) as u32,
            in_flight: word(3) as u32,
        },
    }
}

impl DirtyQueue {
    /// Adds a slot, or notes that there were too many.
    pub fn add(&mut self, slot: u32) {
        if self.slots.contains(&slot) {
            return;
        }
        if self.slots.len() < DIRTY_MAX {
            self.slots.push(slot)
        } else {
            self.spilled = true
        }
    }

    /// Adds all that is in `other`.
    pub fn extend(&mut self, other: &Self) {
        self.spilled |= other.spilled;
        other.slots.iter().for_each(|slot| self.add(*slot));
    }

    /// Returns whether nothing was noted.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty() && !self.spilled
    }

    /// Returns the record.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![DIRTY_VERSION, u8::from(self.spilled)];
        for slot in &self.slots {
            bytes.extend_from_slice(&slot.to_le_bytes());
        }
        bytes
    }

    /// Returns the queue in `bytes`; one that cannot be read counts as too many slots.
    pub fn decode(bytes: &[u8]) -> Self {
        let [DIRTY_VERSION, spilled, rest @ ..] = bytes else {
            return Self {
                slots: Vec::new(),
                spilled: !bytes.is_empty(),
            };
        };
        let (slots, _) = rest.as_chunks::<4>();
        Self {
            slots: slots
                .iter()
                .take(DIRTY_MAX)
                .map(|slot| u32::from_le_bytes(*slot))
                .collect(),
            spilled: *spilled != 0,
        }
    }
}

impl MissingClusters {
    /// The names, which have no control characters, with one after each.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![MISSING_CLUSTERS_VERSION];
        for name in &self.names {
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(b'\n');
        }
        bytes
    }

    /// The names in `bytes`; none if they cannot be read.
    pub fn decode(bytes: &[u8]) -> Self {
        let rest = match bytes.split_first() {
            Some((&MISSING_CLUSTERS_VERSION, rest)) => rest,
            _ => &[],
        };
        let names = core::str::from_utf8(rest).unwrap_or_default();
        let names = names.lines().filter(|name| !name.is_empty());
        Self {
            names: names.map(str::to_owned).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use tollgate_core::client::Policy;
    use tollgate_core::units::Tokens;

    fn scope_state() -> ScopeState {
        let now = Instant::from_nanos(5);
        let mut scope_state = ScopeState::new(now, &Policy::default());
        let requests = &mut scope_state.requests;
        requests.count(now, 3);
        requests.draw(now, &Policy::default(), Tokens::ONE, 2);
        scope_state
    }

    #[test]
    fn a_slot_decodes_to_what_was_encoded() {
        let bytes = encode_slot("tenant/b\u{fc}cher", &scope_state());
        assert_eq!(
            decode_slot(&bytes),
            Some(("tenant/b\u{fc}cher", scope_state()))
        );
    }

    #[test]
    fn a_broken_slot_is_empty_and_never_a_trap() {
        let bytes = encode_slot("tenant/acme", &scope_state());
        for len in 0..bytes.len() {
            assert_eq!(decode_slot(&bytes[..len]), None, "cut to {len}");
        }
        // Every single-byte change, and a walk of pseudo-random bytes of every length up to 600.
        for at in 0..bytes.len() {
            for value in [0, 1, 2, 0x7f, 0x80, 0xff] {
                let mut broken = bytes.clone();
                broken[at] = value;
                exercise(&broken);
            }
        }
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for len in 0..600 {
            let mut next = || {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random as u8
            };
            let mut broken: Vec<u8> = (0..len).map(|_| next()).collect();
            exercise(&broken);
            if let Some(version) = broken.first_mut() {
                *version = SLOT_VERSION;
            }
            exercise(&broken);
        }
    }

    #[test]
    fn a_slot_of_another_version_or_without_a_possible_scope_is_empty() {
        let encoded = encode_slot("a", &scope_state());
        let (long, too_long) = ("x".repeat(ID_LEN_MAX), "x".repeat(ID_LEN_MAX + 1));
        for (version, scope, is_slot) in [
            (SLOT_VERSION, "a", true),
            (SLOT_VERSION, &long, true),
            (SLOT_VERSION, &too_long, false),
            (SLOT_VERSION, "", false),
            (SLOT_VERSION + 1, "a", false),
            (0, "a", false),
        ] {
            let len = (scope.len() as u16).to_le_bytes();
            let bytes = [&[version], &len[..], scope.as_bytes(), &encoded[4..]].concat();
            assert_eq!(
                decode_slot(&bytes).is_some(),
                is_slot,
                "{version} {scope:?}"
            );
        }
    }

    /// A record that decodes can be used at any time without a panic.
    fn exercise(bytes: &[u8]) {
        let Some((_, mut scope_state)) = decode_slot(bytes) else {
            return;
        };
        let policy = Policy::default();
        for now in [0, 1, 1 << 40, u64::MAX].map(Instant::from_nanos) {
            scope_state.requests.count(now, 7);
            scope_state.requests.draw(now, &policy, Tokens::ONE, 4);
            scope_state.ask(now, &policy);
            scope_state.handle_failure(now, tollgate_core::lease::Unit::Requests, 1, 1);
            scope_state.requests.give_back(now, &policy, Tokens::ONE);
            scope_state.is_reusable(now);
        }
    }

    #[test]
    fn the_small_records_decode_to_what_was_encoded_and_bear_garbage() {
        let process = ProcessRecord {
            random: 7,
            slots: 10,
        };
        assert_eq!(ProcessRecord::decode(&process.encode()), Some(process));
        assert_eq!(ProcessRecord::decode(&[]), None);
        assert_eq!(ProcessRecord::decode(&[9; 21]), None);
        for (slots, usable) in [
            (0, false),
            (1, true),
            (SLOTS_MAX, true),
            (SLOTS_MAX + 1, false),
        ] {
            let read = ProcessRecord::decode(&ProcessRecord { random: 7, slots }.encode());
            assert_eq!(read.is_some(), usable, "{slots} slots");
        }

        let at = Instant::ZERO.saturating_add(Duration::from_secs(1));
        let levels = Levels {
            memory: 1 << 40,
            waiting: 7,
            in_flight: u32::MAX,
        };
        let workers = [1, u64::MAX].map(|worker| Heartbeat { worker, at, levels });
        assert_eq!(decode_workers(&encode_workers(&workers)), workers);
        assert_eq!(decode_workers(&[9, 9]), []);

        let mut dirty = DirtyQueue::default();
        [3, 1, 3].into_iter().for_each(|slot| dirty.add(slot));
        assert_eq!(dirty.slots, [3, 1]);
        assert_eq!(DirtyQueue::decode(&dirty.encode()), dirty);
        assert!(DirtyQueue::decode(&[]).is_empty());
        assert!(DirtyQueue::decode(&[9]).spilled);

        let missing = MissingClusters {
            names: ["a", "b\u{fc}\u{20}c"].map(str::to_owned).into(),
        };
        assert_eq!(MissingClusters::decode(&missing.encode()), missing);
        for garbage in [&[][..], &[9, b'a', b'\n'], &[1], &[1, 0xff, b'\n']] {
            let read = MissingClusters::decode(garbage);
            assert_eq!(read, MissingClusters::default(), "{garbage:?}");
        }
    }

    #[test]
    fn more_notes_than_fit_spill() {
        let mut dirty = DirtyQueue::default();
        (0..DIRTY_MAX as u32).for_each(|slot| dirty.add(slot));
        assert!(!dirty.spilled);
        dirty.add(0);
        assert!(!dirty.spilled);
        dirty.add(u32::MAX);
        assert_eq!((dirty.slots.len(), dirty.spilled), (DIRTY_MAX, true));
        let mut other = DirtyQueue::default();
        other.extend(&dirty);
        assert_eq!(other, dirty);
    }
}
