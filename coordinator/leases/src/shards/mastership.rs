//! Mastership of one shard.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tollgate_cluster::election::Term;
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::Epoch;
use tollgate_proto::request::{Refresh, Release};
use tollgate_proto::response::ScopeAnswer;

use crate::derived::{DerivedAnswers, DerivedCall};
use crate::driver::{DriverError, DriverHandle};

/// A shard of which this node is master, with its driver.
#[derive(Clone, Debug)]
pub struct Mastership {
    pub(super) shard: ShardId,
    pub(super) term: Term,
    pub(super) driver: DriverHandle,
}

/// Reason for which the master of a shard did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MastershipError {
    /// Its term is over, or may be.
    #[error("this node is not the master of shard {0} any more")]
    Over(ShardId),
    /// The driver did not answer.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

// === impl Mastership ===

impl Mastership {
    /// The shard.
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// The epoch of its term.
    pub fn epoch(&self) -> Epoch {
        self.driver.origin().epoch
    }

    /// Whether its term still holds.
    pub fn holds(&self) -> bool {
        self.term.holds()
    }

    /// Remaining time of the term; `None` if it has no deadline.
    pub fn left(&self) -> Option<Duration> {
        self.term.left()
    }

    /// Answers a client, one answer for each scope in order.
    ///
    /// # Errors
    /// If the term is over or the driver cannot be reached.
    pub async fn refresh(&self, refresh: Refresh) -> Result<Vec<ScopeAnswer>, MastershipError> {
        self.within_term(self.driver.refresh(refresh)).await
    }

    /// Answers a client whose requests are derived from the lease table, in order.
    ///
    /// # Errors
    /// If the term is over or the driver cannot be reached.
    pub async fn refresh_derived(
        &self,
        call: DerivedCall,
    ) -> Result<DerivedAnswers, MastershipError> {
        self.within_term(self.driver.refresh_derived(call)).await
    }

    /// Takes leases back.
    ///
    /// # Errors
    /// If the term is over or the driver cannot be reached.
    pub async fn release(&self, release: Release) -> Result<(), MastershipError> {
        self.within_term(self.driver.release(release)).await
    }

    /// Ends the term, and sends the snapshot for the next master.
    pub(super) async fn hand_over(self, reply: oneshot::Sender<Option<Bytes>>) {
        let snapshot = self.driver.hand_over().await;
        self.term.end();
        // Without a snapshot the next master learns.
        let _ = reply.send(snapshot.ok().map(Bytes::from));
    }

    async fn within_term<T>(
        &self,
        answer: impl Future<Output = Result<T, DriverError>>,
    ) -> Result<T, MastershipError> {
        if !self.term.holds() {
            return Err(MastershipError::Over(self.shard));
        }
        let answer = answer.await?;
        if !self.term.holds() {
            return Err(MastershipError::Over(self.shard));
        }
        Ok(answer)
    }
}
