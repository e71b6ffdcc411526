use std::collections::{BTreeMap, BTreeSet};
use std::string::{String, ToString as _};

use proptest::prelude::*;

use super::*;

const ONE: NonZeroU16 = NonZeroU16::MIN;
const SHARD: ShardId = ShardId(0);

/// The preferred node for the only shard of `a` and `b`, and the other.
fn of_two() -> (&'static str, &'static str) {
    match assign(ONE, &["a", "b"])[0] {
        Some(0) => ("a", "b"),
        _ => ("b", "a"),
    }
}

fn stands(node: &'static str, epoch: u64) -> Candidate<'static> {
    Candidate {
        shard: SHARD,
        epoch: Epoch(epoch),
        node,
    }
}

fn steps(
    node: &str,
    members: &[&str],
    candidates: &[Candidate<'_>],
    led: Option<u64>,
) -> Vec<ElectionStep> {
    let led: Vec<_> = led.map(|epoch| (SHARD, Epoch(epoch))).into_iter().collect();
    let election = Election {
        shards: ONE,
        node,
        members,
        candidates,
        led: &led,
    };
    election.steps()
}

#[test]
fn only_the_preferred_node_stands() {
    let (preferred, other) = of_two();
    assert_eq!(
        steps(preferred, &["a", "b"], &[], None),
        [ElectionStep::Stand(SHARD)]
    );
    assert_eq!(steps(other, &["a", "b"], &[], None), []);
    assert_eq!(
        steps(other, &[other], &[], None),
        [ElectionStep::Stand(SHARD)]
    );
    assert_eq!(steps(other, &[], &[], None), []);
}

#[test]
fn who_stands_first_leads_and_the_next_waits() {
    let (preferred, other) = of_two();
    let alone = [stands(preferred, 7)];
    let lead = ElectionStep::Lead(SHARD, Epoch(7));
    assert_eq!(steps(preferred, &["a", "b"], &alone, None), [lead]);
    assert_eq!(steps(preferred, &["a", "b"], &alone, Some(7)), []);
    let second = [stands(preferred, 7), stands(other, 5)];
    assert_eq!(steps(preferred, &["a", "b"], &second, None), []);
}

#[test]
fn a_master_hands_over_once_the_preferred_node_stands() {
    let (preferred, other) = of_two();
    let alone = [stands(other, 5)];
    assert_eq!(steps(other, &["a", "b"], &alone, Some(5)), []);
    let both = [stands(other, 5), stands(preferred, 7)];
    let hand_over = ElectionStep::HandOver(SHARD, Epoch(5));
    assert_eq!(steps(other, &["a", "b"], &both, Some(5)), [hand_over]);
    // Not to one that is gone again.
    assert_eq!(steps(other, &[other], &both, Some(5)), []);
}

#[test]
fn who_is_not_preferred_any_more_withdraws() {
    let (preferred, other) = of_two();
    let both = [stands(preferred, 5), stands(other, 7)];
    let withdraw = ElectionStep::Withdraw(SHARD, Epoch(7));
    assert_eq!(steps(other, &["a", "b"], &both, None), [withdraw]);
    // Also when it would be master now.
    assert_eq!(steps(other, &["a", "b"], &both[1..], None), [withdraw]);
}

#[test]
fn a_master_without_its_candidacy_is_none() {
    let (preferred, other) = of_two();
    let lose = ElectionStep::Lose(SHARD, Epoch(5));
    assert_eq!(steps(preferred, &["a", "b"], &[], Some(5)), [lose]);
    let others = [stands(other, 7)];
    assert_eq!(steps(preferred, &["a", "b"], &others, Some(5)), [lose]);
    // A second candidacy of the node has an epoch of its own.
    let again = [stands(preferred, 9)];
    assert_eq!(steps(preferred, &["a", "b"], &again, Some(5)), [lose]);
}

/// A store of candidacies and nodes that carry out their steps at once, in a random order.
#[derive(Debug, Default)]
struct World {
    revision: u64,
    alive: BTreeSet<String>,
    /// By shard and epoch.
    candidates: BTreeMap<(ShardId, Epoch), String>,
    led: BTreeMap<String, BTreeMap<ShardId, Epoch>>,
    handed_over: usize,
}

impl World {
    fn steps(&self, shards: NonZeroU16, node: &str) -> Vec<ElectionStep> {
        let members: Vec<&str> = self.alive.iter().map(String::as_str).collect();
        let candidates: Vec<_> = self
            .candidates
            .iter()
            .map(|((shard, epoch), node)| Candidate {
                shard: *shard,
                epoch: *epoch,
                node,
            })
            .collect();
        let led = self.led.get(node).into_iter().flatten();
        let led: Vec<_> = led.map(|(shard, epoch)| (*shard, *epoch)).collect();
        let election = Election {
            shards,
            node,
            members: &members,
            candidates: &candidates,
            led: &led,
        };
        election.steps()
    }

    fn carry_out(&mut self, node: &str, step: ElectionStep) {
        let led = self.led.entry(node.to_string()).or_default();
        match step {
            ElectionStep::Stand(shard) => {
                self.revision += 1;
                let key = (shard, Epoch(self.revision));
                self.candidates.insert(key, node.to_string());
            }
            ElectionStep::Lead(shard, epoch) => {
                assert_eq!(led.insert(shard, epoch), None);
            }
            ElectionStep::Withdraw(shard, epoch) => {
                self.candidates.remove(&(shard, epoch));
            }
            ElectionStep::HandOver(shard, epoch) => {
                self.handed_over += 1;
                assert_eq!(led.remove(&shard), Some(epoch));
                self.candidates.remove(&(shard, epoch));
            }
            ElectionStep::Lose(shard, epoch) => {
                assert_eq!(led.remove(&shard), Some(epoch));
            }
        }
    }

    fn die(&mut self, node: &str) {
        self.alive.remove(node);
        self.led.remove(node);
        self.candidates.retain(|_, of| of != node);
    }

    /// Two masters of one shard at a time would each lend the whole capacity.
    fn check(&self) {
        let mut masters = BTreeSet::new();
        for shard in self.led.values().flat_map(BTreeMap::keys) {
            assert!(masters.insert(*shard), "two masters of {shard}");
        }
    }
}

proptest! {
    /// Nodes come and go in any order: never two masters, and in the end every shard is led by the
    /// node that is to lead it.
    #[test]
    fn every_shard_ends_up_with_the_master_it_is_to_have(
        shards in 1..6_u16,
        events in prop::collection::vec((0..4_usize, any::<bool>(), 0..6_usize), 1..40),
    ) {
        let shards = NonZeroU16::new(shards).unwrap();
        let names = ["a", "b", "c", "d"];
        let mut world = World::default();
        world.alive.insert("a".to_string());
        for (node, lives, turns) in events {
            if lives {
                world.alive.insert(names[node].to_string());
            } else if world.alive.len() > 1 {
                world.die(names[node]);
            }
            for turn in 0..turns {
                let node = names[turn % names.len()];
                if world.alive.contains(node) && let Some(step) = world.steps(shards, node).first() {
                    world.carry_out(node, *step);
                }
                world.check();
            }
        }
        let mut rounds = 0;
        loop {
            let nodes: Vec<String> = world.alive.iter().cloned().collect();
            let mut done = true;
            for node in nodes {
                for step in world.steps(shards, &node) {
                    done = false;
                    world.carry_out(&node, step);
                    world.check();
                }
            }
            if done { break; }
            rounds += 1;
            prop_assert!(rounds < 20, "it never settles: {world:?}");
        }
        let members: Vec<&str> = world.alive.iter().map(String::as_str).collect();
        let preferred = assign(shards, &members);
        for (shard, preferred) in ShardId::all(shards).zip(preferred) {
            let node = members[preferred.unwrap()];
            prop_assert!(world.led[node].contains_key(&shard), "{node} does not lead {shard}");
        }
    }
}
