//! Looks into the memory that the workers of a process share.

use tollgate_core::client::ScopeState;
use tollgate_engine::SharedMemory;
use tollgate_engine::codec::{DirtyQueue, decode_slot};

/// Middle of the keys under which slots are.
const SLOT: &str = ".slot.";
/// End of the keys under which dirty queues are.
const DIRTY: &str = ".dirty";

/// Returns the number of slots in dirty queues.
pub(super) fn dirty(memory: &SharedMemory) -> usize {
    let queues = memory.records().filter(|(key, _)| key.ends_with(DIRTY));
    let slots = queues.map(|(_, record)| DirtyQueue::decode(record).slots.len());
    slots.sum()
}

/// Calls `look` with all slots, in an order that means nothing.
pub(super) fn slots(memory: &SharedMemory, mut look: impl FnMut(&str, &ScopeState)) {
    for (key, record) in memory.records() {
        if key.contains(SLOT)
            && let Some((scope, state)) = decode_slot(record)
        {
            look(scope, &state);
        }
    }
}
