//! Faults that the tests inject.

use tollgate_tests::relay::LinkQuality;

/// A fault that lasts for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Kills a coordinator (SIGKILL), and starts it again at the end.
    Kill(FaultTarget),
    /// Stops a coordinator (SIGSTOP), and continues it at the end.
    Freeze(FaultTarget),
    /// Link quality from a coordinator to etcd.
    ToEtcd(FaultTarget, LinkQuality),
    /// Link quality from the other coordinators to one of them.
    FromPeers(FaultTarget, LinkQuality),
    /// Link quality from all clients to a coordinator.
    FromClients(FaultTarget, LinkQuality),
    /// Link quality from an Envoy to all coordinators.
    OfEnvoy(usize, LinkQuality),
    /// Stops (SIGSTOP) so many of the three members of etcd.
    EtcdMembers(usize),
    /// Shuts down and restarts all coordinators, one after the other.
    Roll,
    /// Kills an Envoy and starts it again.
    RestartEnvoy(usize),
    /// Sets a coordinator's wall clock off by so many seconds, and right again at the end.
    Clock(FaultTarget, i64),
}

/// The coordinator that a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultTarget {
    /// The master of the watched tenant's shard at the time the fault begins.
    Master,
    /// The node of that index.
    Node(usize),
}

// === impl Fault ===

impl Fault {
    /// Whether all Envoys and a majority of etcd and of the coordinators keep running: without another
    /// fault, no client then loses its lease.
    pub(crate) fn spares_leases(self) -> bool {
        match self {
            Self::OfEnvoy(..) | Self::RestartEnvoy(_) => false,
            Self::EtcdMembers(count) => count < 2,
            _ => true,
        }
    }
}
