//! How the capacity of a resource is divided between its clients.
//!
//! A division says what a client is *entitled* to. What it gets is decided by the books, which
//! must also wait for capacity that others still hold under unexpired leases.

pub mod bands;
pub mod fair;
mod proportional;
mod sum_tree;

pub use bands::{BandHandles, PriorityBands};
pub use fair::{FairShare, Handle, Quantum};
