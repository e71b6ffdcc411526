//! Nudges: streams on which coordinators name resources to those below, and the way of the names.
//!
//! A stream is one of TCP: what is lost on its way is sent again. A name that would have to cross a
//! cut is lost, and so are all names of a client that has no stream.

use std::time::Duration;

use tollgate_core::lease::{ClientId, ResourceId};

use super::Simulation;
use super::event::{Body, Event, Message};
use super::reached::Case;
use crate::coordinator::{Watcher, WorkerCall};
use crate::process::{OpenedWatch, Task};
use crate::topology::Node;

/// Time after which the end of a stream is noticed across a cut, and also that none can be opened.
const NOTICED: Duration = Duration::from_secs(1);
/// Time after which a coordinator opens another stream to its parent.
const OPENED_AGAIN: Duration = Duration::from_secs(1);

// === impl Simulation ===

impl Simulation {
    /// Opens the stream of an Envoy's worker.
    pub(super) fn open_watch(&mut self, index: usize, opened: OpenedWatch) {
        let envoy = &mut self.envoys[index];
        let watcher = Watcher::Envoy(WorkerCall {
            envoy: index,
            incarnation: envoy.incarnation,
            worker: opened.worker,
            token: opened.token,
        });
        let to = envoy.coordinator;
        let client = opened.client;
        envoy.watch = Some(client.clone());
        self.send_watch(to, watcher, client);
    }

    /// Opens the stream of a coordinator to its parent, if it has one.
    pub(super) fn watch_parent(&mut self, index: usize) {
        let coordinator = &self.coordinators[index];
        if let Some(parent) = coordinator.parent.filter(|_| self.scenario.nudges) {
            let client = coordinator.id().clone();
            self.send_watch(parent, Watcher::Coordinator(index), client);
        }
    }

    fn send_watch(&mut self, to: usize, watcher: Watcher, client: ClientId) {
        let (from, to) = (watcher.node(), Node::Coordinator(to));
        let body = Body::Watch { watcher, client };
        self.send_on_stream(Message { from, to, body });
    }

    /// Names to `client` on a stream from now on; a coordinator without a master ends it.
    pub(super) fn watch(&mut self, index: usize, watcher: Watcher, client: ClientId) {
        let coordinator = &mut self.coordinators[index];
        if coordinator.is_down() {
            self.send_end(index, watcher)
        } else {
            coordinator.watch(client, watcher)
        }
    }

    /// Ends all streams to a coordinator, as when its node ends.
    pub(super) fn end_watches(&mut self, index: usize) {
        for watcher in self.coordinators[index].take_watches() {
            self.send_end(index, watcher);
        }
    }

    fn send_end(&mut self, from: usize, watcher: Watcher) {
        let (from, to) = (Node::Coordinator(from), watcher.node());
        let body = Body::WatchEnd(watcher);
        self.send_on_stream(Message { from, to, body });
    }

    /// Carries what the masters of a coordinator have named.
    pub(super) fn carry_nudges(&mut self, index: usize) {
        if !self.scenario.nudges {
            return;
        }
        for (watcher, resource) in self.coordinators[index].take_nudges() {
            let (from, to) = (Node::Coordinator(index), watcher.node());
            let body = Body::Nudge { watcher, resource };
            let message = Message { from, to, body };
            self.note_message(&message);
            self.recorder.counts.nudges += 1;
            self.send_on_stream(message);
        }
    }

    /// Sends a message of a stream.
    fn send_on_stream(&mut self, message: Message) {
        let ends = (message.from, message.to);
        let delay = self
            .topology
            .stream_delay(self.queue.now(), ends, &mut self.network);
        if let Body::Nudge { .. } = message.body {
            self.recorder.count_message(delay.is_none());
        }
        let (delay, message) = match (delay, message.body) {
            (Some(delay), body) => (delay, Message { body, ..message }),
            (None, Body::Nudge { .. }) => return,
            (None, Body::Watch { watcher, .. }) => {
                let body = Body::WatchEnd(watcher);
                let (from, to) = (message.to, message.from);
                (NOTICED, Message { from, to, body })
            }
            (None, body) => (NOTICED, Message { body, ..message }),
        };
        self.queue.push(delay, Event::Message(Box::new(message)));
    }

    /// Hands a name to whoever has the stream that it came on.
    pub(super) fn nudge(&mut self, watcher: Watcher, resource: ResourceId) {
        match watcher {
            Watcher::Coordinator(index) => {
                let now = self.now();
                self.reached.count(Case::CoordinatorNudged);
                self.coordinators[index].parent_nudged(now, &resource, &self.limits);
                self.attend_coordinator(index);
            }
            Watcher::Envoy(to) => {
                let task = Task::Nudge(to.worker, to.token, resource);
                if self.hand(to, task) {
                    self.reached.count(Case::Nudged);
                }
            }
        }
    }

    /// Tells whoever had a stream that it has ended.
    pub(super) fn end_watch(&mut self, watcher: Watcher) {
        match watcher {
            Watcher::Coordinator(coordinator) => {
                let coordinator = coordinator as u32;
                self.queue
                    .push(OPENED_AGAIN, Event::WatchParent { coordinator });
            }
            Watcher::Envoy(to) => {
                if self.hand(to, Task::EndWatch(to.worker, to.token)) {
                    self.reached.count(Case::WatchEnded);
                }
            }
        }
    }
}
