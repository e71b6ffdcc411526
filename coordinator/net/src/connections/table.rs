//! The open connections of one listener.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::activity::{Activity, Stage};
use super::bounds::ConnectionBounds;
use super::memory::CallMemory;
use super::metrics::{ConnectionMetrics, DropReason};
use super::source::ConnectionSource;
use crate::tls::Listener;

mod open;

use self::open::OpenConnections;

/// A full listener closes this part of its connections at once, so that under a flood not every new
/// one costs a look at all: one in 64.
const BATCH: usize = 64;

/// Places above the bound, for probes: of connections that made room before they were answered, and
/// of those that come while calls are being worked on on all others.
pub(super) const PROBE_PLACES: usize = 128;

/// Time for a client that was asked to leave.
const CLOSING_TIME: Duration = Duration::from_secs(1);

/// Limits of the connections of one listener.
#[derive(Clone, Copy, Debug)]
pub struct ListenerLimits {
    /// The listener, which speaks HTTP/2 or HTTP/1.1.
    pub listener: Listener,
    /// The most connections at a time.
    pub max: usize,
    /// Time limits of clients.
    pub times: ConnectionBounds,
}

/// The open connections of one listener.
#[derive(Debug)]
pub struct ConnectionTable {
    pub(super) limits: ListenerLimits,
    pub(super) memory: CallMemory,
    pub(super) metrics: ConnectionMetrics,
    open: Mutex<OpenConnections>,
}

/// The place of one connection, which is free when this is dropped.
#[derive(Debug)]
pub(super) struct ConnectionEntry {
    pub(super) table: Arc<ConnectionTable>,
    number: u64,
    pub(super) activity: Arc<Activity>,
}

// === impl ConnectionTable ===

impl ConnectionTable {
    /// A table without connections, whose calls take of `memory`.
    pub fn new(limits: ListenerLimits, memory: CallMemory, metrics: ConnectionMetrics) -> Self {
        Self {
            limits,
            memory,
            metrics,
            open: Mutex::default(),
        }
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection from `from`, which begins with a handshake if `tls`. If the table is
    /// full, others make room; if they cannot, the place is for probes, or there is none.
    pub(super) fn admit(
        self: &Arc<Self>,
        from: SocketAddr,
        tls: bool,
        now: Instant,
    ) -> Option<ConnectionEntry> {
        let ListenerLimits { listener, max, .. } = self.limits;
        let mut open = self.open();
        let source = ConnectionSource::from(from);
        if open.regular() >= max {
            self.make_room_in(&mut open, source, now);
        }
        let probes_only = open.regular() >= max;
        if probes_only && !self.has_probe_place(&mut open, now) {
            return None;
        }
        let stage = if tls {
            Stage::Handshake
        } else {
            Stage::Unanswered
        };
        let activity = Arc::new(Activity::new(source, listener, stage, now));
        open.last += 1;
        let number = open.last;
        open.connections.insert(number, Arc::clone(&activity));
        if probes_only {
            open.keep_for_probes(number);
        }
        *open.sources.entry(source).or_default() += 1;
        self.metrics.set_open(listener, open.connections.len());
        drop(open);
        Some(ConnectionEntry {
            table: Arc::clone(self),
            number,
            activity,
        })
    }

    /// Whether there is a place for a probe; the one that keeps us waiting longest makes room.
    fn has_probe_place(&self, open: &mut OpenConnections, now: Instant) -> bool {
        let place = self.free_probe_places(open, 1, now) > 0;
        if !place {
            let listener = self.limits.listener;
            self.metrics.count_dropped(listener, DropReason::Refused, 1);
            tracing::warn!(
                listener = listener.name(),
                open = open.connections.len(),
                "listener: refused a connection, because those that could make room have calls under way"
            );
        }
        place
    }

    /// Number of places, of `count` more, that there are for probes; those that keep us waiting longest there
    /// make room.
    fn free_probe_places(&self, open: &mut OpenConnections, count: usize, now: Instant) -> usize {
        let missing = (open.probes + count).saturating_sub(PROBE_PLACES);
        if missing > 0 {
            let victims = open.probes_in_the_way(missing, now);
            self.close(open, victims, now);
        }
        count.min(PROBE_PLACES.saturating_sub(open.probes))
    }

    /// Closes the connections that are in the way most, and says how many.
    pub(super) fn make_room(&self, now: Instant) -> usize {
        let mut open = self.open();
        let victims = open.in_the_way(self.batch(), self.limits.max, None, now);
        self.close(&mut open, victims, now)
    }

    /// The same for a newcomer from `source`, but those that were never answered go to the places for
    /// probes: one of them may be about to ask.
    fn make_room_in(&self, open: &mut OpenConnections, source: ConnectionSource, now: Instant) {
        let victims = open.in_the_way(self.batch(), self.limits.max, Some(source), now);
        let (mut newcomers, mut others): (Vec<_>, Vec<_>) = victims
            .into_iter()
            .partition(|number| open.is_before_its_first_call(*number));
        let places = self.free_probe_places(open, newcomers.len(), now);
        others.extend(newcomers.split_off(places));
        for number in newcomers {
            open.keep_for_probes(number);
        }
        self.close(open, others, now);
    }

    fn batch(&self) -> usize {
        (self.limits.max / BATCH).max(1)
    }

    /// Closes the connections with these numbers for others, and says how many they were.
    fn close(&self, open: &mut OpenConnections, victims: Vec<u64>, now: Instant) -> usize {
        let listener = self.limits.listener;
        let closed = victims.len();
        for number in victims {
            let Some(activity) = open.remove(number) else {
                continue;
            };
            self.see_off(open, activity, now);
        }
        let count = open.connections.len();
        self.metrics.set_open(listener, count);
        self.metrics
            .count_dropped(listener, DropReason::Full, closed);
        if closed > 0 {
            tracing::warn!(
                listener = listener.name(),
                open = count,
                closed,
                "listener: full, closed the connections that kept it waiting longest"
            );
        }
        closed
    }

    /// Ends a connection that has no place any more. A client that was answered before hears of it
    /// and loses nothing, unless there are many of them: their sockets are still open.
    fn see_off(&self, open: &mut OpenConnections, activity: Arc<Activity>, now: Instant) {
        if open.closing.len() < (self.limits.max / 8).max(1) && activity.close() {
            open.closing.push((now, activity));
        } else {
            activity.cut();
        }
    }

    /// Ends all connections whose clients are late or silent, and those that hold most memory if there is
    /// none left.
    pub(super) fn sweep(&self, now: Instant) {
        let mut open = self.open();
        open.closing.retain(|(since, activity)| {
            let stays = *since + CLOSING_TIME > now;
            if !stays {
                activity.cut();
            }
            stays
        });
        let times = &self.limits.times;
        let overdue = open.connections.iter().filter_map(|(number, activity)| {
            let reason = activity.overdue(times, now)?;
            Some((*number, reason))
        });
        let mut late: Vec<_> = overdue.collect();
        late.extend(open.largest(self.memory.excess(), now));
        for (number, reason) in late {
            if let Some(activity) = open.remove(number) {
                self.count_late(&activity, reason);
                if reason == DropReason::Idle {
                    self.see_off(&mut open, activity, now);
                } else {
                    activity.cut();
                }
            }
        }
        let count = open.connections.len();
        drop(open);
        self.metrics.set_open(self.limits.listener, count);
        self.metrics.call_memory.set(self.memory.bytes() as u64);
    }

    fn count_late(&self, activity: &Activity, reason: DropReason) {
        let listener = self.limits.listener;
        self.metrics.count_dropped(listener, reason, 1);
        if reason == DropReason::Idle {
            tracing::debug!(
                listener = listener.name(),
                "listener: closed a silent connection"
            );
            return;
        }
        tracing::warn!(
            listener = listener.name(),
            reason = reason.name(),
            source = ?activity.source,
            "listener: closed a connection whose client was late"
        );
    }

    /// Asks the clients of all connections to leave.
    pub(super) fn close_all(&self) {
        for activity in self.open().connections.values() {
            activity.finish();
        }
    }
}

// === impl ConnectionEntry ===

impl Drop for ConnectionEntry {
    fn drop(&mut self) {
        let mut open = self.table.open();
        open.remove(self.number);
        open.closing
            .retain(|(_, activity)| !Arc::ptr_eq(activity, &self.activity));
        let count = open.connections.len();
        drop(open);
        let table = &self.table;
        table.metrics.set_open(table.limits.listener, count);
    }
}

#[cfg(test)]
mod tests;
