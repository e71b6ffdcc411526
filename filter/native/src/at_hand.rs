//! Stream or configuration that the calls of the host are about, on this thread.

use core::cell::RefCell;
use std::sync::Arc;

use crate::envoy::{ConfigPtr, StreamPtr};
use crate::mailbox::{LocalReply, Mailbox};
use crate::metrics::MetricIds;

thread_local! {
    static AT_HAND: RefCell<AtHand> = const { RefCell::new(AtHand::Nothing) };
}

/// Subject of the calls of the host.
#[derive(Debug)]
pub(crate) enum AtHand {
    /// No stream: a tick, or an answer.
    Nothing,
    /// The stream whose hook is running.
    Stream(StreamAtHand),
    /// A stream of another thread, or whose hook is not running.
    Mailbox(Arc<Mailbox>),
    /// A configuration that makes its metrics known.
    Configuration(ConfigPtr, MetricIds),
}

/// Stream whose hook is running.
#[derive(Debug)]
pub(crate) struct StreamAtHand {
    pub(crate) envoy: StreamPtr,
    /// There if the worker remembers the stream.
    pub(crate) mailbox: Option<Arc<Mailbox>>,
    /// The answer that its request will have.
    pub(crate) answer: Option<Box<LocalReply>>,
}

/// Puts `subject` at hand while `run` runs, and returns what has become of it.
pub(crate) fn with<R>(subject: AtHand, run: impl FnOnce() -> R) -> (R, AtHand) {
    let restore = Restore(Some(replace(subject)));
    let result = run();
    (result, restore.now())
}

/// Makes a stream's mailbox the subject.
pub(crate) fn select(mailbox: Arc<Mailbox>) {
    replace(AtHand::Mailbox(mailbox));
}

/// Looks at the subject.
#[inline]
pub(crate) fn look<R>(at: impl FnOnce(&mut AtHand) -> R) -> Option<R> {
    AT_HAND.with(|subject| Some(at(&mut *subject.try_borrow_mut().ok()?)))
}

fn replace(subject: AtHand) -> AtHand {
    look(|at_hand| core::mem::replace(at_hand, subject)).unwrap_or(AtHand::Nothing)
}

/// Puts the subject before back, also when a panic passes.
struct Restore(Option<AtHand>);

// === impl Restore ===

impl Restore {
    fn now(mut self) -> AtHand {
        match self.0.take() {
            Some(before) => replace(before),
            None => AtHand::Nothing,
        }
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        if let Some(before) = self.0.take() {
            replace(before);
        }
    }
}
