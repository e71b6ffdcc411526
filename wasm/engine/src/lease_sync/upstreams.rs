//! Clusters of coordinators that calls go to: one for any of them and one for each shard.
//!
//! Every coordinator takes every call, so which cluster a call goes to is a matter of cost only.

use core::fmt;

use tollgate_core::cluster::ShardId;

/// Names of the clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upstreams {
    /// The one of all coordinators, then those of the shards in order.
    names: Vec<String>,
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
            names: names.map(str::to_owned).collect(),
        }
    }

    /// The one that leads to the master of `shard`; any if that is not known, or has no cluster.
    pub(crate) fn of(&self, shard: Option<ShardId>) -> Upstream {
        let place = shard.map(|shard| shard.index().saturating_add(1));
        let known = place.filter(|place| *place < self.names.len());
        known.map_or(Upstream::ANY, Upstream)
    }

    /// All of them, in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = Upstream> {
        (0..self.names.len()).map(Upstream)
    }

    /// The name of the cluster.
    pub(crate) fn name(&self, upstream: Upstream) -> &str {
        let known = self.names.get(upstream.0);
        let name = known.or_else(|| self.names.first());
        name.map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstreams() -> Upstreams {
        Upstreams::new("authority", &["s-0".to_owned(), "s-1".to_owned()])
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
            assert_eq!(upstreams.name(upstream), name, "{shard:?}");
        }
        // One that a configuration with more shards had.
        assert_eq!(upstreams.name(Upstream(7)), upstreams.name(Upstream::ANY));
    }
}
