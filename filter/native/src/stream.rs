//! One HTTP stream in the module.

use core::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use tollgate_engine::{Decision, HostFailure};
use tollgate_filter::{BoundStream, Level, Protocol, Worker};

use crate::at_hand::{self, AtHand, StreamAtHand};
use crate::configuration::Configuration;
use crate::envoy::{self, StreamPtr};
use crate::host::NativeHost;
use crate::mailbox::{LocalReply, Mailbox, Verdict};
use crate::worker::Bound;

thread_local! {
    /// Number of the latest stream of this thread.
    static LATEST: Cell<u32> = const { Cell::new(0) };
}

/// A stream. Its thread is one of Envoy's workers.
#[derive(Debug)]
pub(crate) struct Stream {
    /// None if the thread has no engine.
    bound: Option<Rc<Bound>>,
    host_failure: HostFailure,
    number: u32,
    /// As the filter remembers it.
    remembered: RefCell<BoundStream>,
    /// There if the worker remembers something of the stream.
    mailbox: OnceCell<Arc<Mailbox>>,
    is_known: Cell<bool>,
}

/// Next step that Envoy takes with a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing: it goes on, or goes on waiting.
    Continue,
    /// Its request waits.
    Wait,
    /// Its request, which waited, goes on.
    Resume,
    /// Its request is answered.
    Reply(Box<LocalReply>),
}

// === impl Stream ===

impl Stream {
    /// Returns a stream of `configuration`, which its thread uses as `bound` says.
    #[inline]
    pub(crate) fn new(configuration: &Configuration, bound: Option<Rc<Bound>>) -> Self {
        let number = LATEST.with(|latest| {
            latest.set(latest.get().wrapping_add(1));
            latest.get()
        });
        // Not with its request: until that comes, a filter before this one may let others go first.
        let remembered = match &bound {
            Some(bound) => bound.binding.begin(number),
            None => BoundStream::new(number, Box::default()),
        };
        Self {
            remembered: RefCell::new(remembered),
            bound,
            host_failure: configuration.settings.config.host_failure(),
            number,
            mailbox: OnceCell::new(),
            is_known: Cell::new(false),
        }
    }

    /// Decides on the request.
    #[inline]
    pub(crate) fn handle_request(&self, envoy: StreamPtr) -> Step {
        let Some(bound) = &self.bound else {
            return self.step_without_engine();
        };
        let subject = self.at_hand(envoy);
        let (step, subject) = at_hand::with(subject, || self.decide(bound, envoy));
        match (step, subject) {
            (Some(step), _) => step,
            (None, AtHand::Stream(stream)) => stream.answer.map_or(Step::Continue, Step::Reply),
            (None, _) => Step::Continue,
        }
    }

    #[inline]
    fn at_hand(&self, envoy: StreamPtr) -> AtHand {
        AtHand::Stream(StreamAtHand {
            envoy,
            mailbox: self.mailbox.get().cloned(),
            answer: None,
        })
    }

    /// Returns the step, or none if the request has been answered.
    #[inline]
    fn decide(&self, bound: &Bound, envoy: StreamPtr) -> Option<Step> {
        let Some(mut worker) = bound.worker.lock() else {
            return Some(self.step_without_engine());
        };
        let decision = match self.remembered.try_borrow_mut() {
            Ok(mut remembered) => bound.binding.admit(&mut worker, &mut remembered),
            // Hooks of a stream do not run within each other.
            Err(_) => return Some(self.step_without_engine()),
        };
        let waits = matches!(decision, Decision::Hold | Decision::Queue(_));
        if waits || worker.remembers(self.number) {
            self.become_known(bound, envoy);
        }
        if waits {
            match self.mailbox.get() {
                Some(mailbox) => mailbox.begin_wait(),
                None => {
                    // Nothing could wake it.
                    self.is_known.set(false);
                    self.forget_in(&mut worker);
                    return Some(self.step_without_engine());
                }
            }
        }
        if worker.is_hurried() {
            bound.worker.hurry(worker.tick_period());
        }
        match decision {
            Decision::Admit if bound.worker.undelivered.is_none() => Some(Step::Continue),
            Decision::Admit => Some(self.go_on_later(bound, envoy)),
            Decision::Hold | Decision::Queue(_) => Some(Step::Wait),
            Decision::Deny(refusal) => {
                let host = NativeHost::at_hand();
                match worker.answer(refusal, Protocol::at_hand(&host)) {
                    Ok(()) => None,
                    Err(error) => {
                        envoy::log(Level::Error, &format!("tollgate: {error}"));
                        Some(Step::Continue)
                    }
                }
            }
        }
    }

    /// Makes decisions of other threads reach the stream. Under the engine's lock, so before any of them.
    #[cold]
    fn become_known(&self, bound: &Bound, envoy: StreamPtr) {
        self.is_known.set(true);
        let Some(scheduler) = envoy.scheduler() else {
            return;
        };
        let undelivered = bound.worker.undelivered.clone();
        let mailbox = Arc::new(Mailbox::new(scheduler, undelivered));
        bound.worker.add_mailbox(self.number, &mailbox);
        let _ = self.mailbox.set(mailbox);
    }

    /// Lets the request go on after those whose wait is over, but whose streams have not run since: it
    /// came after them.
    #[cold]
    fn go_on_later(&self, bound: &Bound, envoy: StreamPtr) -> Step {
        if self.mailbox.get().is_none() {
            self.become_known(bound, envoy);
        }
        let post = |own: &Arc<Mailbox>| {
            own.begin_wait();
            own.decide(Verdict::Resume)
        };
        let posted = self.mailbox.get().is_some_and(post);
        if posted { Step::Wait } else { Step::Continue }
    }

    /// Does what another thread has decided.
    pub(crate) fn handle_wake(&self, envoy: StreamPtr) -> Step {
        let Some(mailbox) = self.mailbox.get() else {
            return Step::Continue;
        };
        let letter = mailbox.take();
        envoy.note(letter.notes);
        match letter.verdict {
            None => Step::Continue,
            Some(Verdict::Resume) => Step::Resume,
            Some(Verdict::Reply(reply)) => Step::Reply(reply),
        }
    }

    /// Counts the part of a body that Envoy has at hand, if somebody wants to know.
    #[inline]
    pub(crate) fn count_body(&self, envoy: StreamPtr, of: usize) {
        if let Some(mailbox) = self.mailbox.get() {
            mailbox.count(of, envoy.body_bytes(of));
        }
    }

    /// Tells the filter that the stream has ended. Envoy destroys it later, perhaps after the stream that
    /// takes its place has begun.
    #[inline]
    pub(crate) fn handle_end(&self, envoy: StreamPtr) {
        if self.is_known.replace(false) {
            self.forget(self.at_hand(envoy));
        }
        if let Some(bound) = &self.bound
            && let Ok(mut remembered) = self.remembered.try_borrow_mut()
        {
            bound.binding.leave(&mut remembered);
        }
    }

    #[cold]
    fn forget(&self, subject: AtHand) {
        let Some(bound) = &self.bound else { return };
        if let Some(mailbox) = self.mailbox.get() {
            mailbox.close();
        }
        at_hand::with(subject, || {
            if let Some(mut worker) = bound.worker.lock() {
                self.forget_in(&mut worker);
            }
        });
        bound.worker.remove_mailbox(self.number);
    }

    fn forget_in(&self, worker: &mut Worker<NativeHost>) {
        if let Ok(mut remembered) = self.remembered.try_borrow_mut() {
            worker.forget(&mut remembered);
        }
    }

    /// Returns what becomes of a request whose hook has panicked. It does not wait, whatever the hook has
    /// begun, so nothing may wake it later.
    #[cold]
    pub(crate) fn step_after_panic(&self) -> Step {
        if let Some(mailbox) = self.mailbox.get() {
            mailbox.close();
        }
        self.step_without_engine()
    }

    /// Returns what becomes of a request that no engine can decide on.
    #[cold]
    fn step_without_engine(&self) -> Step {
        match Verdict::without_engine(self.host_failure) {
            Verdict::Resume => Step::Continue,
            Verdict::Reply(reply) => Step::Reply(reply),
        }
    }
}

impl Drop for Stream {
    /// A stream that Envoy destroys without having completed it.
    fn drop(&mut self) {
        if self.is_known.replace(false) {
            self.forget(AtHand::Nothing);
        }
    }
}
