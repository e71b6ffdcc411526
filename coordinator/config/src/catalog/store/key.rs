//! Keys of records.

use std::fmt;
use std::sync::Arc;

use crate::catalog::MemberKind;

/// The key of a record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey {
    /// Kind of its object.
    pub kind: RecordKind,
    /// Name of the group, tenant or namespace, or the scope.
    pub name: Arc<str>,
}

/// Kind of a record's object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKind {
    /// A group.
    Group,
    /// A tenant's or a namespace's attachment.
    Attachment(MemberKind),
    /// The override of a scope.
    Override,
    /// The raise of a scope, which may be that of a group.
    Raise,
}

// === impl RecordKey ===

impl RecordKey {
    /// The key of the record of `name`.
    pub fn new(kind: RecordKind, name: &str) -> Self {
        let name = name.into();
        Self { kind, name }
    }

    /// Parses `text`.
    pub fn parse(text: &str) -> Option<Self> {
        let (prefix, name) = text.split_once('/')?;
        let kind = RecordKind::ALL
            .into_iter()
            .find(|kind| kind.prefix() == prefix)?;
        Some(Self::new(kind, name))
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.prefix(), self.name)
    }
}

// === impl RecordKind ===

impl RecordKind {
    const ALL: [Self; 5] = [
        Self::Group,
        Self::Attachment(MemberKind::Tenant),
        Self::Attachment(MemberKind::Namespace),
        Self::Override,
        Self::Raise,
    ];

    const fn prefix(self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::Attachment(kind) => kind.name(),
            Self::Override => "override",
            Self::Raise => "raise",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_being_written() {
        for kind in RecordKind::ALL {
            for name in ["a", "a/b", "/", "ü %"] {
                let key = RecordKey::new(kind, name);
                assert_eq!(RecordKey::parse(&key.to_string()), Some(key));
            }
        }
        for text in ["", "group", "groups/a"] {
            assert_eq!(RecordKey::parse(text), None, "{text}");
        }
    }
}
