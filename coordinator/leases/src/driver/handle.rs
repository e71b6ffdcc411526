//! Handle of a driver.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, mpsc, oneshot};
use tollgate_core::fleet::QuotaChangeRequest;
use tollgate_core::lease::{ClientId, Origin, ResourceId};
use tollgate_core::lease_server::{DrainError, LeaseServer};
use tollgate_core::units::Instant;
use tollgate_proto::request::{Refresh, Release};
use tollgate_proto::response::ScopeAnswer;

use super::command::{Command, Reply, View};
use super::{DriverError, QuotaFault, ScopeQuotas, ScopeQuotasPage};
use crate::derived::{DerivedAnswers, DerivedCall};

/// Commands that wait for the driver. A bulk call takes about a millisecond, so a full queue is
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

/// Sends commands to a [`Driver`](super::Driver).
#[derive(Clone, Debug)]
pub struct DriverHandle {
    pub(super) commands: mpsc::Sender<Command>,
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
    /// A handle to the driver of `origin`, and its commands.
    pub(super) fn new(origin: Origin) -> (Self, mpsc::Receiver<Command>) {
        let (sender, commands) = mpsc::channel(QUEUE_LEN);
        let handle = Self {
            commands: sender,
            bulk: Arc::new(Semaphore::new(BULK_CALLS)),
            bulk_held: Arc::new(Semaphore::new(BULK_CALLS_HELD)),
            origin,
        };
        (handle, commands)
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
        self.call(|reply| Command::Refresh(refresh, reply)).await
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
        self.call(|reply| Command::RefreshDerived(call, reply))
            .await
    }

    /// Takes leases back.
    ///
    /// # Errors
    /// If the driver cannot be reached.
    pub async fn release(&self, release: Release) -> Result<(), DriverError> {
        let _permit = self.bulk_permit(release.resources.len()).await?;
        self.call(|reply| Command::Release(release, reply)).await
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
        self.call(|reply| Command::Drain(client, time, reply)).await
    }

    /// Returns the usage of the quotas of `scope`; none if it has none, or belongs to another shard.
    ///
    /// # Errors
    /// If the driver cannot be reached.
    pub async fn scope_quotas(&self, scope: Arc<str>) -> Result<Option<ScopeQuotas>, DriverError> {
        self.call(|reply| Command::ScopeQuotas(scope, reply)).await
    }

    /// Returns the usage of the quotas of at most `max` scopes after `after`.
    ///
    /// # Errors
    /// If the driver cannot be reached.
    pub async fn quota_page(
        &self,
        after: String,
        max: usize,
    ) -> Result<ScopeQuotasPage, DriverError> {
        self.call(|reply| Command::ScopeQuotasPage(after, max, reply))
            .await
    }

    /// Changes what is used of a quota of `resource`, and has that stored; none if the resource belongs to another
    /// shard.
    ///
    /// # Errors
    /// If the driver cannot be reached; within, if there is no such quota, or it cannot be changed.
    pub async fn change_quota(
        &self,
        resource: ResourceId,
        request: QuotaChangeRequest,
    ) -> Result<Option<Result<(), QuotaFault>>, DriverError> {
        self.call(|reply| Command::ChangeQuota(resource, request, reply))
            .await
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
        self.call(|reply| Command::View(View::new(look, reply)))
            .await
    }

    pub(super) async fn call<T>(
        &self,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, DriverError> {
        let place = tokio::time::timeout(QUEUE_WAIT, self.commands.reserve()).await;
        let place = place
            .map_err(|_| DriverError::Busy)?
            .map_err(|_| DriverError::Stopped)?;
        let (reply, answer) = oneshot::channel();
        place.send(command(reply));
        answer.await.map_err(|_| DriverError::Stopped)
    }
}
