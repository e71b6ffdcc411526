//! What records are called.

use std::fmt;
use std::sync::Arc;

use crate::catalog::Kind;

/// The key of a record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// What the record is of.
    pub kind: KeyKind,
    /// The name of the group, tenant or namespace, or the scope.
    pub name: Arc<str>,
}

/// What a record is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyKind {
    /// A group.
    Group,
    /// A tenant's or a namespace's attachment.
    Attachment(Kind),
    /// The override of a scope.
    Override,
}

// === impl Key ===

impl Key {
    /// The key of the record of `name`.
    pub fn new(kind: KeyKind, name: &str) -> Self {
        let name = name.into();
        Self { kind, name }
    }

    /// The key that `text` says.
    pub fn parse(text: &str) -> Option<Self> {
        let (prefix, name) = text.split_once('/')?;
        let kind = KeyKind::ALL
            .into_iter()
            .find(|kind| kind.prefix() == prefix)?;
        Some(Self::new(kind, name))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.prefix(), self.name)
    }
}

// === impl KeyKind ===

impl KeyKind {
    const ALL: [Self; 4] = [
        Self::Group,
        Self::Attachment(Kind::Tenant),
        Self::Attachment(Kind::Namespace),
        Self::Override,
    ];

    const fn prefix(self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::Attachment(kind) => kind.name(),
            Self::Override => "override",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_being_written() {
        for kind in KeyKind::ALL {
            for name in ["a", "a/b", "/", "ü %"] {
                let key = Key::new(kind, name);
                assert_eq!(Key::parse(&key.to_string()), Some(key));
            }
        }
        for text in ["", "group", "groups/a"] {
            assert_eq!(Key::parse(text), None, "{text}");
        }
    }
}
