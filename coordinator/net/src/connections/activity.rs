//! State of one connection: how far it has come, whose turn it is, and what its client has to do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use self::duties::Duties;
pub(super) use self::duties::DutyId;
use self::header::Header;
pub(super) use self::turn::Turn;
use super::bounds::ConnectionBounds;
use super::metrics::DropReason;
use super::source::ConnectionSource;
use crate::tls::Listener;

mod duties;
mod header;
mod turn;

/// State of one connection: its calls under way and the side that the other waits for.
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
    turn: Turn,
    header: Header,
    duties: Duties,
    /// Calls whose header was read and whose answer has not ended.
    calls: usize,
    /// Bytes of these.
    call_bytes: usize,
    last_read_at: Instant,
}

/// Measure of how much a connection is in the way of others.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionRank {
    /// Its progress.
    pub(super) stage: Stage,
    /// The side that has to act next; a client that has to and does not keeps the coordinator waiting.
    pub(super) turn: Turn,
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
                turn: Turn::Client { since: now },
                header: Header::first(listener, now),
                duties: Duties::default(),
                calls: 0,
                call_bytes: 0,
                last_read_at: now,
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
        state.header = Header::first(self.listener, now);
        state.last_read_at = now;
    }

    /// `bytes` were read.
    pub(super) fn read(&self, bytes: usize, now: Instant) {
        let mut state = self.state();
        let calls = state.calls;
        state.header.read(self.listener, bytes, calls, now);
        state.last_read_at = now;
    }

    /// The header of a request was read.
    pub(super) fn begin_call(&self) {
        let mut state = self.state();
        state.calls += 1;
        state.header = Header::Optional;
    }

    /// A call has ended, its answer is out of our hands.
    pub(super) fn end_call(&self) {
        self.state().calls -= 1;
    }

    /// A request is complete, its answer is being made.
    pub(super) fn begin_answer(&self, now: Instant) {
        self.state().turn.begin_answer(now);
    }

    /// An answer is made.
    pub(super) fn end_answer(&self, now: Instant) {
        self.state().turn.end_answer(now);
    }

    /// An answer was sent to its end.
    pub(super) fn answered(&self) {
        self.state().stage = Stage::Answered;
    }

    /// The client has to take a step within `time`.
    pub(super) fn begin_duty(&self, reason: DropReason, time: Duration, now: Instant) -> DutyId {
        self.state().duties.begin(reason, time, now)
    }

    /// The client has taken a step, or it is not needed any more.
    pub(super) fn end_duty(&self, duty: DutyId) {
        self.state().duties.end(duty);
    }

    /// Counts `bytes` more of its calls, and says how many there are now.
    pub(super) fn take(&self, bytes: usize) -> usize {
        let mut state = self.state();
        state.call_bytes += bytes;
        state.call_bytes
    }

    /// Counts `bytes` less.
    pub(super) fn give_back(&self, bytes: usize) {
        self.state().call_bytes -= bytes;
    }

    /// Reason to cut it off at `now`, if there is one.
    pub(super) fn overdue(&self, bounds: &ConnectionBounds, now: Instant) -> Option<DropReason> {
        let state = self.state();
        match state.stage {
            Stage::Handshake => state.late_handshake(bounds, now),
            Stage::Unanswered | Stage::Answered => (state.duties.overdue(now))
                .or_else(|| state.late_header(bounds, now))
                .or_else(|| state.silence(bounds, now)),
        }
    }

    /// Whether its TLS handshake has not ended.
    pub(super) fn is_in_handshake(&self) -> bool {
        self.state().stage == Stage::Handshake
    }

    /// The bytes of its calls.
    pub(super) fn call_bytes(&self) -> usize {
        self.state().call_bytes
    }

    /// Its rank among connections that are in the way of others.
    pub(super) fn rank(&self) -> ConnectionRank {
        let state = self.state();
        ConnectionRank {
            stage: state.stage,
            turn: state.turn,
        }
    }

    /// The bytes of its calls, and since when its client has had a step to take; none if it has none.
    pub(super) fn delayed_bytes(&self) -> Option<(usize, Instant)> {
        let state = self.state();
        Some((state.call_bytes, state.duties.oldest()?))
    }

    /// Asks its client to leave if nothing is to be lost by it; says whether that was so. A
    /// connection that it says no of is to be cut off.
    pub(super) fn close(&self) -> bool {
        let state = self.state();
        let idle = state.stage == Stage::Answered && state.duties.is_empty();
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

// === impl State ===

impl State {
    /// The client has not ended its TLS handshake in time.
    fn late_handshake(&self, bounds: &ConnectionBounds, now: Instant) -> Option<DropReason> {
        let deadline = self.turn.since() + bounds.handshake_timeout;
        (deadline <= now).then_some(DropReason::Handshake)
    }

    /// The client has not sent the header of a request in time.
    fn late_header(&self, bounds: &ConnectionBounds, now: Instant) -> Option<DropReason> {
        let deadline = self.header.expected_since()? + bounds.request_timeout;
        (deadline <= now).then_some(DropReason::Request)
    }

    /// The client has sent nothing for long, on its turn.
    fn silence(&self, bounds: &ConnectionBounds, now: Instant) -> Option<DropReason> {
        let deadline = self.last_read_at + bounds.idle_timeout;
        (!self.turn.is_ours() && deadline <= now).then_some(DropReason::Idle)
    }
}
