//! How the capacity of a resource is divided between its clients.
//!
//! A division says what a client is *entitled* to. What it gets is decided by the books, which
//! must also wait for capacity that others still hold under unexpired leases.

pub mod fair;
mod tree;

pub use fair::{FairShare, Handle};
