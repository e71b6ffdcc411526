//! Calls: their transport, their receivers, and the effect of the answers.

use std::time::Duration;

use tollgate_core::lease::Epoch;
use tollgate_core::lease_server::Terms;
use tollgate_core::message::{Refresh, Refreshed, Release};
use tollgate_core::units::Capacity;
use tollgate_engine::Call;
use tollgate_sim::network::Quality;

use super::{Caller, Event, World};
use crate::answers::{Answering, answer_of, asked_of};
use crate::coordinators::Reached;
use crate::network::healed;
use crate::process::OutgoingCall;
use crate::scenario::stray;
use crate::watches::Stream;

// === impl World ===

impl World {
    /// Carries the calls that a process has made, and plans when it goes on.
    pub(super) fn attend(&mut self, process: usize) {
        let p = &mut self.processes[process];
        let incarnation = p.incarnation;
        if let Some(after) = p.plan(self.event_queue.now()) {
            let wake = Event::Wake {
                process,
                incarnation,
            };
            self.event_queue.push(after, wake);
        }
        for call in self.processes[process].take_calls() {
            self.call(process, incarnation, call);
        }
        for token in self.processes[process].take_streams() {
            self.open_watch(Stream {
                process,
                incarnation,
                token,
            });
        }
    }

    fn call(&mut self, process: usize, incarnation: u64, call: OutgoingCall) {
        let OutgoingCall { id, call, timeout } = call;
        match call {
            Call::Release(release) => self.send(process, Event::Release { process, release }),
            Call::Refresh(refresh) => {
                let from = Caller {
                    process,
                    incarnation,
                    call: id,
                };
                // Sometimes the transport reports that a call failed, sometimes nothing does.
                if self.random.chance(50) {
                    self.fail(from, timeout, "time is over");
                }
                let to = None;
                self.send(process, Event::Refresh { to, from, refresh });
            }
        }
    }

    fn fail(&mut self, to: Caller, after: Duration, why: &str) {
        let answer = Err(why.to_owned());
        self.event_queue.push(after, Event::Answer { to, answer });
    }

    fn send(&mut self, process: usize, event: Event) {
        if self.processes[process].mute_until > self.event_queue.now() {
            self.reached.lost += 1;
            return;
        }
        if self.scenario.keeps_ids
            && !self.healed()
            && let Some(late) = stray(&mut self.strays)
        {
            self.event_queue.push(late, event.clone());
        }
        self.carry(event);
    }

    /// Returns the present quality of the network.
    pub(super) fn network(&self) -> Quality {
        let network = self.scenario.network;
        if self.healed() {
            healed(network)
        } else {
            network
        }
    }

    fn carry(&mut self, event: Event) {
        let network = self.network();
        let deliveries = network.deliveries(&mut self.random);
        self.reached.lost += u64::from(deliveries.is_empty());
        for delay in deliveries {
            self.event_queue.push(delay, event.clone());
        }
    }

    pub(super) fn release(&mut self, process: usize, release: &Release) {
        let member = self.sources.member_of(process);
        let shard = self.sources.shard_of(member);
        let reached = self
            .coordinators
            .reach(self.event_queue.now(), shard, None, true);
        if let Reached::Master(node, _) = reached {
            for (resource, sequence) in &release.resources {
                node.handle_release(&release.client, resource, *sequence);
            }
        }
    }

    pub(super) fn refresh(&mut self, to: Option<Epoch>, from: Caller, refresh: &Refresh) {
        let living = &self.processes[from.process];
        let of_dead = living.incarnation != from.incarnation && living.id == refresh.client.id;
        self.reached.of_dead_runs += u64::from(of_dead);
        let member = self.sources.member_of(from.process);
        let shard = self.sources.shard_of(member);
        let (now, prefers_past) = (self.event_queue.now(), self.master_choice.chance(50));
        let (node, origin) = match self.coordinators.reach(now, shard, to, prefers_past) {
            Reached::Master(node, origin) => (node, origin),
            Reached::Nobody => {
                self.reached.lost += 1;
                return;
            }
            Reached::Waits(epoch, until) => {
                self.reached.waited += 1;
                let event = Event::Refresh {
                    to: Some(epoch),
                    from,
                    refresh: refresh.clone(),
                };
                return self.event_queue.push(until.saturating_since(now), event);
            }
            Reached::NotMaster => {
                self.reached.not_master += 1;
                let answer = Err("not master".to_owned());
                return self.carry(Event::Answer { to: from, answer });
            }
        };
        let terms = self.sources.terms(member);
        let planted = self.defect.and_then(|defect| defect.limit(terms.limit));
        let mut answering = Answering {
            node,
            now,
            origin,
            resource: &self.sources.members[member].own.id,
            terms: Terms {
                limit: planted.as_ref().unwrap_or(terms.limit),
                ..terms
            },
        };
        let answer = answering.answer(refresh);
        self.note(member, refresh, &answer);
        let answer = Ok(answer);
        self.carry(Event::Answer { to: from, answer });
    }

    /// Records an answer.
    fn note(&mut self, member: usize, refresh: &Refresh, answer: &Refreshed) {
        let resource = &self.sources.members[member].own.id;
        let Some(asked) = asked_of(refresh, resource) else {
            return;
        };
        match answer_of(answer, resource) {
            Some(answer) => {
                let gets = answer.lease.map_or(Capacity::ZERO, |lease| lease.capacity);
                self.reached.answers += 1;
                self.reached.shrunk += u64::from(gets < asked.has);
                self.reached.learned += u64::from(answer.lease.is_none());
            }
            None => self.reached.stale += 1,
        }
    }

    pub(super) fn answer(&mut self, to: Caller, answer: Result<Refreshed, String>) {
        let now = self.event_queue.now();
        let p = &mut self.processes[to.process];
        let answered = answer.is_ok();
        if p.incarnation != to.incarnation || answered && p.deaf_until > now {
            self.reached.lost += u64::from(answered);
            return;
        }
        let applied = p.answer(now, to.call, answer);
        if answered {
            self.reached.dropped += u64::from(!applied);
            self.reached.without_lease += u64::from(!p.has_lease(now));
        }
        self.attend(to.process);
    }
}
