//! Levels of the tree of coordinators, and the messages between them, for observers.

use super::Simulation;
use super::event::{Body, CalledRefresh, Message};
use crate::observer::{MessageContent, SentMessage};
use crate::topology::Node;

/// Lease tables of coordinators with the same number of others above them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Resources now.
    pub resources: u64,
    /// Leases now.
    pub leases: u64,
}

// === impl Simulation ===

impl Simulation {
    /// Returns the levels, from the roots down.
    pub fn levels(&self) -> Vec<Level> {
        let mut levels: Vec<Level> = Vec::new();
        for coordinator in &self.coordinators {
            let index = coordinator.level as usize;
            if levels.len() <= index {
                levels.resize(index + 1, Level::default());
            }
            for server in coordinator.servers() {
                levels[index].resources += server.resource_count() as u64;
                levels[index].leases += server.lease_count() as u64;
            }
        }
        levels
    }

    /// Tells the observer of a message that is sent.
    pub(super) fn note_message(&mut self, message: &Message) {
        let content = match &message.body {
            Body::Refresh(CalledRefresh { refresh, .. }) => MessageContent::Refresh(refresh),
            Body::Release(release) => MessageContent::Release(release),
            Body::Answer {
                answer: Ok(answer), ..
            } => MessageContent::Answer(answer),
            Body::Nudge { resource, .. } => MessageContent::Nudge(resource),
            Body::Answer { .. } | Body::Failure(_) | Body::Watch { .. } | Body::WatchEnd(_) => {
                return;
            }
        };
        if let Some(level) = self.upper_level(message) {
            let at = self.queue.elapsed();
            self.observer.message(&SentMessage { at, level, content });
        }
    }

    /// Returns the level of the coordinator that a message goes up to or comes down from.
    fn upper_level(&self, message: &Message) -> Option<u32> {
        let ends = [message.from, message.to].into_iter();
        let levels = ends.filter_map(|end| match end {
            Node::Coordinator(index) => Some(self.coordinators[index].level),
            Node::Envoy(_) => None,
        });
        levels.min()
    }
}
