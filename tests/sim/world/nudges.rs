//! Nudges: the streams that they come on, and their transport.

use tollgate_core::lease::ResourceId;

use super::{Event, World};
use crate::coordinators::Reached;
use crate::watches::{NOT_OPENED, Stream};

// === impl World ===

impl World {
    /// Carries the opening of a stream to any coordinator.
    pub(super) fn open_watch(&mut self, stream: Stream) {
        let network = self.network();
        let Some(watches) = &mut self.watches else {
            return;
        };
        let now = self.event_queue.now();
        match self.processes[stream.process].mute_until > now {
            true => self.event_queue.push(NOT_OPENED, Event::WatchEnd(stream)),
            false => {
                let delay = watches.delay(network);
                self.event_queue.push(delay, Event::Watch(stream));
            }
        }
    }

    /// Opens a stream, if there is a coordinator.
    pub(super) fn watch(&mut self, stream: Stream) {
        let Some(watches) = &mut self.watches else {
            return;
        };
        let process = &self.processes[stream.process];
        if !process.watches(&stream) {
            return;
        }
        let member = self.sources.member_of(stream.process);
        let shard = self.sources.shard_of(member);
        let (now, prefers_past) = (self.event_queue.now(), watches.random.chance(50));
        match self.coordinators.reach(now, shard, None, prefers_past) {
            Reached::Master(..) | Reached::NotMaster => watches.open(process.id.clone(), stream),
            Reached::Nobody | Reached::Waits(..) => {
                self.event_queue.push(NOT_OPENED, Event::WatchEnd(stream));
            }
        }
    }

    /// Ends each stream with a chance of so many percent: its coordinator ends.
    pub(super) fn end_watches(&mut self, percent: u64) {
        let network = self.network();
        let watches = self.watches.iter_mut();
        for (delay, stream) in watches.flat_map(|watches| watches.end(percent, network)) {
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
        let network = self.network();
        let Some(watches) = &mut self.watches else {
            return;
        };
        for nudge in self.coordinators.take_nudges() {
            let lives = |stream: &Stream| self.processes[stream.process].watches(stream);
            for to in watches.of(&nudge.client, lives) {
                for delay in network.deliveries(&mut watches.random) {
                    let resource = nudge.resource.clone();
                    let event = Event::Nudge { to, resource };
                    self.event_queue.push(delay, event);
                }
            }
        }
    }

    /// Hands a nudge to the process that it is for.
    pub(super) fn nudge(&mut self, to: Stream, resource: &ResourceId) {
        let now = self.event_queue.now();
        if self.processes[to.process].nudge(now, to, resource) {
            self.reached.nudged += 1;
            self.attend(to.process);
        }
    }
}
