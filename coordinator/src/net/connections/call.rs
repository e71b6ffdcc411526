//! One call: its bytes, and the side that waits for the other.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::activity::Activity;
use super::memory::CallMemory;
use super::metrics::DropReason;
use super::table::ConnectionTable;

/// The most bytes that the calls of a connection hold for one of them to be let past the bounds of
/// memory as a probe, and the most of the request of a probe. An Envoy's has some hundred.
const PROBE_LEN_MAX: usize = 4 << 10;

/// An answer has a second more for each so many bytes.
const BYTES_PER_SECOND: usize = 256 << 10;

/// Reason for which a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CallRefusal {
    /// Its connection holds too much.
    #[error(
        "the calls of this connection hold more than {0} bytes: read their answers, or make fewer \
         calls at a time"
    )]
    Connection(usize),
    /// All connections together do.
    #[error("the calls of all connections hold more memory than connections.max_call_bytes")]
    All,
    /// A health check needs no such request.
    #[error("the request of a health check has more than {PROBE_LEN_MAX} bytes")]
    Probe,
    /// The connection is only for probes.
    #[error("too many connections: this one is kept for health checks")]
    ProbesOnly,
}

/// A call that is under way. It ends when this is dropped: with the last byte of its answer, or when
/// its stream or connection does.
#[derive(Debug)]
pub(super) struct Call {
    activity: Arc<Activity>,
    memory: CallMemory,
    response_timeout: Duration,
    /// A probe is answered also when there is no memory for other calls, as long as it is small.
    probe: bool,
    request: Mutex<RequestState>,
}

/// The request of a call, as long as it takes memory.
#[derive(Debug)]
struct RequestState {
    bytes: usize,
    step: CallStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallStep {
    /// The client owes the rest of the body, under this number.
    Receiving(u64),
    /// The answer is being made.
    Working,
    /// The answer is made.
    Answered,
}

/// Bytes of an answer, counted until this is dropped.
#[derive(Debug)]
pub(super) struct AnswerCharge {
    call: Arc<Call>,
    bytes: usize,
    owed: u64,
}

// === impl Call ===

impl Call {
    /// A call on `activity` whose header has `bytes`.
    ///
    /// # Errors
    /// If there is no memory for it, or no place but for probes, and it is no `probe`.
    pub(super) fn begin(
        table: &ConnectionTable,
        activity: &Arc<Activity>,
        bytes: usize,
        probe: bool,
    ) -> Result<Arc<Self>, CallRefusal> {
        let memory = &table.memory;
        if !probe && activity.is_for_probes() {
            return Err(CallRefusal::ProbesOnly);
        }
        let held = activity.held();
        if !probe || held.saturating_add(bytes) > PROBE_LEN_MAX {
            let max = memory.max_of_connection();
            if held >= max {
                return Err(CallRefusal::Connection(max));
            }
            if !memory.has_room(held) {
                return Err(CallRefusal::All);
            }
        }
        let times = &table.limits.times;
        let held = activity.take(bytes);
        memory.take(bytes, held);
        activity.begin_call();
        let owed = activity.owe(DropReason::Request, times.request_timeout, Instant::now());
        Ok(Arc::new(Self {
            activity: Arc::clone(activity),
            memory: memory.clone(),
            response_timeout: times.response_timeout,
            probe,
            request: Mutex::new(RequestState {
                bytes,
                step: CallStep::Receiving(owed),
            }),
        }))
    }

    /// Counts `bytes` of the request's body.
    ///
    /// # Errors
    /// If they are too many.
    pub(super) fn receive(&self, bytes: usize) -> Result<(), CallRefusal> {
        let mut request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        if request.step == CallStep::Answered {
            return Ok(());
        }
        request.bytes += bytes;
        let held = self.activity.take(bytes);
        let within = self.memory.take(bytes, held);
        let max = self.memory.max_of_connection();
        match () {
            () if self.probe && request.bytes > PROBE_LEN_MAX => Err(CallRefusal::Probe),
            () if self.probe && held <= PROBE_LEN_MAX => Ok(()),
            () if held > max => Err(CallRefusal::Connection(max)),
            () if !within => Err(CallRefusal::All),
            () => Ok(()),
        }
    }

    /// The request is complete: from now on its client waits for us.
    pub(super) fn received(&self) {
        let mut request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        if let CallStep::Receiving(owed) = request.step {
            self.activity.paid(owed);
            self.activity.begin_work(Instant::now());
            request.step = CallStep::Working;
        }
    }

    /// The answer is made: the request takes no memory any more.
    pub(super) fn answered(&self) {
        let mut request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        match request.step {
            CallStep::Receiving(owed) => self.activity.paid(owed),
            CallStep::Working => self.activity.end_work(Instant::now()),
            CallStep::Answered => {}
        }
        request.step = CallStep::Answered;
        let bytes = std::mem::take(&mut request.bytes);
        self.activity.give_back(bytes);
        self.memory.give_back(bytes);
    }

    /// Counts `bytes` of the answer until they are sent, for which they have a deadline.
    pub(super) fn charge(self: &Arc<Self>, bytes: usize) -> AnswerCharge {
        let held = self.activity.take(bytes);
        self.memory.take(bytes, held);
        let size = u32::try_from(bytes / BYTES_PER_SECOND).unwrap_or(u32::MAX);
        let time = self.response_timeout + Duration::from_secs(size.into());
        let owed = self
            .activity
            .owe(DropReason::Response, time, Instant::now());
        AnswerCharge {
            call: Arc::clone(self),
            bytes,
            owed,
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.answered();
        self.activity.end_call();
    }
}

// === impl AnswerCharge ===

impl AnswerCharge {
    /// The last of the bytes was sent.
    pub(super) fn sent(&self) {
        self.call.activity.answered();
    }
}

impl Drop for AnswerCharge {
    fn drop(&mut self) {
        let call = &self.call;
        call.activity.paid(self.owed);
        call.activity.give_back(self.bytes);
        call.memory.give_back(self.bytes);
    }
}
