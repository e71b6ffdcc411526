//! Coordinators of a cluster: the master of each shard, and at times a past master.

use std::num::NonZeroU16;
use std::time::Duration;

use tollgate_core::cluster::ShardId;
use tollgate_core::lease::{Epoch, Origin};
use tollgate_core::lease_server::{Bounds, LeaseServer, Nudge, Start};
use tollgate_core::units::Instant;
use tollgate_proto::snapshot;

const BOUNDS: Bounds = Bounds {
    max_resources: 10,
    max_clients_per_resource: 100,
    max_leases: 1_000_000,
};

/// Coordinators of all shards.
#[derive(Debug)]
pub(crate) struct Coordinators {
    shards: Vec<Shard>,
    /// Whether masters look at their terms before they answer, as they should.
    terms: bool,
}

#[derive(Debug)]
struct Shard {
    id: ShardId,
    epoch: Epoch,
    master: Option<LeaseServer>,
    past: Option<PastMaster>,
}

/// Master that was cut off from the election: it serves until its term ends, and another is elected
/// after that.
#[derive(Debug)]
struct PastMaster {
    node: LeaseServer,
    term_ends: Instant,
    /// End of the time for which its process is stopped; calls wait in its sockets.
    wakes: Instant,
}

/// Course of a master's isolation from the election.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CutOff {
    /// Time left of its term.
    pub(crate) term: Duration,
    /// Time until another master is elected.
    pub(crate) lease: Duration,
    /// Time for which its process is stopped.
    pub(crate) asleep: Duration,
    /// Time until it notices that it is no longer master.
    pub(crate) lasts: Duration,
}

/// Receiver of a call.
pub(crate) enum Reached<'a> {
    /// No coordinator answers.
    Nobody,
    /// The call waits in the socket of the master of this term until this time.
    Waits(Epoch, Instant),
    /// The receiver is no longer master, and says so.
    NotMaster,
    /// This master answers.
    Master(&'a mut LeaseServer, Origin),
}

// === impl Coordinators ===

impl Coordinators {
    /// Creates a new fleet with a master for each shard.
    pub(crate) fn new(now: Instant, shards: NonZeroU16, terms: bool) -> Self {
        let shard = |id| Shard {
            id,
            epoch: Epoch(1),
            master: Some(LeaseServer::new(now, Epoch(1), BOUNDS, Start::Fresh)),
            past: None,
        };
        Self {
            shards: ShardId::all(shards).map(shard).collect(),
            terms,
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for shard in &mut self.shards {
            let past = shard.past.as_mut().map(|past| &mut past.node);
            for node in shard.master.iter_mut().chain(past) {
                node.handle_timeout(now);
            }
        }
    }

    /// Returns the lease server of `shard`: its master's, or the past master's until one is
    /// elected.
    pub(crate) fn node(&self, shard: ShardId) -> Option<&LeaseServer> {
        let shard = &self.shards[shard.index()];
        let past = shard.past.as_ref().map(|past| &past.node);
        shard.master.as_ref().or(past)
    }

    /// Returns the receiver of a call for `shard` that is delivered now: the master of the term
    /// `to` if the call has waited for that one. `prefers_past` decides between two masters.
    pub(crate) fn reach(
        &mut self,
        now: Instant,
        shard: ShardId,
        to: Option<Epoch>,
        prefers_past: bool,
    ) -> Reached<'_> {
        let terms = self.terms;
        let shard = &mut self.shards[shard.index()];
        let id = shard.id;
        let origin = |node: &LeaseServer| Origin {
            shard: Some(id),
            epoch: node.epoch(),
        };
        let Some(past) = shard.past.as_mut() else {
            return match &mut shard.master {
                // The master for which the call waited has ended.
                _ if to.is_some() => Reached::Nobody,
                None => Reached::Nobody,
                Some(node) => Reached::Master(node, origin(node)),
            };
        };
        let epoch = past.node.epoch();
        if to.is_some_and(|to| to != epoch) {
            return Reached::Nobody;
        }
        if let Some(node) = &mut shard.master
            && to.is_none()
            && !prefers_past
        {
            return Reached::Master(node, origin(node));
        }
        if now < past.wakes {
            Reached::Waits(epoch, past.wakes)
        } else if terms && now >= past.term_ends {
            Reached::NotMaster
        } else {
            let origin = origin(&past.node);
            Reached::Master(&mut past.node, origin)
        }
    }

    /// Takes the nudges of all masters.
    pub(crate) fn take_nudges(&mut self) -> Vec<Nudge> {
        let mut nudges = Vec::new();
        for shard in &mut self.shards {
            let past = shard.past.as_mut().map(|past| &mut past.node);
            for node in shard.master.iter_mut().chain(past) {
                nudges.extend(std::iter::from_fn(|| node.poll_nudge()));
            }
        }
        nudges
    }

    /// Ends the master of `shard`. Returns whether there was one.
    pub(crate) fn crash(&mut self, shard: usize) -> bool {
        self.shard(shard).master.take().is_some()
    }

    /// Ends the master of `shard`. Returns the snapshot of its leases.
    pub(crate) fn hand_over(&mut self, now: Instant, shard: usize) -> Option<Vec<u8>> {
        let master = self.shard(shard).master.take()?;
        Some(snapshot::encode(&master.hand_over(now)))
    }

    /// Cuts the master of `shard` off. Returns whether there was one.
    pub(crate) fn cut_off(&mut self, now: Instant, shard: usize, how: CutOff) -> bool {
        let shard = self.shard(shard);
        let Some(node) = shard.master.take() else {
            return false;
        };
        shard.past = Some(PastMaster {
            node,
            term_ends: now.saturating_add(how.term),
            wakes: now.saturating_add(how.asleep),
        });
        true
    }

    /// Ends the past master of `shard`, which notices that it is no longer master.
    pub(crate) fn heal(&mut self, shard: usize) {
        self.shard(shard).past = None;
    }

    /// Elects a master of `shard`, with the snapshot of its predecessor if there is one.
    pub(crate) fn elect(&mut self, now: Instant, shard: usize, left: Option<&[u8]>) {
        let shard = self.shard(shard);
        shard.epoch = Epoch(shard.epoch.0 + 1);
        let epoch = shard.epoch;
        shard.master = Some(match left {
            None => LeaseServer::new(now, epoch, BOUNDS, Start::Learning),
            Some(left) => {
                let left = snapshot::decode(left).expect("what was written can be read");
                LeaseServer::take_over(now, epoch, BOUNDS, &left).expect("a good snapshot")
            }
        });
    }

    /// Returns the shard that a fault affects.
    fn shard(&mut self, index: usize) -> &mut Shard {
        let index = index % self.shards.len();
        &mut self.shards[index]
    }

    pub(crate) fn count(&self) -> usize {
        self.shards.len()
    }
}
