//! From a request to the key of a scope.
//!
//! A key becomes part of a scope id, which travels to the coordinator, into logs and into tables
//! that people read, so what a client may put into it is narrowed here: surrounding blanks
//! are dropped, and what is left must be 1 to [`KEY_LEN_MAX`] bytes of UTF-8 without control
//! characters. Anything else counts as *missing*, for which a rule has a policy.
//!
//! Two requests that the upstream would take for the same tenant's must have the same key, or
//! spelling would be a way around the limit: hosts are compared without case and port, paths and
//! queries are percent-decoded (once), addresses are cut to their prefix.

use std::borrow::Cow;

use crate::config::RULE_NAME_LEN_MAX;
use crate::host::{Host, HostError};

mod address;
mod path;
mod percent;
mod query;

pub(crate) use address::Prefixes;
pub(crate) use path::Template;
pub(crate) use percent::decoded_leniently;

/// The longest key, in bytes; a rule's name, a slash and a key fit into a scope id.
pub(crate) const KEY_LEN_MAX: usize = 200;

const _: () = assert!(RULE_NAME_LEN_MAX + 1 + KEY_LEN_MAX <= tollgate_core::lease::ID_LEN_MAX);

/// Where a rule finds the key of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// A header, by its name in lower case.
    Header(String),
    /// A query parameter, by its name.
    Query(String),
    /// A segment of the path, counted from one.
    Segment(usize),
    /// Captures of a template in the path.
    Template(Template),
    /// The host that the request is for.
    Authority,
    /// The address of the client.
    SourceAddress(Prefixes),
    /// A property that Envoy has of the request, by its path.
    Property(Vec<String>),
    /// Value of an expression in CEL.
    Expression(Expression),
    /// The same for all requests.
    Constant(String),
    /// Several, with a character between that no part but the last contains.
    Join { parts: Vec<Self>, with: char },
}

/// An expression in CEL, which Envoy evaluates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expression {
    pub(crate) text: String,
    /// Envoy's token for it, once it is compiled for a root context.
    compiled: Option<u32>,
}

/// Key of a request, as found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// A value, which may still be empty or not be printable: see [`parsed`].
    Value(Cow<'a, [u8]>),
    /// None, or none that can be used.
    Missing,
}

// === impl Expression ===

impl Expression {
    /// The expression that `text` may be.
    pub(crate) fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            compiled: None,
        }
    }
}

// === impl Key ===

impl Key {
    /// Makes the expressions in it ready for the streams of the context at hand. False if one of
    /// them is none.
    pub(crate) fn compile<H: Host>(&mut self, host: &H) -> Result<bool, HostError> {
        match self {
            Self::Expression(expression) => {
                expression.compiled = host.compile(&expression.text)?;
                Ok(expression.compiled.is_some())
            }
            Self::Join { parts, .. } => {
                for part in parts {
                    if !part.compile(host)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            _ => Ok(true),
        }
    }

    /// Looks for the key in the request at hand.
    pub(crate) fn read<H: Host>(&self, host: &H) -> Result<Found<'_>, HostError> {
        Ok(match self {
            Self::Header(name) => found(host.request_header(name)?),
            Self::Query(name) => match host.request_header(":path")? {
                Some(path) => query::parameter(&path, name),
                None => Found::Missing,
            },
            Self::Segment(number) => match host.request_header(":path")? {
                Some(path) => path::segment(&path, *number),
                None => Found::Missing,
            },
            Self::Template(template) => match host.request_header(":path")? {
                Some(path) => template.captured(&path),
                None => Found::Missing,
            },
            Self::Authority => found(host.request_header(":authority")?.map(address::host)),
            Self::SourceAddress(prefixes) => match host.property(&["source", "address"])? {
                Some(address) => prefixes.cut(&address),
                None => Found::Missing,
            },
            Self::Property(path) => {
                let path: Vec<&str> = path.iter().map(String::as_str).collect();
                found(host.property(&path)?)
            }
            Self::Expression(expression) => match expression.compiled {
                Some(compiled) => found(host.evaluate(compiled)?),
                None => Found::Missing,
            },
            Self::Constant(key) => Found::Value(Cow::Borrowed(key.as_bytes())),
            Self::Join { parts, with } => joined(host, parts, *with)?,
        })
    }

    /// Returns the paths of the properties that it needs.
    pub(crate) fn properties(&self) -> Vec<&Vec<String>> {
        match self {
            Self::Property(path) => vec![path],
            Self::Join { parts, .. } => parts.iter().flat_map(Self::properties).collect(),
            _ => Vec::new(),
        }
    }

    /// Where it looks, in words that complete "the request has no usable".
    pub(crate) fn in_words(&self) -> String {
        match self {
            Self::Header(name) => format!("{name} header"),
            Self::Query(name) => format!("query parameter {name}"),
            Self::Segment(number) => format!("path segment {number}"),
            Self::Template(template) => format!("path like {template}"),
            Self::Authority => "authority".to_owned(),
            Self::SourceAddress(_) => "source address".to_owned(),
            Self::Property(path) => path.join("."),
            Self::Expression(expression) => expression.text.clone(),
            Self::Constant(_) => "constant".to_owned(),
            Self::Join { parts, .. } => {
                let words: Vec<String> = parts.iter().map(Self::in_words).collect();
                words.join(" and ")
            }
        }
    }
}

// === free functions ===

/// `value` without blanks and tabs around it.
///
/// Envoy has trimmed header values on HTTP/1 already; on HTTP/2 and 3 it has not.
#[inline]
pub(crate) fn trimmed(value: &[u8]) -> &[u8] {
    let blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    match (
        value.iter().position(|byte| !blank(byte)),
        value.iter().rposition(|byte| !blank(byte)),
    ) {
        (Some(first), Some(last)) => value.get(first..=last).unwrap_or_default(),
        _ => &[],
    }
}

/// A trimmed value as a key, or `None` if it cannot be one.
pub(crate) fn parsed(value: &[u8]) -> Option<&str> {
    if value.is_empty() || value.len() > KEY_LEN_MAX {
        return None;
    }
    let key = core::str::from_utf8(value).ok()?;
    (!key.chars().any(char::is_control)).then_some(key)
}

fn found<'a>(value: Option<Vec<u8>>) -> Found<'a> {
    value.map_or(Found::Missing, |value| Found::Value(Cow::Owned(value)))
}

fn joined<'a, H: Host>(host: &H, parts: &'a [Key], with: char) -> Result<Found<'a>, HostError> {
    let mut whole = String::new();
    for (index, part) in parts.iter().enumerate() {
        let Found::Value(value) = part.read(host)? else {
            return Ok(Found::Missing);
        };
        let is_last = index.saturating_add(1) == parts.len();
        let value = parsed(trimmed(&value)).filter(|value| is_last || !value.contains(with));
        let Some(value) = value else {
            return Ok(Found::Missing);
        };
        whole.push_str(value);
        whole.extend((!is_last).then_some(with));
    }
    Ok(Found::Value(Cow::Owned(whole.into_bytes())))
}

#[cfg(test)]
mod tests;
