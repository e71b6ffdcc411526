//! Names of groups, tenants, namespaces and scopes.
//!
//! Names become parts of scope ids, of paths and of log lines, so they are bounded and printable.

use tollgate_core::lease::{ID_LEN_MAX, IdError, ResourceId, Unit};

use super::MemberKind;

/// Characters that make a `match` a glob.
pub const GLOB_CHARACTERS: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

/// Reason for which a text is not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is not valid in a scope id.
    #[error(transparent)]
    Id(#[from] IdError),
    /// Longer than a scope id has room for.
    #[error("has {len} bytes, more than {max}")]
    TooLong {
        /// Its length in bytes.
        len: usize,
        /// The longest length.
        max: usize,
    },
    /// A slash where a name is one segment.
    #[error("has a `/`, and a name of this kind is one segment")]
    Slash,
    /// A namespace that does not name its tenant.
    #[error("is not of the form `tenant/namespace`")]
    NotTwo,
    /// A pattern in place of a name.
    #[error(
        "is a pattern because of its `{0}`, and only one thing can be named here; patterns stand \
         in `limits` of the configuration"
    )]
    Pattern(char),
    /// The scope of a group, which is changed as a group.
    #[error("is the scope of a group: change the group")]
    Group,
}

// === impl MemberKind ===

impl MemberKind {
    /// Checks whether `name` can be attached.
    ///
    /// # Errors
    /// The rule it breaks.
    pub fn check_name(self, name: &str) -> Result<(), NameError> {
        fits(self.name(), name)?;
        match (self, name.split_once('/')) {
            (Self::Tenant, None) => Ok(()),
            (Self::Tenant, Some(_)) => Err(NameError::Slash),
            (Self::Namespace, Some((tenant, namespace))) => {
                let two = !tenant.is_empty() && !namespace.is_empty() && !namespace.contains('/');
                if two { Ok(()) } else { Err(NameError::NotTwo) }
            }
            (Self::Namespace, None) => Err(NameError::NotTwo),
        }
    }
}

// === free functions ===

/// Checks the name of a group.
///
/// # Errors
/// The rule it breaks.
pub fn check_group(name: &str) -> Result<(), NameError> {
    fits("group", name)?;
    if name.contains('/') {
        return Err(NameError::Slash);
    }
    Ok(())
}

/// Checks whether the limits of `scope` can be overridden.
///
/// # Errors
/// The rule it breaks.
pub fn check_scope(scope: &str) -> Result<(), NameError> {
    ResourceId::new(scope, Unit::Requests)?;
    if scope.starts_with("group/") {
        return Err(NameError::Group);
    }
    Ok(())
}

/// Checks whether `scope` can be raised, which may be that of a group.
///
/// # Errors
/// The rule it breaks.
pub fn check_raised(scope: &str) -> Result<(), NameError> {
    match scope.strip_prefix("group/") {
        Some(group) => check_group(group),
        None => check_scope(scope),
    }
}

/// Checks that `scope` is one scope and not a glob, for people who write `match` in the file.
/// Stored objects are not checked: an earlier version may have written more.
///
/// # Errors
/// The first character that makes it a glob.
pub fn check_one_scope(scope: &str) -> Result<(), NameError> {
    no_pattern(scope, &GLOB_CHARACTERS)
}

/// Checks that `name` is one group, tenant or namespace and not a glob. Only `*` counts as a glob:
/// a tenant can be called `[eu]`, and there is no other way to write that.
///
/// # Errors
/// The first character that makes it a glob.
pub fn check_one(name: &str) -> Result<(), NameError> {
    no_pattern(name, &['*'])
}

fn no_pattern(name: &str, characters: &[char]) -> Result<(), NameError> {
    let found = name.chars().find(|c| characters.contains(c));
    found.map_or(Ok(()), |c| Err(NameError::Pattern(c)))
}

/// Checks whether `<prefix>/<name>` is a valid id.
fn fits(prefix: &str, name: &str) -> Result<(), NameError> {
    ResourceId::new(name, Unit::Requests)?;
    let max = ID_LEN_MAX - prefix.len() - 1;
    let len = name.len();
    if len > max {
        return Err(NameError::TooLong { len, max });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_printable_and_of_their_form() {
        let at_most = "x".repeat(ID_LEN_MAX - "group/".len());
        let too_long = format!("{at_most}x");
        let control = Err(NameError::Id(IdError::Control));
        let rows: [(&str, Result<(), NameError>); 6] = [
            ("gold", Ok(())),
            ("bücher & co?%", Ok(())),
            (&at_most, Ok(())),
            ("", Err(NameError::Id(IdError::Empty))),
            ("a\nb", control),
            ("a/b", Err(NameError::Slash)),
        ];
        for (name, want) in rows {
            assert_eq!(check_group(name), want, "{name}");
        }
        let error = check_group(&too_long).unwrap_err().to_string();
        assert_eq!(error, "has 251 bytes, more than 250");
    }

    #[test]
    fn a_namespace_names_its_tenant() {
        for name in ["acme/orders", "a/b c"] {
            assert_eq!(MemberKind::Namespace.check_name(name), Ok(()), "{name}");
            assert_eq!(
                MemberKind::Tenant.check_name(name),
                Err(NameError::Slash),
                "{name}"
            );
        }
        for name in ["acme", "/", "acme/", "/orders", "a/b/c"] {
            let refused = Err(NameError::NotTwo);
            assert_eq!(MemberKind::Namespace.check_name(name), refused, "{name}");
        }
    }

    #[test]
    fn a_pattern_is_not_one_thing() {
        for (scope, c) in [
            ("a*", '*'),
            ("tenant/?", '?'),
            ("{a,b}", '{'),
            (r"a\*", '\\'),
        ] {
            assert_eq!(
                check_one_scope(scope),
                Err(NameError::Pattern(c)),
                "{scope}"
            );
        }
        assert_eq!(check_one_scope("tenant/bücher & co%"), Ok(()));
        assert_eq!(check_one("a*b"), Err(NameError::Pattern('*')));
        assert_eq!(check_one("why? [eu]"), Ok(()));
    }

    #[test]
    fn a_groups_scope_is_not_overridden() {
        assert_eq!(check_scope("tenant/acme"), Ok(()));
        assert_eq!(check_scope("group/gold"), Err(NameError::Group));
        assert!(check_scope("").is_err());
    }
}
