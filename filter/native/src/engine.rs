//! Engine of a worker thread, as its process and its calls use it.

use core::fmt::Debug;
use std::sync::Arc;

use tollgate_core::units::Instant;
use tollgate_engine::HostFailure;

use crate::mailbox::Mailbox;
use crate::settings::Settings;

/// An engine, which belongs to one worker thread of Envoy's, for other threads.
pub(crate) trait Engine: Debug + Send + Sync {
    /// Ticks the engine if that is due, and returns when it is due again.
    fn tick(&self, at: Instant) -> Instant;

    /// Hands over an event of the call that has `token`.
    fn handle_call(&self, token: u32, event: CallEvent<'_>);

    /// Takes settings over that streams of its thread may have later.
    fn take_over(&self, settings: &Settings);

    /// Returns the mailbox of a stream that the engine remembers.
    fn mailbox(&self, stream: u32) -> Option<Arc<Mailbox>>;

    /// Returns whether a panic has left it half changed.
    fn is_lost(&self) -> bool;

    /// Ends the waits that the engine will not end any more.
    fn give_up(&self, host_failure: Option<HostFailure>);
}

/// Event of a call, or of a stream to the coordinators.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallEvent<'a> {
    /// Messages of a stream.
    Messages(&'a [Vec<u8>]),
    /// The answer to a call.
    Answer(&'a [u8]),
    /// The status of a call that has failed.
    Failure(u32),
    /// The status with which a stream has ended.
    StreamEnd(u32),
}
