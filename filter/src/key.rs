//! From a request to the key of a scope.
//!
//! A key becomes part of a scope id, which travels to the coordinator, into logs and into tables
//! that people read, so what a client may put into it is narrowed here: surrounding blanks
//! are dropped, and what is left must be UTF-8 without control characters. Anything else counts as
//! *missing*, for which a rule has a policy. A key of more than [`KEY_LEN_MAX`] bytes is hashed.
//!
//! Two requests that the upstream would take for the same tenant's must have the same key, or
//! spelling would be a way around the limit: hosts are compared without case and port, paths and
//! queries are percent-decoded (once), addresses are cut to their prefix.

use std::borrow::Cow;

use regex_lite::Regex;
use tollgate_core::lease::ID_LEN_MAX;

use crate::host::{Host, HostError};

mod address;
mod credential;
mod hash;
mod path;
mod percent;
mod query;
mod text;

pub(crate) use address::{Prefixes, parse_address};
pub(crate) use hash::hashed;
pub(crate) use path::Template;
pub(crate) use percent::decoded_leniently;

/// The longest name of a scope rule, in bytes.
pub(crate) const RULE_NAME_LEN_MAX: usize = 40;
/// The longest key, in bytes; a rule's name, a slash and a key fit into a scope id.
pub(crate) const KEY_LEN_MAX: usize = 200;
/// The longest name of a plan, and the longest key beside one.
const PLAN_LEN_MAX: usize = 40;
const PLANNED_KEY_LEN_MAX: usize = 160;

const _: () = assert!(RULE_NAME_LEN_MAX + 1 + KEY_LEN_MAX <= ID_LEN_MAX);
const _: () = assert!(RULE_NAME_LEN_MAX + 1 + PLAN_LEN_MAX + 1 + PLANNED_KEY_LEN_MAX <= ID_LEN_MAX);

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
    /// A cookie, by its name.
    Cookie(String),
    /// The token of `Authorization: Bearer`.
    Bearer,
    /// A claim of the JWT that is the bearer token, by the steps to it. Nobody has verified it.
    UnverifiedClaim(Vec<String>),
    /// The same for all requests.
    Constant(String),
    /// A part of another one: what the first group of an expression matches, or all of it.
    Part { of: Box<Self>, regex: Pattern },
    /// The hash of another one, which is a credential.
    Hashed(Box<Self>),
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

/// A regular expression.
#[derive(Clone, Debug)]
pub(crate) struct Pattern(pub(crate) Regex);

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

// === impl Pattern ===

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for Pattern {}

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
            Self::Part { of, .. } | Self::Hashed(of) => of.compile(host),
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
                let value = host.property(&path)?;
                if path.contains(&"filter_metadata") {
                    found(value.map(text::of_value))
                } else {
                    found(value)
                }
            }
            Self::Expression(expression) => match expression.compiled {
                Some(compiled) => found(host.evaluate(compiled)?.map(text::of_value)),
                None => Found::Missing,
            },
            Self::Cookie(name) => match host.request_header("cookie")? {
                Some(cookies) => credential::cookie(&cookies, name),
                None => Found::Missing,
            },
            Self::Bearer => match host.request_header("authorization")? {
                Some(value) => found(credential::bearer(&value).map(<[u8]>::to_vec)),
                None => Found::Missing,
            },
            Self::UnverifiedClaim(steps) => match host.request_header("authorization")? {
                Some(value) => found(credential::claim(&value, steps)),
                None => Found::Missing,
            },
            Self::Part { of, regex } => match of.read(host)? {
                Found::Value(value) => found(text::part(&value, &regex.0)),
                Found::Missing => Found::Missing,
            },
            Self::Hashed(of) => match of.read(host)? {
                Found::Value(value) if trimmed(&value).is_empty() => Found::Missing,
                Found::Value(value) => found(Some(hashed(trimmed(&value)).into_bytes())),
                Found::Missing => Found::Missing,
            },
            Self::Constant(key) => Found::Value(Cow::Borrowed(key.as_bytes())),
            Self::Join { parts, with } => joined(host, parts, *with)?,
        })
    }

    /// Returns the paths of the properties that it needs.
    pub(crate) fn properties(&self) -> Vec<&Vec<String>> {
        match self {
            Self::Property(path) => vec![path],
            Self::Part { of, .. } | Self::Hashed(of) => of.properties(),
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
            Self::Cookie(name) => format!("cookie {name}"),
            Self::Bearer => "bearer token".to_owned(),
            Self::UnverifiedClaim(steps) => format!("claim {} of a bearer token", steps.join(".")),
            Self::Part { of, .. } => format!("part of the {}", of.in_words()),
            Self::Hashed(of) => of.in_words(),
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

/// A trimmed value as a key, or `None` if it cannot be one. A long one becomes its hash.
pub(crate) fn parsed(value: &[u8]) -> Option<Cow<'_, str>> {
    let key = printable(value)?;
    Some(if key.len() > KEY_LEN_MAX {
        Cow::Owned(hashed(value))
    } else {
        Cow::Borrowed(key)
    })
}

/// A plan's name from a value: as a rule's in lower case, or `None` if it cannot be one.
pub(crate) fn plan_name(value: &str) -> Option<String> {
    let name = value.to_ascii_lowercase();
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    (name.len() <= PLAN_LEN_MAX && name.bytes().all(plain)).then_some(name)
}

/// A key that fits beside a plan's name: a long one becomes its hash.
pub(crate) fn shortened_for_plan(key: String) -> String {
    if key.len() > PLANNED_KEY_LEN_MAX {
        hashed(key.as_bytes())
    } else {
        key
    }
}

/// A trimmed value as a text, or `None` if it is empty or cannot be printed.
pub(crate) fn printable(value: &[u8]) -> Option<&str> {
    let text = core::str::from_utf8(value).ok()?;
    (!text.is_empty() && !text.chars().any(char::is_control)).then_some(text)
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
        // The form of these says where they end.
        let ends_itself = matches!(part, Key::Hashed(_) | Key::SourceAddress(_));
        let is_clear = |value: &&str| is_last || ends_itself || !value.contains(with);
        let value = printable(trimmed(&value)).filter(is_clear);
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
