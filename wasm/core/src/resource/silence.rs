//! Clients that have missed their refreshes, and those of which a newer run asks.

use super::{ClientEntry, ClientKey, Deadlines, Resource};
use crate::units::Instant;

/// Clients of a new client's node that are looked at.
const NODE_LOOKS: usize = 64;

// === impl Resource ===

impl Resource {
    /// Notes the clients that have missed their refreshes: their wants do not count any longer.
    pub(crate) fn note_silences(&mut self, now: Instant) {
        while let Some(key) = self.silences.pop_due(now) {
            if let Some(entry) = self.clients.get_mut(&key) {
                entry.presence.watched_at = None;
                self.allocation.note_if_missed(now, key.tie_break(), entry);
                watch(&mut self.silences, &key, entry);
            }
        }
        if self.clients.len() == 1 {
            for (key, entry) in &mut self.clients {
                self.allocation.note_if_missed(now, key.tie_break(), entry);
            }
        }
    }

    /// Notes that the client of `key`, which is new, may be the next run of another one of its node.
    ///
    /// That is as silent, until it asks again, if it is young: then it may have crashed right after its
    /// start. A client that shares its node with one that starts loses nothing: it keeps its lease, and
    /// its wants count again with its next request, before that is answered. One that has been there for
    /// long is not doubted; nor are clients whose runs share an entry.
    pub(super) fn note_new_run(&mut self, now: Instant, key: &ClientKey) {
        if now < self.allocation.learning_until || !key.is_incarnation() {
            return;
        }
        let from_node = self.clients.range_mut(key.first_of_node()..);
        let of_node = from_node.take_while(|(other, _)| key.is_of_node(other));
        for (other, entry) in of_node.take(NODE_LOOKS) {
            let doubted = other.is_incarnation() && entry.presence.is_young(now);
            if doubted && !entry.presence.silent {
                self.allocation.note_silence(now, other.tie_break(), entry);
            }
        }
    }

    /// Watches all clients, if there are others of the resource or its pool.
    pub(crate) fn watch_all(&mut self) {
        if self.clients.len() > 1 || self.allocation.is_in_pool() {
            for (key, entry) in &mut self.clients {
                watch(&mut self.silences, key, entry);
            }
        }
    }

    pub(super) fn unwatch(&mut self, key: &ClientKey, entry: &ClientEntry) {
        if let Some(at) = entry.presence.watched_at {
            self.silences.remove(at, key.clone());
        }
    }
}

// === free functions ===

/// Has the client of `entry` looked at in time for its silence.
pub(super) fn watch(silences: &mut Deadlines<ClientKey>, key: &ClientKey, entry: &mut ClientEntry) {
    let presence = &mut entry.presence;
    if presence.watched_at.is_none() && !presence.missed {
        presence.watched_at = Some(presence.missed_at);
        silences.insert(presence.missed_at, key.clone());
    }
}
