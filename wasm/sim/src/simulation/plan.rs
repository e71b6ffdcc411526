//! Planned events of a scenario, as actions on the fleet.

use std::ops::Range;
use std::time::Duration;

use super::actions::{Action, Ends};
use super::setup::Regions;
use super::{Envoy, Simulation};
use crate::demand::Overlay;
use crate::random::Random;
use crate::scenario::{Cut, DemandChange, EventSpec, Scenario, Selection};
use crate::topology::{ActiveCut, Node};

// === impl Simulation ===

impl Simulation {
    /// Returns all planned actions with their times.
    pub(super) fn planned_actions(&mut self) -> Vec<(Duration, Action)> {
        let events = self.scenario.events.clone();
        let planned = events.iter().filter_map(|event| {
            let action = self.planned_action(event)?;
            Some((event.at.0, action))
        });
        planned.collect()
    }

    /// Returns what an event makes happen.
    pub(super) fn planned_action(&mut self, event: &EventSpec) -> Option<Action> {
        if let Some(crash) = &event.crash {
            let coordinator = self.named(&crash.coordinator)?;
            return Some(Action::Crash(coordinator, crash.clone()));
        }
        if let Some(hand_over) = &event.hand_over {
            let coordinator = self.named(&hand_over.coordinator)?;
            let shards = self.shards(coordinator, hand_over.shard);
            return Some(Action::HandOver(coordinator, shards, hand_over.lasts.0));
        }
        if let Some(lost) = &event.lose_term {
            let coordinator = self.named(&lost.coordinator)?;
            let shards = self.shards(coordinator, lost.shard);
            return Some(Action::LoseTerm(coordinator, shards, lost.clone()));
        }
        if let Some(stop) = &event.stop {
            let coordinator = stop.coordinator.as_ref();
            let coordinator = coordinator.and_then(|name| self.named(name));
            let envoys = match coordinator {
                Some(_) => Vec::new(),
                None => self.select(&stop.envoys.clone().unwrap_or_default()),
            };
            return Some(Action::Stop(coordinator, envoys, stop.lasts.0));
        }
        if let Some(kill) = &event.kill {
            let (drain, lasts) = (kill.drain.0, kill.lasts.0);
            return Some(Action::Kill(
                self.select(&kill.envoys),
                Ends { drain, lasts },
            ));
        }
        if let Some(deploy) = &event.deploy {
            return Some(Action::Deploy(self.select(&deploy.envoys), deploy.clone()));
        }
        if let Some(scale) = &event.scale {
            let mut groups = self.scenario.envoys.iter();
            let kind = groups.position(|group| group.name == scale.group)?;
            return Some(Action::Scale(kind, scale.clone()));
        }
        if let Some(cut) = &event.cut {
            return Some(self.planned_cut(cut));
        }
        if let Some(demand) = &event.demand {
            let (envoys, lasts) = (self.select(&demand.envoys), demand.lasts.0);
            return Some(Action::Demand(envoys, overlay(demand), lasts));
        }
        if let Some(trap) = &event.trap {
            return Some(Action::Trap(self.select(&trap.envoys)));
        }
        event.limits.map(Action::Limits)
    }

    fn planned_cut(&mut self, cut: &Cut) -> Action {
        let envoys = cut.envoys.as_ref().map(|envoys| self.select(envoys));
        let envoys = envoys.into_iter().flatten().map(Node::Envoy);
        let mut nodes: Vec<Node> = envoys.collect();
        let coordinator = cut.coordinator.as_ref();
        let coordinator = coordinator.and_then(|name| self.named(name));
        nodes.extend(coordinator.map(Node::Coordinator));
        if let Some(top) = coordinator.filter(|_| cut.with_below) {
            nodes.extend(self.nodes_below(top));
        }
        let mut regions = Regions::of_all(&self.scenario);
        let active = ActiveCut {
            region: cut.region.as_ref().map(|region| regions.number(region)),
            nodes,
            direction: cut.direction,
            until: self.now(),
        };
        Action::Cut(name_of(cut), active, cut.lasts.0)
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
    fn shards(&self, coordinator: usize, shard: Option<u16>) -> Range<usize> {
        match shard {
            Some(shard) => usize::from(shard)..usize::from(shard) + 1,
            None => 0..self.coordinators[coordinator].shards.len(),
        }
    }

    /// Returns the place of the coordinator called `name`.
    fn named(&self, name: &str) -> Option<usize> {
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

fn overlay(change: &DemandChange) -> Overlay {
    Overlay {
        set: change.set.map(|rate| rate.0),
        times: change.times.map_or(1.0, |times| times.0),
        add: change.add.map_or(0.0, |add| add.0),
    }
}

fn name_of(cut: &Cut) -> String {
    let region = cut.region.as_ref().map(|region| format!("region {region}"));
    let named = region.or_else(|| cut.coordinator.clone());
    named.unwrap_or_else(|| "Envoys".to_owned())
}
