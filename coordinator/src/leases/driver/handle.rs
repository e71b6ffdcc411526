//! Handle of a driver.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, mpsc, oneshot};
use tollgate_core::fleet::is_slow;
use tollgate_core::lease::{Answer, ClientId, Origin};
use tollgate_core::lease_server::{DrainError, LeaseServer};
use tollgate_core::units::Instant;
use tollgate_proto::request::{Refresh, Release};
use tollgate_proto::response::ScopeAnswer;

use super::event::DriverEvent;
use super::{Driver, DriverError, LeaseError};
use crate::leases::derived::{DerivedAnswers, DerivedCall};

/// Events that wait for the driver. A bulk call takes about a millisecond, so a full queue is
/// already later than a client waits.
pub(super) const QUEUE_LEN: usize = 1024;

/// Longest wait of a caller for a place in the queue.
pub(super) const QUEUE_WAIT: Duration = Duration::from_secs(1);

/// Calls for more scopes, or resources, than this are bulk calls.
pub(super) const BULK_LEN: usize = 64;

/// Bulk calls in the queue at a time. A small call waits for no more of them; the other bulk calls
/// wait before the queue, in order.
pub(super) const BULK_CALLS: usize = 8;

/// Bulk calls in the queue and before it. A decoded one takes many times as much memory as its bytes
/// on the wire: 0.4 MB for a thousand scopes with four units each.
pub(super) const BULK_CALLS_HELD: usize = 64;

/// Sends events to a [`Driver`].
#[derive(Clone, Debug)]
pub struct DriverHandle {
    pub(super) events: mpsc::Sender<DriverEvent>,
    /// Permits for bulk calls in the queue.
    bulk: Arc<Semaphore>,
    /// Permits for bulk calls in the queue and before it.
    pub(super) bulk_held: Arc<Semaphore>,
    pub(super) origin: Origin,
}

/// Permits of one bulk call, given back when this is dropped.
#[derive(Debug)]
struct BulkPermit<'a> {
    _queue: SemaphorePermit<'a>,
    _held: SemaphorePermit<'a>,
}

// === impl DriverHandle ===

impl DriverHandle {
    /// A handle to the driver of `origin`, and its events.
    pub(super) fn new(origin: Origin) -> (Self, mpsc::Receiver<DriverEvent>) {
        let (sender, events) = mpsc::channel(QUEUE_LEN);
        let handle = Self {
            events: sender,
            bulk: Arc::new(Semaphore::new(BULK_CALLS)),
            bulk_held: Arc::new(Semaphore::new(BULK_CALLS_HELD)),
            origin,
        };
        (handle, events)
    }

    /// The shard and term of the driver's answers.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Answers a client, one answer for each scope in order.
    ///
    /// # Errors
    /// If the driver cannot be reached.
    pub async fn refresh(&self, refresh: Refresh) -> Result<Vec<ScopeAnswer>, DriverError> {
        let _permit = self.bulk_permit(refresh.scopes.len()).await?;
        let refresh = move |driver: &mut Driver, now| driver.refresh(now, &refresh);
        self.call(|reply| DriverEvent::ask_stored(reply, refresh, withhold_draws))
            .await
    }

    /// Takes the permits of a call for `scopes` scopes; a small call needs none.
    async fn bulk_permit(&self, scopes: usize) -> Result<Option<BulkPermit<'_>>, DriverError> {
        if scopes <= BULK_LEN {
            return Ok(None);
        }
        let held = self.bulk_held.try_acquire();
        let held = held.map_err(|_| DriverError::Busy)?;
        let queue = tokio::time::timeout(QUEUE_WAIT, self.bulk.acquire()).await;
        let queue = queue.map_err(|_| DriverError::Busy)?;
        Ok(Some(BulkPermit {
            _queue: queue.map_err(|_| DriverError::Stopped)?,
            _held: held,
        }))
    }

    /// Answers a client whose requests are derived from the lease table, in order.
    ///
    /// # Errors
    /// If the driver cannot be reached.
    pub async fn refresh_derived(&self, call: DerivedCall) -> Result<DerivedAnswers, DriverError> {
        let _permit = self.bulk_permit(call.requests.len()).await?;
        let refresh = move |driver: &mut Driver, now| driver.refresh_derived(now, call);
        self.call(|reply| DriverEvent::ask(reply, refresh)).await
    }

    /// Takes leases back.
    ///
    /// # Errors
    /// If the driver cannot be reached.
    pub async fn release(&self, release: Release) -> Result<(), DriverError> {
        let _permit = self.bulk_permit(release.resources.len()).await?;
        let release = move |driver: &mut Driver, _| driver.release(&release);
        self.call(|reply| DriverEvent::tell(reply, release)).await
    }

    /// Gives `client` nothing for `time`; lets it serve again if that is zero.
    ///
    /// # Errors
    /// If the driver cannot be reached; within, if too many clients are drained already.
    pub async fn drain(
        &self,
        client: ClientId,
        time: Duration,
    ) -> Result<Result<(), DrainError>, DriverError> {
        let drain = move |driver: &mut Driver, now: Instant| {
            let until = now.saturating_add(time);
            driver.server.handle_drain(now, &client, until)
        };
        self.call(|reply| DriverEvent::tell(reply, drain)).await
    }

    /// Returns the result of `look` at the lease table. No client is answered meanwhile, so it must
    /// not look at more than some thousand entries.
    ///
    /// # Errors
    /// If the driver cannot be reached.
    pub async fn view<T: Send + 'static>(
        &self,
        look: impl FnOnce(&LeaseServer, Instant) -> T + Send + 'static,
    ) -> Result<T, DriverError> {
        let look = move |driver: &mut Driver, now| look(&driver.server, now);
        self.call(|reply| DriverEvent::ask(reply, look)).await
    }

    pub(super) async fn call<T>(
        &self,
        event: impl FnOnce(oneshot::Sender<T>) -> DriverEvent,
    ) -> Result<T, DriverError> {
        let place = tokio::time::timeout(QUEUE_WAIT, self.events.reserve()).await;
        let place = place
            .map_err(|_| DriverError::Busy)?
            .map_err(|_| DriverError::Stopped)?;
        let (reply, answer) = oneshot::channel();
        place.send(event(reply));
        answer.await.map_err(|_| DriverError::Stopped)
    }
}

// === free functions ===

/// Takes out the answers that tell of tokens of a bucket that is stored: another master may not know of them.
fn withhold_draws(answers: &mut Vec<ScopeAnswer>) {
    for answer in answers {
        let mut units = answer.outcome.iter().flatten();
        if units.any(|unit| tells_of_stored(&unit.answer)) {
            answer.outcome = Err(LeaseError::NotStored.into());
        }
    }
}

fn tells_of_stored(answer: &Answer) -> bool {
    let burst = answer.burst.filter(|_| answer.draw.is_some());
    burst.is_some_and(|burst| is_slow(answer.capacity.as_rate(), burst))
}
