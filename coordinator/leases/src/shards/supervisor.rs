//! Supervisor of the drivers of a node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tollgate_cluster::election::{ElectionEvent, Term};
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::Origin;
use tollgate_core::units::Instant;

use super::{Mastership, Shards};
use crate::drains::NodeDrains;
use crate::driver::{Driver, DriverSettings};
use crate::parent::Parent;

/// Starts and ends drivers as the election decides.
#[derive(Debug)]
pub struct ShardSupervisor {
    settings: DriverSettings,
    /// The parent of all drivers; `None` at a root.
    parent: Option<Parent>,
    masterships: watch::Sender<Arc<BTreeMap<ShardId, Mastership>>>,
    drains: NodeDrains,
    drivers: JoinSet<()>,
    /// Time of the last change of the configuration.
    configured_at: Instant,
}

// === impl ShardSupervisor ===

impl ShardSupervisor {
    /// Creates a supervisor without drivers, and the view of its shards.
    pub fn new(settings: DriverSettings, parent: Option<Parent>) -> (Self, Shards) {
        let (sender, masterships) = watch::channel(Arc::default());
        let drains = NodeDrains::new(settings.clock);
        let rules = settings.rules.clone();
        let supervisor = Self {
            configured_at: settings.clock.now(),
            settings,
            parent,
            masterships: sender,
            drains: drains.clone(),
            drivers: JoinSet::new(),
        };
        let shards = Shards {
            masterships,
            drains,
            rules,
        };
        (supervisor, shards)
    }

    /// Follows the election until its events end.
    pub async fn run(mut self, mut events: mpsc::Receiver<ElectionEvent>) {
        let mut catalog = self.settings.catalog.clone();
        loop {
            tokio::select! {
                biased;
                // A configuration whose source has ended stays as it is.
                Ok(()) = catalog.changed() => self.configured_at = self.settings.clock.now(),
                event = events.recv() => match event {
                    Some(event) => self.handle(event),
                    None => break,
                },
                Some(_) = self.drivers.join_next() => {}
            }
        }
        // Calls in flight may still be answered.
        drop(self.masterships);
        while self.drivers.join_next().await.is_some() {}
    }

    fn handle(&mut self, event: ElectionEvent) {
        match event {
            ElectionEvent::Elected {
                shard,
                term,
                snapshot,
                vacant_for,
            } => self.take(shard, term, snapshot, vacant_for),
            ElectionEvent::StepDown { shard, reply } => {
                let left = self.leave(shard);
                // Without a next master, calls in flight may still be answered.
                if let Some(mastership) = left.filter(|_| !reply.is_closed()) {
                    self.drivers.spawn(mastership.hand_over(reply));
                }
            }
            ElectionEvent::Lost { shard } => {
                if let Some(mastership) = self.leave(shard) {
                    mastership.term.end();
                }
            }
        }
    }

    fn take(
        &mut self,
        shard: ShardId,
        term: Term,
        snapshot: Option<Bytes>,
        vacant_for: Option<Duration>,
    ) {
        let origin = Origin {
            shard: self.settings.shards.map(|_| shard),
            epoch: term.epoch(),
        };
        let settings = self.settings.after_vacancy(vacant_for, self.configured_at);
        let (driver, handle) = Driver::new(&settings, origin);
        let mut driver = driver.draining(self.drains.all());
        if let Some(snapshot) = snapshot {
            driver = driver.with_snapshot(snapshot.into());
        }
        if let Some(parent) = &self.parent {
            let link;
            (driver, link) = match parent.link(driver, &handle, origin.shard) {
                Ok(linked) => linked,
                Err(error) => {
                    // No master is better than one that lends more than it has borrowed.
                    tracing::error!(%error, "parent: cannot borrow");
                    return;
                }
            };
            self.drivers.spawn(link.run());
        }
        self.drivers.spawn(driver.run());
        let mastership = Mastership {
            shard,
            term,
            driver: handle,
        };
        let mut before = None;
        self.masterships.send_modify(|all| {
            before = Arc::make_mut(all).insert(shard, mastership);
        });
        // Clones of the old mastership must not answer in a term that another has followed.
        if let Some(before) = before {
            before.term.end();
        }
    }

    fn leave(&self, shard: ShardId) -> Option<Mastership> {
        let mut left = None;
        self.masterships.send_modify(|all| {
            left = Arc::make_mut(all).remove(&shard);
        });
        left
    }
}

#[cfg(test)]
mod tests;
