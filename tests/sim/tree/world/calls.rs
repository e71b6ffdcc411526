//! Calls in a tree: to whom they come, what is answered, and what of the answers is applied.

use std::time::Duration;

use tollgate_core::client::LeaseMessage;
use tollgate_core::lease::{Answer, ClientRun, Epoch, LeaseRequest, Origin, Run};
use tollgate_core::lease_server::Terms;
use tollgate_core::units::{Capacity, Instant};

use super::{Event, FAULTS_END, Lent, Who, World};
use crate::scenario::stray;
use crate::tree::place::Borrowed;

// === impl World ===

impl World {
    /// Carries what somebody has to say to whom it asks.
    pub(super) fn say(
        &mut self,
        who: Who,
        client: ClientRun,
        todo: LeaseMessage,
        timeout: Duration,
    ) {
        let now = self.agenda.now();
        let mute_until = match who {
            Who::Process(i, _) => self.processes[i].mute_until,
            Who::Place(i, _) => self.places[i].mute_until,
        };
        let event = match todo {
            LeaseMessage::Nothing => return,
            LeaseMessage::Release { sequence } => Event::Release {
                who,
                client,
                sequence,
            },
            LeaseMessage::Refresh(ask) => {
                // Sometimes the transport tells that a call failed, sometimes nobody does.
                if self.random.chance(50) {
                    let sequence = ask.sequence;
                    self.agenda.push(timeout, Event::Failure { who, sequence });
                }
                Event::Refresh {
                    who,
                    client,
                    sent_at: now,
                    ask,
                }
            }
        };
        if mute_until > now {
            return;
        }
        if self.scenario.keeps_ids
            && self.elapsed() <= FAULTS_END
            && let Some(late) = stray(&mut self.strays)
        {
            self.agenda.push(late, event.clone());
        }
        self.carry(event);
    }

    fn carry(&mut self, event: Event) {
        let network = self.scenario.network;
        let network = match self.elapsed() > FAULTS_END {
            true => network.healed(),
            false => network,
        };
        for delay in network.deliveries(&mut self.random) {
            self.agenda.push(delay, event.clone());
        }
    }

    /// Whom it asks.
    fn asked(&self, who: Who) -> Option<usize> {
        match who {
            Who::Process(i, _) => Some(self.at(i)),
            Who::Place(i, _) => self.places[i].seat.parent,
        }
    }

    pub(super) fn refresh(
        &mut self,
        who: Who,
        client: &ClientRun,
        sent_at: Instant,
        ask: &LeaseRequest,
    ) {
        let Some(to) = self.asked(who) else {
            return;
        };
        let (now, id) = (self.agenda.now(), &self.resource);
        let loan = self.places[to].loan(now, id);
        let place = &mut self.places[to];
        let (clock, origin, limit) = (place.clock(now), place.origin(), place.seat.limit.clone());
        let Some(node) = &mut place.node else {
            return;
        };
        let answer = node.handle_refresh(clock, client, id, ask, &Terms::of(&limit));
        let sequence = ask.sequence;
        let Ok(answer) = answer else {
            return self.carry(Event::Failure { who, sequence });
        };
        let safe = self.is_safe(who, (to, client), loan, &answer);
        self.reached.answers += 1;
        self.carry(Event::Answer {
            who,
            sent_at,
            sequence,
            origin,
            answer,
            safe,
        });
    }

    /// Whether what `to`, which is lent `loan`, has lent `client` is safe capacity.
    fn is_safe(
        &mut self,
        who: Who,
        (to, client): (usize, &ClientRun),
        loan: Option<Capacity>,
        answer: &Answer,
    ) -> bool {
        let place = &self.places[to];
        let known = self.lent.get(&(to, entry(client))).copied();
        let Some(lease) = answer.lease else {
            return false;
        };
        let until = self.agenda.now().saturating_add(lease.duration);
        // The time left of a lease was right when its client said it, which is a while ago.
        let said_at = until.saturating_sub(self.scenario.network.slowest());
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
                Who::Process(i, _) => self.safe[i],
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
        self.lent.insert((to, entry(client)), lent);
        safe
    }

    pub(super) fn release(&mut self, who: Who, client: &ClientRun, sequence: u64) {
        if let Some(to) = self.asked(who)
            && let Some(node) = &mut self.places[to].node
        {
            node.handle_release(client, &self.resource, sequence);
        }
    }

    pub(super) fn answer(
        &mut self,
        who: Who,
        sent_at: Instant,
        (sequence, origin): (u64, Origin),
        answer: &Answer,
        safe: bool,
    ) {
        let now = self.agenda.now();
        match who {
            Who::Process(i, incarnation) => {
                let p = &mut self.processes[i];
                let hears = p.incarnation == incarnation && p.deaf_until <= now;
                if hears && p.answer(now, sequence, origin, answer) {
                    self.safe[i] = safe;
                }
            }
            Who::Place(i, epoch) => {
                let place = &mut self.places[i];
                let clock = place.clock(now);
                let hears = place.epoch == epoch && place.deaf_until <= now;
                let Some(node) = place.node.as_mut().filter(|_| hears) else {
                    return;
                };
                let said = (sequence, origin, place.seat.level);
                if !node.handle_parent_answer(clock, &self.resource, said, answer) {
                    return;
                }
                let lease = answer.lease.map(|lease| Borrowed {
                    capacity: lease.capacity,
                    until: sent_at.saturating_add(lease.duration),
                    safe,
                });
                let lease = lease.filter(|lease| lease.until > now);
                self.reached.borrowed += u64::from(lease.is_some());
                place.note(lease, answer);
            }
        }
    }

    pub(super) fn fail(&mut self, who: Who, sequence: u64) {
        let now = self.agenda.now();
        match who {
            Who::Process(i, incarnation) => {
                let seed = self.random.next();
                let p = &mut self.processes[i];
                if p.incarnation == incarnation {
                    p.fail(now, sequence, seed);
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

/// The common part of all runs that share one entry of the lease table.
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
