//! Leases as one node serves them: the tasks that own the lease tables, routing to the master of a
//! shard, leases from a parent, drains, and statistics.

pub mod buckets;
pub mod derived;
pub mod drains;
pub mod driver;
pub mod history;
pub mod metrics;
pub mod nudges;
pub mod parent;
pub mod router;
pub mod rules;
pub mod shards;
pub mod stats;
pub mod view;
