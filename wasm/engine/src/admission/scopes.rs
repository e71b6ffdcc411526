//! Scopes of one rule in one worker: their token caches, and where their slots are.
//!
//! This is all that a request looks at as long as its token cache has tokens: one hash, one comparison of
//! keys, one subtraction. It is found by the header's bytes, so that no scope id has to be put
//! together. Bounded; scopes that have not been used for a while make room.

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;
use hashbrown::HashTable;
use std::hash::{BuildHasher, Hasher};
use tollgate_core::token_cache::TokenCache;
use tollgate_core::units::{Capacity, Instant, Tokens};

use super::final_cost::FinalCosts;
use super::meters::Meters;
use crate::equal::equal;
use crate::refusal::{Denial, LimitStatus};

/// Entries of which the longest idle makes room for a new one, and that are looked at in each round.
const EVICTION_SCAN: usize = 16;
/// Entries that are looked at for one that can make room, at most. Those that came together are side by
/// side, and may all be in use.
const EVICTION_SCAN_MAX: usize = 1024;

/// Wants of a scope from which the end of its attempts is reported. Others share what it has then.
const QUIET_FROM: Capacity = Capacity::from_whole(20);
/// Reports of no attempts after they have ended: for so long that the demand is seen to have ended.
const QUIET_REPORTS: u8 = 4;

/// A scope as one worker sees it.
#[derive(Debug)]
pub(crate) struct Entry {
    key: Box<[u8]>,
    /// Tokens that the worker may spend.
    pub(crate) cache: TokenCache,
    /// Attempts that the shared table does not know of yet.
    pub(crate) attempts: u32,
    /// Attempts of requests that wait, which were counted before.
    pub(crate) repeated: u32,
    /// The part of all attempts that was refused, and that the shared table does not know of yet.
    pub(crate) refused: u32,
    /// True if the entry waits in the worker's queue for its attempts to be counted.
    pub(crate) queued: bool,
    /// The slot, once it is known.
    pub(crate) slot: Option<u32>,
    /// When the lease ends that the token cache was drawn from.
    pub(crate) expiry: Option<Instant>,
    /// Until when the last refusal holds for this worker; most scopes have none.
    pub(crate) denial: Option<Box<Denial>>,
    /// Until when the scope's requests are held for the first answer.
    pub(crate) pending_until: Option<Instant>,
    /// Round of housekeeping in which it was made.
    pub(crate) born: u64,
    /// Tokens that held requests need, while the next request to the coordinator is made.
    pub(crate) needs: Option<Tokens>,
    /// The part of these that the shared table knows already.
    pub(crate) needs_known: Tokens,
    /// The last time that attempts were counted.
    pub(crate) seen: Instant,
    /// Reports of no attempts that are still to be made when attempts end.
    pub(crate) quiet_reports: u8,
    /// State of the bucket at the last draw, if admitted requests are told.
    pub(crate) limit_status: Option<Box<LimitStatus>>,
    /// Further units and a canonical scope, which only some scopes have.
    pub(crate) meters: Option<Box<Meters>>,
    /// Streams that are to be counted here until they end.
    pub(crate) streams: u32,
    /// Number of times that a limit of requests in flight has gone: a stream that began before has
    /// none of the permits that came after.
    pub(crate) permits_lost: u32,
    /// Costs that are known only at the end of requests, which few rules have.
    pub(super) costs: Option<Box<FinalCosts>>,
}

/// The scopes of one rule.
#[derive(Debug)]
pub(crate) struct Scopes {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    table: HashTable<u32>,
    hash: SeedableRandomState,
    /// Where the next look for something to evict starts.
    hand: usize,
}

// === impl Entry ===

impl Entry {
    /// Forgets the denials of all its units.
    pub(crate) fn forget_denials(&mut self) {
        self.denial = None;
        if let Some(meters) = &mut self.meters {
            meters.forget_denials();
        }
    }

    fn new(key: &[u8], slot: Option<u32>, now: Instant) -> Self {
        Self {
            key: key.into(),
            cache: TokenCache::default(),
            attempts: 0,
            repeated: 0,
            refused: 0,
            queued: false,
            slot,
            expiry: None,
            denial: None,
            pending_until: None,
            born: 0,
            needs: None,
            needs_known: Tokens::ZERO,
            seen: now,
            quiet_reports: 0,
            limit_status: None,
            meters: None,
            streams: 0,
            permits_lost: 0,
            costs: None,
        }
    }

    /// The second part of the scope id.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns whether nothing would be lost with the entry, and nobody has its index. Requests that are
    /// decided on, or wait, keep theirs in the queue of reports.
    fn is_idle(&self) -> bool {
        let meters = self.meters.as_ref();
        let has_queue = meters.is_some_and(|meters| meters.has_queue);
        let awaited = has_queue || self.pending_until.is_some();
        !self.is_unsettled() && !self.queued && !awaited && self.streams == 0
    }

    /// Returns whether there is something that the shared table should be told, now or later.
    pub(crate) fn is_unsettled(&self) -> bool {
        let costs = self.costs.as_ref();
        self.has_unreported() || costs.is_some_and(|costs| costs.is_unsettled())
    }

    fn has_unreported(&self) -> bool {
        let meters = self.meters.as_ref();
        self.attempts > 0
            || self.refused > 0
            || self.repeated > 0
            || self.cache.left() > Tokens::ZERO
            || meters.is_some_and(|meters| meters.is_unsettled())
    }

    /// Returns whether the next report costs a look at the shared table.
    pub(crate) fn has_report(&self) -> bool {
        self.has_unreported() || self.quiet_reports > 0 || self.meters.is_some()
    }

    /// Returns the tokens that held requests need and that the shared table does not know of, which are
    /// known from now on.
    pub(crate) fn take_needs(&mut self) -> Tokens {
        let known = core::mem::take(&mut self.needs_known);
        let needs = self.needs.take().unwrap_or_default();
        needs.saturating_sub(known)
    }

    /// Notes that attempts were counted for a scope that wants `wants` in all.
    pub(crate) fn counted(&mut self, now: Instant, wants: Capacity) {
        self.seen = now;
        self.quiet_reports = if wants >= QUIET_FROM {
            QUIET_REPORTS
        } else {
            0
        };
    }
}

// === impl Scopes ===

impl Scopes {
    /// No scopes; `seed` should be random, or a client could choose keys that collide.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            table: HashTable::new(),
            hash: SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()),
            hand: 0,
        }
    }

    /// The scopes that are remembered.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// The entry of `key`, as an index that stays good until the entry is evicted.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<u32> {
        let same = |index: &u32| self.get(*index).is_some_and(|entry| equal(&entry.key, key));
        self.table.find(self.hash(key), same).copied()
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&Entry> {
        self.entries.get(index as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Entry> {
        self.entries.get_mut(index as usize)?.as_mut()
    }

    /// Remembers `key`, which is not remembered yet.
    pub(crate) fn insert(&mut self, key: &[u8], slot: Option<u32>, now: Instant) -> u32 {
        let entry = Some(Entry::new(key, slot, now));
        let index = match self.free.pop() {
            Some(index) => {
                if let Some(place) = self.entries.get_mut(index as usize) {
                    *place = entry;
                }
                index
            }
            None => {
                self.entries.push(entry);
                self.entries.len().saturating_sub(1) as u32
            }
        };
        let hash = self.hash(key);
        let Self {
            table,
            entries,
            hash: state,
            ..
        } = self;
        let rehash = |index: &u32| {
            let entry = entries.get(*index as usize).and_then(Option::as_ref);
            hash_of(state, entry.map_or(&[], |entry| &entry.key))
        };
        table.insert_unique(hash, index, rehash);
        index
    }

    /// Forgets some of the entries that have not been used since `before`, and returns their number.
    pub(crate) fn evict(&mut self, before: Instant) -> usize {
        let mut evicted: usize = 0;
        for _ in 0..EVICTION_SCAN.min(self.entries.len()) {
            let index = self.next_look();
            if self.idle_since(index).is_some_and(|since| since < before) {
                self.remove(index);
                evicted = evicted.saturating_add(1);
            }
        }
        evicted
    }

    /// Forgets the longest idle of some entries, but none that `stays`. False if none of those that are
    /// looked at is idle.
    pub(crate) fn make_room(&mut self, stays: impl Fn(u32) -> bool) -> bool {
        let mut longest: Option<(Instant, usize)> = None;
        for looks in 0..EVICTION_SCAN_MAX.min(self.entries.len()) {
            if looks >= EVICTION_SCAN && longest.is_some() {
                break;
            }
            let index = self.next_look();
            let since = self.idle_since(index).filter(|_| !stays(index as u32));
            let idle = since.map(|since| (since, index));
            longest = longest.into_iter().chain(idle).min();
        }
        if let Some((_, index)) = longest {
            self.remove(index);
        }
        longest.is_some()
    }

    fn next_look(&mut self) -> usize {
        let index = self.hand;
        let next = index.saturating_add(1);
        self.hand = next.checked_rem(self.entries.len()).unwrap_or(0);
        index
    }

    /// Returns when an entry was last used, if nothing would be lost with it.
    fn idle_since(&self, index: usize) -> Option<Instant> {
        let entry = self.entries.get(index)?.as_ref()?;
        entry.is_idle().then_some(entry.seen)
    }

    fn remove(&mut self, index: usize) {
        let Some(entry) = self.entries.get_mut(index).and_then(Option::take) else {
            return;
        };
        let hash = self.hash(&entry.key);
        if let Ok(found) = self
            .table
            .find_entry(hash, |other| *other as usize == index)
        {
            found.remove();
        }
        self.free.push(index as u32);
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        hash_of(&self.hash, key)
    }
}

#[inline]
fn hash_of(state: &SeedableRandomState, key: &[u8]) -> u64 {
    let mut hasher = state.build_hasher();
    hasher.write(key);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.saturating_add(Duration::from_secs(seconds))
    }

    #[test]
    fn entries_are_found_by_their_key_alone() {
        let mut scopes = Scopes::new(1);
        let keys: Vec<String> = (0..1000).map(|n| format!("t{n}")).collect();
        let indices: Vec<u32> = keys
            .iter()
            .map(|key| scopes.insert(key.as_bytes(), Some(1), at(0)))
            .collect();
        for (key, index) in keys.iter().zip(&indices) {
            assert_eq!(scopes.find(key.as_bytes()), Some(*index));
            assert_eq!(scopes.get(*index).unwrap().key(), key.as_bytes());
        }
        assert_eq!(scopes.find(b"t"), None);
        assert_eq!(scopes.len(), 1000);
    }

    #[test]
    fn only_idle_entries_are_evicted_and_their_places_are_used_again() {
        let mut scopes = Scopes::new(1);
        let index: Vec<u32> = (0..5_u8)
            .map(|n| scopes.insert(&[n], None, at(u64::from(n))))
            .collect();
        scopes.get_mut(index[0]).unwrap().attempts = 1;
        scopes.get_mut(index[1]).unwrap().cache.add(Tokens::ONE);
        scopes.get_mut(index[2]).unwrap().queued = true;
        scopes.get_mut(index[4]).unwrap().streams = 1;
        assert_eq!(scopes.evict(at(9)), 1);
        let left: Vec<bool> = (0..5_u8).map(|n| scopes.find(&[n]).is_some()).collect();
        assert_eq!(left, [true, true, true, false, true]);
        assert_eq!(scopes.insert(b"new", None, at(9)), index[3]);
        assert_eq!(scopes.find(b"new"), Some(index[3]));
    }

    #[test]
    fn a_sweep_over_many_forgets_all_that_are_idle_in_small_steps() {
        let mut scopes = Scopes::new(1);
        for n in 0..1000_u32 {
            scopes.insert(&n.to_le_bytes(), None, at(0));
        }
        let steps = (0..1000).take_while(|_| scopes.evict(at(1)) > 0).count();
        assert_eq!(scopes.len(), 0);
        assert!(steps >= 1000 / EVICTION_SCAN);
        assert_eq!(scopes.evict(at(1)), 0);
    }
}
