//! Settings of a driver.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tollgate_config::Config;
use tollgate_config::catalog::Catalog;
use tollgate_core::lease_server::{Bounds, Start};
use tollgate_core::units::Instant;
use tollgate_net::clock::Clock;

use super::LeaseCount;
use crate::buckets::BucketStore;
use crate::metrics::LeaseMetrics;
use crate::nudges::Nudges;
use crate::rules::RuleNames;

/// Settings that all drivers of a node share.
#[derive(Clone, Debug)]
pub struct DriverSettings {
    /// Bounds of each driver, except for leases, whose bound is shared.
    pub bounds: Bounds,
    /// Leases of all drivers together.
    pub leases: LeaseCount,
    /// The newest configuration.
    pub catalog: watch::Receiver<Arc<Catalog>>,
    /// Number of shards; `None` for a coordinator that is alone.
    pub shards: Option<NonZeroU16>,
    /// Initial knowledge of a master without its predecessor's snapshot.
    pub start: Start,
    /// Clock of the lease tables.
    pub clock: Clock,
    /// Metrics.
    pub metrics: LeaseMetrics,
    /// Watches of the clients to nudge.
    pub nudges: Nudges,
    /// Names of the rules that clients ask for.
    pub rules: RuleNames,
    /// Store of the fleet's slow buckets; none if a crash fills them.
    pub buckets: Option<Arc<dyn BucketStore>>,
}

// === impl DriverSettings ===

impl DriverSettings {
    /// The same for a shard that had no master for the time `vacant_for`, as far as is known. That
    /// says nothing if the configuration has changed since, at `configured_at`: leases may have been
    /// longer before.
    pub(crate) fn after_vacancy(
        &self,
        vacant_for: Option<Duration>,
        configured_at: Instant,
    ) -> Self {
        let since = vacant_for.map(|time| self.clock.now().saturating_sub(time));
        let start = match (self.start, since) {
            (Start::Learning, Some(since)) if configured_at <= since => Start::Vacant { since },
            (start, _) => start,
        };
        Self {
            start,
            ..self.clone()
        }
    }

    /// Settings of a coordinator that is alone, with `config`, and lends at once.
    pub fn alone(config: Config) -> Self {
        let catalog = Catalog::new(config.catalog);
        Self {
            bounds: config.bounds,
            leases: LeaseCount::default(),
            catalog: watch::channel(Arc::new(catalog)).1,
            shards: None,
            start: Start::Fresh,
            clock: Clock::start(),
            metrics: LeaseMetrics::default(),
            nudges: Nudges::default(),
            rules: RuleNames::default(),
            buckets: None,
        }
    }
}
