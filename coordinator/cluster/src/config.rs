//! Configuration of a node of a cluster.

use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use tollgate_net::tls::ClientFiles;

/// Configuration of a node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// Its name, which no other node of the cluster has.
    pub node: String,
    /// Addresses for other nodes, where they differ from those of the listeners.
    pub advertise: Advertise,
    /// Number of shards between which the scopes are divided; the same in all nodes.
    pub shards: NonZeroU16,
    /// Connection to etcd, in which the nodes elect.
    pub etcd: EtcdConfig,
    /// Files for TLS to other nodes; `None` if their listeners speak plain text.
    pub tls: Option<ClientFiles>,
    /// Whether limits, groups, attachments and Doorman's scopes are in etcd as well, the same for
    /// all nodes.
    pub shared_config: bool,
}

/// Addresses of a node for others, as `host:port`; `None` stands for that of the listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advertise {
    /// The gRPC port.
    pub grpc: Option<String>,
    /// The HTTP port.
    pub http: Option<String>,
}

/// Connection to etcd, and the cluster's place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdConfig {
    /// URLs of its members; never empty.
    pub endpoints: Vec<String>,
    /// Beginning of the cluster's keys, without a `/` at its end.
    pub prefix: String,
    /// Time for which etcd remembers a node that is silent; whole seconds, 1 to 60.
    pub lease: Duration,
    /// Files for TLS; `None` for plain text.
    pub tls: Option<ClientFiles>,
    /// Credentials; `None` if etcd has authentication off.
    pub login: Option<Login>,
}

/// Credentials of a coordinator in etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The user's name.
    pub user: String,
    /// The file with the password, which may end with a line break.
    pub password_file: PathBuf,
}
