//! Limits of the file, by scope.

use std::collections::HashMap;
use std::sync::Arc;

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use tollgate_core::lease::Unit;
use tollgate_core::limit::Limit;

use super::name::GLOB_CHARACTERS;
use super::scope_kinds::ScopeKinds;
use super::spec::LimitsSpec;
use super::written;

/// The most choices in one glob: far more than a name has parts.
pub const GLOB_CHOICES_MAX: usize = 64;

/// The most choices in all globs of a file. The time and memory to build the matcher grow with them;
/// so many take about a second and a hundred megabytes.
pub const CHOICES_MAX: usize = 40_000;

/// Choices of a class such as `[!a-z]`, which stands for many ranges of bytes.
const CLASS_CHOICES: usize = 4;

/// The limits of one scope or group, by unit; a unit that is not here has no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitLimits(Box<[(Unit, Limit)]>);

/// The limits of a configuration, by the scopes they match.
///
/// An exact id wins wherever it stands; then the first glob in the order of the file; then `*`. The
/// one that matches decides for all units: nothing falls through to the next.
///
/// `*` in a glob matches any text, **also `/`**. Keys come out of requests: if `tenant/*` did not
/// match `tenant/acme/x`, a caller who sends `acme/x` as its tenant would get out of the tenants'
/// limit.
#[derive(Debug, Default)]
pub struct LimitTable {
    exact: HashMap<Box<str>, MatchedLimits>,
    globs: GlobSet,
    by_glob: Vec<MatchedLimits>,
    rest: Option<MatchedLimits>,
    kinds: ScopeKinds,
}

/// Limits and their `match`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchedLimits {
    /// The `match`.
    pub pattern: Arc<str>,
    /// The limits.
    pub limits: Arc<UnitLimits>,
    /// Their written form.
    written: Box<str>,
}

/// Kind of a `match`.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// One scope.
    Exact,
    /// Scopes like this; never `*` alone.
    Glob(Glob),
    /// `*`: every scope that nothing else matches.
    Rest,
}

// === impl MatchedLimits ===

impl MatchedLimits {
    /// The written form.
    pub fn spec(&self) -> LimitsSpec {
        serde_json::from_str(&self.written).unwrap_or_default()
    }
}

// === impl UnitLimits ===

impl UnitLimits {
    /// The limit of `unit`.
    pub fn get(&self, unit: Unit) -> Option<&Limit> {
        let limits = self.0.iter();
        let found = limits.into_iter().find(|(of, _)| *of == unit);
        found.map(|(_, limit)| limit)
    }

    /// All of them, in the order of the units.
    pub fn iter(&self) -> impl Iterator<Item = (Unit, &Limit)> {
        self.0.iter().map(|(unit, limit)| (*unit, limit))
    }
}

impl FromIterator<(Unit, Limit)> for UnitLimits {
    fn from_iter<I: IntoIterator<Item = (Unit, Limit)>>(limits: I) -> Self {
        let mut limits: Vec<_> = limits.into_iter().collect();
        limits.sort_by_key(|(unit, _)| *unit);
        Self(limits.into())
    }
}

// === impl Pattern ===

impl Pattern {
    /// Parses `text`. It is a glob if it has any of `*?[]{}\`.
    ///
    /// # Errors
    /// If it is a glob that cannot be read.
    pub fn parse(text: &str) -> Result<Self, globset::Error> {
        if text == "*" {
            return Ok(Self::Rest);
        }
        if !text.contains(GLOB_CHARACTERS) {
            return Ok(Self::Exact);
        }
        let glob = GlobBuilder::new(text)
            .literal_separator(false)
            .backslash_escape(true)
            .build()?;
        Ok(Self::Glob(glob))
    }
}

// === impl LimitTable ===

impl LimitTable {
    /// Builds the table of `limits`, each with its `match`, that parsed, and its written form, in the order of the file.
    ///
    /// # Errors
    /// If the matcher of all globs would be too large.
    pub fn new<'a>(
        limits: impl IntoIterator<Item = (&'a str, Pattern, UnitLimits, LimitsSpec)>,
    ) -> Result<Self, globset::Error> {
        let mut table = Self::default();
        let mut globs = GlobSetBuilder::new();
        for (text, pattern, limits, spec) in limits {
            let matched = MatchedLimits {
                pattern: text.into(),
                limits: Arc::new(limits),
                written: written(&spec),
            };
            match pattern {
                Pattern::Exact => {
                    table.kinds.add_exact(text);
                    table.exact.insert(text.into(), matched);
                }
                Pattern::Glob(glob) => {
                    globs.add(glob);
                    table.kinds.add_glob(text);
                    table.by_glob.push(matched);
                }
                Pattern::Rest => table.rest = Some(matched),
            }
        }
        table.globs = globs.build()?;
        Ok(table)
    }

    /// The limits whose `match` is exactly `scope`.
    pub fn exact(&self, scope: &str) -> Option<&MatchedLimits> {
        self.exact.get(scope)
    }

    /// The limits of the first glob that matches `scope`, or of `*`.
    pub fn by_glob(&self, scope: &str) -> Option<&MatchedLimits> {
        if self.by_glob.is_empty() {
            return self.rest.as_ref();
        }
        let first = self.globs.matches(scope).into_iter().min();
        first
            .and_then(|index| self.by_glob.get(index))
            .or(self.rest.as_ref())
    }

    /// All limits that match `scope`, in the order in which they would decide.
    pub fn matching(&self, scope: &str) -> Vec<&MatchedLimits> {
        let mut globs = self.globs.matches(scope);
        globs.sort_unstable();
        let globs = globs.into_iter();
        let globs = globs.filter_map(|index| self.by_glob.get(index));
        let exact = self.exact(scope).into_iter();
        exact.chain(globs).chain(&self.rest).collect()
    }

    /// The scopes with limits by their exact ids, in no order.
    pub fn exact_scopes(&self) -> impl Iterator<Item = &str> {
        self.exact.keys().map(AsRef::as_ref)
    }

    /// Whether one may be for a scope of `kind`.
    pub fn may_match(&self, kind: &str) -> bool {
        self.rest.is_some() || self.kinds.has_any(kind)
    }

    /// The kinds of scopes that they are about.
    pub fn kinds(&self) -> &ScopeKinds {
        &self.kinds
    }

    /// All of them: exact ids by name, then globs in the order of the file, then `*`.
    pub fn in_order(&self) -> Vec<&MatchedLimits> {
        let mut exact: Vec<&MatchedLimits> = self.exact.values().collect();
        exact.sort_by(|a, b| a.pattern.cmp(&b.pattern));
        let globs = self.by_glob.iter().chain(&self.rest);
        exact.into_iter().chain(globs).collect()
    }

    /// Number of limits.
    pub fn count(&self) -> usize {
        self.exact.len() + self.by_glob.len() + usize::from(self.rest.is_some())
    }
}

// === free functions ===

/// Number of choices that the matcher of `glob` has to keep open: its wildcards, classes and
/// alternatives.
pub fn choices(glob: &str) -> usize {
    let (mut choices, mut depth) = (0_usize, 0_usize);
    let mut rest = glob.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => drop(rest.next()),
            '*' | '?' => choices += 1,
            '[' => {
                choices += CLASS_CHOICES;
                // A `]` that is the first character stands for itself.
                let _ = rest.by_ref().skip(1).find(|c| *c == ']');
            }
            '{' => {
                choices += 1;
                depth += 1;
            }
            '}' => depth = depth.saturating_sub(1),
            ',' if depth > 0 => choices += 1,
            _ => {}
        }
    }
    choices
}

#[cfg(test)]
mod tests {
    use tollgate_core::units::Capacity;

    use super::*;

    fn limits(patterns: &[&str]) -> LimitTable {
        let limits = (1..).zip(patterns).map(|(rate, pattern)| {
            let limit = Limit::new(Capacity::from_whole(rate));
            let limits = UnitLimits::from_iter([(Unit::Requests, limit)]);
            let spec = LimitsSpec::default();
            (*pattern, Pattern::parse(pattern).unwrap(), limits, spec)
        });
        LimitTable::new(limits).unwrap()
    }

    fn find<'a>(limits: &'a LimitTable, scope: &str) -> Option<&'a MatchedLimits> {
        limits.exact(scope).or_else(|| limits.by_glob(scope))
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
            let matched = find(&limits, scope).unwrap();
            assert_eq!(&*matched.pattern, want, "{scope}");
            let limit = matched.limits.get(Unit::Requests).unwrap();
            let rate = limit.capacity.as_micros() / 1_000_000;
            assert_eq!(patterns[rate as usize - 1], want, "{scope}");
        }
    }

    #[test]
    fn no_key_gets_a_scope_out_of_its_glob() {
        let limits = limits(&["tenant/*", "*"]);
        for key in ["", "a/b", "/", "../x", "a\\b", ".", "a b", "ü/ß", "*", "[x"] {
            let matched = find(&limits, &format!("tenant/{key}")).unwrap();
            assert_eq!(&*matched.pattern, "tenant/*", "{key:?}");
        }
    }

    #[test]
    fn what_nothing_matches_has_no_limit() {
        assert_eq!(find(&limits(&[]), "tenant/a"), None);
        assert_eq!(find(&limits(&["tenant/a", "route/*"]), "tenant/b"), None);
    }

    #[test]
    fn choices_are_wildcards_classes_and_alternatives() {
        let rows = [
            ("tenant/acme", 0),
            ("tenant/*", 1),
            ("**?", 3),
            ("a-[0-9][!x]", 8),
            ("[*?{,}]", 4),
            ("{a,b}{c,{d,e}}", 6),
            ("a,b", 0),
            (r"\*\?\[\{", 0),
        ];
        for (glob, want) in rows {
            assert_eq!(choices(glob), want, "{glob}");
        }
    }

    #[test]
    fn a_broken_glob_is_refused() {
        for glob in ["tenant/[a", "tenant/{a", "tenant/a]{", r"tenant/\"] {
            assert!(Pattern::parse(glob).is_err(), "{glob}");
        }
    }
}
