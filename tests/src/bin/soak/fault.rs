//! Faults of a soak, one after the other.

use std::fmt;
use std::time::Duration;

use crate::fleet::NODES;

/// Length of a fault: longer than a coordinator's lease in etcd, and about two leases of an Envoy.
pub(crate) const LASTS: Duration = Duration::from_secs(10);

/// A fault, which ends after [`LASTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A coordinator is killed (SIGKILL) and started again.
    Kill(usize),
    /// A coordinator is stopped (SIGSTOP) and continued.
    Freeze(usize),
    /// etcd is stopped and continued.
    FreezeEtcd,
    /// All coordinators are killed and started again.
    KillAll,
    /// All coordinators are shut down and restarted in order, one after the other.
    Roll,
    /// Each Envoy gets another configuration of the filter, and drains what has the one before.
    Reload,
}

// === impl Fault ===

impl Fault {
    /// Returns all faults of all nodes, again and again.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let of_nodes = (0..NODES).flat_map(|node| [Self::Kill(node), Self::Freeze(node)]);
        let of_all = [Self::FreezeEtcd, Self::Roll, Self::KillAll];
        let with_reloads = of_nodes
            .chain(of_all)
            .flat_map(|fault| [Self::Reload, fault]);
        let all: Vec<Self> = with_reloads.collect();
        all.into_iter().cycle()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill(node) => write!(f, "coordinator {node} killed"),
            Self::Freeze(node) => write!(f, "coordinator {node} stopped"),
            Self::FreezeEtcd => f.write_str("etcd stopped"),
            Self::KillAll => f.write_str("all coordinators killed"),
            Self::Roll => f.write_str("rolling restart"),
            Self::Reload => f.write_str("configuration reloaded"),
        }
    }
}
