//! What can go wrong.

use tollgate_tests::relay::Quality;

/// Something that goes wrong for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A coordinator is killed where it stands, and started again at the end.
    Kill(Whom),
    /// A coordinator is stopped where it is (SIGSTOP), and woken at the end.
    Freeze(Whom),
    /// A coordinator's ways to etcd.
    ToEtcd(Whom, Quality),
    /// The way on which the other coordinators reach one.
    FromPeers(Whom, Quality),
    /// The ways on which all clients reach a coordinator.
    FromClients(Whom, Quality),
    /// The ways of an Envoy to all coordinators.
    OfEnvoy(usize, Quality),
    /// So many of the three members of etcd are stopped where they are.
    EtcdMembers(usize),
    /// All coordinators are stopped in order and started again, one after the other.
    Roll,
    /// An Envoy is killed and started again.
    RestartEnvoy(usize),
    /// A coordinator's wall clock is set off by so many seconds, and right again at the end.
    Clock(Whom, i64),
}

/// Which coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whom {
    /// Whoever is master of the shard of the tenant that is watched when it begins.
    Master,
    /// The one of that index.
    Node(usize),
}

// === impl Fault ===

impl Fault {
    /// Whether every Envoy can go on all the time, and a majority of etcd and of the coordinators
    /// with it: if nothing else fails, nobody who has a lease loses it.
    pub(crate) fn spares_leases(self) -> bool {
        match self {
            Self::OfEnvoy(..) | Self::RestartEnvoy(_) => false,
            Self::EtcdMembers(count) => count < 2,
            _ => true,
        }
    }
}
