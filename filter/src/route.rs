//! Settings of a route or a virtual host: its metadata, in the namespace `tollgate`.
//!
//! Envoy has no configuration of a wasm filter for each route, but hands over metadata as it is: a
//! map in a flat form (counts and lengths as 32-bit little-endian numbers, then keys and values with
//! a zero byte after each). It is asked for on each request, so that a changed route counts at once,
//! and taken apart only the first time that it looks as it does.

use std::collections::BTreeMap;

use tollgate_core::units::Tokens;

use crate::config::{shortened, similar};
use crate::cost;
use crate::host::{Host, HostError};

/// The namespace of the metadata.
const NAMESPACE: &str = "tollgate";
/// The fields of the metadata, with the kinds that they should be of.
pub const ROUTE_FIELDS: [(&str, MetadataKind); 3] = [
    ("disabled", MetadataKind::Flag),
    ("cost", MetadataKind::Number),
    ("scopes", MetadataKind::Texts),
];
/// The most forms of metadata that are remembered; more begin anew.
const KNOWN_MAX: usize = 1000;
/// The most tokens that a request may cost.
const COST_MAX: f64 = 1e6;

/// Kind of a value of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataKind {
    /// A text.
    Text,
    /// A number.
    Number,
    /// True or false.
    Flag,
    /// A list of texts.
    Texts,
}

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

/// Field of a route's metadata that is ignored, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FieldError {
    #[error("it is not an object")]
    Form,
    #[error("disabled is {0}, must be true or false")]
    Disabled(String),
    #[error("cost is {0}, must be a number from 0 to 1000000")]
    Cost(String),
    #[error("scopes is {0}, must be a list of names of rules")]
    Scopes(String),
    #[error("scopes has {0:?}, which is the name of no rule{hint}", hint = hint(.1.as_deref()))]
    Rule(String, Option<String>),
    #[error("{0}{hint}", hint = hint(Some(.1)))]
    Unknown(String, &'static str),
}

// === impl Special ===

impl<R> Special<R> {
    /// Returns the settings where a route has none.
    pub(crate) fn of(rules: Vec<R>) -> Self {
        Self {
            disabled: false,
            cost: Tokens::ONE,
            rules,
        }
    }
}

// === impl Routes ===

impl<R: Clone> Routes<R> {
    /// Nothing is known yet of routes that all `rules` apply to.
    pub(crate) fn new(rules: Vec<(String, R)>) -> Self {
        Self {
            plain: Special::of(rules.iter().map(|(_, rule)| rule.clone()).collect()),
            rules,
            known: BTreeMap::new(),
        }
    }

    /// Returns the settings for the request at hand: those of its route, else of its virtual host, else
    /// what holds for all. Each field stands or falls alone; those that are ignored go to `on_error`, as
    /// long as the metadata is remembered only once.
    pub(crate) fn at_hand<H: Host>(
        &mut self,
        host: &H,
        on_error: impl FnMut(FieldError),
    ) -> Result<&Special<R>, HostError> {
        let metadata = |of: &str| host.property(&["xds", of, "filter_metadata", NAMESPACE]);
        let metadata = match metadata("route_metadata")? {
            None => metadata("virtual_host_metadata")?,
            route => route,
        };
        let Some(metadata) = metadata else {
            return Ok(&self.plain);
        };
        if !self.known.contains_key(&metadata) {
            let special = self.read(&metadata, on_error);
            if self.known.len() >= KNOWN_MAX {
                self.known.clear();
            }
            self.known.insert(metadata.clone(), special);
        }
        Ok(self.known.get(&metadata).unwrap_or(&self.plain))
    }

    fn read(&self, metadata: &[u8], mut on_error: impl FnMut(FieldError)) -> Special<R> {
        let mut special = self.plain.clone();
        let Some(fields) = pairs(metadata) else {
            on_error(FieldError::Form);
            return special;
        };
        for (name, value) in fields {
            match name {
                b"disabled" => match flag(value) {
                    Some(disabled) => special.disabled = disabled,
                    None => on_error(FieldError::Disabled(shown(value))),
                },
                b"cost" => match cost_of(value) {
                    Some(cost) => special.cost = cost,
                    None => on_error(FieldError::Cost(shown(value))),
                },
                b"scopes" => match pairs(value) {
                    Some(names) => special.rules = self.named(&names, &mut on_error),
                    None => on_error(FieldError::Scopes(shown(value))),
                },
                // Of a newer filter, or of somebody else.
                other => {
                    let name = String::from_utf8_lossy(other).into_owned();
                    if let Some(meant) =
                        similar(&name, ROUTE_FIELDS.iter().map(|(field, _)| *field))
                    {
                        on_error(FieldError::Unknown(name, meant));
                    }
                }
            }
        }
        special
    }

    /// Returns the rules with these names, each once.
    fn named(&self, names: &[(&[u8], &[u8])], on_error: &mut impl FnMut(FieldError)) -> Vec<R> {
        let mut found = BTreeMap::new();
        for (name, _) in names {
            let mut rules = self.rules.iter().enumerate();
            let rule = rules.find(|(_, (known, _))| known.as_bytes() == *name);
            match rule {
                Some((place, (_, rule))) => {
                    found.insert(place, rule.clone());
                }
                None => {
                    let name = String::from_utf8_lossy(name).into_owned();
                    let known = self.rules.iter().map(|(known, _)| known.as_str());
                    let meant = similar(&name, known).map(str::to_owned);
                    on_error(FieldError::Rule(name, meant));
                }
            }
        }
        found.into_values().collect()
    }
}

// === free functions ===

fn hint(meant: Option<&str>) -> String {
    meant.map_or_else(String::new, |meant| format!(" (did you mean {meant}?)"))
}

/// Returns a value as a warning shows it: as a text if it can be one, else as the number that it can be.
fn shown(value: &[u8]) -> String {
    match core::str::from_utf8(value) {
        Ok(text) if !text.is_empty() && !text.contains(char::is_control) => {
            shortened(format!("{text:?}"))
        }
        _ => match <[u8; 8]>::try_from(value) {
            Ok(number) => f64::from_le_bytes(number).to_string(),
            Err(_) => "of another type".to_owned(),
        },
    }
}

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
