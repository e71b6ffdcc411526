//! What can be wrong with a cluster's configuration.

use std::net::SocketAddr;

use tollgate_core::cluster::SHARDS_MAX;

use super::NODE_LEN_MAX;
use super::etcd::{ENDPOINTS_MAX, PREFIX_LEN_MAX};

/// What can be wrong with a value of `cluster`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ClusterProblem {
    /// This build cannot take part in elections.
    #[error("needs etcd, which this build is without: build it with the feature `etcd`")]
    WithoutEtcd,
    /// Not a name of a node.
    #[error("{0:?} is not 1 to {NODE_LEN_MAX} letters, digits or any of `.-_`")]
    Node(String),
    /// No name, and a host whose name cannot stand in for it.
    #[error("is missing, and this host's name, {0:?}, is not a node's name")]
    Host(String),
    /// An address that others cannot know.
    #[error("is missing, and others cannot reach a node at {0}, where it listens")]
    Wildcard(SocketAddr),
    /// Not an address that others can reach.
    #[error("{0:?} is not an address that others can reach, like 10.0.0.1:7710 or host:7710")]
    Advertise(String),
    /// Not a number of shards.
    #[error("{0:?} is not a number of shards, 1 to {SHARDS_MAX}")]
    Shards(String),
    /// No endpoint, or too many.
    #[error("has {0} endpoints, not 1 to {ENDPOINTS_MAX}")]
    Endpoints(usize),
    /// Not an endpoint.
    #[error("{0:?} is not an endpoint like http://127.0.0.1:2379 or https://etcd:2379")]
    Endpoint(String),
    /// TLS on some endpoints only.
    #[error("is https where others are http: all endpoints must be one or the other")]
    Mixed,
    /// TLS without an issuer to trust.
    #[error("is https, which needs cluster.etcd.tls.ca")]
    NoTls,
    /// An issuer to trust, without TLS.
    #[error("is for https, but the endpoints are http")]
    NotHttps,
    /// Nodes that speak TLS and know nobody to trust.
    #[error(
        "is missing: {door} is there, so the nodes speak TLS with each other, and need to know \
         whose certificates to accept"
    )]
    NoNodeTls {
        /// The field because of which.
        door: &'static str,
    },
    /// A door that asks for certificates, and nodes that have none to show.
    #[error(
        "is missing: {door}.client_ca asks who connects for a certificate, other nodes as well"
    )]
    NoNodeCertificate {
        /// The section because of which.
        door: &'static str,
    },
    /// A password without a user, or the other way around.
    #[error("is missing: user and password_file belong together")]
    HalfLogin,
    /// Not a prefix.
    #[error(
        "{0:?} is not a prefix: `/`, then up to {PREFIX_LEN_MAX} letters, digits or any of \
         `/._-`, not ending with `/`"
    )]
    Prefix(String),
    /// Not a time that etcd can count.
    #[error("{0:?} is not a whole number of seconds from 1s to 60s")]
    Lease(String),
}
