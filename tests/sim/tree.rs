//! Trees of coordinators: a root, regions, and below them leaves, each with processes of its own.
//!
//! The code under test is `LeaseServer` with the leases of its parent, and under it the same
//! processes as elsewhere. Coordinators are away, start again with a snapshot or without, are cut
//! off from their parents one way or both, and the root's capacity changes.

pub(crate) mod coordinator;
pub(crate) mod laws;
pub(crate) mod reached;
pub(crate) mod scenario;
pub(crate) mod world;

pub(crate) use self::world::World;
