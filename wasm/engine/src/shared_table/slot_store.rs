//! Slots one at a time: in the host's own, or else as records of shared data.

use std::borrow::Cow;

use tollgate_core::client::ScopeState;

use super::{TableError, codec};
use crate::equal::equal;
use crate::host::{Host, HostError};
use crate::own_slots::Slot;
use crate::shared_memory::{ABSENT, Cas, Written};

/// The most tries of a change that others were faster with.
pub(super) const TRIES: u32 = 8;
/// A record that no version decodes. Not an empty one: the SDK takes that for none at all.
const VACANT: [u8; 1] = [0];

/// Slots of the table whose keys begin with a prefix.
#[derive(Debug)]
pub(super) struct SlotStore<'a, H> {
    pub(super) host: &'a H,
    pub(super) prefix: &'a str,
}

/// Contents of a slot.
#[derive(Clone, Copy, Debug)]
pub(super) enum Contents<'a> {
    Record(&'a [u8]),
    Own(Option<&'a Slot>),
}

// === impl SlotStore ===

impl<H: Host> SlotStore<'_, H> {
    /// Lets `inspect` look at what a slot has; also returns the version to replace it with.
    pub(super) fn look<R>(
        &self,
        slot: u32,
        inspect: impl FnOnce(Contents<'_>) -> R,
    ) -> Result<(R, Cas), HostError> {
        if let Some(own) = self.host.own_slots() {
            return Ok(own.look(slot, |known| inspect(Contents::Own(known))));
        }
        let (bytes, cas) = read(self.host, &self.key(slot))?;
        Ok((inspect(Contents::Record(&bytes)), cas))
    }

    /// Replaces what is in a slot, by nothing or by a scope, if it still has the version `cas`.
    pub(super) fn replace(
        &self,
        slot: u32,
        new: Option<(&str, ScopeState)>,
        cas: Cas,
    ) -> Result<Written, HostError> {
        if let Some(own) = self.host.own_slots() {
            let new = new.map(|(scope, state)| Slot {
                scope: scope.into(),
                state,
            });
            return Ok(own.replace(slot, new, cas));
        }
        let record = new.map(|(scope, state)| codec::encode_slot(scope, &state));
        let record = record.as_deref().unwrap_or(&VACANT);
        self.host.shared_set(&self.key(slot), record, cas)
    }

    /// Lets `change` change the scope state of a slot. It runs again on a fresh state when another
    /// worker was faster.
    pub(super) fn change<R>(
        &self,
        slot: u32,
        mut change: impl FnMut(&str, &mut ScopeState) -> R,
    ) -> Result<R, TableError> {
        if let Some(own) = self.host.own_slots() {
            return own.change(slot, change).ok_or(TableError::Gone);
        }
        let key = self.key(slot);
        for _ in 0..TRIES {
            let (bytes, cas) = read(self.host, &key)?;
            let (scope, mut state) = codec::decode_slot(&bytes).ok_or(TableError::Gone)?;
            let result = change(scope, &mut state);
            let changed = codec::encode_slot(scope, &state);
            let is_same = equal(&changed, &bytes);
            if is_same || self.host.shared_set(&key, &changed, cas)? == Written::Stored {
                return Ok(result);
            }
        }
        Err(TableError::Contention("slot"))
    }

    fn key(&self, slot: u32) -> String {
        format!("{}.slot.{slot}", self.prefix)
    }
}

// === impl Contents ===

impl<'a> Contents<'a> {
    /// The scope that the slot belongs to.
    pub(super) fn scope(self) -> Option<&'a str> {
        match self {
            Self::Record(bytes) => codec::split_slot(bytes).map(|(scope, _)| scope),
            Self::Own(slot) => slot.map(|slot| &*slot.scope),
        }
    }

    /// The scope and its state.
    pub(super) fn whole(self) -> Option<(&'a str, Cow<'a, ScopeState>)> {
        match self {
            Self::Record(bytes) => {
                let (scope, state) = codec::decode_slot(bytes)?;
                Some((scope, Cow::Owned(state)))
            }
            Self::Own(slot) => slot.map(|slot| (&*slot.scope, Cow::Borrowed(&slot.state))),
        }
    }
}

// === free functions ===

/// The record under `key` and the version to replace it with.
pub(super) fn read<H: Host>(host: &H, key: &str) -> Result<(Vec<u8>, Cas), HostError> {
    Ok(host.shared_get(key)?.unwrap_or((Vec::new(), ABSENT)))
}
