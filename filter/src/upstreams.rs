//! Whom calls go to: Envoy's clusters of coordinators, one for any of them and one for each shard.
//!
//! Every coordinator takes every call, so which cluster a call goes to is a matter of cost only.

use core::fmt;
use std::sync::Arc;

use tollgate_core::cluster::ShardId;

/// The clusters, each as what Envoy takes for one; clones share them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upstreams {
    /// The one of all coordinators, then those of the shards in order.
    services: Arc<[String]>,
    /// Their names, in the same order.
    names: Arc<[String]>,
}

/// One of the [`Upstreams`] by its place there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Upstream(usize);

// === impl Upstream ===

impl Upstream {
    /// Any coordinator, which knows the way to the others.
    pub(crate) const ANY: Self = Self(0);

    /// Its place in a list of all.
    pub(crate) fn index(self) -> usize {
        self.0
    }
}

impl fmt::Display for Upstream {
    /// The field of the configuration that names it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.checked_sub(1) {
            None => f.write_str("coordinator"),
            Some(shard) => write!(f, "shards[{shard}]"),
        }
    }
}

// === impl Upstreams ===

impl Upstreams {
    /// The cluster called `coordinator`, and those called `shards`.
    pub(crate) fn new(coordinator: &str, shards: &[String]) -> Self {
        let names = core::iter::once(coordinator).chain(shards.iter().map(String::as_str));
        Self {
            services: names.clone().map(service).collect(),
            names: names.map(str::to_owned).collect(),
        }
    }

    /// The one that leads to the master of `shard`; any if that is not known, or has no cluster.
    pub(crate) fn of(&self, shard: Option<ShardId>) -> Upstream {
        let place = shard.map(|shard| shard.index().saturating_add(1));
        let known = place.filter(|place| *place < self.services.len());
        known.map_or(Upstream::ANY, Upstream)
    }

    /// All of them, in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = Upstream> {
        (0..self.services.len()).map(Upstream)
    }

    /// What Envoy takes for the cluster.
    pub(crate) fn service(&self, upstream: Upstream) -> &str {
        let known = self.services.get(upstream.0);
        let service = known.or_else(|| self.services.first());
        service.map_or("", String::as_str)
    }
}

impl Upstreams {
    /// The name of the cluster.
    pub(crate) fn name(&self, upstream: Upstream) -> &str {
        let known = self.names.get(upstream.0);
        let name = known.or_else(|| self.names.first());
        name.map_or("", String::as_str)
    }

    /// The name of the cluster, if Envoy can take it for nothing but a name.
    pub(crate) fn bare_name(&self, upstream: Upstream) -> Option<&str> {
        let name = self.name(upstream);
        (!may_be_message(name.as_bytes())).then_some(name)
    }
}

// === free functions ===

/// Whether `bytes` may be a serialized protobuf message, known fields or not: true in doubt.
fn may_be_message(mut bytes: &[u8]) -> bool {
    let mut groups = Vec::new();
    while !bytes.is_empty() {
        let Some((tag, rest)) = varint(bytes) else {
            return false;
        };
        let rest = match tag & 7 {
            0 => varint(rest).map(|(_, rest)| rest),
            1 => rest.get(8..),
            2 => varint(rest).and_then(|(len, rest)| rest.get(usize::try_from(len).ok()?..)),
            5 => rest.get(4..),
            3 => {
                groups.push(tag >> 3);
                Some(rest)
            }
            4 if groups.pop() == Some(tag >> 3) => Some(rest),
            _ => None,
        };
        let Some(rest) = rest else { return false };
        bytes = rest;
    }
    groups.is_empty()
}

/// The number that `bytes` begin with, and what follows it.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let len = bytes.iter().take(10).position(|byte| *byte < 0x80)?;
    let (number, rest) = bytes.split_at_checked(len.saturating_add(1))?;
    let number = number.iter().rev().fold(0_u64, |number, byte| {
        number.wrapping_shl(7) | u64::from(byte & 0x7f)
    });
    Some((number, rest))
}

/// The cluster called `name` as a serialized `envoy.config.core.v3.GrpcService`
/// `{envoy_grpc: {cluster_name}}`.
///
/// Envoy takes the string of a gRPC call for such a message if it parses as one, and for a name only
/// otherwise; and some names do parse. Lengths below 128, which those of names are by far, are one
/// ASCII byte, which keeps the message a valid `str`.
fn service(name: &str) -> String {
    const ENVOY_GRPC: char = '\x0a';
    const CLUSTER_NAME: char = '\x0a';
    let length = |length: usize| char::from(u8::try_from(length).unwrap_or(0));
    let inner = length(name.len().saturating_add(2));
    format!(
        "{ENVOY_GRPC}{inner}{CLUSTER_NAME}{}{name}",
        length(name.len())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstreams() -> Upstreams {
        Upstreams::new("authority", &["s-0".to_owned(), "s-1".to_owned()])
    }

    #[test]
    fn an_upstream_is_a_grpc_service_message() {
        // A bare name that begins like a message would be taken for one.
        let any = upstreams().service(Upstream::ANY).to_owned();
        assert_eq!(any.as_bytes(), b"\x0a\x0b\x0a\x09authority");
    }

    #[test]
    fn a_name_is_bare_only_if_it_is_no_message() {
        let rows = [
            ("tollgate", true),
            ("coordinator", true),
            ("tollgate-coordinators", true),
            ("tollgate-shard-0", true),
            ("outbound|7710||tollgate.infra.svc.cluster.local", true),
            // Fields of fixed length with just so many bytes.
            ("authority", false),
            ("meshy", false),
            // A length and so many bytes, a number, and a group that ends.
            ("z\u{20}01234567890123456789012345678901", false),
            ("hX", false),
            ("cd", false),
            ("cl", true),
        ];
        for (name, bare) in rows {
            let upstreams = Upstreams::new(name, &[]);
            let got = upstreams.bare_name(Upstream::ANY);
            assert_eq!(got, bare.then_some(name), "{name}");
        }
    }

    #[test]
    fn what_has_no_cluster_goes_to_any() {
        let upstreams = upstreams();
        let rows = [
            (None, 0, "authority"),
            (Some(0), 1, "s-0"),
            (Some(1), 2, "s-1"),
            (Some(2), 0, "authority"),
            (Some(u16::MAX), 0, "authority"),
        ];
        for (shard, index, name) in rows {
            let upstream = upstreams.of(shard.map(ShardId));
            assert_eq!(upstream.index(), index, "{shard:?}");
            let service = upstreams.service(upstream);
            assert!(service.ends_with(name), "{shard:?}: {service:?}");
        }
        // One that a configuration with more shards had.
        assert_eq!(
            upstreams.service(Upstream(7)),
            upstreams.service(Upstream::ANY)
        );
    }
}
