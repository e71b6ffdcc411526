//! Calls: their way through the network, their receivers, and the effect of the answers.

use std::time::Duration;

use tollgate_core::lease::{Epoch, ResourceId};
use tollgate_core::message::{Refresh, Refreshed, ScopeAnswer};
use tollgate_core::units::{Capacity, Instant};
use tollgate_engine::Call;

use super::Simulation;
use super::event::{Body, CalledRefresh, Caller, Event, FailedCall, Message};
use super::exchanges::{AnsweredCall, Exchange};
use super::reached::Case;
use crate::coordinator::{Receiver, WorkerCall};
use crate::defect::Defect;
use crate::process::{Outcomes, Task};
use crate::random::Chance;
use crate::topology::Node;

// === impl Simulation ===

impl Simulation {
    /// Carries the calls that a process has made, opens its streams, and plans when it goes on.
    pub(super) fn attend(&mut self, index: usize) {
        self.touch(index);
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
                    let caller = Caller::Envoy(WorkerCall {
                        envoy: index,
                        incarnation,
                        worker: call.worker,
                        token: call.token,
                    });
                    if self.is_reported() {
                        self.fail(caller, (to, from), now.saturating_add(call.timeout));
                    }
                    self.recorder.counts.refreshes += 1;
                    Body::Refresh(CalledRefresh::new(now, caller, refresh))
                }
            };
            self.send(Message { from, to, body });
        }
        for opened in opened {
            self.open_watch(index, opened);
        }
    }

    /// Returns whether the transport will report that a call has failed, if it does.
    fn is_reported(&mut self) -> bool {
        let unreported = self.scenario.network.unreported.0;
        unreported == 0.0 || !self.faults.happens(Chance::share(unreported))
    }

    /// Plans that a call fails, unless its answer comes before.
    fn fail(&mut self, caller: Caller, (from, to): (Node, Node), at: Instant) {
        let answer = Err("deadline exceeded".to_owned());
        let body = Body::Answer {
            caller,
            answer,
            call: None,
        };
        let message = Box::new(Message { from, to, body });
        self.queue.push_at(at, Event::Message(message));
    }

    /// Sends a message; it may be lost.
    pub(super) fn send(&mut self, message: Message) {
        let now = self.now();
        self.note_message(&message);
        let ends = (message.from, message.to);
        self.copy_late(&message);
        let delays = self.topology.deliveries(now, ends, &mut self.network);
        self.recorder.count_message(delays.is_empty());
        if delays.is_empty() {
            self.reached.count(Case::Lost);
        }
        if let [delay, delay_of_copy] = delays[..] {
            let copy = Box::new(message.clone());
            self.queue.push(delay_of_copy, Event::Message(copy));
            self.queue.push(delay, Event::Message(Box::new(message)));
        } else if let [delay] = delays[..] {
            self.queue.push(delay, Event::Message(Box::new(message)));
        }
    }

    /// Lets a request come once more much later, as one that something on its way has kept.
    fn copy_late(&mut self, message: &Message) {
        let late_copies = self.scenario.network.late_copies.0;
        let (now, from, to) = (self.now(), message.from, message.to);
        let is_request = matches!(message.body, Body::Refresh(_) | Body::Release(_));
        if late_copies == 0.0 || !is_request || self.topology.is_calm(now) {
            return;
        }
        let late = Duration::from_millis(self.faults.between(50, 3000));
        if self.faults.happens(Chance::share(late_copies)) && !self.topology.is_cut(now, from, to) {
            let copy = Box::new(message.clone());
            self.queue.push(late, Event::Message(copy));
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
            (Body::Refresh(called), Node::Coordinator(index)) => self.refresh(index, from, called),
            (Body::Release(release), Node::Coordinator(index)) => {
                let (now, receiver) = (self.now(), self.receiver(None, true));
                let release = (&release, receiver);
                self.reached.count(Case::Released);
                self.coordinators[index].release(now, release, &self.limits);
                self.attend_coordinator(index);
            }
            (Body::Failure(failed), Node::Coordinator(index)) => {
                let FailedCall {
                    shard,
                    epoch,
                    requests,
                } = failed;
                let now = self.now();
                self.coordinators[index].parent_failed(now, (shard, epoch), &requests);
                self.attend_coordinator(index);
            }
            (
                Body::Answer {
                    caller,
                    answer,
                    call,
                },
                _,
            ) => self.answer(caller, answer, call),
            (Body::Watch { watcher, client }, Node::Coordinator(index)) => {
                self.watch(index, watcher, client);
            }
            (Body::WatchEnd(watcher), _) => self.end_watch(watcher),
            (Body::Nudge { watcher, resource }, _) => self.nudge(watcher, resource),
            (
                Body::Refresh(_) | Body::Release(_) | Body::Failure(_) | Body::Watch { .. },
                Node::Envoy(_),
            ) => {}
        }
    }

    /// Hands a coordinator a request, which may wait in the socket of a master that stands still.
    fn refresh(&mut self, index: usize, from: Node, called: CalledRefresh) {
        let CalledRefresh {
            caller,
            refresh,
            sent_at,
            waited_for,
        } = called;
        let prefers_past = self.coordinators[index].has_past() && self.faults.chance(50);
        let (now, receiver) = (self.now(), self.receiver(waited_for, prefers_past));
        let coordinator = &mut self.coordinators[index];
        let to = Node::Coordinator(index);
        if let Some((epoch, until)) = coordinator.waits(now, &refresh, receiver, &self.limits) {
            let body = Body::Refresh(CalledRefresh {
                waited_for: Some(epoch),
                ..CalledRefresh::new(sent_at, caller, refresh)
            });
            let message = Box::new(Message { from, to, body });
            self.reached.count(Case::WaitedInSocket);
            return self.queue.push_at(until, Event::Message(message));
        }
        if let Caller::Envoy(call) = caller {
            let envoy = &self.envoys[call.envoy];
            let is_dead = envoy.process.is_some() && envoy.incarnation != call.incarnation;
            if is_dead && self.scenario.envoys[envoy.kind].keeps_id {
                self.reached.count(Case::OfDeadRun);
            }
        }
        let answer = if coordinator.is_down() {
            Err("connection refused".to_owned())
        } else {
            Ok(coordinator.refresh(now, (&refresh, receiver), &self.limits))
        };
        self.note_answer(&refresh, &answer);
        self.attend_coordinator(index);
        let call = self.number_answer((index, from), (refresh, sent_at), &answer);
        let body = Body::Answer {
            caller,
            answer,
            call,
        };
        let (from, to) = (to, from);
        self.send(Message { from, to, body });
    }

    fn receiver(&self, waited_for: Option<Epoch>, prefers_past: bool) -> Receiver {
        Receiver {
            waited_for,
            prefers_past,
            terms: !self.has_defect(Defect::WithoutTerms),
        }
    }

    fn answer(
        &mut self,
        caller: Caller,
        answer: Result<Refreshed, String>,
        call: Option<AnsweredCall>,
    ) {
        let now = self.now();
        match caller {
            Caller::Envoy(to) => {
                let lends = answer.as_ref().is_ok_and(lends);
                let task = Task::Answer(to.worker, to.token, answer);
                if !self.hand(to, task) {
                    return;
                }
                let process = self.envoys[to.envoy].process.as_mut();
                if let Some(process) = process.filter(|process| lends && !process.was_leased) {
                    process.was_leased = true;
                    let asked = process.first_request.unwrap_or(now);
                    self.recorder.note_first_lease(now.saturating_since(asked));
                }
                if let Some(AnsweredCall { number, .. }) = call {
                    self.note_exchange(|| Exchange::Delivered {
                        answer: number,
                        envoy: to.envoy,
                    });
                }
            }
            Caller::Coordinator {
                coordinator: index,
                shard,
                epoch,
            } => {
                if let Ok(answer) = &answer {
                    let coordinator = &mut self.coordinators[index];
                    let counted = coordinator.parent_answered(now, (shard, epoch), answer);
                    for (resource, content) in counted {
                        self.note_borrowed(index, resource, content, call);
                    }
                }
                self.attend_coordinator(index);
            }
        }
    }

    /// Hands a worker what has come for it. Returns whether its process lives.
    pub(super) fn hand(&mut self, to: WorkerCall, task: Task) -> bool {
        let (now, at) = (self.now(), self.elapsed());
        let envoy = &mut self.envoys[to.envoy];
        let process = envoy.process.as_mut();
        let Some(process) = process.filter(|_| envoy.incarnation == to.incarnation) else {
            return false;
        };
        let mut outcomes = Outcomes {
            tally: &mut self.tally,
            observer: &mut self.observer,
            at,
            envoy: to.envoy as u32,
        };
        process.hand(now, task, &mut outcomes);
        self.attend(to.envoy);
        true
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
        if let Some(refresh) = &call.refresh
            && self.scenario.network.unreported.0 > 0.0
            && self.is_reported()
        {
            self.fail_parent_call((index, shard, epoch), (to, from), refresh);
        }
        let refresh = call.refresh;
        let refresh = refresh.map(|refresh| CalledRefresh::new(now, caller, refresh));
        let refresh = refresh.map(Body::Refresh);
        let release = call.release.map(Body::Release);
        for body in refresh.into_iter().chain(release) {
            self.send(Message { from, to, body });
        }
    }

    /// Plans that a call to the parent fails. The lease server notices by itself when its time is over.
    fn fail_parent_call(
        &mut self,
        (index, shard, epoch): (usize, usize, Epoch),
        (from, to): (Node, Node),
        refresh: &Refresh,
    ) {
        let after = self.coordinators[index].call_timeout;
        let scopes = refresh.scopes.iter();
        let requests = scopes.flat_map(|asked| {
            let scope = &asked.scope;
            asked.asks.iter().map(|(unit, request)| {
                let (scope, unit) = (scope.clone(), *unit);
                (ResourceId { scope, unit }, request.sequence)
            })
        });
        let body = Body::Failure(FailedCall {
            shard,
            epoch,
            requests: requests.collect(),
        });
        let message = Box::new(Message { from, to, body });
        self.queue.push(after, Event::Message(message));
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
