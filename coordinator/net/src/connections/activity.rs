//! State of one connection: the side that waits for the other, and since when.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::bounds::ConnectionBounds;
use super::metrics::DropReason;
use super::source::ConnectionSource;
use crate::tls::Listener;

/// The bytes of an HTTP/2 preface and of the header of the SETTINGS frame after it. A client that
/// has sent them speaks HTTP/2; from then on pings say whether it lives.
const HTTP2_HELLO_LEN: usize = 33;

/// State of one connection: its calls under way and what it waits for.
#[derive(Debug)]
pub(super) struct Activity {
    /// Its source.
    pub(super) source: ConnectionSource,
    /// The listener that accepted it.
    listener: Listener,
    /// Set if its place is one of those for probes, so that only they are answered.
    probes_only: AtomicBool,
    phase: watch::Sender<Phase>,
    state: Mutex<State>,
}

/// Phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Open,
    /// It ends after the calls that are under way.
    Closing,
    /// It ends now.
    CutOff,
}

/// Progress of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Handshake,
    Unanswered,
    /// At least one answer was sent to its end.
    Answered,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    /// Calls whose request is complete and whose answer is being made.
    working: usize,
    /// Calls whose header was read and whose answer has not ended.
    calls: usize,
    /// When the last call stopped being worked on, or when the connection was accepted.
    waiting_since: Instant,
    /// When the first of the calls began that have been worked on without a pause.
    working_since: Instant,
    heard_at: Instant,
    heard: usize,
    /// When the header of a request began, as far as that has a deadline.
    header_since: Option<Instant>,
    /// Bytes of its calls.
    held: usize,
    /// The steps that its client has to take, by number.
    owed: BTreeMap<u64, ClientDuty>,
    last_owed: u64,
}

/// Duty of a client with a deadline: to send a body, or to read an answer.
#[derive(Clone, Copy, Debug)]
struct ClientDuty {
    since: Instant,
    deadline: Instant,
    reason: DropReason,
}

/// Measure of how much a connection is in the way of others.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionRank {
    /// Its progress.
    pub(super) stage: Stage,
    /// Set if one of its calls is being worked on. Else its client keeps it waiting.
    pub(super) working: bool,
    /// Since when that is so without a pause.
    pub(super) since: Instant,
}

// === impl Activity ===

impl Activity {
    /// A connection from `source` that `listener` accepts at `now`, and that begins in `stage`.
    pub(super) fn new(
        source: ConnectionSource,
        listener: Listener,
        stage: Stage,
        now: Instant,
    ) -> Self {
        Self {
            source,
            listener,
            probes_only: AtomicBool::new(false),
            phase: watch::Sender::new(Phase::Open),
            state: Mutex::new(State {
                stage,
                working: 0,
                calls: 0,
                waiting_since: now,
                working_since: now,
                heard_at: now,
                heard: 0,
                header_since: Some(now),
                held: 0,
                owed: BTreeMap::new(),
                last_owed: 0,
            }),
        }
    }

    /// From now on only probes are answered.
    pub(super) fn keep_for_probes(&self) {
        self.probes_only.store(true, Ordering::Relaxed);
    }

    /// Whether only probes are answered.
    pub(super) fn is_for_probes(&self) -> bool {
        self.probes_only.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests can come from now on.
    pub(super) fn connected(&self, now: Instant) {
        let mut state = self.state();
        state.stage = Stage::Unanswered;
        state.header_since = Some(now);
        state.heard_at = now;
    }

    /// `bytes` were read.
    pub(super) fn heard(&self, bytes: usize, now: Instant) {
        let mut state = self.state();
        state.heard_at = now;
        state.heard = state.heard.saturating_add(bytes);
        let http2 = self.listener == Listener::Grpc;
        if http2 && state.heard >= HTTP2_HELLO_LEN {
            state.header_since = None;
        } else if !http2 && state.calls == 0 && state.header_since.is_none() {
            state.header_since = Some(now);
        }
    }

    /// The header of a request was read.
    pub(super) fn begin_call(&self) {
        let mut state = self.state();
        state.calls += 1;
        state.header_since = None;
    }

    /// A call has ended, its answer is out of our hands.
    pub(super) fn end_call(&self) {
        self.state().calls -= 1;
    }

    /// A request is complete, its answer is being made.
    pub(super) fn begin_work(&self, now: Instant) {
        let mut state = self.state();
        if state.working == 0 {
            state.working_since = now;
        }
        state.working += 1;
    }

    /// An answer is made.
    pub(super) fn end_work(&self, now: Instant) {
        let mut state = self.state();
        state.working -= 1;
        if state.working == 0 {
            state.waiting_since = now;
        }
    }

    /// An answer was sent to its end.
    pub(super) fn answered(&self) {
        self.state().stage = Stage::Answered;
    }

    /// The client has to do something within `time`; says by which number it is [paid](Self::paid).
    pub(super) fn owe(&self, reason: DropReason, time: Duration, now: Instant) -> u64 {
        let mut state = self.state();
        state.last_owed += 1;
        let number = state.last_owed;
        let owed = ClientDuty {
            since: now,
            deadline: now + time,
            reason,
        };
        state.owed.insert(number, owed);
        number
    }

    /// Notes that the step of this number is done.
    pub(super) fn paid(&self, number: u64) {
        self.state().owed.remove(&number);
    }

    /// Counts `bytes` more and says how many it holds now.
    pub(super) fn take(&self, bytes: usize) -> usize {
        let mut state = self.state();
        state.held += bytes;
        state.held
    }

    /// Counts `bytes` less.
    pub(super) fn give_back(&self, bytes: usize) {
        self.state().held -= bytes;
    }

    /// Reason to cut it off at `now`, if there is one.
    pub(super) fn overdue(&self, bounds: &ConnectionBounds, now: Instant) -> Option<DropReason> {
        let state = self.state();
        if state.stage == Stage::Handshake {
            let late = state.waiting_since + bounds.handshake_timeout <= now;
            return late.then_some(DropReason::Handshake);
        }
        if let Some(owed) = state.owed.values().find(|owed| owed.deadline <= now) {
            return Some(owed.reason);
        }
        if let Some(since) = state.header_since
            && since + bounds.request_timeout <= now
        {
            return Some(DropReason::Request);
        }
        let silent = state.working == 0 && state.heard_at + bounds.idle_timeout <= now;
        silent.then_some(DropReason::Idle)
    }

    /// Whether its TLS handshake has not ended.
    pub(super) fn is_in_handshake(&self) -> bool {
        self.state().stage == Stage::Handshake
    }

    /// The bytes that its calls hold.
    pub(super) fn held(&self) -> usize {
        self.state().held
    }

    /// Its rank among connections that are in the way of others.
    pub(super) fn rank(&self) -> ConnectionRank {
        let state = self.state();
        let working = state.working > 0;
        ConnectionRank {
            stage: state.stage,
            working,
            since: match working {
                true => state.working_since,
                false => state.waiting_since,
            },
        }
    }

    /// The bytes of its calls, and since when its client owes a step; none if it owes nothing.
    pub(super) fn hold(&self) -> Option<(usize, Instant)> {
        let state = self.state();
        let since = state.owed.values().map(|owed| owed.since).min()?;
        Some((state.held, since))
    }

    /// Asks its client to leave if nothing is to be lost by it; says whether that was so. A
    /// connection that it says no of is to be cut off.
    pub(super) fn close(&self) -> bool {
        let state = self.state();
        let idle = state.stage == Stage::Answered && state.owed.is_empty();
        drop(state);
        if idle {
            self.enter(Phase::Closing);
        }
        idle
    }

    /// Ends it after the calls that are under way; at once if there was none.
    pub(super) fn finish(&self) {
        let stage = self.state().stage;
        self.enter(match stage {
            Stage::Handshake => Phase::CutOff,
            Stage::Unanswered | Stage::Answered => Phase::Closing,
        });
    }

    /// Ends it now.
    pub(super) fn cut(&self) {
        self.enter(Phase::CutOff);
    }

    fn enter(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let later = *now < phase;
            *now = phase.max(*now);
            later
        });
    }

    /// Resolves when its client is to leave.
    pub(super) async fn closing(&self) {
        self.until(Phase::Closing).await;
    }

    /// Resolves when it is to end now.
    pub(super) async fn cut_off(&self) {
        self.until(Phase::CutOff).await;
    }

    async fn until(&self, phase: Phase) {
        // The sender is in `self`, so there is no end before that phase.
        let mut phases = self.phase.subscribe();
        let _ = phases.wait_for(|now| *now >= phase).await;
    }
}
