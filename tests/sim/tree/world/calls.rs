//! Calls in a tree: their receivers, the answers, and the effect of the answers.

use std::time::Duration;

use tollgate_core::client::LeaseMessage;
use tollgate_core::lease::{Answer, ClientRun, Epoch, Origin, Run};
use tollgate_core::lease_server::Terms;
use tollgate_core::message::{Refresh, Refreshed, Release, ScopeRefresh};
use tollgate_core::units::{Capacity, Instant};
use tollgate_engine::Call;
use tollgate_sim::network::Quality;

use super::{Event, FAULTS_END, LastLease, RequestSender, World};
use crate::answers::{Answering, answer_of, asked_of};
use crate::network::healed;
use crate::process::OutgoingCall;
use crate::scenario::stray;
use crate::tree::coordinator::Borrowed;
use crate::watches::Stream;

/// Answer to a coordinator's request.
struct Answered {
    sequence: u64,
    origin: Origin,
    answer: Answer,
    safe: bool,
}

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
        let to = self.at(process);
        for OutgoingCall { id, call, timeout } in self.processes[process].take_calls() {
            let sender = RequestSender::Process(process, incarnation, id);
            match call {
                Call::Release(release) => self.send(sender, Event::Release { to, release }),
                Call::Refresh(refresh) => self.ask(sender, refresh, (timeout, 0)),
            }
        }
        for token in self.processes[process].take_streams() {
            self.open_watch(Stream {
                process,
                incarnation,
                token,
            });
        }
    }

    /// Carries a message of the coordinator `coordinator` to its parent.
    pub(super) fn send_to_parent(&mut self, coordinator: usize, todo: LeaseMessage) {
        let Some(parent) = self.coordinators[coordinator].spec.parent else {
            return;
        };
        let sender = RequestSender::Coordinator(coordinator, self.coordinators[coordinator].epoch);
        let client = self.coordinators[coordinator].run();
        match todo {
            LeaseMessage::Nothing => {}
            LeaseMessage::Release { sequence } => {
                let resources = vec![(self.resource.clone(), sequence)];
                let release = Release { client, resources };
                self.send(
                    sender,
                    Event::Release {
                        to: parent,
                        release,
                    },
                );
            }
            LeaseMessage::Refresh(ask) => {
                let call = (
                    self.coordinators[coordinator].spec.call_timeout,
                    ask.sequence,
                );
                let asks = vec![(self.resource.unit, ask)];
                let scope = self.resource.scope.clone();
                let scopes = vec![ScopeRefresh { scope, asks }];
                self.ask(sender, Refresh { client, scopes }, call);
            }
        }
    }

    fn ask(
        &mut self,
        sender: RequestSender,
        refresh: Refresh,
        (timeout, sequence): (Duration, u64),
    ) {
        // Sometimes the transport reports that a call failed, sometimes nothing does.
        if self.random.chance(50) {
            self.event_queue
                .push(timeout, Event::Failure { sender, sequence });
        }
        let sent_at = self.event_queue.now();
        let refresh = Event::Refresh {
            sender,
            sent_at,
            refresh,
        };
        self.send(sender, refresh);
    }

    fn send(&mut self, sender: RequestSender, event: Event) {
        let mute_until = match sender {
            RequestSender::Process(i, ..) => self.processes[i].mute_until,
            RequestSender::Coordinator(i, _) => self.coordinators[i].mute_until,
        };
        if mute_until > self.event_queue.now() {
            return;
        }
        if self.scenario.keeps_ids
            && self.elapsed() <= FAULTS_END
            && let Some(late) = stray(&mut self.strays)
        {
            self.event_queue.push(late, event.clone());
        }
        self.carry(event);
    }

    /// Returns the present quality of the network.
    pub(super) fn network(&self) -> Quality {
        let network = self.scenario.network;
        match self.elapsed() > FAULTS_END {
            true => healed(network),
            false => network,
        }
    }

    fn carry(&mut self, event: Event) {
        for delay in self.network().deliveries(&mut self.random) {
            self.event_queue.push(delay, event.clone());
        }
    }

    /// Returns the coordinator that `sender` asks.
    fn asked(&self, sender: RequestSender) -> Option<usize> {
        match sender {
            RequestSender::Process(i, ..) => Some(self.at(i)),
            RequestSender::Coordinator(i, _) => self.coordinators[i].spec.parent,
        }
    }

    pub(super) fn refresh(&mut self, sender: RequestSender, sent_at: Instant, refresh: &Refresh) {
        let Some(to) = self.asked(sender) else {
            return;
        };
        let (now, id) = (self.event_queue.now(), &self.resource);
        let borrowed = self.coordinators[to].borrowed_capacity(now, id);
        let coordinator = &mut self.coordinators[to];
        let (clock, origin, limit) = (
            coordinator.clock(now),
            coordinator.origin(),
            coordinator.spec.limit.clone(),
        );
        let Some(node) = &mut coordinator.node else {
            return;
        };
        let mut answering = Answering {
            node,
            now: clock,
            origin,
            resource: id,
            terms: Terms::of(&limit),
        };
        let answer = answering.answer(refresh);
        let safe = match answer_of(&answer, id).copied() {
            Some(answer) => {
                self.reached.answers += 1;
                let client = (to, &refresh.client, sent_at);
                self.is_safe(sender, client, borrowed, &answer)
            }
            None => false,
        };
        if let (Some(asked), None, RequestSender::Coordinator(..)) = (
            asked_of(refresh, &self.resource),
            answer_of(&answer, &self.resource),
            sender,
        ) {
            let sequence = asked.sequence;
            return self.carry(Event::Failure { sender, sequence });
        }
        self.carry(Event::Answer {
            sender,
            sent_at,
            answer,
            safe,
        });
    }

    /// Returns whether the lease of `client` at `to`, which is lent `borrowed`, is safe capacity, and
    /// records it; but not if the request was kept on its way: then the client has made another one
    /// since, or has given up.
    fn is_safe(
        &mut self,
        sender: RequestSender,
        (to, client, sent_at): (usize, &ClientRun, Instant),
        borrowed: Option<Capacity>,
        answer: &Answer,
    ) -> bool {
        let coordinator = &self.coordinators[to];
        let known = self.last_leases.get(&(to, entry(client))).copied();
        let Some(lease) = answer.lease else {
            return false;
        };
        let until = self.event_queue.now().saturating_add(lease.duration);
        // The time left of a lease was right when its client said it, which is a while ago.
        let said_at = until.saturating_sub(self.scenario.network.delay_max);
        let again = |known: &LastLease| known.until >= said_at && known.capacity >= lease.capacity;
        let lends_safe = borrowed.is_none() && coordinator.safe().is_some();
        let again = |known: &LastLease| again(known) && (known.safe || !lends_safe);
        let safe = match (known.filter(again), borrowed, coordinator.safe()) {
            // The same lease once more, or less of it.
            (Some(known), ..) => known.safe,
            (None, Some(_), _) => coordinator.borrowed.last().is_some_and(|last| last.safe),
            (None, None, Some(_)) => true,
            // It knows nothing, and lets its clients keep what they have.
            (None, None, None) => match sender {
                RequestSender::Process(i, ..) => self.safe[i],
                RequestSender::Coordinator(i, _) => self.coordinators[i]
                    .borrowed
                    .last()
                    .is_none_or(|last| last.safe),
            },
        };
        if safe && lease.capacity > Capacity::ZERO {
            self.reached.safe_lent += 1;
            self.reached.safe_lent_on += u64::from(borrowed.is_some());
            let coordinator = &mut self.coordinators[to];
            coordinator.safe_until = coordinator.safe_until.max(until);
        }
        let capacity = lease.capacity;
        let last = LastLease {
            capacity,
            until,
            safe,
        };
        let under_way = self.event_queue.now().saturating_since(sent_at);
        if under_way <= self.scenario.network.delay_max {
            self.last_leases.insert((to, entry(client)), last);
        }
        safe
    }

    pub(super) fn release(&mut self, to: usize, release: &Release) {
        if let Some(node) = &mut self.coordinators[to].node {
            for (resource, sequence) in &release.resources {
                node.handle_release(&release.client, resource, *sequence);
            }
        }
    }

    pub(super) fn answer(
        &mut self,
        sender: RequestSender,
        sent_at: Instant,
        answer: Refreshed,
        safe: bool,
    ) {
        let now = self.event_queue.now();
        match sender {
            RequestSender::Process(i, incarnation, call) => {
                let p = &mut self.processes[i];
                if p.incarnation != incarnation || p.deaf_until > now {
                    return;
                }
                if p.answer(now, call, Ok(answer)) {
                    self.safe[i] = safe;
                }
                self.attend(i);
            }
            RequestSender::Coordinator(i, epoch) => {
                let scopes = answer.scopes.iter().flatten();
                let answered = scopes.filter_map(|scope| {
                    let found = scope.outcome.as_ref().ok()?.first()?;
                    Some(Answered {
                        sequence: found.sequence,
                        origin: scope.origin,
                        answer: found.answer,
                        safe,
                    })
                });
                for answered in answered {
                    self.answer_coordinator(i, epoch, sent_at, answered);
                }
            }
        }
    }

    fn answer_coordinator(&mut self, i: usize, epoch: Epoch, sent_at: Instant, answered: Answered) {
        let now = self.event_queue.now();
        let coordinator = &mut self.coordinators[i];
        let clock = coordinator.clock(now);
        let hears = coordinator.epoch == epoch && coordinator.deaf_until <= now;
        let Some(node) = coordinator.node.as_mut().filter(|_| hears) else {
            return;
        };
        let Answered {
            sequence,
            origin,
            answer,
            safe,
        } = answered;
        let said = (sequence, origin, coordinator.spec.level);
        if node.handle_parent_answer(clock, &self.resource, said, &answer) != Ok(true) {
            return;
        }
        let lease = answer.lease.map(|lease| Borrowed {
            capacity: lease.capacity,
            until: sent_at.saturating_add(lease.duration),
            safe,
        });
        let lease = lease.filter(|lease| lease.until > now);
        self.reached.borrowed += u64::from(lease.is_some());
        coordinator.note(lease, &answer);
    }

    pub(super) fn fail(&mut self, sender: RequestSender, sequence: u64) {
        let now = self.event_queue.now();
        match sender {
            RequestSender::Process(i, incarnation, call) => {
                let p = &mut self.processes[i];
                if p.incarnation == incarnation {
                    p.answer(now, call, Err("time is over".to_owned()));
                    self.attend(i);
                }
            }
            RequestSender::Coordinator(i, epoch) => {
                let coordinator = &mut self.coordinators[i];
                let clock = coordinator.clock(now);
                if coordinator.epoch == epoch
                    && let Some(node) = &mut coordinator.node
                {
                    node.handle_parent_failure(clock, &self.resource, sequence);
                }
            }
        }
    }
}

// === free functions ===

/// Returns the common part of all runs that share one entry of the lease table.
fn entry(client: &ClientRun) -> ClientRun {
    let run = match client.run {
        Run::Term(_) => Run::Term(Epoch(0)),
        run => run,
    };
    ClientRun {
        id: client.id.clone(),
        run,
    }
}
