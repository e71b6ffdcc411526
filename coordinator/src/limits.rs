//! Which limit a scope has.

use std::collections::HashMap;

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use tollgate_core::limit::Limit;

/// The limits of a configuration, by the scopes they match.
///
/// An exact id wins wherever it stands; then the first glob in the order of the file; then `*`.
///
/// `*` in a glob matches any text, **also `/`**. Keys come out of requests: if `tenant/*` did not
/// match `tenant/acme/x`, a caller who sends `acme/x` as its tenant would get out of the tenants'
/// limit.
#[derive(Debug)]
pub struct Limits {
    exact: HashMap<String, Limit>,
    globs: GlobSet,
    by_glob: Vec<Limit>,
    rest: Limit,
}

/// What a `match` says.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// One scope.
    Exact(String),
    /// Scopes like this; never `*` alone.
    Glob(Glob),
    /// `*`: every scope that nothing else matches.
    Rest,
}

/// Collects limits in the order of the file.
#[derive(Debug, Default)]
pub struct LimitsBuilder {
    exact: HashMap<String, Limit>,
    globs: Vec<Glob>,
    by_glob: Vec<Limit>,
}

// === impl Pattern ===

impl Pattern {
    /// What `text` matches. It is a glob if it has any of `*?[]{}\`.
    ///
    /// # Errors
    /// If it is a glob that cannot be read.
    pub fn parse(text: &str) -> Result<Self, globset::Error> {
        if text == "*" {
            return Ok(Self::Rest);
        }
        if !text.contains(['*', '?', '[', ']', '{', '}', '\\']) {
            return Ok(Self::Exact(text.to_owned()));
        }
        let glob = GlobBuilder::new(text)
            .literal_separator(false)
            .backslash_escape(true)
            .build()?;
        Ok(Self::Glob(glob))
    }
}

// === impl LimitsBuilder ===

impl LimitsBuilder {
    /// Adds a limit for one scope.
    pub fn exact(&mut self, scope: String, limit: Limit) {
        self.exact.insert(scope, limit);
    }

    /// Adds a limit for the scopes like `glob` that no earlier one matches.
    pub fn glob(&mut self, glob: Glob, limit: Limit) {
        self.globs.push(glob);
        self.by_glob.push(limit);
    }

    /// The limits, with `rest` for every other scope.
    ///
    /// # Errors
    /// If the globs are too large together.
    pub fn build(self, rest: Limit) -> Result<Limits, globset::Error> {
        let mut globs = GlobSetBuilder::new();
        for glob in self.globs {
            globs.add(glob);
        }
        Ok(Limits {
            exact: self.exact,
            globs: globs.build()?,
            by_glob: self.by_glob,
            rest,
        })
    }
}

// === impl Limits ===

impl Limits {
    /// The limit of `scope`.
    pub fn find(&self, scope: &str) -> &Limit {
        if let Some(limit) = self.exact.get(scope) {
            return limit;
        }
        if self.by_glob.is_empty() {
            return &self.rest;
        }
        let first = self.globs.matches(scope).into_iter().min();
        first
            .and_then(|index| self.by_glob.get(index))
            .unwrap_or(&self.rest)
    }

    /// How many limits there are.
    pub fn count(&self) -> usize {
        self.exact.len() + self.by_glob.len() + 1
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::units::Capacity;

    use super::*;

    fn limits(patterns: &[&str]) -> Limits {
        let mut builder = LimitsBuilder::default();
        for (rate, pattern) in (1..).zip(patterns) {
            let limit = Limit::new(Capacity::from_whole(rate));
            match Pattern::parse(pattern).unwrap() {
                Pattern::Exact(scope) => builder.exact(scope, limit),
                Pattern::Glob(glob) => builder.glob(glob, limit),
                Pattern::Rest => return builder.build(limit).unwrap(),
            }
        }
        panic!("no `*`");
    }

    #[test]
    fn exact_ids_come_first_then_globs_in_order_then_the_rest() {
        let patterns = [
            "tenant/a*",
            "tenant/acme",
            "tenant/*",
            "tenant/b?[0-9]",
            "namespace/{acme,umbrella}/*",
            r"route/\*",
            "*",
        ];
        let rows = [
            ("tenant/acme", "tenant/acme"),
            ("tenant/acme2", "tenant/a*"),
            ("tenant/umbrella", "tenant/*"),
            ("tenant/bx7", "tenant/*"),
            ("namespace/acme/orders", "namespace/{acme,umbrella}/*"),
            ("namespace/other/orders", "*"),
            ("route/*", r"route/\*"),
            ("route/x", "*"),
            ("tenants/acme", "*"),
            ("tenant", "*"),
        ];
        let limits = limits(&patterns);
        assert_eq!(limits.count(), patterns.len());
        for (scope, want) in rows {
            let rate = limits.find(scope).capacity.as_micros() / 1_000_000;
            assert_eq!(patterns[rate as usize - 1], want, "{scope}");
        }
    }

    #[test]
    fn no_key_gets_a_scope_out_of_its_glob() {
        let limits = limits(&["tenant/*", "*"]);
        for key in ["", "a/b", "/", "../x", "a\\b", ".", "a b", "ü/ß", "*", "[x"] {
            let limit = limits.find(&format!("tenant/{key}"));
            assert_eq!(limit.capacity, Capacity::from_whole(1), "{key:?}");
        }
    }

    #[test]
    fn a_broken_glob_is_refused() {
        for glob in ["tenant/[a", "tenant/{a", "tenant/a]{", r"tenant/\"] {
            assert!(Pattern::parse(glob).is_err(), "{glob}");
        }
    }
}
