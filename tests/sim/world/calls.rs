//! Calls: how they are carried, to whom they come, and what of the answers is applied.

use tollgate_core::lease::{Answer, ClientRun, Epoch, LeaseRequest, Origin};
use tollgate_core::units::Capacity;

use super::{Event, World};
use crate::coordinators::Reached;
use crate::scenario::stray;

// === impl World ===

impl World {
    pub(super) fn send(&mut self, process: usize, event: Event) {
        if self.processes[process].mute_until > self.agenda.now() {
            self.reached.lost += 1;
            return;
        }
        if self.scenario.keeps_ids
            && !self.healed()
            && let Some(late) = stray(&mut self.strays)
        {
            self.agenda.push(late, event.clone());
        }
        self.carry(event);
    }

    fn carry(&mut self, event: Event) {
        let network = self.scenario.network;
        let network = if self.healed() {
            network.healed()
        } else {
            network
        };
        let deliveries = network.deliveries(&mut self.random);
        self.reached.lost += u64::from(deliveries.is_empty());
        for delay in deliveries {
            self.agenda.push(delay, event.clone());
        }
    }

    pub(super) fn release(&mut self, process: usize, client: &ClientRun, sequence: u64) {
        let member = self.sources.member_of(process);
        let shard = self.sources.shard_of(member);
        let reached = self
            .coordinators
            .reach(self.agenda.now(), shard, None, true);
        if let Reached::Master(node, _) = reached {
            let resource = &self.sources.members[member].own.id;
            node.handle_release(client, resource, sequence);
        }
    }

    pub(super) fn request(
        &mut self,
        to: Option<Epoch>,
        process: usize,
        incarnation: u64,
        client: &ClientRun,
        ask: &LeaseRequest,
    ) {
        let LeaseRequest { sequence, has, .. } = *ask;
        let living = &self.processes[process];
        let of_dead = living.incarnation != incarnation && living.id == client.id;
        self.reached.of_dead_runs += u64::from(of_dead);
        let member = self.sources.member_of(process);
        let shard = self.sources.shard_of(member);
        let luck = self.luck.chance(50);
        let (node, origin) = match self.coordinators.reach(self.agenda.now(), shard, to, luck) {
            Reached::Master(node, origin) => (node, origin),
            Reached::Nobody => {
                self.reached.lost += 1;
                return;
            }
            Reached::Waits(epoch, until) => {
                self.reached.waited += 1;
                let event = Event::Request {
                    to: Some(epoch),
                    process,
                    incarnation,
                    client: client.clone(),
                    ask: ask.clone(),
                };
                return self
                    .agenda
                    .push(until.saturating_since(self.agenda.now()), event);
            }
            Reached::NotMaster => {
                self.reached.not_master += 1;
                return self.carry(Event::Failure {
                    process,
                    incarnation,
                    sequence,
                });
            }
        };
        let (resource, terms) = (
            &self.sources.members[member].own.id,
            self.sources.terms(member),
        );
        match node.handle_refresh(self.agenda.now(), client, resource, ask, &terms) {
            Ok(answer) => {
                let gets = answer.lease.map_or(Capacity::ZERO, |lease| lease.capacity);
                self.reached.answers += 1;
                self.reached.shrunk += u64::from(gets < has);
                self.reached.learned += u64::from(answer.lease.is_none());
                self.carry(Event::Answer {
                    process,
                    incarnation,
                    sequence,
                    origin,
                    answer,
                });
            }
            Err(_) => {
                self.reached.stale += 1;
                self.carry(Event::Failure {
                    process,
                    incarnation,
                    sequence,
                });
            }
        }
    }

    pub(super) fn answer(
        &mut self,
        process: usize,
        incarnation: u64,
        sequence: u64,
        origin: Origin,
        answer: &Answer,
    ) {
        let now = self.agenda.now();
        let p = &mut self.processes[process];
        if p.incarnation != incarnation || p.deaf_until > now {
            self.reached.lost += 1;
            return;
        }
        let applied = p.answer(now, sequence, origin, answer);
        self.reached.dropped += u64::from(!applied);
        self.reached.without_lease += u64::from(!p.has_lease(now));
    }
}
