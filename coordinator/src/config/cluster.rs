//! `cluster`: this node's place among the coordinators that share the work, and how they elect.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::Path;

use serde::Deserialize;
use serde_saphyr::Location;
use tollgate_core::cluster::SHARDS_MAX;

use super::check::Check;
use super::client_tls::{RawClientTls, client_tls};
use super::listen::Listen;
use super::tls::Tls;
use crate::catalog::spec::{LocatedScalar, LocatedValue};
use crate::cluster::election::Peer;
use crate::net::tls::{ClientFiles, Door, Files, Holder};

mod etcd;
mod problem;

pub use etcd::{EtcdConfig, Login};
pub use problem::ClusterProblem;

use etcd::RawEtcd;

/// The longest name of a node, in bytes.
const NODE_LEN_MAX: usize = 64;

/// The longest address that is advertised, in bytes: a host's name has at most 253.
const ADDRESS_LEN_MAX: usize = 260;

/// A node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// Its name, which no other node of the cluster has.
    pub node: String,
    /// How others reach it, where that is not where it listens.
    pub advertise: Advertise,
    /// Between how many shards the scopes are divided; the same in all nodes.
    pub shards: NonZeroU16,
    /// Where the nodes elect.
    pub etcd: EtcdConfig,
    /// With what other nodes whose doors speak TLS are reached; none where none do.
    pub tls: Option<ClientFiles>,
    /// Whether limits, groups, attachments and Doorman's scopes are in etcd as well, the same for
    /// all nodes.
    pub shared_config: bool,
}

/// How others reach a node, as `host:port`; none is where it listens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advertise {
    /// The gRPC port.
    pub grpc: Option<String>,
    /// The HTTP port.
    pub http: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCluster {
    node: Option<LocatedScalar>,
    advertise: Option<RawAdvertise>,
    shards: Option<LocatedScalar>,
    etcd: Option<LocatedValue<RawEtcd>>,
    tls: Option<LocatedValue<RawClientTls>>,
    shared_config: Option<LocatedScalar>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAdvertise {
    grpc: Option<LocatedScalar>,
    http: Option<LocatedScalar>,
}

// === impl ClusterConfig ===

impl ClusterConfig {
    /// How others reach this node, which listens on `listen` and whose doors speak `tls`.
    pub fn peer(&self, listen: Listen, tls: &Tls) -> Peer {
        let said = |said: &Option<String>, listen: SocketAddr| {
            said.clone().unwrap_or_else(|| listen.to_string())
        };
        Peer {
            node: self.node.clone(),
            grpc: said(&self.advertise.grpc, listen.grpc),
            http: said(&self.advertise.http, listen.http),
            grpc_tls: tls.grpc.is_some(),
            http_tls: tls.http.is_some(),
        }
    }

    /// The same, with relative paths starting at the folder of `file`.
    pub(super) fn beside(self, file: &Path) -> Self {
        let folder = file.parent().unwrap_or_else(|| Path::new(""));
        Self {
            etcd: self.etcd.beside(folder),
            tls: self.tls.map(|tls| tls.beside(folder)),
            ..self
        }
    }
}

// === free functions ===

/// Checks the section; none if it is absent or, which is noted, wrong.
pub(super) fn cluster(
    check: &mut Check,
    raw: Option<&LocatedValue<RawCluster>>,
    listen: &Listen,
    doors: &Tls,
) -> Option<ClusterConfig> {
    let raw = raw?;
    if !cfg!(feature = "etcd") {
        check.refuse(raw.at, "cluster", ClusterProblem::WithoutEtcd);
    }
    let node = node(check, raw);
    let mut advertised = |door, listen| advertised(check, raw, node.as_deref(), door, listen);
    let advertise = Advertise {
        grpc: advertised("grpc", listen.grpc),
        http: advertised("http", listen.http),
    };
    let shards = check.value(raw.value.shards.as_ref(), "cluster.shards", shards);
    let etcd = etcd::etcd(check, raw.at, raw.value.etcd.as_ref());
    let tls = raw.value.tls.as_ref();
    let tls = tls.and_then(|tls| client_tls(check, "cluster.tls", tls));
    for (door, files) in doors.each() {
        among_nodes(check, raw, door, files);
    }
    let shared = raw.value.shared_config.as_ref();
    let shared = check.value(shared, "cluster.shared_config", yes_or_no);
    Some(ClusterConfig {
        node: node?,
        advertise,
        shards: shards.unwrap_or(NonZeroU16::MIN),
        etcd: etcd?,
        tls,
        shared_config: shared.unwrap_or(false),
    })
}

/// Refuses what the other nodes, which have such a `door`, could not be reached with.
fn among_nodes(check: &mut Check, raw: &LocatedValue<RawCluster>, door: Door, files: &Files) {
    let door = Holder::from(door).section();
    let Some(tls) = &raw.value.tls else {
        check.refuse(raw.at, "cluster.tls", ClusterProblem::NoNodeTls { door });
        return;
    };
    if files.client_ca.is_some() && !tls.value.shows() {
        let problem = ClusterProblem::NoNodeCertificate { door };
        check.refuse(tls.at, "cluster.tls.cert", problem);
    }
}

/// The node's name: as it is said, or else that of the host.
fn node(check: &mut Check, raw: &LocatedValue<RawCluster>) -> Option<String> {
    let field = "cluster.node";
    if raw.value.node.is_some() {
        return check.value(raw.value.node.as_ref(), field, |text| {
            name(text).ok_or_else(|| ClusterProblem::Node(text.to_owned()).into())
        });
    }
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let node = name(&host);
    if node.is_none() {
        check.refuse(raw.at, field, ClusterProblem::Host(host.into_owned()));
    }
    node
}

fn name(text: &str) -> Option<String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let fits = (1..=NODE_LEN_MAX).contains(&text.len()) && text.bytes().all(good);
    fits.then(|| text.to_owned())
}

/// What is advertised of the door called `door`, if that is not where it listens: where that is everywhere, the
/// name of the node, which is refused if no host can have it.
fn advertised(
    check: &mut Check,
    raw: &LocatedValue<RawCluster>,
    node: Option<&str>,
    door: &str,
    listen: SocketAddr,
) -> Option<String> {
    let field = format!("cluster.advertise.{door}");
    let said = raw.value.advertise.as_ref();
    let said = said.and_then(|said| match door {
        "grpc" => said.grpc.as_ref(),
        _ => said.http.as_ref(),
    });
    if said.is_none() && listen.ip().is_unspecified() {
        let named = address(&format!("{}:{}", node?, listen.port()));
        if named.is_none() && listen.port() != 0 {
            check.refuse(raw.at, field, ClusterProblem::Wildcard(listen));
        }
        return named;
    }
    check.value(said, &field, |text| {
        address(text).ok_or_else(|| ClusterProblem::Advertise(text.to_owned()).into())
    })
}

/// `text` if it is a host, not a wildcard, and a port.
fn address(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    let named = !host.is_empty() && host.bytes().all(good);
    let bracketed = text.parse::<SocketAddr>().is_ok();
    let wildcard = text
        .parse::<SocketAddr>()
        .is_ok_and(|address| address.ip().is_unspecified());
    let fits = port != 0 && text.len() <= ADDRESS_LEN_MAX && (named || bracketed) && !wildcard;
    fits.then(|| text.to_owned())
}

fn shards(text: &str) -> Result<NonZeroU16, super::Problem> {
    let count = text.parse().ok();
    let count = count.filter(|count: &NonZeroU16| count.get() <= SHARDS_MAX);
    count.ok_or_else(|| ClusterProblem::Shards(text.to_owned()).into())
}

fn yes_or_no(text: &str) -> Result<bool, super::Problem> {
    let word = text.parse();
    word.map_err(|_| super::Problem::NotYesOrNo(text.to_owned()))
}

/// The place of a value if it is said, else that of the section around it.
fn place(text: Option<&LocatedScalar>, around: Location) -> Location {
    text.map_or(around, |text| text.at)
}

#[cfg(test)]
mod tests;
