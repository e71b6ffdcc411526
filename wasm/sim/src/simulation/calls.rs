//! Calls: their way through the network, their receivers, and the effect of the answers.

use tollgate_core::message::{Refreshed, ScopeAnswer};
use tollgate_core::units::{Capacity, Instant};
use tollgate_engine::Call;

use super::Simulation;
use super::event::{Body, Caller, Event, Message};
use crate::process::Outcomes;
use crate::topology::Node;

// === impl Simulation ===

impl Simulation {
    /// Carries the calls that a process has made, opens its streams, and plans when it goes on.
    pub(super) fn attend(&mut self, index: usize) {
        self.take_retries();
        let (now, elapsed) = (self.now(), self.elapsed());
        let envoy = &mut self.envoys[index];
        let (incarnation, to) = (envoy.incarnation, Node::Coordinator(envoy.coordinator));
        let Some(process) = &mut envoy.process else {
            return;
        };
        if let Some(at) = process.plan(now, elapsed) {
            let envoy = index as u32;
            self.queue.push_at(at, Event::Wake { envoy, incarnation });
        }
        let (calls, opened) = (process.take_calls(), process.take_opened());
        let from = Node::Envoy(index);
        for call in calls {
            let body = match call.call {
                Call::Release(release) => Body::Release(release),
                Call::Refresh(refresh) => {
                    let caller = Caller::Envoy {
                        envoy: index,
                        incarnation,
                        worker: call.worker,
                        token: call.token,
                    };
                    self.fail(caller, (to, from), now.saturating_add(call.timeout));
                    self.recorder.count_refresh();
                    Body::Refresh { caller, refresh }
                }
            };
            self.send(Message { from, to, body });
        }
        for opened in opened {
            self.open_watch(index, opened);
        }
    }

    /// Plans that a call fails, unless its answer comes before.
    fn fail(&mut self, caller: Caller, (from, to): (Node, Node), at: Instant) {
        let answer = Err("deadline exceeded".to_owned());
        let body = Body::Answer { caller, answer };
        let message = Box::new(Message { from, to, body });
        self.queue.push_at(at, Event::Message(message));
    }

    /// Sends a message; it may be lost.
    pub(super) fn send(&mut self, message: Message) {
        let now = self.now();
        self.note_traffic(&message);
        let ends = (message.from, message.to);
        let delays = self.topology.deliveries(now, ends, &mut self.network);
        self.recorder.count_message(delays.is_empty());
        if let [delay, delay_of_copy] = delays[..] {
            let copy = Box::new(message.clone());
            self.queue.push(delay_of_copy, Event::Message(copy));
            self.queue.push(delay, Event::Message(Box::new(message)));
        } else if let [delay] = delays[..] {
            self.queue.push(delay, Event::Message(Box::new(message)));
        }
    }

    /// Hands a message to its receiver; one that stands still takes it later.
    pub(super) fn deliver(&mut self, message: Message) {
        let stopped_until = match message.to {
            Node::Envoy(index) => {
                let process = self.envoys[index].process.as_ref();
                process.map_or_else(|| self.now(), |process| process.stopped_until)
            }
            Node::Coordinator(index) => self.coordinators[index].stopped_until,
        };
        if stopped_until > self.now() {
            let message = Box::new(message);
            return self.queue.push_at(stopped_until, Event::Message(message));
        }
        let Message { from, to, body } = message;
        match (body, to) {
            (Body::Refresh { caller, refresh }, Node::Coordinator(index)) => {
                let now = self.now();
                let coordinator = &mut self.coordinators[index];
                let answer = match coordinator.is_down() {
                    true => Err("connection refused".to_owned()),
                    false => Ok(coordinator.refresh(now, &refresh, &mut self.limits)),
                };
                self.attend_coordinator(index);
                let body = Body::Answer { caller, answer };
                let (from, to) = (to, from);
                self.send(Message { from, to, body });
            }
            (Body::Release(release), Node::Coordinator(index)) => {
                self.coordinators[index].release(&release, &mut self.limits);
                self.attend_coordinator(index);
            }
            (Body::Answer { caller, answer }, _) => self.answer(caller, answer),
            (Body::Watch { watcher, client }, Node::Coordinator(index)) => {
                self.watch(index, watcher, client);
            }
            (Body::WatchEnd(watcher), _) => self.end_watch(watcher),
            (Body::Nudge { watcher, resource }, _) => self.nudge(watcher, resource),
            (Body::Refresh { .. } | Body::Release(_) | Body::Watch { .. }, Node::Envoy(_)) => {}
        }
    }

    fn answer(&mut self, caller: Caller, answer: Result<Refreshed, String>) {
        let (now, at) = (self.now(), self.elapsed());
        match caller {
            Caller::Envoy {
                envoy: index,
                incarnation,
                worker,
                token,
            } => {
                let envoy = &mut self.envoys[index];
                let Some(process) = &mut envoy.process else {
                    return;
                };
                if envoy.incarnation != incarnation {
                    return;
                }
                if !process.was_leased && answer.as_ref().is_ok_and(lends) {
                    process.was_leased = true;
                    let asked = process.first_request.unwrap_or(now);
                    let waited = now.saturating_since(asked);
                    self.recorder.note_first_lease(waited);
                }
                let mut outcomes = Outcomes {
                    tally: &mut self.tally,
                    observer: &mut self.observer,
                    scopes: &self.scopes,
                    at,
                    envoy: index as u32,
                };
                process.answer(now, (worker, token), answer, &mut outcomes);
                self.attend(index);
            }
            Caller::Coordinator {
                coordinator: index,
                shard,
                epoch,
            } => {
                if let Ok(answer) = &answer {
                    let coordinator = &mut self.coordinators[index];
                    coordinator.parent_answered(now, (shard, epoch), answer);
                }
                self.attend_coordinator(index);
            }
        }
    }

    /// Lets a shard of a coordinator do what is due.
    pub(super) fn work(&mut self, index: usize, shard: usize) {
        let now = self.now();
        let coordinator = &mut self.coordinators[index];
        let master = &mut coordinator.shards[shard];
        if master.planned.is_none_or(|at| now < at) {
            return;
        }
        master.planned = None;
        if coordinator.stopped_until <= now {
            self.call_parent(index, shard);
        }
        self.attend_coordinator(index);
    }

    fn call_parent(&mut self, index: usize, shard: usize) {
        let now = self.now();
        let coordinator = &mut self.coordinators[index];
        let epoch = coordinator.shards[shard].epoch;
        let call = coordinator.work(now, shard);
        let (Some(call), Some(parent)) = (call, coordinator.parent) else {
            return;
        };
        let (from, to) = (Node::Coordinator(index), Node::Coordinator(parent));
        let caller = Caller::Coordinator {
            coordinator: index,
            shard,
            epoch,
        };
        let refresh = call
            .refresh
            .map(|refresh| Body::Refresh { caller, refresh });
        let release = call.release.map(Body::Release);
        for body in refresh.into_iter().chain(release) {
            self.send(Message { from, to, body });
        }
    }

    /// Carries what the masters of a coordinator have named, and plans when its shards go on.
    pub(super) fn attend_coordinator(&mut self, index: usize) {
        self.carry_nudges(index);
        let now = self.now();
        for shard in 0..self.coordinators[index].shards.len() {
            if let Some(at) = self.coordinators[index].plan(now, shard) {
                let event = Event::Coordinator {
                    coordinator: index as u32,
                    shard: shard as u16,
                };
                self.queue.push_at(at, event);
            }
        }
    }
}

// === free functions ===

/// Returns whether an answer lends anything.
fn lends(answer: &Refreshed) -> bool {
    let lends = |scope: &ScopeAnswer| {
        let mut units = scope.outcome.iter().flatten();
        units.any(|unit| {
            let lease = unit.answer.lease;
            lease.is_some_and(|lease| lease.capacity > Capacity::ZERO)
        })
    };
    answer.scopes.iter().flatten().any(lends)
}
