//! The shards whose master this node is: one driver for each, from its election to the end of its
//! term.
//!
//! The rule behind this module: no answer leaves in a term that may be over. A process can be
//! stopped between any two instructions, so the term is checked before the driver is asked, and
//! again when it has answered; a late answer is dropped. Its leases stay in the table, which can
//! only count too much.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tollgate_core::cluster::ShardId;
use tollgate_core::fleet::QuotaChangeRequest;
use tollgate_core::lease::{ClientId, Epoch, ResourceId};
use tollgate_core::lease_server::{DrainError, LeaseServer};
use tollgate_core::units::Instant;

use crate::drains::NodeDrains;
use crate::driver::{DriverError, QuotaFault, ScopeQuotas, ScopeQuotasPage};
use crate::rules::RuleNames;
use crate::visit::{ResourceVisitor, visit_resources};

mod mastership;
mod supervisor;

pub use self::mastership::{Mastership, MastershipError};
pub use self::supervisor::ShardSupervisor;

/// The shards of this node, kept up to date; clones see the same.
#[derive(Clone, Debug)]
pub struct Shards {
    masterships: watch::Receiver<Arc<BTreeMap<ShardId, Mastership>>>,
    drains: NodeDrains,
    rules: RuleNames,
}

// === impl Shards ===

impl Shards {
    /// Returns the mastership of `shard`, if this node has it.
    pub fn get(&self, shard: ShardId) -> Option<Mastership> {
        let mastership = self.masterships.borrow().get(&shard).cloned();
        mastership.filter(Mastership::holds)
    }

    /// All masterships of this node, in order of their shards.
    pub fn all(&self) -> Vec<Mastership> {
        let all = self.masterships.borrow().clone();
        all.values()
            .filter(|mastership| mastership.holds())
            .cloned()
            .collect()
    }

    /// The highest term of this node; zero if it is master of no shard.
    pub fn epoch(&self) -> Epoch {
        let epochs = self.all().into_iter().map(|mastership| mastership.epoch());
        epochs.max().unwrap_or_default()
    }

    /// Names of the rules that this node has been asked for as a master.
    pub fn rules(&self) -> &RuleNames {
        &self.rules
    }

    /// Resolves when this node gains or loses a mastership.
    pub async fn changed(&mut self) {
        if self.masterships.changed().await.is_err() {
            std::future::pending().await
        }
    }

    /// Resolves once this node is master of `count` shards, or never will be.
    pub async fn wait_for(&mut self, count: usize) {
        // An error means that the supervisor has ended.
        let _ = self.masterships.wait_for(|all| all.len() >= count).await;
    }

    /// Gives `client` nothing for `time`, in all shards of this node and in those that it gains
    /// meanwhile.
    ///
    /// # Errors
    /// If a driver cannot be reached; within, if too many clients are drained already.
    pub async fn drain(
        &self,
        client: &ClientId,
        time: Duration,
    ) -> Result<Result<(), DrainError>, DriverError> {
        if let Err(error) = self.drains.set(client, time) {
            return Ok(Err(error));
        }
        for mastership in self.all() {
            if let Err(error) = mastership.driver.drain(client.clone(), time).await? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// Returns the usage of the quotas of `scope`; none if it has none, or this node is not master of its shard.
    ///
    /// # Errors
    /// If a driver cannot be reached.
    pub async fn scope_quotas(&self, scope: &Arc<str>) -> Result<Option<ScopeQuotas>, DriverError> {
        for mastership in self.all() {
            if let Some(quotas) = mastership.driver.scope_quotas(scope.clone()).await? {
                return Ok(Some(quotas));
            }
        }
        Ok(None)
    }

    /// Returns the usage of the quotas of at most `max` scopes after `after` of each shard of this node.
    ///
    /// # Errors
    /// If a driver cannot be reached.
    pub async fn quota_pages(
        &self,
        after: &str,
        max: usize,
    ) -> Result<Vec<ScopeQuotasPage>, DriverError> {
        let mut pages = Vec::new();
        for mastership in self.all() {
            pages.push(mastership.driver.quota_page(after.to_owned(), max).await?);
        }
        Ok(pages)
    }

    /// Changes what is used of a quota of `resource`; none if this node is not master of its shard.
    ///
    /// # Errors
    /// If a driver cannot be reached; within, if there is no such quota, or it cannot be changed.
    pub async fn change_quota(
        &self,
        resource: &ResourceId,
        request: &QuotaChangeRequest,
    ) -> Result<Option<Result<(), QuotaFault>>, DriverError> {
        for mastership in self.all() {
            let changed = mastership
                .driver
                .change_quota(resource.clone(), request.clone());
            let changed = changed.await?;
            if changed.is_some() {
                return Ok(changed.filter(|_| mastership.holds()));
            }
        }
        Ok(None)
    }

    /// Returns the result of `look` at each lease table of this node, in order. No client is answered
    /// meanwhile, so it must not look at more than some thousand entries.
    ///
    /// # Errors
    /// If a driver cannot be reached.
    pub async fn view<T: Send + 'static>(
        &self,
        look: impl Fn(&LeaseServer, Instant) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, DriverError> {
        let mut results = Vec::new();
        for mastership in self.all() {
            results.push(mastership.driver.view(look.clone()).await?);
        }
        Ok(results)
    }

    /// Shows `visitor` all lease tables of this node, and returns it.
    ///
    /// # Errors
    /// If a driver cannot be reached.
    pub async fn visit<W: ResourceVisitor>(&self, mut visitor: W) -> Result<W, DriverError> {
        for mastership in self.all() {
            visitor.enter(mastership.shard);
            visitor = visit_resources(&mastership.driver, visitor).await?;
        }
        Ok(visitor)
    }
}
