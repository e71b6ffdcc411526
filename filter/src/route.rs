//! Settings of a route or a virtual host: its metadata, in the namespace `tollgate`.
//!
//! Envoy has no configuration of a wasm filter for each route, but hands over metadata as it is: a
//! map in a flat form (counts and lengths as 32-bit little-endian numbers, then keys and values with
//! a zero byte after each). It is asked for on each request, so that a changed route counts at once,
//! and taken apart only the first time that it looks as it does.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::units::Tokens;

use crate::cost;
use crate::host::{Host, HostError, Level};

/// The namespace of the metadata.
const NAMESPACE: &str = "tollgate";
/// The most forms of metadata that are remembered; more begin anew.
const KNOWN_MAX: usize = 1000;
/// The most tokens that a request may cost.
const COST_MAX: f64 = 1e6;

/// Settings for the requests of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Special<R> {
    /// Nothing is limited.
    pub(crate) disabled: bool,
    /// Cost of a request.
    pub(crate) cost: Tokens,
    /// The rules that apply.
    pub(crate) rules: Vec<R>,
}

/// Settings of the routes that were seen; `R` is a rule.
#[derive(Debug)]
pub(crate) struct Routes<R> {
    /// All rules, with their names.
    rules: Vec<(String, R)>,
    /// Without metadata.
    plain: Special<R>,
    known: BTreeMap<Vec<u8>, Special<R>>,
}

/// Why metadata cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RouteError {
    #[error("it is not an object")]
    Form,
    #[error("disabled must be true or false")]
    Disabled,
    #[error("cost must be a number from 0 to 1000000")]
    Cost,
    #[error("scopes must be a list of names of rules, {0:?} is none")]
    Scopes(String),
    #[error("scopes must name each rule once, {0:?} is there twice")]
    Repeated(String),
}

// === impl Routes ===

impl<R: Clone> Routes<R> {
    /// Nothing is known yet of routes that all `rules` apply to.
    pub(crate) fn new(rules: Vec<(String, R)>) -> Self {
        let plain = Special {
            disabled: false,
            cost: Tokens::ONE,
            rules: rules.iter().map(|(_, rule)| rule.clone()).collect(),
        };
        Self {
            rules,
            plain,
            known: BTreeMap::new(),
        }
    }

    /// Returns the settings for the request at hand: those of its route, else of its virtual host, else
    /// what holds for all. Metadata that makes no sense is logged once and counts as none.
    pub(crate) fn at_hand<H: Host>(&mut self, host: &H) -> Result<&Special<R>, HostError> {
        let said = |of: &str| host.property(&["xds", of, "filter_metadata", NAMESPACE]);
        let said = match said("route_metadata")? {
            None => said("virtual_host_metadata")?,
            route => route,
        };
        let Some(said) = said else {
            return Ok(&self.plain);
        };
        if !self.known.contains_key(&said) {
            let special = self.read(&said).unwrap_or_else(|error| {
                let message = format!("tollgate: ignored metadata of a route: {error}");
                host.log(Level::Warn, &message);
                self.plain.clone()
            });
            if self.known.len() >= KNOWN_MAX {
                self.known.clear();
            }
            self.known.insert(said.clone(), special);
        }
        Ok(self.known.get(&said).unwrap_or(&self.plain))
    }

    fn read(&self, metadata: &[u8]) -> Result<Special<R>, RouteError> {
        let mut special = self.plain.clone();
        for (name, value) in pairs(metadata).ok_or(RouteError::Form)? {
            match name {
                b"disabled" => special.disabled = flag(value).ok_or(RouteError::Disabled)?,
                b"cost" => special.cost = cost_of(value).ok_or(RouteError::Cost)?,
                b"scopes" => special.rules = self.named(value)?,
                // Of a newer filter, perhaps.
                _ => {}
            }
        }
        Ok(special)
    }

    fn named(&self, list: &[u8]) -> Result<Vec<R>, RouteError> {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let names = pairs(list).ok_or_else(|| RouteError::Scopes(text(list)))?;
        let mut seen = BTreeSet::new();
        if let Some((repeated, _)) = names.iter().find(|(name, _)| !seen.insert(*name)) {
            return Err(RouteError::Repeated(text(repeated)));
        }
        let rule = |(name, _): (&[u8], _)| {
            let found = self.rules.iter().find(|rule| *rule.0.as_bytes() == *name);
            let found = found.ok_or_else(|| RouteError::Scopes(text(name)))?;
            Ok(found.1.clone())
        };
        names.into_iter().map(rule).collect()
    }
}

// === free functions ===

/// A boolean is one byte.
fn flag(value: &[u8]) -> Option<bool> {
    match value {
        [0] => Some(false),
        [1] => Some(true),
        _ => None,
    }
}

/// A number is a double, and comes as one.
fn cost_of(value: &[u8]) -> Option<Tokens> {
    let number = f64::from_le_bytes(value.try_into().ok()?);
    cost::number(number, COST_MAX)
}

/// The entries of a map, or of a list, which has its items as names; none if it is neither.
fn pairs(bytes: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let (count, mut lengths) = number(bytes)?;
    let table = count.checked_mul(8)?;
    let mut rest = lengths.get(table..)?;
    let mut pairs = Vec::with_capacity(count.min(lengths.len()));
    for _ in 0..count {
        let (name_len, after) = number(lengths)?;
        let (value_len, after) = number(after)?;
        lengths = after;
        let (name, after) = text(rest, name_len)?;
        let (value, after) = text(after, value_len)?;
        rest = after;
        pairs.push((name, value));
    }
    rest.is_empty().then_some(pairs)
}

fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    let number = usize::try_from(u32::from_le_bytes(*number)).ok()?;
    Some((number, rest))
}

/// So many bytes, and what comes after the zero byte behind them.
fn text(bytes: &[u8], len: usize) -> Option<(&[u8], &[u8])> {
    let (text, rest) = bytes.split_at_checked(len)?;
    Some((text, rest.strip_prefix(&[0])?))
}

#[cfg(test)]
mod tests;
