//! One call: its bytes, and the side that waits for the other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::activity::{Activity, DutyId};
use super::framing::MessageProgress;
use super::memory::{CALL_LEN, CallMemory};
use super::metrics::DropReason;
use super::table::ConnectionTable;
use crate::tls::Listener;

/// The most bytes of the request of a probe. An Envoy's has some hundred.
const PROBE_LEN_MAX: usize = 4 << 10;

/// The most bytes that the calls of a connection hold for one of them to be let past the bounds of
/// memory as a probe: one at a time, and another whose answer is not sent.
const PROBE_HELD_MAX: usize = PROBE_LEN_MAX + 2 * CALL_LEN;

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
    request_timeout: Duration,
    response_timeout: Duration,
    /// A probe is answered also when there is no memory for other calls, as long as it is small.
    probe: bool,
    /// Whether an answer for which there is no memory is given up. A gRPC client tries again, and a
    /// stream would go on to answer; those who read the admin API are few.
    gives_up: bool,
    request: Mutex<RequestState>,
}

/// The request of a call, as long as it takes memory.
#[derive(Debug)]
struct RequestState {
    bytes: usize,
    progress: MessageProgress,
    step: CallStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallStep {
    /// The client has to send the rest of the body.
    Receiving(DutyId),
    /// The answer is being made.
    Answering,
    /// The answer has begun before the end of the request, as that of a stream does. The client has to
    /// send the rest of a message that it has begun.
    Streaming(Option<DutyId>),
    /// The answer is made.
    Answered,
}

/// Bytes of an answer, counted until this is dropped.
#[derive(Debug)]
pub(super) struct AnswerCharge {
    call: Arc<Call>,
    bytes: usize,
    duty: DutyId,
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
        let held = activity.call_bytes();
        let is_small =
            bytes <= PROBE_LEN_MAX && held.saturating_add(bytes) <= PROBE_HELD_MAX - CALL_LEN;
        if !(probe && is_small) {
            let max = memory.max_of_connection();
            if held >= max {
                return Err(CallRefusal::Connection(max));
            }
            if !memory.has_room(held) {
                return Err(CallRefusal::All);
            }
        }
        let times = &table.limits.times;
        let bytes = bytes.saturating_add(CALL_LEN);
        let held = activity.take(bytes);
        memory.take(bytes, held);
        activity.begin_call();
        let duty = activity.begin_duty(DropReason::Request, times.request_timeout, Instant::now());
        Ok(Arc::new(Self {
            activity: Arc::clone(activity),
            memory: memory.clone(),
            request_timeout: times.request_timeout,
            response_timeout: times.response_timeout,
            probe,
            gives_up: table.limits.listener == Listener::Grpc && !probe,
            request: Mutex::new(RequestState {
                bytes,
                progress: MessageProgress::default(),
                step: CallStep::Receiving(duty),
            }),
        }))
    }

    /// Counts `bytes` of the request's body, with which it has made `progress`.
    ///
    /// # Errors
    /// If they are too many.
    pub(super) fn receive(
        &self,
        bytes: usize,
        progress: MessageProgress,
    ) -> Result<(), CallRefusal> {
        let mut request = self.request();
        if request.step == CallStep::Answered {
            return Ok(());
        }
        request.bytes += bytes;
        let held = self.activity.take(bytes);
        let within = self.memory.take(bytes, held);
        let before = std::mem::replace(&mut request.progress, progress);
        if let CallStep::Streaming(duty) = request.step {
            let is_next = before.complete != progress.complete;
            if let Some(duty) = duty.filter(|_| is_next) {
                self.activity.end_duty(duty);
            }
            self.stream(&mut request, duty.filter(|_| !is_next));
        }
        let max = self.memory.max_of_connection();
        match () {
            () if self.probe && request.bytes > PROBE_LEN_MAX + CALL_LEN => Err(CallRefusal::Probe),
            () if self.probe && held <= PROBE_HELD_MAX => Ok(()),
            () if held > max => Err(CallRefusal::Connection(max)),
            () if !within => Err(CallRefusal::All),
            () => Ok(()),
        }
    }

    /// The request is complete: from now on its client waits for us.
    pub(super) fn received(&self) {
        let mut request = self.request();
        match request.step {
            CallStep::Receiving(duty) => {
                self.activity.end_duty(duty);
                self.activity.begin_answer(Instant::now());
                request.step = CallStep::Answering;
            }
            CallStep::Streaming(_) => self.end_request(&mut request),
            CallStep::Answering | CallStep::Answered => {}
        }
    }

    /// The answer is made, or has begun. The request takes no memory any more, but for a message that
    /// is not complete.
    pub(super) fn answered(&self) {
        let mut request = self.request();
        match request.step {
            CallStep::Receiving(duty) => {
                self.activity.end_duty(duty);
                self.stream(&mut request, None);
            }
            CallStep::Answering | CallStep::Streaming(_) | CallStep::Answered => {
                self.end_request(&mut request);
            }
        }
    }

    /// The rest of the request is read by nobody.
    pub(super) fn body_dropped(&self) {
        let mut request = self.request();
        request.progress.begun = 0;
        if let CallStep::Streaming(_) = request.step {
            self.end_request(&mut request);
        }
    }

    /// Goes on with a request that is a stream. The message that has begun, if there is one, takes
    /// memory and has a deadline, which is `duty` if it began before.
    fn stream(&self, request: &mut RequestState, duty: Option<DutyId>) {
        let begun = request.progress.begun;
        let duty = match begun {
            0 => None,
            _ => duty.or_else(|| Some(self.begin_duty())),
        };
        request.step = CallStep::Streaming(duty);
        self.give_back(request, begun);
    }

    fn begin_duty(&self) -> DutyId {
        let (reason, time) = (DropReason::Request, self.request_timeout);
        self.activity.begin_duty(reason, time, Instant::now())
    }

    /// Ends the request: its client has to send no more of it, and it takes no memory.
    fn end_request(&self, request: &mut RequestState) {
        match request.step {
            CallStep::Receiving(duty) | CallStep::Streaming(Some(duty)) => {
                self.activity.end_duty(duty)
            }
            CallStep::Answering => self.activity.end_answer(Instant::now()),
            CallStep::Streaming(None) | CallStep::Answered => {}
        }
        request.step = CallStep::Answered;
        self.give_back(request, 0);
    }

    /// Gives back the memory of `request` but for `left` bytes.
    fn give_back(&self, request: &mut RequestState, left: usize) {
        let bytes = request.bytes.saturating_sub(left);
        request.bytes -= bytes;
        self.activity.give_back(bytes);
        self.memory.give_back(bytes);
    }

    fn request(&self) -> MutexGuard<'_, RequestState> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts `bytes` of the answer until they are sent, for which they have a deadline.
    ///
    /// # Errors
    /// If there is no memory for them, and they are to be given up.
    pub(super) fn charge(self: &Arc<Self>, bytes: usize) -> Result<AnswerCharge, CallRefusal> {
        let size = u32::try_from(bytes / BYTES_PER_SECOND).unwrap_or(u32::MAX);
        let time = self.response_timeout + Duration::from_secs(size.into());
        let bytes = bytes.saturating_add(CALL_LEN);
        let held = self.activity.take(bytes);
        let within = self.memory.take(bytes, held);
        let duty = self
            .activity
            .begin_duty(DropReason::Response, time, Instant::now());
        let charge = AnswerCharge {
            call: Arc::clone(self),
            bytes,
            duty,
        };
        if within || !self.gives_up {
            Ok(charge)
        } else {
            Err(CallRefusal::All)
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.end_request(&mut self.request());
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
        call.activity.end_duty(self.duty);
        call.activity.give_back(self.bytes);
        call.memory.give_back(self.bytes);
    }
}
