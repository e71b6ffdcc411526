//! Leases as one node serves them: the tasks that own the lease tables, routing to the master of a
//! shard, leases from a parent, and drains.

#![forbid(unsafe_code)]

pub mod buckets;
pub mod derived;
pub mod drains;
mod driver;
pub mod metrics;
pub mod nudges;
pub mod parent;
pub mod parent_metrics;
pub mod router;
pub mod rules;
pub mod shards;
pub mod visit;

pub use self::driver::{
    DriverError, DriverSettings, LeaseCount, QuotaFault, ScopeQuotas, ScopeQuotasPage,
};
