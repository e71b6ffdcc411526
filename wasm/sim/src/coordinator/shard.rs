//! One shard of a coordinator: its master, and at times a past one that has lost the election.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate_core::cluster::ShardId;
use tollgate_core::fleet::StoredLimit;
use tollgate_core::lease::{Epoch, ResourceId};
use tollgate_core::lease_server::{Bounds, LeaseServer, Snapshot, Start};
use tollgate_core::units::Instant;

const BOUNDS: Bounds = Bounds {
    max_resources: 10_000_000,
    max_clients_per_resource: 10_000_000,
    max_leases: 1_000_000_000,
    max_durable: 1_000_000_000,
};

/// One shard and its masters.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(super) id: Option<ShardId>,
    pub(crate) epoch: Epoch,
    pub(crate) server: Option<LeaseServer>,
    /// Master that was cut off from the election, until it notices.
    pub(crate) past: Option<PastMaster>,
    /// Time since which it has had no master, if its nodes have followed the election since.
    pub(crate) vacant_since: Option<Instant>,
    /// Time for which work is planned next.
    pub(crate) planned: Option<Instant>,
    /// Store of its slow buckets, with the time on its clock at which each was stored.
    buckets: BTreeMap<ResourceId, (StoredLimit, Instant)>,
}

/// Master that was cut off from the election: it serves until its term ends, and another is elected
/// after that. Times are the world's.
#[derive(Debug)]
pub(crate) struct PastMaster {
    pub(super) server: LeaseServer,
    term_ends: Instant,
    /// End of the time for which its process is stopped; calls wait in its sockets.
    wakes: Instant,
}

/// Choice of the receiver of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receiver {
    /// The term of the master in whose socket the call has waited.
    pub(crate) waited_for: Option<Epoch>,
    /// Whether it comes to the past one of two masters.
    pub(crate) prefers_past: bool,
    /// Whether masters look at their terms before they answer, as they should.
    pub(crate) terms: bool,
}

/// Receiver of a call.
pub(super) enum Reach<'a> {
    /// No coordinator answers.
    Nobody,
    /// The receiver is no longer master, and says so.
    NotMaster,
    /// This master answers.
    Master(&'a mut LeaseServer),
}

// === impl Shard ===

impl Shard {
    /// Returns a shard that has never had a master.
    pub(super) fn new(id: Option<ShardId>) -> Self {
        Self {
            id,
            epoch: Epoch(0),
            server: None,
            past: None,
            vacant_since: None,
            planned: None,
            buckets: BTreeMap::new(),
        }
    }

    /// Gives it a master of a new term, with the leases of the one before if it left them. It borrows
    /// of a parent whose calls have so much time, if there is one.
    pub(super) fn elect(
        &mut self,
        local: Instant,
        start: Start,
        left: Option<&Snapshot>,
        borrows: Option<Duration>,
    ) {
        self.epoch = Epoch(self.epoch.0 + 1);
        let taken = left.and_then(|left| {
            let taken = LeaseServer::take_over(local, self.epoch, BOUNDS, left);
            taken.ok()
        });
        let fresh = || LeaseServer::new(local, self.epoch, BOUNDS, start);
        let mut server = taken.unwrap_or_else(fresh);
        let stored = self.buckets.iter().map(|(resource, (stored, at))| {
            let age = local.saturating_since(*at);
            (resource.clone(), stored.after(age))
        });
        server.keep_buckets(local, stored.collect());
        if let Some(call_timeout) = borrows {
            server.borrow_from_parent(local, local.as_nanos(), call_timeout);
        }
        self.server = Some(server);
        self.vacant_since = None;
        self.planned = None;
    }

    /// Stores the changes of slow buckets before its master answers. A past master cannot: returns whether
    /// it answers all the same, for it tells of no such bucket.
    pub(super) fn store_buckets(&mut self, local: Instant, receiver: Receiver) -> bool {
        if self.comes_to_past(receiver)
            && let Some(past) = &mut self.past
        {
            let changes = past.server.take_bucket_changes();
            return changes.changes.is_empty() && !changes.is_told;
        }
        let server = self.server.as_mut();
        let changes = server.map(|server| server.take_bucket_changes().changes);
        for change in changes.into_iter().flatten() {
            match change.bucket {
                Some(bucket) => self.buckets.insert(change.resource, (bucket, local)),
                None => self.buckets.remove(&change.resource),
            };
        }
        true
    }

    /// Loses its store of slow buckets.
    pub(crate) fn forget_buckets(&mut self) {
        self.buckets.clear();
    }

    /// Cuts its master off from the election, which has so much left of its term and is `asleep` for
    /// so long. Returns whether there is one.
    pub(crate) fn lose_term(&mut self, now: Instant, term: Duration, asleep: Duration) -> bool {
        let past = self.server.take().map(|server| PastMaster {
            server,
            term_ends: now.saturating_add(term),
            wakes: now.saturating_add(asleep),
        });
        let lost = past.is_some();
        if lost {
            self.past = past;
        }
        lost
    }

    /// Returns the server of its master, or of the past one until another is elected.
    pub(crate) fn node(&self) -> Option<&LeaseServer> {
        let past = self.past.as_ref().map(|past| &past.server);
        self.server.as_ref().or(past)
    }

    /// Returns the servers of both.
    pub(super) fn nodes_mut(&mut self) -> impl Iterator<Item = &mut LeaseServer> {
        let past = self.past.as_mut().map(|past| &mut past.server);
        self.server.iter_mut().chain(past)
    }

    /// Returns the time by its clock at which one of its masters has something to do.
    pub(super) fn poll(&self) -> Option<Instant> {
        let past = self.past.as_ref().map(|past| past.server.poll_timeout());
        let servers = self.server.iter();
        let polls = servers.flat_map(|server| [server.poll_timeout(), server.poll_parent()]);
        polls.chain(past).flatten().min()
    }

    /// Returns the term of the master in whose socket a call waits, and until when, if that stands
    /// still.
    pub(super) fn waits(&self, now: Instant, receiver: Receiver) -> Option<(Epoch, Instant)> {
        let past = self.past.as_ref().filter(|past| now < past.wakes)?;
        self.comes_to_past(receiver)
            .then(|| (past.server.epoch(), past.wakes))
    }

    /// Returns the receiver of a call that is delivered now.
    pub(super) fn reach(&mut self, now: Instant, receiver: Receiver) -> Reach<'_> {
        if self.comes_to_past(receiver)
            && let Some(past) = &mut self.past
        {
            return match receiver.terms && now >= past.term_ends {
                _ if now < past.wakes => Reach::Nobody,
                true => Reach::NotMaster,
                false => Reach::Master(&mut past.server),
            };
        }
        // The master for which the call waited may have ended.
        match &mut self.server {
            Some(server) if receiver.waited_for.is_none() => Reach::Master(server),
            _ => Reach::Nobody,
        }
    }

    fn comes_to_past(&self, receiver: Receiver) -> bool {
        let Some(past) = &self.past else {
            return false;
        };
        match receiver.waited_for {
            Some(epoch) => epoch == past.server.epoch(),
            None => receiver.prefers_past || self.server.is_none(),
        }
    }
}
