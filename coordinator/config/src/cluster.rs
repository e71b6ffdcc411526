//! Section `cluster`: the node's place among the coordinators that share the work, and their
//! election.

use std::net::SocketAddr;
use std::num::NonZeroU16;

use serde::Deserialize;
use tollgate_cluster::config::{Advertise, ClusterConfig};
use tollgate_cluster::election::Peer;
use tollgate_core::cluster::SHARDS_MAX;
use tollgate_net::tls::{CertificateOwner, Listener, ServerFiles};

use super::client_tls::{RawClientTls, client_tls};
use super::listen::Listen;
use super::tls::Tls;
use super::values::yes_or_no;
use crate::catalog::check::{Check, Rule};
use crate::catalog::spec::{LocatedScalar, LocatedValue};

mod etcd;

use etcd::RawEtcd;

/// The longest name of a node, in bytes.
const NODE_LEN_MAX: usize = 64;

/// The longest address that is advertised, in bytes: a host's name has at most 253.
const ADDRESS_LEN_MAX: usize = 260;

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

// === impl Listen ===

impl Listen {
    /// Addresses of the node of `cluster` for others; it listens here and speaks `tls`.
    pub fn peer(self, cluster: &ClusterConfig, tls: &Tls) -> Peer {
        let chosen = |chosen: &Option<String>, listen: SocketAddr| {
            chosen.clone().unwrap_or_else(|| listen.to_string())
        };
        Peer {
            node: cluster.node.clone(),
            grpc: chosen(&cluster.advertise.grpc, self.grpc),
            http: chosen(&cluster.advertise.http, self.http),
            grpc_tls: tls.grpc.is_some(),
            http_tls: tls.http.is_some(),
        }
    }
}

// === free functions ===

/// Checks the section; `None` if it is absent or has errors, which are noted.
pub(super) fn cluster(
    check: &mut Check,
    raw: Option<&LocatedValue<RawCluster>>,
    listen: &Listen,
    listeners: &Tls,
) -> Option<ClusterConfig> {
    let raw = raw?;
    if !cfg!(feature = "etcd") {
        let rule = "needs etcd, which this build is without: build it with the feature `etcd`";
        check.refuse(raw.at, "cluster", rule);
    }
    let node = node(check, raw);
    let mut advertised =
        |listener, listen| advertised(check, raw, node.as_deref(), listener, listen);
    let advertise = Advertise {
        grpc: advertised("grpc", listen.grpc),
        http: advertised("http", listen.http),
    };
    let shards = check.value(&raw.value.shards, "cluster.shards", shards);
    let etcd = etcd::etcd(check, raw.at, raw.value.etcd.as_ref());
    let tls = raw.value.tls.as_ref();
    let tls = tls.and_then(|tls| client_tls(check, "cluster.tls", tls));
    for (listener, files) in listeners.each() {
        among_nodes(check, raw, listener, files);
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

/// Refuses settings with which this node could not reach the other nodes, which have the same
/// listeners.
fn among_nodes(
    check: &mut Check,
    raw: &LocatedValue<RawCluster>,
    listener: Listener,
    files: &ServerFiles,
) {
    let section = CertificateOwner::from(listener).section();
    let Some(tls) = &raw.value.tls else {
        let rule = format!(
            "is missing: {section} is there, so the nodes speak TLS with each other, and need to know \
             whose certificates to accept"
        );
        check.refuse(raw.at, "cluster.tls", rule);
        return;
    };
    if files.client_ca.is_some() && !tls.value.shows() {
        let rule = format!(
            "is missing: {section}.client_ca asks clients for a certificate, other nodes as well"
        );
        check.refuse(tls.at, "cluster.tls.cert", rule);
    }
}

/// The node's configured name, or else that of the host.
fn node(check: &mut Check, raw: &LocatedValue<RawCluster>) -> Option<String> {
    let field = "cluster.node";
    if raw.value.node.is_some() {
        return check.value(&raw.value.node, field, |text| {
            let rule =
                || format!("{text:?} is not 1 to {NODE_LEN_MAX} letters, digits or any of `.-_`");
            name(text).ok_or_else(|| rule().into())
        });
    }
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let node = name(&host);
    if node.is_none() {
        let rule = format!("is missing, and this host's name, {host:?}, is not a node's name");
        check.refuse(raw.at, field, rule);
    }
    node
}

fn name(text: &str) -> Option<String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let fits = (1..=NODE_LEN_MAX).contains(&text.len()) && text.bytes().all(good);
    fits.then(|| text.to_owned())
}

/// The advertised address of the listener called `name`, if it is not that of the listener: for a
/// wildcard the name of the node, which is refused if no host can have it.
fn advertised(
    check: &mut Check,
    raw: &LocatedValue<RawCluster>,
    node: Option<&str>,
    name: &str,
    listen: SocketAddr,
) -> Option<String> {
    let field = format!("cluster.advertise.{name}");
    let chosen = raw.value.advertise.as_ref();
    let chosen = chosen.and_then(|chosen| match name {
        "grpc" => chosen.grpc.as_ref(),
        _ => chosen.http.as_ref(),
    });
    if chosen.is_none() && listen.ip().is_unspecified() {
        let named = address(&format!("{}:{}", node?, listen.port()));
        if named.is_none() && listen.port() != 0 {
            let rule =
                format!("is missing, and others cannot reach a node at {listen}, where it listens");
            check.refuse(raw.at, field, rule);
        }
        return named;
    }
    check.value(chosen, &field, |text| {
        let rule = || {
            format!(
                "{text:?} is not an address that others can reach, like 10.0.0.1:7710 or host:7710"
            )
        };
        address(text).ok_or_else(|| rule().into())
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

fn shards(text: &str) -> Result<NonZeroU16, Rule> {
    let count = text.parse().ok();
    let count = count.filter(|count: &NonZeroU16| count.get() <= SHARDS_MAX);
    let rule = || format!("{text:?} is not a number of shards, 1 to {SHARDS_MAX}").into();
    count.ok_or_else(rule)
}

#[cfg(test)]
mod tests;
