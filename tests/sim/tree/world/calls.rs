//! Calls in a tree: their receivers, the answers, and the effect of the answers.

use std::time::Duration;

use tollgate_core::client::LeaseMessage;
use tollgate_core::lease::{Answer, ClientRun, Epoch, Origin, Run};
use tollgate_core::lease_server::Terms;
use tollgate_core::message::{Refresh, Refreshed, Release, ScopeRefresh};
use tollgate_core::units::{Capacity, Instant};
use tollgate_engine::Call;
use tollgate_sim::network::Quality;

use super::{Event, FAULTS_END, Lent, Who, World};
use crate::answers::{Answering, answer_of, asked_of};
use crate::network::healed;
use crate::process::OutgoingCall;
use crate::scenario::stray;
use crate::tree::place::Borrowed;
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
            let who = Who::Process(process, incarnation, id);
            match call {
                Call::Release(release) => self.send(who, Event::Release { to, release }),
                Call::Refresh(refresh) => self.ask(who, refresh, (timeout, 0)),
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

    /// Carries a message of the coordinator at `place` to its parent.
    pub(super) fn say(&mut self, place: usize, todo: LeaseMessage) {
        let Some(parent) = self.places[place].spec.parent else {
            return;
        };
        let who = Who::Place(place, self.places[place].epoch);
        let client = self.places[place].run();
        match todo {
            LeaseMessage::Nothing => {}
            LeaseMessage::Release { sequence } => {
                let resources = vec![(self.resource.clone(), sequence)];
                let release = Release { client, resources };
                self.send(
                    who,
                    Event::Release {
                        to: parent,
                        release,
                    },
                );
            }
            LeaseMessage::Refresh(ask) => {
                let call = (self.places[place].spec.call_timeout, ask.sequence);
                let asks = vec![(self.resource.unit, ask)];
                let scope = self.resource.scope.clone();
                let scopes = vec![ScopeRefresh { scope, asks }];
                self.ask(who, Refresh { client, scopes }, call);
            }
        }
    }

    fn ask(&mut self, who: Who, refresh: Refresh, (timeout, sequence): (Duration, u64)) {
        // Sometimes the transport reports that a call failed, sometimes nothing does.
        if self.random.chance(50) {
            self.event_queue
                .push(timeout, Event::Failure { who, sequence });
        }
        let sent_at = self.event_queue.now();
        let refresh = Event::Refresh {
            who,
            sent_at,
            refresh,
        };
        self.send(who, refresh);
    }

    fn send(&mut self, who: Who, event: Event) {
        let mute_until = match who {
            Who::Process(i, ..) => self.processes[i].mute_until,
            Who::Place(i, _) => self.places[i].mute_until,
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

    /// Returns the coordinator that `who` asks.
    fn asked(&self, who: Who) -> Option<usize> {
        match who {
            Who::Process(i, ..) => Some(self.at(i)),
            Who::Place(i, _) => self.places[i].spec.parent,
        }
    }

    pub(super) fn refresh(&mut self, who: Who, sent_at: Instant, refresh: &Refresh) {
        let Some(to) = self.asked(who) else {
            return;
        };
        let (now, id) = (self.event_queue.now(), &self.resource);
        let loan = self.places[to].loan(now, id);
        let place = &mut self.places[to];
        let (clock, origin, limit) = (place.clock(now), place.origin(), place.spec.limit.clone());
        let Some(node) = &mut place.node else {
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
                self.is_safe(who, client, loan, &answer)
            }
            None => false,
        };
        if let (Some(asked), None, Who::Place(..)) = (
            asked_of(refresh, &self.resource),
            answer_of(&answer, &self.resource),
            who,
        ) {
            let sequence = asked.sequence;
            return self.carry(Event::Failure { who, sequence });
        }
        self.carry(Event::Answer {
            who,
            sent_at,
            answer,
            safe,
        });
    }

    /// Returns whether the lease of `client` at `to`, which is lent `loan`, is safe capacity, and
    /// records it; but not if the request was kept on its way: then the client has made another one
    /// since, or has given up.
    fn is_safe(
        &mut self,
        who: Who,
        (to, client, sent_at): (usize, &ClientRun, Instant),
        loan: Option<Capacity>,
        answer: &Answer,
    ) -> bool {
        let place = &self.places[to];
        let known = self.lent.get(&(to, entry(client))).copied();
        let Some(lease) = answer.lease else {
            return false;
        };
        let until = self.event_queue.now().saturating_add(lease.duration);
        // The time left of a lease was right when its client said it, which is a while ago.
        let said_at = until.saturating_sub(self.scenario.network.delay_max);
        let again = |known: &Lent| known.until >= said_at && known.capacity >= lease.capacity;
        let lends_safe = loan.is_none() && place.safe().is_some();
        let again = |known: &Lent| again(known) && (known.safe || !lends_safe);
        let safe = match (known.filter(again), loan, place.safe()) {
            // The same lease once more, or less of it.
            (Some(known), ..) => known.safe,
            (None, Some(_), _) => place.borrowed.last().is_some_and(|last| last.safe),
            (None, None, Some(_)) => true,
            // It knows nothing, and lets its clients keep what they have.
            (None, None, None) => match who {
                Who::Process(i, ..) => self.safe[i],
                Who::Place(i, _) => self.places[i].borrowed.last().is_none_or(|last| last.safe),
            },
        };
        if safe && lease.capacity > Capacity::ZERO {
            self.reached.safe_lent += 1;
            self.reached.safe_lent_on += u64::from(loan.is_some());
            let place = &mut self.places[to];
            place.safe_until = place.safe_until.max(until);
        }
        let capacity = lease.capacity;
        let lent = Lent {
            capacity,
            until,
            safe,
        };
        let under_way = self.event_queue.now().saturating_since(sent_at);
        if under_way <= self.scenario.network.delay_max {
            self.lent.insert((to, entry(client)), lent);
        }
        safe
    }

    pub(super) fn release(&mut self, to: usize, release: &Release) {
        if let Some(node) = &mut self.places[to].node {
            for (resource, sequence) in &release.resources {
                node.handle_release(&release.client, resource, *sequence);
            }
        }
    }

    pub(super) fn answer(&mut self, who: Who, sent_at: Instant, answer: Refreshed, safe: bool) {
        let now = self.event_queue.now();
        match who {
            Who::Process(i, incarnation, call) => {
                let p = &mut self.processes[i];
                if p.incarnation != incarnation || p.deaf_until > now {
                    return;
                }
                if p.answer(now, call, Ok(answer)) {
                    self.safe[i] = safe;
                }
                self.attend(i);
            }
            Who::Place(i, epoch) => {
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
                    self.answer_place(i, epoch, sent_at, answered);
                }
            }
        }
    }

    fn answer_place(&mut self, i: usize, epoch: Epoch, sent_at: Instant, answered: Answered) {
        let now = self.event_queue.now();
        let place = &mut self.places[i];
        let clock = place.clock(now);
        let hears = place.epoch == epoch && place.deaf_until <= now;
        let Some(node) = place.node.as_mut().filter(|_| hears) else {
            return;
        };
        let Answered {
            sequence,
            origin,
            answer,
            safe,
        } = answered;
        let said = (sequence, origin, place.spec.level);
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
        place.note(lease, &answer);
    }

    pub(super) fn fail(&mut self, who: Who, sequence: u64) {
        let now = self.event_queue.now();
        match who {
            Who::Process(i, incarnation, call) => {
                let p = &mut self.processes[i];
                if p.incarnation == incarnation {
                    p.answer(now, call, Err("time is over".to_owned()));
                    self.attend(i);
                }
            }
            Who::Place(i, epoch) => {
                let place = &mut self.places[i];
                let clock = place.clock(now);
                if place.epoch == epoch
                    && let Some(node) = &mut place.node
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
