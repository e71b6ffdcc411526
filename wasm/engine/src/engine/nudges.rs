//! Nudges of the coordinators, and the stream that they come on.

use tollgate_core::lease::ResourceId;

use super::Engine;
use crate::host::{Host, Level};

impl<H: Host> Engine<H> {
    /// Returns whether messages of the stream of `token` count; others need not be read.
    pub fn watches(&self, token: u32) -> bool {
        self.sync.watches(token)
    }

    /// Asks for the resources that a coordinator has named on the stream of `token`, or notes that its
    /// message could not be read. A message of a stream that is not watched any more is dropped.
    pub fn handle_nudge(&mut self, token: u32, nudged: Result<Vec<ResourceId>, String>) {
        if !self.sync.watches(token) {
            return;
        }
        let now = self.process.host.now();
        let names = nudged.as_ref().map_or(0, Vec::len);
        if self.sync.drops_flood(&mut self.process, now, names) {
            return;
        }
        match nudged {
            Ok(resources) => {
                self.sync.handle_nudge(&mut self.process, now, resources);
                self.take_answers(now);
                self.release(now);
            }
            Err(error) => {
                self.process.stats.nudge_errors.add_one();
                let line = format!("tollgate: a nudge could not be read: {error}");
                self.process.host.log(Level::Debug, &line);
            }
        }
    }

    /// Notes that the stream of `token` has ended with a status of gRPC. Another one is opened later.
    pub fn handle_watch_end(&mut self, token: u32, status: u32) {
        if self.sync.has_watch(token) {
            let now = self.process.host.now();
            self.sync.handle_watch_end(&self.process, now, status);
        }
    }

    /// Closes the stream, if one is open. The next tick opens another one, if one is needed.
    pub fn close_watch(&mut self) {
        self.sync.close_watch(&self.process);
    }
}
