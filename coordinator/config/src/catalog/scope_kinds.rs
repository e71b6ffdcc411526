//! Kinds of scopes: the texts before the first slash of their ids, and whether one limit of a file
//! holds for all scopes of a kind.

use std::collections::HashSet;

use super::name::GLOB_CHARACTERS;

/// Beginning of an overflow scope's id behind its kind, which no new scope of a client has.
const OVERFLOW: &str = "~overflow-";

/// Kinds of scopes that the limits of a file are about.
#[derive(Debug, Default)]
pub struct ScopeKinds {
    /// Those of scopes that have a limit by their exact ids.
    named: HashSet<Box<str>>,
    /// Those of which a glob may match some scopes.
    touched: HashSet<Box<str>>,
    /// Those of which a glob matches all scopes, and none before it any.
    whole: HashSet<Box<str>>,
    /// Literal beginnings of the globs that may match scopes of several kinds.
    loose: Vec<Box<str>>,
}

// === impl ScopeKinds ===

impl ScopeKinds {
    /// Notes a limit for the exact id `scope`.
    pub(super) fn add_exact(&mut self, scope: &str) {
        let kind = scope.split_once('/').map_or(scope, |(kind, _)| kind);
        self.named.insert(kind.into());
    }

    /// Notes a limit for the glob `text`, which comes after those before in the order of the file.
    pub(super) fn add_glob(&mut self, text: &str) {
        let literal = text.find(GLOB_CHARACTERS).map_or(text, |end| &text[..end]);
        if is_overflow(literal) {
            return;
        }
        let Some((kind, _)) = literal.split_once('/') else {
            self.loose.push(literal.into());
            return;
        };
        if text.strip_prefix(literal) == Some("*")
            && literal.len() == kind.len() + 1
            && !self.is_touched(kind)
        {
            self.whole.insert(kind.into());
        }
        self.touched.insert(kind.into());
    }

    /// Whether all scopes of `kind` without a limit by their exact ids have the same limit, or none,
    /// apart from overflow scopes.
    pub fn is_uniform(&self, kind: &str) -> bool {
        self.whole.contains(kind) || !self.is_touched(kind)
    }

    /// Whether some scope of `kind` has a limit by its exact id.
    pub fn has_named(&self, kind: &str) -> bool {
        self.named.contains(kind)
    }

    /// Whether a limit may be for a scope of `kind`.
    pub(super) fn has_any(&self, kind: &str) -> bool {
        self.has_named(kind) || self.is_touched(kind)
    }

    fn is_touched(&self, kind: &str) -> bool {
        let mut loose = self.loose.iter();
        self.touched.contains(kind) || loose.any(|start| kind.starts_with(&**start))
    }
}

// === free functions ===

/// The name of the rule that `scope` is of: the text before its key, or its plan.
pub fn rule_name(scope: &str) -> &str {
    scope.split(['/', '@']).next().unwrap_or(scope)
}

/// Whether all ids that begin with `start` are those of overflow scopes, in which an Envoy puts what
/// it has no slot for.
pub fn is_overflow(start: &str) -> bool {
    let behind = start.split_once('/').map(|(_, behind)| behind);
    behind.is_some_and(|behind| behind.starts_with(OVERFLOW))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_uniform_if_no_glob_matches_a_part_of_it() {
        // Globs in their order, and whether the kind `tenant` is uniform.
        let rows: [(&[&str], bool); 14] = [
            (&[], true),
            (&["tenant/*"], true),
            (&["tenant/*", "tenant/a*"], true),
            (&["tenant/a*", "tenant/*"], false),
            (&["tenant/a*"], false),
            (&["tenant/?*"], false),
            (&["route/*", "tenants/*", "ten/*"], true),
            (&["ten*"], false),
            (&["*/acme", "tenant/*"], false),
            (&["{tenant,route}/*"], false),
            (&["tenants*", "tenant-*"], true),
            (&["tenant/~overflow-*", "tenant/*"], true),
            (&["tenant/~overflow-1?", "tenant/~overflow-*"], true),
            (&["tenant/~over*", "tenant/*"], false),
        ];
        for (globs, want) in rows {
            let mut kinds = ScopeKinds::default();
            for glob in globs {
                kinds.add_glob(glob);
            }
            assert_eq!(kinds.is_uniform("tenant"), want, "{globs:?}");
        }
        let mut kinds = ScopeKinds::default();
        kinds.add_exact("tenant/acme");
        assert!(kinds.has_named("tenant") && kinds.is_uniform("tenant"));
        assert!(!kinds.has_named("route"));
    }
}
