//! Steps of a node by which every shard is led by the node that is to lead it.
//!
//! The cluster's store orders the candidates of each shard; the first is its master. Only the node
//! that [`assign`] prefers stands for a shard. When another is master, it waits until the preferred
//! one stands too, and then hands over, so that a shard is without a master only for as long as the
//! snapshot takes to pass.

use alloc::vec::Vec;
use core::num::NonZeroU16;

use super::{ShardId, assign};
use crate::lease::Epoch;

/// Candidate for a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate<'a> {
    /// The shard.
    pub shard: ShardId,
    /// Revision since which it stands: unique, and later ones are higher. The epoch, once it is
    /// master.
    pub epoch: Epoch,
    /// Its node.
    pub node: &'a str,
}

/// State of an election, as one node sees it.
#[derive(Clone, Debug)]
pub struct Election<'a> {
    /// Number of shards.
    pub shards: NonZeroU16,
    /// This node.
    pub node: &'a str,
    /// The nodes that are alive, in any order.
    pub members: &'a [&'a str],
    /// All candidates, in any order.
    pub candidates: &'a [Candidate<'a>],
    /// The shards of which this node is master, with their epochs.
    pub led: &'a [(ShardId, Epoch)],
}

/// Next step of a node about a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElectionStep {
    /// It stands for the shard.
    Stand(ShardId),
    /// It no longer stands for a shard that it does not lead.
    Withdraw(ShardId, Epoch),
    /// It becomes the master: no candidate stands before it.
    Lead(ShardId, Epoch),
    /// It gives the shard to the preferred node, which stands and waits.
    HandOver(ShardId, Epoch),
    /// It is no longer the master: its own candidacy is gone.
    Lose(ShardId, Epoch),
}

// === impl Election ===

impl<'a> Election<'a> {
    /// Returns the next steps of this node, at most one for each shard.
    pub fn steps(&self) -> Vec<ElectionStep> {
        let preferred = assign(self.shards, self.members);
        let shards = ShardId::all(self.shards).zip(preferred);
        let steps = shards.filter_map(|(shard, preferred)| {
            let preferred = preferred.and_then(|index| self.members.get(index).copied());
            self.step(shard, preferred)
        });
        steps.collect()
    }

    /// The master of `shard`: the first candidate.
    pub fn master(&self, shard: ShardId) -> Option<Candidate<'a>> {
        self.of_shard(shard).min_by_key(|candidate| candidate.epoch)
    }

    fn step(&self, shard: ShardId, preferred: Option<&str>) -> Option<ElectionStep> {
        let mine = self.of_shard(shard).find(|one| one.node == self.node);
        let led = self.led.iter().find(|(led, _)| *led == shard);
        let led = led.map(|(_, epoch)| *epoch);
        let is_preferred = preferred == Some(self.node);
        match (mine.map(|mine| mine.epoch), led) {
            (mine, Some(led)) if mine != Some(led) => Some(ElectionStep::Lose(shard, led)),
            (Some(_), Some(led)) => {
                let waits = |one: Candidate<'_>| Some(one.node) == preferred;
                let hands_over = !is_preferred && self.of_shard(shard).any(waits);
                hands_over.then_some(ElectionStep::HandOver(shard, led))
            }
            (Some(epoch), _) if !is_preferred => Some(ElectionStep::Withdraw(shard, epoch)),
            (Some(epoch), _) => {
                let first = self.master(shard).is_some_and(|first| first.epoch == epoch);
                first.then_some(ElectionStep::Lead(shard, epoch))
            }
            (None, _) => is_preferred.then_some(ElectionStep::Stand(shard)),
        }
    }

    fn of_shard(&self, shard: ShardId) -> impl Iterator<Item = Candidate<'a>> {
        let candidates = self.candidates.iter().copied();
        candidates.filter(move |candidate| candidate.shard == shard)
    }
}

#[cfg(test)]
mod tests;
