//! Streams of a process's workers, on which coordinators name what to ask for now.

use std::collections::BTreeMap;
use std::rc::Rc;

use tollgate_core::lease::ResourceId;

use super::{Task, Workers};

/// Streams of all workers.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// Worker of each stream that is wanted, by token.
    wanted: BTreeMap<u32, usize>,
    /// Tokens of streams that no coordinator knows of yet.
    fresh: Vec<u32>,
}

// === impl Workers ===

impl Workers {
    /// Opens a stream of `worker`, if coordinators have streams.
    pub(in crate::process) fn watch(&self, worker: usize) -> Option<u32> {
        self.setup.nudged.then(|| {
            let token = self.take_token();
            let mut streams = self.streams.borrow_mut();
            streams.wanted.insert(token, worker);
            streams.fresh.push(token);
            token
        })
    }

    /// Closes the stream of `token`.
    pub(in crate::process) fn unwatch(&self, token: u32) {
        let worker = self.streams.borrow_mut().wanted.remove(&token);
        self.ensure(worker.is_some(), || format!("stream {token} closes twice"));
    }

    /// Returns the streams that have been opened since the last look.
    pub(in crate::process) fn take_streams(&self) -> Vec<u32> {
        std::mem::take(&mut self.streams.borrow_mut().fresh)
    }

    /// Returns whether a worker wants to hear of the stream of `token`.
    pub(in crate::process) fn watches(&self, token: u32) -> bool {
        self.streams.borrow().wanted.contains_key(&token)
    }

    /// Hands a worker a nudge that has come on the stream of `token`.
    pub(in crate::process) fn nudge(self: &Rc<Self>, token: u32, resource: &ResourceId) {
        let worker = self.streams.borrow().wanted.get(&token).copied();
        if let Some(worker) = worker {
            let task = Task::Nudge(worker, token, resource.clone());
            self.tasks.borrow_mut().push(task);
            self.finish();
        }
    }

    /// Tells a worker that the stream of `token` has ended.
    pub(in crate::process) fn end_watch(self: &Rc<Self>, token: u32) {
        let worker = self.streams.borrow_mut().wanted.remove(&token);
        if let Some(worker) = worker {
            self.tasks.borrow_mut().push(Task::EndWatch(worker, token));
            self.finish();
        }
    }

    /// Closes the streams of a worker that is lost.
    pub(super) fn close_streams_of(&self, worker: usize) {
        let wanted = &mut self.streams.borrow_mut().wanted;
        wanted.retain(|_, of| *of != worker);
    }
}
