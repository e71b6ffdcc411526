//! Division of a resource's capacity between its clients.
//!
//! A division says how much a client is *entitled* to. Its grant is decided by the allocation,
//! which must also wait for capacity that others still have under unexpired leases.

pub mod bands;
pub mod fair;
pub mod max_rate;
mod proportional;
mod sum_tree;
pub mod usage_share;

pub use bands::{BandHandles, PriorityBands};
pub use fair::{FairShare, Handle, Quantum};
