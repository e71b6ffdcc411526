//! Layout of the store's keys in etcd.

use std::fmt;

use serde::Deserialize;

use crate::catalog::store::{FORMAT, REVISION_MAX, RecordKey};

/// Name of the guard below the prefix. No record has it, because theirs contain a `/`.
const GUARD: &str = "revision";

/// Name of the shared configuration, a plain text and not a record.
const SHARED: &str = "file";

/// The keys of one cluster.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// Prefix of all keys, `/tollgate/config/`.
    prefix: String,
}

/// Meaning of a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EtcdKey {
    Guard,
    Shared,
    Record(RecordKey),
    /// A key that this version does not know, with its name below the prefix.
    Unknown(String),
}

/// Content of the guard, which every transaction replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Guard {
    /// Format of the store.
    pub(super) format: u64,
    /// The highest revision that was given to a write.
    pub(super) revision: u64,
}

// === impl Layout ===

impl Layout {
    /// The keys of the cluster with `prefix`, such as `/tollgate`.
    pub(super) fn new(prefix: &str) -> Self {
        let prefix = format!("{}/config/", prefix.trim_end_matches('/'));
        Self { prefix }
    }

    /// Prefix of all keys.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn guard(&self) -> String {
        format!("{}{GUARD}", self.prefix)
    }

    pub(super) fn shared(&self) -> String {
        format!("{}{SHARED}", self.prefix)
    }

    pub(super) fn record(&self, key: &RecordKey) -> String {
        format!("{}{key}", self.prefix)
    }

    /// The meaning of `key`.
    pub(super) fn name(&self, key: &[u8]) -> EtcdKey {
        let text = String::from_utf8_lossy(key);
        let below = text.strip_prefix(&self.prefix).unwrap_or(&text);
        match below {
            GUARD => return EtcdKey::Guard,
            SHARED => return EtcdKey::Shared,
            _ => {}
        }
        let known = std::str::from_utf8(key)
            .ok()
            .and_then(|_| RecordKey::parse(below));
        known.map_or_else(|| EtcdKey::Unknown(below.to_owned()), EtcdKey::Record)
    }
}

// === impl Guard ===

impl Guard {
    /// Parses the guard; `None` if it is not valid.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let guard: Option<Self> = serde_json::from_slice(value).ok();
        guard.filter(|guard| guard.revision <= REVISION_MAX)
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { format, revision } = self;
        write!(f, "{{\"format\":{format},\"revision\":{revision}}}")
    }
}

impl Default for Guard {
    /// The guard of an empty store.
    fn default() -> Self {
        Self {
            format: FORMAT,
            revision: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::MemberKind;
    use crate::catalog::store::RecordKind;

    #[test]
    fn every_key_is_found_again_and_no_other() {
        for prefix in ["/tollgate", "/tollgate/", "t"] {
            let layout = Layout::new(prefix);
            let record =
                RecordKey::new(RecordKind::Attachment(MemberKind::Namespace), "acme/orders");
            let keys = [
                (layout.guard(), EtcdKey::Guard),
                (layout.shared(), EtcdKey::Shared),
                (layout.record(&record), EtcdKey::Record(record)),
            ];
            for (key, want) in keys {
                assert!(key.starts_with(layout.prefix()), "{key}");
                assert_eq!(layout.name(key.as_bytes()), want, "{key}");
            }
        }
        let layout = Layout::new("/tollgate");
        assert_eq!(layout.prefix(), "/tollgate/config/");
        for unknown in ["x", "x/y", "group", ""] {
            let key = format!("/tollgate/config/{unknown}");
            let want = EtcdKey::Unknown(unknown.to_owned());
            assert_eq!(layout.name(key.as_bytes()), want, "{unknown}");
        }
        let not_text = layout.name(b"/tollgate/config/group/\xff");
        assert!(matches!(not_text, EtcdKey::Unknown(_)), "{not_text:?}");
    }

    #[test]
    fn a_guard_survives_being_written_and_more_fields() {
        let guard = Guard {
            format: 3,
            revision: 17,
        };
        assert_eq!(Guard::parse(guard.to_string().as_bytes()), Some(guard));
        let more = br#"{"format": 1, "revision": 2, "by": "x"}"#;
        assert_eq!(Guard::parse(more).unwrap().revision, 2);
        for bad in [
            "",
            "7",
            "{}",
            "{\"format\": 1}",
            "{\"format\": -1, \"revision\": 2}",
            "{\"format\": 1, \"revision\": 18446744073709551615}",
        ] {
            assert_eq!(Guard::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
