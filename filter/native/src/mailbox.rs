//! Decisions on a stream that are made on another thread than the stream's.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tollgate_engine::HostFailure;
use tollgate_filter::Notes;

use crate::envoy::StreamScheduler;
use crate::lock::lock;

/// Answer to a request instead of the upstream's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalReply {
    pub(crate) status: u32,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// End of a request's wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It goes on.
    Resume,
    /// It is answered.
    Reply(Box<LocalReply>),
}

/// Things to be done in a stream, on its own thread.
#[derive(Debug, Default)]
pub(crate) struct Letter {
    /// Values for the access log and the response.
    pub(crate) notes: Notes,
    pub(crate) verdict: Option<Verdict>,
}

/// Mailbox of a stream that the worker remembers.
#[derive(Debug)]
pub(crate) struct Mailbox {
    /// None once the stream has ended.
    open: Mutex<Option<(StreamScheduler, Letter)>>,
    /// Bytes of the bodies so far, of the request and of the response.
    bytes: [AtomicU64; 2],
    undelivered: Undelivered,
    /// True if Envoy has stopped the stream for it.
    waits: AtomicBool,
}

/// Number of verdicts of one worker that their streams have not seen yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Undelivered(Arc<AtomicUsize>);

// === impl Verdict ===

impl Verdict {
    /// Returns the fate of a request that no engine decides on.
    pub(crate) fn without_engine(host_failure: HostFailure) -> Self {
        match host_failure {
            HostFailure::Open => Self::Resume,
            HostFailure::Closed => Self::Reply(Box::new(LocalReply {
                status: 503,
                headers: Vec::new(),
                body: Vec::new(),
            })),
        }
    }
}

// === impl Mailbox ===

impl Mailbox {
    /// Returns a mailbox that wakes its stream through `scheduler`, with the counter of its worker.
    pub(crate) fn new(scheduler: StreamScheduler, undelivered: Undelivered) -> Self {
        Self {
            open: Mutex::new(Some((scheduler, Letter::default()))),
            bytes: Default::default(),
            undelivered,
            waits: AtomicBool::new(false),
        }
    }

    /// Notes that the stream is being stopped.
    pub(crate) fn begin_wait(&self) {
        self.waits.store(true, Ordering::Relaxed);
    }

    /// Leaves values for the access log and the response, which the stream sees with its verdict.
    pub(crate) fn note(&self, notes: Notes) {
        if let Some((_, letter)) = self.lock().as_mut() {
            letter.notes.extend(notes);
        }
    }

    /// Ends the wait of the request, and wakes its stream. False if it does not wait any more.
    pub(crate) fn decide(&self, verdict: Verdict) -> bool {
        let mut open = self.lock();
        match open.as_mut() {
            Some((scheduler, letter)) if self.waits.swap(false, Ordering::Relaxed) => {
                letter.verdict = Some(verdict);
                self.undelivered.0.fetch_add(1, Ordering::Relaxed);
                scheduler.commit();
                true
            }
            _ => false,
        }
    }

    /// Takes what is to be done, on the stream's own thread.
    pub(crate) fn take(&self) -> Letter {
        let mut open = self.lock();
        let letter = open.as_mut().map(|(_, letter)| core::mem::take(letter));
        let letter = letter.unwrap_or_default();
        self.count_delivered(&letter);
        letter
    }

    /// Closes the mailbox of a stream that has ended: nothing wakes it any more.
    pub(crate) fn close(&self) {
        if let Some((_, letter)) = self.lock().take() {
            self.count_delivered(&letter);
        }
    }

    fn count_delivered(&self, letter: &Letter) {
        if letter.verdict.is_some() {
            self.undelivered.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Counts bytes of a body; `of` is 0 for the request's, 1 for the response's.
    pub(crate) fn count(&self, of: usize, bytes: u64) {
        if let Some(count) = self.bytes.get(of) {
            count.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Returns the bytes of a body so far.
    pub(crate) fn counted(&self, of: usize) -> u64 {
        self.bytes
            .get(of)
            .map_or(0, |count| count.load(Ordering::Relaxed))
    }

    fn lock(&self) -> MutexGuard<'_, Option<(StreamScheduler, Letter)>> {
        lock(&self.open)
    }
}

// === impl Undelivered ===

impl Undelivered {
    /// Returns whether there are none.
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}
