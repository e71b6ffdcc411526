//! Transport of calls to the coordinators.

use std::future::Future;

use tokio::sync::mpsc;
use tollgate_core::lease::{ClientRun, ResourceId};
use tollgate_core::message::{Refresh, Refreshed, Release};

/// Transport of calls to the coordinators: over gRPC, or straight to a lease table in the same process.
pub trait Transport: Send + Sync + 'static {
    /// Asks for leases.
    ///
    /// # Errors
    /// If no coordinator answers, the reason for the log.
    fn refresh(
        &self,
        refresh: Refresh,
    ) -> impl Future<Output = Result<Refreshed, String>> + Send + '_;

    /// Gives leases back. No answer matters: what gets lost expires.
    fn release(&self, release: Release) -> impl Future<Output = ()> + Send + '_;

    /// Sends to `nudges` what coordinators name for `client`, as long as its stream is open; returns the
    /// gRPC status with which it ends.
    fn watch(
        &self,
        client: ClientRun,
        nudges: mpsc::Sender<Vec<ResourceId>>,
    ) -> impl Future<Output = u32> + Send + '_;
}
