//! Stream on which a coordinator names what to ask for: which root context it belongs to.
//!
//! In Envoy a stream belongs to a root context and goes with it, without a word. A worker has several
//! while listeners are updated, and with more than one listener. The latest one has the stream: the
//! others may go as soon as their connections have drained.

use super::Worker;
use crate::engine_host::nudged;
use crate::host::Host;

impl<H: Host + Clone> Worker<H> {
    /// Adds a root context whose ticks are this worker's.
    pub(crate) fn add_root(&mut self, context: u32) {
        self.roots.insert(context);
    }

    /// Removes a root context that goes, in its own callback, with the stream if it has it.
    pub(crate) fn remove_root(&mut self, context: u32) {
        self.roots.remove(&context);
        let host = self.engine.host();
        host.set_root(context, false);
        if host.watch_root() == context {
            self.engine.close_watch();
        }
    }

    /// Notes the root context whose tick is running, before [`Worker::handle_tick`]. The latest one
    /// closes the stream of another one, to open its own.
    pub(crate) fn enter_root(&mut self, context: u32) {
        let is_latest = self.roots.last().is_none_or(|latest| *latest == context);
        let host = self.engine.host();
        host.set_root(context, is_latest);
        if is_latest && host.watch_root() != context {
            self.engine.close_watch();
        }
    }

    /// Hands over a message that has come on the stream of `token`.
    pub fn handle_nudge(&mut self, token: u32, message: &[u8]) {
        if !self.engine.watches(token) {
            return;
        }
        self.engine.handle_nudge(token, nudged(message));
        self.carry_out();
    }

    /// Hands over that the stream of `token` has ended.
    pub fn handle_watch_end(&mut self, token: u32, status: u32) {
        self.engine.handle_watch_end(token, status);
    }
}
