//! Shared table of one process: slots for scopes, the leader lock, the dirty queue, and the
//! heartbeats of the workers, all in the host's shared data but for slots that it has itself.

use tollgate_core::client::{LeaderLock, LeaderRole, Policy};
use tollgate_core::lease::IdError;
use tollgate_core::units::Instant;

use crate::config::{EngineConfig, Identity};
use crate::host::{Host, HostError};

pub mod codec;
mod slot_store;
mod slot_table;
mod workers;

use codec::{DirtyQueue, Heartbeat, Levels, ProcessRecord};
pub(crate) use slot_table::{Releases, SlotTable};
use workers::Workers;

/// The most leases of scopes that lost their slots that wait to be released; further ones expire.
const RELEASES_MAX: usize = 1000;

/// Shared table of one process, as one worker uses it.
#[derive(Debug, Default)]
pub(crate) struct SharedTable {
    slots: Option<SlotTable>,
    /// Slots that became due, for the sync leader.
    dirty: DirtyQueue,
    /// Leases of scopes whose slots this worker has given to others.
    releases: Releases,
    workers: Workers,
}

/// Failure of an access to the shared table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TableError {
    /// The slot belongs to another scope, or to none.
    #[error("the slot has changed hands")]
    Gone,
    /// All slots that the scope may be in are taken.
    #[error("no slot is free")]
    Full,
    /// Other workers wrote first, again and again.
    #[error("other workers were faster each time: {0}")]
    Contention(&'static str),
    /// The process has no usable client id.
    #[error("the client id {0}")]
    Client(#[from] IdError),
    /// The host failed.
    #[error(transparent)]
    Host(#[from] HostError),
}

// === impl SharedTable ===

impl SharedTable {
    /// Returns whether the table has been found or made.
    pub(crate) fn is_open(&self) -> bool {
        self.slots.is_some()
    }

    /// Finds or makes the table and returns its number of slots.
    pub(crate) fn open<H: Host>(
        &mut self,
        host: &H,
        identity: &Identity,
        config: &EngineConfig,
    ) -> Result<u32, TableError> {
        let fresh = ProcessRecord {
            random: identity.process,
            slots: config.max_scopes,
        };
        let prefix = prefix(&config.coordinator, &identity.plugin);
        let slots = SlotTable::open(host, prefix, &identity.node, fresh)?;
        let count = slots.slots();
        self.slots = Some(slots);
        Ok(count)
    }

    /// Returns the slots.
    ///
    /// # Errors
    /// If the table is not open.
    pub(crate) fn slots(&self) -> Result<&SlotTable, TableError> {
        self.slots.as_ref().ok_or(TableError::Gone)
    }

    /// Finds the slot of `scope`, which is an overflow scope or one of its own, or claims one for it.
    pub(crate) fn locate<H: Host>(
        &mut self,
        host: &H,
        now: Instant,
        policy: &Policy,
        (scope, is_overflow): (&str, bool),
    ) -> Result<u32, TableError> {
        let slots = self.slots.as_ref().ok_or(TableError::Gone)?;
        let window = if is_overflow {
            slots.overflow_window(scope)
        } else {
            slots.window(scope)
        };
        let located = slots.locate(host, now, policy, &window)?;
        let room = RELEASES_MAX.saturating_sub(self.releases.len());
        self.releases
            .extend(located.releases.into_iter().take(room));
        Ok(located.slot)
    }

    /// Returns leases of scopes that have lost their slots, and forgets them.
    pub(crate) fn take_releases(&mut self) -> Releases {
        core::mem::take(&mut self.releases)
    }

    /// Takes or keeps the leader lock for the worker `me`; false if another one leads.
    pub(crate) fn lead<H: Host>(
        &self,
        host: &H,
        now: Instant,
        me: u64,
    ) -> Result<bool, TableError> {
        let decide = |bytes: &[u8]| match LeaderLock::decide(LeaderLock::decode(bytes), now, me) {
            LeaderRole::Hold => (true, None),
            LeaderRole::Write(lock) => (true, Some(lock.encode().to_vec())),
            LeaderRole::Leave => (false, None),
        };
        match self.slots()?.update_record(host, "leader", decide) {
            Err(TableError::Contention(_)) => Ok(false),
            leads => leads,
        }
    }

    /// Notes that a slot is due.
    pub(crate) fn note_dirty(&mut self, slot: u32) {
        self.dirty.add(slot);
    }

    /// Returns the slots that this worker has noted, and forgets them.
    pub(crate) fn take_dirty(&mut self) -> DirtyQueue {
        core::mem::take(&mut self.dirty)
    }

    /// Moves the slots that this worker has noted to the dirty queue of the process.
    pub(crate) fn hand_dirty_over<H: Host>(&mut self, host: &H) -> Result<(), TableError> {
        if self.dirty.is_empty() {
            return Ok(());
        }
        self.slots()?.update_record(host, "dirty", |bytes| {
            let mut dirty = DirtyQueue::decode(bytes);
            dirty.extend(&self.dirty);
            ((), Some(dirty.encode()))
        })?;
        self.dirty = DirtyQueue::default();
        Ok(())
    }

    /// Empties the dirty queue of the process.
    pub(crate) fn drain_dirty<H: Host>(&self, host: &H) -> Result<DirtyQueue, TableError> {
        let slots = self.slots()?;
        let mut dirty = slots.update_record(host, "dirty", |bytes| {
            let dirty = DirtyQueue::decode(bytes);
            let changed = (!dirty.is_empty()).then(|| DirtyQueue::default().encode());
            (dirty, changed)
        })?;
        // The leader's schedule has a place for each slot up to the highest, so none may be made up.
        dirty.slots.retain(|slot| *slot < slots.slots_in_all());
        Ok(dirty)
    }

    /// Returns the number of workers of the process that live and serve requests.
    pub(crate) fn worker_count(&self) -> u32 {
        self.workers.count()
    }

    /// Returns whether the process knows that this worker lives.
    pub(crate) fn has_heartbeat(&self) -> bool {
        self.workers.has_heartbeat()
    }

    /// Writes this worker's heartbeat if it is due, and counts the workers that live.
    pub(crate) fn heartbeat<H: Host>(
        &mut self,
        host: &H,
        own: Heartbeat,
    ) -> Result<(), TableError> {
        let slots = self.slots.as_ref().ok_or(TableError::Gone)?;
        self.workers.heartbeat(slots, host, own)
    }

    /// Reads the heartbeats of all workers, unless that was done lately.
    pub(crate) fn read_heartbeats<H: Host>(
        &mut self,
        host: &H,
        now: Instant,
    ) -> Result<(), TableError> {
        let slots = self.slots.as_ref().ok_or(TableError::Gone)?;
        self.workers.read(slots, host, now)
    }

    /// Returns the workers that live, as of the last [`SharedTable::read_heartbeats`].
    pub(crate) fn living(&self) -> impl Iterator<Item = u64> {
        self.workers.living().iter().map(|other| other.worker)
    }

    /// Returns the levels of the workers that live.
    pub(crate) fn levels(&self) -> impl Iterator<Item = Levels> {
        self.workers.living().iter().map(|other| other.levels)
    }
}

// === free functions ===

/// Returns the first part of the keys of a table. A cluster's name has no line break, so no other
/// coordinator or plugin has the same keys.
fn prefix(coordinator: &str, plugin: &str) -> String {
    match plugin {
        "" => format!("tollgate.{coordinator}"),
        _ => format!("tollgate.{coordinator}\n{plugin}"),
    }
}

/// Turns contention into success: the work is done in the next round.
pub(crate) fn or_later(done: Result<(), TableError>) -> Result<(), TableError> {
    match done {
        Err(TableError::Contention(_)) => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::client::Policy;

    use super::*;
    use crate::testing::{FakeHost, FakeProcess};

    #[test]
    fn tables_of_other_coordinators_or_plugins_are_apart() {
        let process = FakeProcess::new();
        let host = FakeHost::new(&process);
        let named = [("a", ""), ("b", ""), ("a", "b"), ("a", "c"), ("a.b", "")];
        let open = |random: u128, (coordinator, plugin): (&str, &str)| {
            let slots = random as u32;
            let fresh = ProcessRecord { random, slots };
            SlotTable::open(&host, prefix(coordinator, plugin), "node", fresh).unwrap()
        };
        let tables: Vec<_> = (10..).zip(named).map(|(n, name)| open(n, name)).collect();
        let scope = |table: &SlotTable| format!("tenant/{}", table.slots());
        for table in &tables {
            let (scope, policy) = (scope(table), Policy::default());
            let window = table.window(&scope);
            table.locate(&host, host.now(), &policy, &window).unwrap();
        }
        for (slots, table) in (10..).zip(&tables) {
            let found = (0..table.slots_in_all()).filter_map(|at| table.look(&host, at).unwrap());
            let found: Vec<String> = found.map(|(scope, _)| scope).collect();
            assert_eq!((table.slots(), found), (slots, vec![scope(table)]));
        }
    }
}
