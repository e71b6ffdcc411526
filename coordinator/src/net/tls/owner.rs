//! Who has certificates.

use super::Door;

/// What a certificate and its key are for: the name in logs and in the label `door`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// A door, which shows them to who connects.
    Door(Door),
    /// This node, which shows them to the other nodes of its cluster.
    Cluster,
    /// This coordinator, which shows them to its parent.
    Parent,
}

// === impl Holder ===

impl Holder {
    /// The name in logs and in labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Door(door) => door.name(),
            Self::Cluster => "cluster",
            Self::Parent => "parent",
        }
    }

    /// The section of the configuration.
    pub const fn section(self) -> &'static str {
        match self {
            Self::Door(Door::Grpc) => "tls.grpc",
            Self::Door(Door::Http) => "tls.http",
            Self::Cluster => "cluster.tls",
            Self::Parent => "parent.tls",
        }
    }
}

impl From<Door> for Holder {
    fn from(door: Door) -> Self {
        Self::Door(door)
    }
}
