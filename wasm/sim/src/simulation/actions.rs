//! Actions on the fleet: crashes, stops, restarts, cuts, and changes of demand and limits.

use std::ops::Range;
use std::time::Duration;

use tollgate_core::lease_server::Snapshot;

use super::Simulation;
use super::event::Event;
use super::plan::name_of;
use super::reached::Case;
use crate::defect::Defect;
use crate::demand::{Course, Overlay};
use crate::scenario::{
    Change, Crash, Cut, DemandChange, Deploy, EventSpec, HandOver, LoseTerm, Scale, Span,
};
use crate::topology::Node;

/// Something that happens to the fleet. Coordinators and Envoys are named by their places.
#[derive(Debug)]
pub(super) enum Action {
    /// A change of the scenario, of the Envoys that it has chosen.
    Change(Change, Vec<usize>),
    /// Masters of a coordinator that were cut off from the election notice.
    EndPast(usize, Range<usize>),
    /// Shards of a coordinator have masters again, with the leases that were left.
    Elect(usize, Vec<(usize, Option<Snapshot>)>),
    /// Those of these Envoys end that still drain, and others start in so much time.
    EndDrained(Vec<usize>, Duration),
    /// The change of demand of a number ends.
    DemandEnds(Vec<usize>, u64),
    /// Something ends that only people need to know of.
    Note(String),
}

// === impl Simulation ===

impl Simulation {
    /// Plans a change of the scenario, for which it chooses Envoys now.
    pub(super) fn plan_change(&mut self, after: Duration, event: &EventSpec) {
        let chosen = self.chosen(&event.change);
        self.plan_action(after, Action::Change(event.change.clone(), chosen));
    }

    /// Does what was planned for now.
    pub(super) fn act(&mut self, action: Action) {
        match action {
            Action::Change(change, envoys) => self.change(change, envoys),
            Action::EndPast(coordinator, shards) => {
                for shard in &mut self.coordinators[coordinator].shards[shards] {
                    shard.past = None;
                }
            }
            Action::Elect(coordinator, left) => self.elect(coordinator, &left),
            Action::EndDrained(mut envoys, lasts) => {
                envoys.retain(|index| self.envoys[*index].is_draining);
                self.kill(&envoys, lasts);
            }
            Action::DemandEnds(envoys, number) => {
                self.mark("demand as before".to_owned());
                self.change_courses(&envoys, |course, _| course.lift(number));
            }
            Action::Note(text) => self.mark(text),
        }
    }

    fn change(&mut self, change: Change, envoys: Vec<usize>) {
        let (_, coordinator, _) = change.named();
        let coordinator = coordinator.and_then(|name| self.named(name));
        match (change, coordinator) {
            (Change::Crash(how), Some(index)) => self.crash(index, &how),
            (Change::HandOver(how), Some(index)) => self.hand_over(index, &how),
            (Change::LoseTerm(how), Some(index)) => self.lose_term(index, &how),
            (Change::Stop(how), index) => self.stop(index, &envoys, how.lasts.0),
            (Change::Kill(how), _) => {
                let ended = if how.drain.0.is_zero() {
                    "killed"
                } else {
                    "drain"
                };
                self.mark(format!("{} {ended}", counted(envoys.len())));
                self.end(envoys, how.drain.0, how.lasts.0);
            }
            (Change::Deploy(how), _) => self.deploy(envoys, how),
            (Change::Scale(how), _) => self.scale(&how),
            (Change::Cut(how), _) => self.cut(&how, envoys),
            (Change::Demand(how), _) => self.demand(envoys, &how),
            (Change::Limits(limits), _) => {
                self.mark("limits changed".to_owned());
                self.switch_limits(limits);
            }
            (Change::Trap(_), _) => self.trap(&envoys),
            // A checked scenario names coordinators that there are.
            (Change::Crash(_) | Change::HandOver(_) | Change::LoseTerm(_), None) => {}
        }
    }

    fn cut(&mut self, how: &Cut, envoys: Vec<usize>) {
        let cut = self.active_cut(how, envoys);
        if let [Node::Coordinator(_), ..] = cut.nodes[..] {
            self.reached.count(Case::CoordinatorCut);
        }
        self.topology.cut(self.queue.now(), cut);
        let name = name_of(how);
        self.mark(format!("{name} cut off"));
        self.plan_action(how.lasts.0, Action::Note(format!("{name} connected")));
    }

    fn crash(&mut self, coordinator: usize, how: &Crash) {
        let name = self.coordinator_name(coordinator);
        self.mark(format!("{name} loses its master"));
        let now = self.now();
        let ended = self.coordinators[coordinator].crash(now, how.followed);
        if !ended.is_empty() {
            self.reached.count(Case::MasterCrashed);
        }
        let left = ended.into_iter().map(|shard| (shard, None)).collect();
        self.end_watches(coordinator);
        self.plan_action(how.lasts.0, Action::Elect(coordinator, left));
    }

    fn hand_over(&mut self, coordinator: usize, how: &HandOver) {
        let shards = self.shards(coordinator, how.shard);
        let name = self.coordinator_name(coordinator);
        self.mark(format!("{name} hands over"));
        let now = self.now();
        let place = &mut self.coordinators[coordinator];
        let left = shards.filter_map(|shard| Some((shard, Some(place.hand_over(now, shard)?))));
        let left: Vec<_> = left.collect();
        if left.is_empty() {
            return;
        }
        self.reached.count(Case::HandedOver);
        self.end_watches(coordinator);
        self.plan_action(how.lasts.0, Action::Elect(coordinator, left));
    }

    fn lose_term(&mut self, coordinator: usize, how: &LoseTerm) {
        let shards = self.shards(coordinator, how.shard);
        let now = self.now();
        let place = &mut self.coordinators[coordinator];
        let lost = |shard: &usize| place.shards[*shard].lose_term(now, how.term.0, how.asleep.0);
        let lost: Vec<_> = shards.clone().filter(lost).collect();
        if lost.is_empty() {
            return;
        }
        self.reached.count(Case::TermLost);
        let name = self.coordinator_name(coordinator);
        self.mark(format!("{name} is cut off from the election"));
        let left = lost.into_iter().map(|shard| (shard, None)).collect();
        self.plan_action(how.elected_after.0, Action::Elect(coordinator, left));
        self.plan_action(how.lasts.0, Action::EndPast(coordinator, shards));
    }

    pub(super) fn elect(&mut self, coordinator: usize, left: &[(usize, Option<Snapshot>)]) {
        let now = self.now();
        let forgets = self.has_defect(Defect::ForgottenBuckets);
        let place = &mut self.coordinators[coordinator];
        let mut elected = false;
        for (shard, left) in left {
            // Another election may have been faster.
            if place.shards[*shard].server.is_none() {
                if forgets {
                    place.shards[*shard].forget_buckets();
                }
                place.elect(now, *shard, place.start_of(*shard), left.as_ref());
                elected = true;
            }
        }
        if elected {
            let name = self.coordinator_name(coordinator);
            self.mark(format!("{name} has a master"));
            self.watch_parent(coordinator);
            self.attend_coordinator(coordinator);
        }
    }

    fn stop(&mut self, coordinator: Option<usize>, envoys: &[usize], lasts: Duration) {
        let until = self.now().saturating_add(lasts);
        let name = match coordinator {
            Some(index) => {
                self.coordinators[index].stopped_until = until;
                self.coordinator_name(index)
            }
            None => counted(envoys.len()),
        };
        for index in envoys {
            if let Some(process) = &mut self.envoys[*index].process {
                process.stopped_until = until;
            }
        }
        self.mark(format!("{name} stopped"));
        self.plan_action(lasts, Action::Note(format!("{name} going on")));
    }

    /// Ends Envoys, at once or when they have drained.
    fn end(&mut self, envoys: Vec<usize>, drain: Duration, lasts: Duration) {
        if drain.is_zero() {
            return self.kill(&envoys, lasts);
        }
        for index in &envoys {
            let envoy = &mut self.envoys[*index];
            if let Some(process) = &mut envoy.process {
                envoy.is_draining = true;
                envoy.streams.append(&mut process.streams);
            }
        }
        self.plan_action(drain, Action::EndDrained(envoys, lasts));
    }

    fn kill(&mut self, envoys: &[usize], lasts: Duration) {
        for index in envoys {
            let envoy = &mut self.envoys[*index];
            if let Some(process) = envoy.process.take() {
                envoy.streams.extend(process.streams);
            }
            if let Some(client) = envoy.watch.take() {
                self.coordinators[envoy.coordinator].forget_watch(&client);
            }
            envoy.incarnation += 1;
            self.plan_start(*index, lasts);
        }
    }

    fn trap(&mut self, envoys: &[usize]) {
        self.mark(format!("{} each losing a worker", counted(envoys.len())));
        let now = self.now();
        for index in envoys {
            if let Some(process) = &mut self.envoys[*index].process {
                process.trap(now);
            }
            self.attend(*index);
        }
    }

    /// Plans that a process starts at the place of an Envoy, if there is to be one.
    pub(super) fn plan_start(&mut self, index: usize, after: Duration) {
        let start = Event::Start {
            envoy: index as u32,
            incarnation: self.envoys[index].incarnation,
        };
        self.queue.push(after, start);
    }

    fn scale(&mut self, how: &Scale) {
        let Scale { group, to, drain } = how;
        let mut groups = self.scenario.envoys.iter();
        let Some(kind) = groups.position(|known| known.name == *group) else {
            return;
        };
        self.mark(format!("{group}: {}", counted(*to as usize)));
        let mut leaving = Vec::new();
        for index in 0..self.envoys.len() {
            let envoy = &mut self.envoys[index];
            let wanted = envoy.number <= *to;
            if envoy.kind != kind || envoy.is_wanted == wanted {
                continue;
            }
            envoy.is_wanted = wanted;
            if wanted {
                self.plan_start(index, Duration::ZERO)
            } else {
                leaving.push(index)
            }
        }
        self.end(leaving, drain.0, Duration::ZERO);
    }

    fn deploy(&mut self, mut envoys: Vec<usize>, how: Deploy) {
        let rest = envoys.split_off(envoys.len().min(how.batch as usize));
        self.end(envoys, how.drain.0, how.lasts.0);
        if rest.is_empty() {
            self.mark("deploy: last batch".to_owned());
            return;
        }
        if self.recorder.last_mark_is_not("deploy begins") {
            self.mark("deploy begins".to_owned());
        }
        let every = how.every.0;
        self.plan_action(every, Action::Change(Change::Deploy(how), rest));
    }

    fn demand(&mut self, envoys: Vec<usize>, how: &DemandChange) {
        let change = Overlay {
            set: how.set.map(|rate| rate.0),
            times: how.times.map_or(1.0, |times| times.0),
            add: how.add.map_or(0.0, |add| add.0),
        };
        let lasts = how.lasts.0;
        self.mark(format!("demand of {} changes", counted(envoys.len())));
        if lasts.is_zero() {
            return self.change_courses(&envoys, |course, of| course.apply(change.of_all(of)));
        }
        let number = self.demand_changes;
        self.demand_changes += 1;
        self.change_courses(&envoys, |course, of| course.lay(number, change.of_all(of)));
        self.plan_action(lasts, Action::DemandEnds(envoys, number));
    }

    /// Changes all demand at some Envoys, and all that is sent to these alone. `change` is given the
    /// number of Envoys that a course is of.
    pub(super) fn change_courses(&mut self, envoys: &[usize], change: impl Fn(&mut Course, usize)) {
        let elapsed = self.elapsed();
        for index in envoys {
            let envoy = &mut self.envoys[*index];
            let of_process = envoy.process.iter_mut();
            let of_process = of_process.flat_map(|process| &mut process.streams);
            for stream in of_process.chain(&mut envoy.streams) {
                stream.change(elapsed, |course| change(course, 1));
            }
            self.attend(*index);
        }
        for demand in 0..self.routed.len() {
            let routed = &mut self.routed[demand];
            let of = routed.envoys();
            let is_changed = |index: &usize| envoys.binary_search(index).is_ok();
            if of.iter().all(is_changed) {
                let wanted = of.iter().filter(|index| self.envoys[**index].is_wanted);
                let count = wanted.count();
                routed
                    .stream
                    .change(elapsed, |course| change(course, count));
                self.plan_requests(demand, Duration::ZERO);
            }
        }
    }

    /// Lets one of the random events happen, and plans the next.
    pub(super) fn mishap(&mut self) {
        let Some(mishaps) = self.scenario.mishaps.clone() else {
            return;
        };
        self.queue.push(mishaps.every.0, Event::Mishap);
        let [spike, loss, all] = mishaps.weights();
        let drawn = self.event_random.between(1, all.max(1));
        if drawn <= spike {
            let envoy = self.event_random.between(0, self.envoys.len() as u64 - 1) as usize;
            let spike = DemandChange {
                add: Some(mishaps.spike_adds),
                ..DemandChange::default()
            };
            return self.demand(vec![envoy], &spike);
        }
        let is_loss = drawn <= loss;
        let longest = mishaps.lost_for.0.as_millis() as u64;
        let lasts = Duration::from_millis(self.event_random.between(0, longest));
        let led = 0..self.coordinators.len();
        let led: Vec<_> = led
            .filter(|index| !self.coordinators[*index].is_down())
            .collect();
        if !led.is_empty() {
            let coordinator = self.event_random.pick(&led);
            let crash = Crash {
                coordinator: self.coordinator_name(coordinator),
                lasts: Span(if is_loss { lasts } else { Duration::ZERO }),
                followed: mishaps.followed,
            };
            self.crash(coordinator, &crash);
        }
    }

    fn coordinator_name(&self, index: usize) -> String {
        self.scenario.coordinators[index].name.clone()
    }

    fn mark(&mut self, text: String) {
        let elapsed = self.elapsed();
        self.recorder.mark(elapsed, text);
    }
}

// === free functions ===

fn counted(envoys: usize) -> String {
    match envoys {
        1 => "1 Envoy".to_owned(),
        count => format!("{count} Envoys"),
    }
}
