//! Bounded table of slots, one per scope, in shared data or in the process's own memory.
//!
//! Shared data has no delete, no expiry and no listing, so records are not named after scopes: a
//! scope hashes to [`PROBES`] slots and lives in one of them. A slot is never emptied
//! again, only taken over once its scope state has nothing to lose. All changes are compare-and-swap on
//! one slot: read, let the scope state decide, write if nobody wrote in between. There is no
//! create-if-absent in the ABI, but writing with a version that no record has amounts to it. A host that
//! has [slots in memory](crate::OwnSlots) changes them under a lock instead.
//!
//! Two workers that claim different slots for one scope at the same moment find out: a worker that
//! has claimed one looks through the window again, and of two slots the one that is probed first
//! stays.
//!
//! Where all slots of a window are in use, one goes to the newcomer whose scope holds nothing but
//! leases, which are released then: that of the least [worth](ScopeState::worth).

use foldhash::fast::FixedState;
use std::hash::{BuildHasher, Hasher};
use std::num::NonZeroU64;
use std::sync::Arc;

use tollgate_core::client::{Policy, ScopeState, Worth};
use tollgate_core::lease::{ClientId, ClientRun, IdError, ResourceId, Run};
use tollgate_core::units::Instant;

use super::TableError;
use super::codec::ProcessRecord;
use super::slot_store::{Contents, SlotStore, TRIES, read};
use crate::host::{Host, HostError};
use crate::shared_memory::{ABSENT, Cas, Written};

/// The slots that a scope may be in. With 90 % of all slots taken, one scope in thirty finds none
/// among 32.
const PROBES: u32 = 32;
/// Overflow scopes of a rule. Each has the limit of one scope, so with many of them a flood of keys
/// leaves something for others; each costs a slot and, in each worker, an entry.
const OVERFLOW_SCOPES: u64 = 256;
/// Slots beside the table for overflow scopes: enough for those of four rules at once, and for a few
/// of each of many.
pub(crate) const OVERFLOW_SLOTS: u32 = 1024;
/// The longest node id that goes into the client id, in bytes.
const NODE_LEN_MAX: usize = 200;

/// Table of slots of one process.
#[derive(Debug)]
pub(crate) struct SlotTable {
    prefix: String,
    slots: u32,
    hash: FixedState,
    client: ClientRun,
}

/// Slots that a scope may be in, in the order in which they are tried: scattered, because in a table
/// that fills up neighbours are taken together.
pub(crate) struct Window<'a> {
    scope: &'a str,
    /// The first slot of this part of the table, and how many there are.
    base: u32,
    len: u32,
    /// Places in that part of the table: the first one, and from one to the next.
    start: u32,
    step: u32,
}

/// Slot of a scope.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Located {
    pub(crate) slot: u32,
    /// Leases of the scope that had it before, which are not used any more.
    pub(crate) releases: Releases,
}

/// Leases to give back, each with the sequence of its last request.
pub(crate) type Releases = Vec<(ResourceId, u64)>;

/// A slot that may be claimed, and the version to replace it with.
struct Place {
    slot: u32,
    cas: Cas,
    vacancy: Vacancy,
}

/// Slot without an owner, or with one that can do without it.
struct Vacancy {
    /// Worth of the owner; none if there is no owner, or nothing at all would be lost with it.
    worth: Option<Worth>,
    releases: Releases,
}

/// Finding of a probe in one slot.
enum Found {
    /// The scope that is looked for.
    Own,
    /// A scope that has something to lose, or is worth more than another that was found.
    Taken,
    Open(Vacancy),
}

// === impl SlotTable ===

impl SlotTable {
    /// The shared table of the process whose keys begin with `prefix`, created with `random` and
    /// `slots` if this worker is the first.
    pub(crate) fn open<H: Host>(
        host: &H,
        prefix: String,
        node: &str,
        fresh: ProcessRecord,
    ) -> Result<Self, TableError> {
        let key = format!("{prefix}.process");
        let mut process = None;
        for _ in 0..TRIES {
            let (found, cas) = read(host, &key)?;
            process = ProcessRecord::decode(&found);
            if process.is_some() {
                break;
            }
            host.shared_set(&key, &fresh.encode(), cas)?;
        }
        let process = process.ok_or(TableError::Contention("process"))?;
        let table = Self {
            prefix,
            slots: process.slots,
            hash: FixedState::with_seed(process.random as u64),
            client: client_run(node, process.random)?,
        };
        if let Some(own) = host.own_slots() {
            own.open(table.slots_in_all());
        }
        Ok(table)
    }

    pub(crate) fn client(&self) -> &ClientRun {
        &self.client
    }

    /// The number of slots for scopes of their own.
    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// The number of all slots.
    pub(crate) fn slots_in_all(&self) -> u32 {
        self.slots.saturating_add(OVERFLOW_SLOTS)
    }

    /// The slots that `scope` may be in.
    pub(crate) fn window<'a>(&self, scope: &'a str) -> Window<'a> {
        self.part(scope, 0, self.slots)
    }

    /// The slots for `scope` if it is one that others share because the table is full.
    pub(crate) fn overflow_window<'a>(&self, scope: &'a str) -> Window<'a> {
        self.part(scope, self.slots, OVERFLOW_SLOTS)
    }

    /// The slot of the window's scope; one is claimed if it has none.
    pub(crate) fn locate<H: Host>(
        &self,
        host: &H,
        now: Instant,
        policy: &Policy,
        window: &Window<'_>,
    ) -> Result<Located, TableError> {
        for _ in 0..TRIES {
            let (mine, place) = self.probe(host, now, window)?;
            if let Some(slot) = mine {
                let releases = Vec::new();
                return Ok(Located { slot, releases });
            }
            let Place { slot, cas, vacancy } = place.ok_or(TableError::Full)?;
            let new = (window.scope, ScopeState::new(now, policy));
            // It still has the state that was looked at, or is not replaced.
            if self.store(host).replace(slot, Some(new), cas)? == Written::Stored {
                let slot = self.confirm(host, window, slot)?;
                let releases = vacancy.releases;
                return Ok(Located { slot, releases });
            }
        }
        Err(TableError::Contention("claim"))
    }

    /// Returns which of a rule's overflow scopes `scope` shares. Seeded by the process, so that none can
    /// choose whom it meets.
    pub(crate) fn overflow_of(&self, scope: &str) -> u64 {
        let hash = self.hash_of(scope);
        hash.checked_rem(OVERFLOW_SCOPES).unwrap_or(0)
    }

    /// The slot of `scope`, of those of its own and those for what others share, if it has one.
    pub(crate) fn find<H: Host>(&self, host: &H, scope: &str) -> Result<Option<u32>, HostError> {
        for window in [self.window(scope), self.overflow_window(scope)] {
            for slot in window.slots() {
                let store = self.store(host);
                let (is_own, cas) = store.look(slot, |known| known.scope() == Some(scope))?;
                if is_own {
                    return Ok(Some(slot));
                }
                if cas == ABSENT {
                    // As in a probe: nothing of this scope can come after.
                    break;
                }
            }
        }
        Ok(None)
    }

    /// Lets `change` decide with the scope state of `scope` in `slot` and writes what came of it.
    ///
    /// `change` runs again on a fresh scope state when another worker was faster, so it must not have
    /// effects beside its result.
    pub(crate) fn update<H: Host, R>(
        &self,
        host: &H,
        slot: u32,
        scope: &str,
        mut change: impl FnMut(&mut ScopeState) -> R,
    ) -> Result<R, TableError> {
        self.update_any(host, slot, |owner, scope_state| {
            (owner == scope).then(|| change(scope_state))
        })?
        .ok_or(TableError::Gone)
    }

    /// Like [`SlotTable::update`], for whatever scope has the slot.
    pub(crate) fn update_any<H: Host, R>(
        &self,
        host: &H,
        slot: u32,
        change: impl FnMut(&str, &mut ScopeState) -> R,
    ) -> Result<R, TableError> {
        self.store(host).change(slot, change)
    }

    /// Empties `slot` if it is still that of `scope`.
    pub(crate) fn vacate<H: Host>(
        &self,
        host: &H,
        slot: u32,
        scope: &str,
    ) -> Result<(), HostError> {
        let store = self.store(host);
        let (is_own, cas) = store.look(slot, |known| known.scope() == Some(scope))?;
        if is_own {
            // Lost to a writer that may have given the slot away: then it is not to be emptied.
            store.replace(slot, None, cas)?;
        }
        Ok(())
    }

    /// The scope and the scope state of `slot`, if it has any.
    pub(crate) fn look<H: Host>(
        &self,
        host: &H,
        slot: u32,
    ) -> Result<Option<(String, ScopeState)>, HostError> {
        let (known, _) = self.store(host).look(slot, |known| {
            let (scope, scope_state) = known.whole()?;
            Some((scope.to_owned(), scope_state.into_owned()))
        })?;
        Ok(known)
    }

    /// Lets `change` decide on one of the small records and writes what it returns, if anything.
    pub(crate) fn update_record<H: Host, R>(
        &self,
        host: &H,
        name: &str,
        mut change: impl FnMut(&[u8]) -> (R, Option<Vec<u8>>),
    ) -> Result<R, TableError> {
        let key = format!("{}.{name}", self.prefix);
        for _ in 0..TRIES {
            let (bytes, cas) = read(host, &key)?;
            let (result, changed) = change(&bytes);
            let Some(changed) = changed else {
                return Ok(result);
            };
            if host.shared_set(&key, &changed, cas)? == Written::Stored {
                return Ok(result);
            }
        }
        Err(TableError::Contention("record"))
    }

    /// The scope's own slot, and the best one it could have: the first that is free, else the one whose
    /// scope is worth least.
    fn probe<H: Host>(
        &self,
        host: &H,
        now: Instant,
        window: &Window<'_>,
    ) -> Result<(Option<u32>, Option<Place>), HostError> {
        let mut best: Option<Place> = None;
        for slot in window.slots() {
            let found_before = best.as_ref().map(|place| place.vacancy.worth);
            let (found, cas) = self.store(host).look(slot, |known| {
                appraise(known, now, window.scope, found_before)
            })?;
            match found {
                Found::Own => return Ok((Some(slot), None)),
                Found::Taken => {}
                Found::Open(vacancy) => best = Some(Place { slot, cas, vacancy }),
            }
            if cas == ABSENT {
                // Claimed in order and never emptied: nothing of this scope can come after.
                break;
            }
        }
        Ok((None, best))
    }

    /// Returns the slot that stays if the scope has got a second one meanwhile: the one probed first.
    fn confirm<H: Host>(
        &self,
        host: &H,
        window: &Window<'_>,
        claimed: u32,
    ) -> Result<u32, TableError> {
        let mut first = None;
        for slot in window.slots() {
            let store = self.store(host);
            let (is_own, cas) = store.look(slot, |known| known.scope() == Some(window.scope))?;
            if !is_own {
                continue;
            }
            match first {
                None => first = Some(slot),
                // If another worker changes it right now, its next change finds the first slot.
                Some(_) => {
                    store.replace(slot, None, cas)?;
                }
            }
        }
        Ok(first.unwrap_or(claimed))
    }

    /// The slots that `scope` may be in, of the `len` slots from `base`.
    fn part<'a>(&self, scope: &'a str, base: u32, len: u32) -> Window<'a> {
        let hash = self.hash_of(scope);
        // All probes together go around the table once at most, so that none comes twice.
        let stride = len.checked_div(PROBES).unwrap_or(0).max(1);
        let step = ((hash >> 32) as u32).checked_rem(stride).unwrap_or(0);
        Window {
            scope,
            base,
            len,
            start: hash as u32,
            step: step.saturating_add(1),
        }
    }

    fn hash_of(&self, scope: &str) -> u64 {
        let mut hasher = self.hash.build_hasher();
        hasher.write(scope.as_bytes());
        hasher.finish()
    }

    fn store<'a, H>(&'a self, host: &'a H) -> SlotStore<'a, H> {
        SlotStore {
            host,
            prefix: &self.prefix,
        }
    }
}

// === impl Window ===

impl Window<'_> {
    fn slots(&self) -> impl Iterator<Item = u32> {
        (0..PROBES.min(self.len)).map(|probe| {
            let offset = u64::from(probe).wrapping_mul(self.step.into());
            let place = u64::from(self.start).wrapping_add(offset);
            let place = place.checked_rem(self.len.into()).unwrap_or(0);
            self.base.saturating_add(place as u32)
        })
    }
}

// === free functions ===

/// Judges what is in a slot for `scope`, by the worth of the best that was found before.
fn appraise(
    known: Contents<'_>,
    now: Instant,
    scope: &str,
    before: Option<Option<Worth>>,
) -> Found {
    let has_free = before == Some(None);
    if has_free && known.scope() != Some(scope) {
        return Found::Taken;
    }
    let vacant = |releases, worth| Found::Open(Vacancy { worth, releases });
    let Some((owner, state)) = known.whole() else {
        return if has_free {
            Found::Taken
        } else {
            vacant(Vec::new(), None)
        };
    };
    if owner == scope {
        return Found::Own;
    }
    if state.is_reusable(now) {
        return vacant(Vec::new(), None);
    }
    let worth = state.worth(now);
    if worth.is_none() || before.is_some_and(|before| worth >= before) {
        return Found::Taken;
    }
    let owner: Arc<str> = owner.into();
    let releases = state.releases(now).map(|(unit, sequence)| {
        let scope = owner.clone();
        (ResourceId { scope, unit }, sequence)
    });
    vacant(releases.collect(), worth)
}

/// `<node id>/<random>`, in the incarnation of the same random number; the node id is narrowed to
/// what an id may have.
fn client_run(node: &str, random: u128) -> Result<ClientRun, IdError> {
    let mut node: String = node.chars().filter(|c| !c.is_control()).collect();
    node.truncate(node.floor_char_boundary(NODE_LEN_MAX));
    let incarnation = NonZeroU64::new(random as u64).unwrap_or(NonZeroU64::MIN);
    Ok(ClientRun {
        id: ClientId::new(&format!("{node}/{random:032x}"))?,
        run: Run::Incarnation(incarnation),
    })
}

#[cfg(test)]
mod tests;
