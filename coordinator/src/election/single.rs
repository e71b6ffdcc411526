//! One node: master of every shard, at once and for ever.

use std::num::NonZeroU16;
use std::sync::Arc;

use tokio::sync::{oneshot, watch};
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::Epoch;

use super::{Election, ElectionError, Event, Master, Masters, Peer, Term, Voice};

/// An election with one voter.
#[derive(Debug)]
pub struct Single {
    /// This node.
    pub peer: Peer,
    /// Of how many shards it is master.
    pub shards: NonZeroU16,
    /// Its only term.
    pub epoch: Epoch,
}

// === impl Single ===

impl Election for Single {
    async fn run(self, voice: Voice, mut stop: watch::Receiver<()>) -> Result<(), ElectionError> {
        let peer = Arc::new(self.peer);
        let master = Master {
            peer: peer.clone(),
            epoch: self.epoch,
        };
        let masters = ShardId::all(self.shards).map(|_| Some(master.clone()));
        let masters = Masters::new(masters, vec![peer]);
        voice.masters.send_replace(Arc::new(masters));
        for shard in ShardId::all(self.shards) {
            let elected = Event::Elected {
                shard,
                term: Term::for_ever(self.epoch),
                books: None,
            };
            // Nobody who listens any more is as good as the end.
            let _ = voice.events.send(elected).await;
        }
        let _ = stop.changed().await;
        for shard in ShardId::all(self.shards) {
            // There is nobody to hand the books to.
            let (reply, _) = oneshot::channel();
            let _ = voice.events.send(Event::StepDown { shard, reply }).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let single = Single {
            peer: peer.clone(),
            shards,
            epoch: Epoch(42),
        };
        let (voice, mut outcome) = Voice::new(shards);
        let (stop, stopped) = watch::channel(());
        let running = tokio::spawn(single.run(voice, stopped));
        let mut terms = Vec::new();
        for shard in ShardId::all(shards) {
            let Some(Event::Elected {
                shard: of,
                term,
                books: None,
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
            assert!(matches!(event, Some(Event::StepDown { shard: of, .. }) if of == shard));
        }
        running.await.unwrap().unwrap();
    }
}
