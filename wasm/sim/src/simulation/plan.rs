//! Planned events of a scenario, as actions on the fleet.

use std::ops::Range;

use super::setup::Regions;
use super::{Envoy, Simulation};
use crate::random::Random;
use crate::scenario::{Change, Cut, Scenario, Selection};
use crate::topology::{ActiveCut, Node};

// === impl Simulation ===

impl Simulation {
    /// Returns the Envoys that a change chooses.
    pub(super) fn chosen(&mut self, change: &Change) -> Vec<usize> {
        match change {
            Change::Stop(stop) if stop.coordinator.is_none() => {
                self.select(&stop.envoys.clone().unwrap_or_default())
            }
            change => {
                let (.., envoys) = change.named();
                envoys.map_or_else(Vec::new, |envoys| self.select(envoys))
            }
        }
    }

    /// Returns a cut of some Envoys, and of what else it names.
    pub(super) fn active_cut(&self, cut: &Cut, envoys: Vec<usize>) -> ActiveCut {
        let mut nodes: Vec<Node> = envoys.into_iter().map(Node::Envoy).collect();
        let coordinator = cut.coordinator.as_ref();
        let coordinator = coordinator.and_then(|name| self.named(name));
        nodes.extend(coordinator.map(Node::Coordinator));
        if let Some(top) = coordinator.filter(|_| cut.with_below) {
            nodes.extend(self.nodes_below(top));
        }
        let mut regions = Regions::of_all(&self.scenario);
        ActiveCut {
            region: cut.region.as_ref().map(|region| regions.number(region)),
            nodes,
            direction: cut.direction,
            until: self.now().saturating_add(cut.lasts.0),
        }
    }

    /// Returns the coordinators below the one at `top`, and the Envoys that ask it or these.
    fn nodes_below(&self, top: usize) -> Vec<Node> {
        let mut below = vec![false; self.coordinators.len()];
        below[top] = true;
        for (index, coordinator) in self.coordinators.iter().enumerate() {
            // Each stands after its parent.
            below[index] |= coordinator.parent.is_some_and(|parent| below[parent]);
        }
        let coordinators = (top + 1..below.len()).filter(|index| below[*index]);
        let envoys = self.envoys.iter().enumerate();
        let envoys = envoys.filter(|(_, envoy)| below[envoy.coordinator]);
        let envoys = envoys.map(|(index, _)| Node::Envoy(index));
        coordinators.map(Node::Coordinator).chain(envoys).collect()
    }

    /// Returns the shard of a number, or all without one.
    pub(super) fn shards(&self, coordinator: usize, shard: Option<u16>) -> Range<usize> {
        match shard {
            Some(shard) => usize::from(shard)..usize::from(shard) + 1,
            None => 0..self.coordinators[coordinator].shards.len(),
        }
    }

    /// Returns the place of the coordinator called `name`.
    pub(super) fn named(&self, name: &str) -> Option<usize> {
        let mut coordinators = self.scenario.coordinators.iter();
        coordinators.position(|known| known.name == name)
    }

    fn select(&mut self, selection: &Selection) -> Vec<usize> {
        select(
            &self.scenario,
            &self.envoys,
            selection,
            &mut self.event_random,
        )
    }
}

// === free functions ===

/// Returns the Envoys that `selection` means, in their order.
pub(super) fn select(
    scenario: &Scenario,
    envoys: &[Envoy],
    selection: &Selection,
    random: &mut Random,
) -> Vec<usize> {
    let group = selection.group.as_ref();
    let of_group = |kind: usize| group.is_none_or(|name| scenario.envoys[kind].name == *name);
    let all = envoys.iter().enumerate();
    // Some of the later ones may not be there when it comes to it.
    let is_first = |envoy: &Envoy| envoy.number <= scenario.envoys[envoy.kind].count;
    let all = all.filter(|(_, envoy)| selection.count.is_none() || is_first(envoy));
    let all = all.filter(|(_, envoy)| of_group(envoy.kind));
    let mut selected: Vec<usize> = all.map(|(index, _)| index).collect();
    let Some(count) = selection.count else {
        return selected;
    };
    while selected.len() > count as usize {
        let out = random.between(0, selected.len() as u64 - 1) as usize;
        selected.swap_remove(out);
    }
    selected.sort_unstable();
    selected
}

/// Returns the name of a cut, for people.
pub(super) fn name_of(cut: &Cut) -> String {
    let region = cut.region.as_ref().map(|region| format!("region {region}"));
    let named = region.or_else(|| cut.coordinator.clone());
    named.unwrap_or_else(|| "Envoys".to_owned())
}
