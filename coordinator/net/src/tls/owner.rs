//! Owners of certificates.

use super::Listener;

/// Part of a coordinator that has a certificate and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateOwner {
    /// A listener, which shows them to its clients.
    Listener(Listener),
    /// This node, which shows them to the other nodes of its cluster.
    Cluster,
    /// This coordinator, which shows them to its parent.
    Parent,
}

// === impl CertificateOwner ===

impl CertificateOwner {
    /// The name in logs and in labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Listener(listener) => listener.name(),
            Self::Cluster => "cluster",
            Self::Parent => "parent",
        }
    }

    /// The label of its certificate.
    pub(super) const fn label(self) -> (&'static str, &'static str) {
        ("certificate", self.name())
    }

    /// The section of the configuration.
    pub const fn section(self) -> &'static str {
        match self {
            Self::Listener(Listener::Grpc) => "tls.grpc",
            Self::Listener(Listener::Http) => "tls.http",
            Self::Cluster => "cluster.tls",
            Self::Parent => "parent.tls",
        }
    }
}

impl From<Listener> for CertificateOwner {
    fn from(listener: Listener) -> Self {
        Self::Listener(listener)
    }
}
