//! Levels of the tree of coordinators: the messages that each exchanges with those below it, and the
//! size of its lease tables.

use serde::Serialize;

use super::Simulation;
use super::event::{Body, CalledRefresh, Message};
use crate::observer::{MessageContent, SentMessage};
use crate::topology::Node;

/// Coordinators with the same number of others above them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Level {
    /// Number of coordinators above each: 0 for a root.
    pub level: u32,
    /// Number of coordinators.
    pub coordinators: u64,
    /// Requests for leases that were sent to them, by Envoys and by coordinators below.
    pub refreshes: u64,
    /// Resources in these requests.
    pub resources_asked: u64,
    /// Messages between them and those below.
    pub messages: u64,
    /// Resources in their lease tables now.
    pub resources: u64,
    /// Leases in their lease tables now.
    pub leases: u64,
}

/// Messages so far, by the level of their upper ends.
#[derive(Debug, Default)]
pub(super) struct Traffic(Vec<LevelTraffic>);

/// Messages of one level.
#[derive(Clone, Copy, Debug, Default)]
struct LevelTraffic {
    refreshes: u64,
    resources_asked: u64,
    messages: u64,
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
            let level = &mut levels[index];
            level.coordinators += 1;
            for server in coordinator.servers() {
                level.resources += server.resource_count() as u64;
                level.leases += server.lease_count() as u64;
            }
        }
        for (index, level) in levels.iter_mut().enumerate() {
            let traffic = self.traffic.0.get(index).copied().unwrap_or_default();
            level.level = index as u32;
            level.refreshes = traffic.refreshes;
            level.resources_asked = traffic.resources_asked;
            level.messages = traffic.messages;
        }
        levels
    }

    /// Counts a message that is sent.
    pub(super) fn note_traffic(&mut self, message: &Message) {
        let Some(level) = self.upper_level(message) else {
            return;
        };
        let index = level as usize;
        if self.traffic.0.len() <= index {
            self.traffic.0.resize(index + 1, LevelTraffic::default());
        }
        let traffic = &mut self.traffic.0[index];
        traffic.messages += 1;
        let content = match &message.body {
            Body::Refresh(CalledRefresh { refresh, .. }) => {
                traffic.refreshes += 1;
                let asks = refresh.scopes.iter().map(|scope| scope.asks.len() as u64);
                traffic.resources_asked += asks.sum::<u64>();
                MessageContent::Refresh(refresh)
            }
            Body::Release(release) => MessageContent::Release(release),
            Body::Answer {
                answer: Ok(answer), ..
            } => MessageContent::Answer(answer),
            Body::Nudge { resource, .. } => MessageContent::Nudge(resource),
            Body::Answer { .. } | Body::Failure(_) | Body::Watch { .. } | Body::WatchEnd(_) => {
                return;
            }
        };
        let at = self.queue.elapsed();
        self.observer.message(&SentMessage { at, level, content });
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
