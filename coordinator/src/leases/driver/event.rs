//! Events of a driver.

use tokio::sync::oneshot;
use tollgate_core::lease_server::LeaseServer;
use tollgate_core::units::Instant;

use super::Driver;

/// Event that a driver handles.
pub(super) enum DriverEvent {
    /// Work with the lease table, which sends its result itself.
    Work(Box<Work>),
    /// Ends the driver.
    HandOver(oneshot::Sender<FinalState>),
}

type Work = dyn FnOnce(&mut Driver, Instant) + Send;

/// The lease table of a driver that ended, and the time at which it did.
pub(super) type FinalState = Box<(LeaseServer, Instant)>;

// === impl DriverEvent ===

impl DriverEvent {
    /// Work whose result goes to `reply`; nothing is done for a caller that has gone.
    pub(super) fn ask<T: Send + 'static>(
        reply: oneshot::Sender<T>,
        work: impl FnOnce(&mut Driver, Instant) -> T + Send + 'static,
    ) -> Self {
        Self::Work(Box::new(move |driver, now| {
            if !reply.is_closed() {
                let _ = reply.send(work(driver, now));
            }
        }))
    }

    /// The same for an answer that may tell of buckets that are to be stored before; without that `withhold`
    /// changes it.
    pub(super) fn ask_stored<T: Send + 'static>(
        reply: oneshot::Sender<T>,
        work: impl FnOnce(&mut Driver, Instant) -> T + Send + 'static,
        withhold: fn(&mut T),
    ) -> Self {
        Self::Work(Box::new(move |driver, now| {
            if !reply.is_closed() {
                let mut answer = work(driver, now);
                driver.reply_when_stored(now, move |is_stored| {
                    if !is_stored {
                        withhold(&mut answer);
                    }
                    let _ = reply.send(answer);
                });
            }
        }))
    }

    /// Work that is done even for a caller that has gone: it has nothing more to ask.
    pub(super) fn tell<T: Send + 'static>(
        reply: oneshot::Sender<T>,
        work: impl FnOnce(&mut Driver, Instant) -> T + Send + 'static,
    ) -> Self {
        Self::Work(Box::new(move |driver, now| {
            let _ = reply.send(work(driver, now));
        }))
    }
}
