//! One node: master of every shard, at once and for ever.

use std::num::NonZeroU16;
use std::sync::Arc;

use tokio::sync::{oneshot, watch};
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::Epoch;

use super::{
    Election, ElectionError, ElectionEvent, ElectionPublisher, Master, Masters, Peer, Term,
};

/// Election of a node alone, which wins every shard.
#[derive(Debug)]
pub struct SingleNode {
    /// This node.
    pub peer: Peer,
    /// Number of shards.
    pub shards: NonZeroU16,
    /// Its only term.
    pub epoch: Epoch,
}

/// First epoch of a node alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEpoch {
    /// At least this one, from the wall clock; higher if the store has one of an earlier run that
    /// is not lower.
    AtLeast(Epoch),
    /// Exactly this one, as an operator says.
    Exactly(Epoch),
}

/// Reason for which a node alone has no valid epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunEpochError {
    /// Envoys that have seen the epoch of the last run would ignore this one.
    #[error(
        "--epoch: is {}, and the store has the epoch of the last run, {}: it must be higher",
        .asked.0, .stored.0
    )]
    NotAbove {
        /// The epoch that the operator gave.
        asked: Epoch,
        /// The epoch of the last run.
        stored: Epoch,
    },
    /// Envoys ignore such an epoch.
    #[error("epoch: {} is above the highest that Envoys accept, {}", .0.0, Epoch::MAX.0)]
    TooHigh(Epoch),
}

// === impl RunEpoch ===

impl RunEpoch {
    /// The epoch of a run after that of `stored`.
    ///
    /// # Errors
    /// If Envoys would ignore it.
    pub fn after(self, stored: Option<Epoch>) -> Result<Epoch, RunEpochError> {
        let epoch = match (self, stored) {
            (Self::AtLeast(epoch), Some(stored)) => epoch.max(Epoch(stored.0.saturating_add(1))),
            (Self::Exactly(asked), Some(stored)) if asked <= stored => {
                return Err(RunEpochError::NotAbove { asked, stored });
            }
            (Self::AtLeast(epoch) | Self::Exactly(epoch), _) => epoch,
        };
        if epoch.is_possible() {
            Ok(epoch)
        } else {
            Err(RunEpochError::TooHigh(epoch))
        }
    }
}

impl From<Epoch> for RunEpoch {
    fn from(epoch: Epoch) -> Self {
        Self::AtLeast(epoch)
    }
}

// === impl SingleNode ===

impl Election for SingleNode {
    async fn run(
        self,
        publisher: ElectionPublisher,
        mut stop: watch::Receiver<()>,
    ) -> Result<(), ElectionError> {
        let peer = Arc::new(self.peer);
        let master = Master {
            peer: peer.clone(),
            epoch: self.epoch,
        };
        let masters = ShardId::all(self.shards).map(|_| Some(master.clone()));
        let masters = Masters::new(masters, vec![peer]);
        publisher.masters.send_replace(Arc::new(masters));
        for shard in ShardId::all(self.shards) {
            let elected = ElectionEvent::Elected {
                shard,
                term: Term::for_ever(self.epoch),
                snapshot: None,
                vacant_for: None,
            };
            // A supervisor that is gone means that the node stops.
            let _ = publisher.events.send(elected).await;
        }
        let _ = stop.changed().await;
        for shard in ShardId::all(self.shards) {
            // There is no next master.
            let (reply, _) = oneshot::channel();
            let step_down = ElectionEvent::StepDown { shard, reply };
            let _ = publisher.events.send(step_down).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_above_that_of_the_run_before() {
        let (clock, stored) = (Epoch(1_790_000_000_000), Epoch(1_790_000_000_500));
        let at_least = |epoch| RunEpoch::AtLeast(epoch);
        assert_eq!(at_least(clock).after(None), Ok(clock));
        assert_eq!(at_least(stored).after(Some(clock)), Ok(stored));
        let next = Epoch(stored.0 + 1);
        assert_eq!(at_least(clock).after(Some(stored)), Ok(next), "set back");
        assert_eq!(at_least(stored).after(Some(stored)), Ok(next));
        let exactly = |epoch| RunEpoch::Exactly(epoch);
        assert_eq!(exactly(Epoch(5)).after(None), Ok(Epoch(5)));
        assert_eq!(exactly(stored).after(Some(clock)), Ok(stored));
        for asked in [clock, stored] {
            let refused = exactly(asked).after(Some(stored)).unwrap_err();
            assert_eq!(refused, RunEpochError::NotAbove { asked, stored });
            let (text, stored) = (refused.to_string(), stored.0.to_string());
            let both = text.contains(&asked.0.to_string()) && text.contains(&stored);
            assert!(both, "{text}");
        }
        let high = exactly(Epoch(1 << 42)).after(None);
        assert_eq!(high, Err(RunEpochError::TooHigh(Epoch(1 << 42))));
        let last = at_least(clock).after(Some(Epoch::MAX));
        assert!(matches!(last, Err(RunEpochError::TooHigh(_))), "{last:?}");
    }

    #[tokio::test]
    async fn one_node_is_master_of_everything_until_it_stops() {
        let shards = NonZeroU16::new(3).unwrap();
        let peer = Peer {
            node: "a".to_owned(),
            grpc: "127.0.0.1:7710".to_owned(),
            http: "127.0.0.1:7711".to_owned(),
            grpc_tls: false,
            http_tls: false,
        };
        let single = SingleNode {
            peer: peer.clone(),
            shards,
            epoch: Epoch(42),
        };
        let (publisher, mut outcome) = ElectionPublisher::new(shards);
        let (stop, stopped) = watch::channel(());
        let running = tokio::spawn(single.run(publisher, stopped));
        let mut terms = Vec::new();
        for shard in ShardId::all(shards) {
            let Some(ElectionEvent::Elected {
                shard: of,
                term,
                snapshot: None,
                vacant_for: None,
            }) = outcome.events.recv().await
            else {
                panic!("not elected");
            };
            assert_eq!((of, term.epoch()), (shard, Epoch(42)));
            terms.push(term);
        }
        assert!(terms.iter().all(Term::holds));
        let masters = outcome.masters.borrow().clone();
        for (_, master) in masters.iter() {
            let master = master.unwrap();
            assert_eq!((&*master.peer, master.epoch), (&peer, Epoch(42)));
        }
        assert_eq!(masters.iter().count(), 3);
        assert_eq!(masters.of(ShardId(3)), None);
        drop(stop);
        for shard in ShardId::all(shards) {
            let event = outcome.events.recv().await;
            assert!(
                matches!(event, Some(ElectionEvent::StepDown { shard: of, .. }) if of == shard)
            );
        }
        running.await.unwrap().unwrap();
    }
}
