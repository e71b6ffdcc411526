//! Nudges in a tree: to processes, on streams, and to the coordinators below another.

use tollgate_core::lease_server::Nudge;

use super::{Event, World};
use crate::watches::{NOT_OPENED, Stream};

// === impl World ===

impl World {
    /// Carries the opening of a stream to the coordinator of its process.
    pub(super) fn open_watch(&mut self, stream: Stream) {
        let (network, at) = (self.network(), self.at(stream.process));
        let is_mute = self.processes[stream.process].mute_until > self.event_queue.now();
        match self.watches.get_mut(at).filter(|_| !is_mute) {
            Some(watches) => {
                let delay = watches.delay(network);
                self.event_queue.push(delay, Event::Watch(stream));
            }
            None => self.event_queue.push(NOT_OPENED, Event::WatchEnd(stream)),
        }
    }

    /// Opens a stream, if its coordinator is there.
    pub(super) fn watch(&mut self, stream: Stream) {
        let process = &self.processes[stream.process];
        if !process.watches(&stream) {
            return;
        }
        let (at, id) = (self.at(stream.process), process.id.clone());
        match self.coordinators[at].node {
            Some(_) => self.watches[at].open(id, stream),
            None => self.event_queue.push(NOT_OPENED, Event::WatchEnd(stream)),
        }
    }

    /// Ends each stream of a coordinator with a chance of so many percent.
    pub(super) fn end_watches(&mut self, coordinator: usize, percent: u64) {
        let network = self.network();
        let watches = self.watches.get_mut(coordinator);
        let ended = watches.map(|watches| watches.end(percent, network));
        for (delay, stream) in ended.into_iter().flatten() {
            self.event_queue.push(delay, Event::WatchEnd(stream));
        }
    }

    /// Tells a process that its stream has ended.
    pub(super) fn end_watch(&mut self, stream: Stream) {
        let now = self.event_queue.now();
        if self.processes[stream.process].end_watch(now, stream) {
            self.reached.watches_ended += 1;
            self.attend(stream.process);
        }
    }

    /// Carries what the coordinators have named.
    pub(super) fn carry_nudges(&mut self) {
        for at in 0..self.watches.len() {
            let node = self.coordinators[at].node.as_mut();
            let nudges = node.map(|node| std::iter::from_fn(|| node.poll_nudge()).collect());
            let nudges: Vec<Nudge> = nudges.unwrap_or_default();
            for nudge in nudges {
                self.carry_nudge(at, &nudge);
            }
        }
    }

    fn carry_nudge(&mut self, at: usize, nudge: &Nudge) {
        let network = self.network();
        let watches = &mut self.watches[at];
        let lives = |stream: &Stream| self.processes[stream.process].watches(stream);
        let streams = watches.of(&nudge.client, lives);
        let mut events: Vec<Event> = streams.into_iter().map(Event::Nudge).collect();
        let below = self
            .coordinators
            .iter()
            .position(|coordinator| coordinator.id == nudge.client);
        events.extend(below.map(Event::NudgeCoordinator));
        for event in events {
            for delay in network.deliveries(&mut self.watches[at].random) {
                self.event_queue.push(delay, event.clone());
            }
        }
    }

    /// Hands a nudge to the process that it is for.
    pub(super) fn nudge(&mut self, to: Stream) {
        let now = self.event_queue.now();
        if self.processes[to.process].nudge(now, to, &self.resource) {
            self.reached.nudged += 1;
            self.attend(to.process);
        }
    }

    /// Hands a nudge to the coordinator that it is for.
    pub(super) fn nudge_coordinator(&mut self, coordinator: usize) {
        let now = self.event_queue.now();
        let coordinator = &mut self.coordinators[coordinator];
        let (clock, hears) = (coordinator.clock(now), coordinator.deaf_until <= now);
        if let Some(node) = coordinator.node.as_mut().filter(|_| hears) {
            node.handle_parent_nudge(clock, &self.resource);
            self.reached.nudged_coordinators += 1;
        }
    }
}
