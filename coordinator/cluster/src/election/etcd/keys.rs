//! Layout of the keys in etcd.
//!
//! ```text
//! PREFIX/cluster                    the cluster settings
//! PREFIX/masters/SHARD/LEASE        a candidate of a shard; the oldest is its master
//! PREFIX/members/NODE               the nodes that are alive
//! PREFIX/shards/SHARD/term          the epoch of the last master
//! PREFIX/shards/SHARD/books/head    head of the last master's snapshot: its term and size
//! PREFIX/shards/SHARD/books/NUMBER  its parts
//! ```
//! Masters and members are neighbours so that one look, at one revision, sees both. Their keys
//! have the lease of their node and go when it does.

use tollgate_core::cluster::ShardId;

/// The names of a cluster's keys.
#[derive(Clone, Debug)]
pub(super) struct ElectionKeys {
    prefix: String,
}

/// Meaning of a key of a master or a member.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ElectionKey<'a> {
    Candidate(ShardId),
    Member(&'a str),
}

// === impl ElectionKeys ===

impl ElectionKeys {
    pub(super) fn new(prefix: &str) -> Self {
        let prefix = prefix.to_owned();
        Self { prefix }
    }

    pub(super) fn settings(&self) -> String {
        format!("{}/cluster", self.prefix)
    }

    pub(super) fn member(&self, node: &str) -> String {
        format!("{}/members/{node}", self.prefix)
    }

    pub(super) fn candidate(&self, shard: ShardId, lease: i64) -> String {
        format!("{}/masters/{shard}/{lease:x}", self.prefix)
    }

    /// First key of masters and members, and the key after the last.
    pub(super) fn masters_and_members(&self) -> (String, String) {
        // `0` comes after `/`.
        let key = |end| format!("{}/{end}", self.prefix);
        (key("masters/"), key("members0"))
    }

    pub(super) fn term(&self, shard: ShardId) -> String {
        format!("{}/shards/{shard}/term", self.prefix)
    }

    pub(super) fn snapshot(&self, shard: ShardId) -> String {
        format!("{}/shards/{shard}/books/", self.prefix)
    }

    pub(super) fn snapshot_head(&self, shard: ShardId) -> String {
        format!("{}head", self.snapshot(shard))
    }

    pub(super) fn snapshot_part(&self, shard: ShardId, number: usize) -> String {
        format!("{}{number:05}", self.snapshot(shard))
    }

    /// Parses `key`, one of masters and members; `None` if no node has written it.
    pub(super) fn parse<'a>(&self, key: &'a [u8]) -> Option<ElectionKey<'a>> {
        let key = std::str::from_utf8(key).ok()?;
        let key = key.strip_prefix(&self.prefix)?.strip_prefix('/')?;
        match key.split_once('/')? {
            ("members", node) => Some(ElectionKey::Member(node)),
            ("masters", rest) => {
                let (shard, _lease) = rest.split_once('/')?;
                Some(ElectionKey::Candidate(ShardId(shard.parse().ok()?)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_written() {
        let keys = ElectionKeys::new("/a/b");
        let candidate = keys.candidate(ShardId(7), 0x1f);
        assert_eq!(candidate, "/a/b/masters/7/1f");
        let parsed = keys.parse(candidate.as_bytes());
        assert_eq!(parsed, Some(ElectionKey::Candidate(ShardId(7))));
        let member = keys.member("a.b");
        assert_eq!(
            keys.parse(member.as_bytes()),
            Some(ElectionKey::Member("a.b"))
        );
        let (start, end) = keys.masters_and_members();
        let between = |key: &String| *key >= start && *key < end;
        assert!(between(&candidate) && between(&member));
        assert!(!between(&keys.settings()) && !between(&keys.term(ShardId(0))));
    }

    #[test]
    fn other_keys_are_nothing() {
        let keys = ElectionKeys::new("/a");
        for key in ["/a/masters/x/1", "/a/masters/1", "/b/members/n", "", "/a"] {
            assert_eq!(keys.parse(key.as_bytes()), None, "{key}");
        }
        assert_eq!(keys.parse(&[0xff]), None);
    }
}
