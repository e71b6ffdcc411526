//! Conditions under which a scope rule is about the request at hand.

use core::cell::OnceCell;

use ipnet::IpNet;
use regex_lite::Regex;

use crate::host::{Host, HostError};
use crate::key::{decoded_leniently, parse_address};

/// Condition on a request: all of its tests must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Condition(pub(crate) Vec<Test>);

/// One test of a request; of a list one entry must fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    Path(Vec<PathPattern>),
    Method(Vec<String>),
    /// The client's address is in one of these networks.
    Source(Vec<IpNet>),
    Header(String, Expected),
    Any(Vec<Condition>),
    All(Vec<Condition>),
    Not(Condition),
}

/// Pattern of a normalised path.
#[derive(Clone, Debug)]
pub(crate) enum PathPattern {
    /// This path.
    Exact(String),
    /// This path, and those below it.
    Under(String),
    /// A path that begins so.
    Prefix(String),
    /// A path that matches as a whole.
    Regex(Regex),
}

/// Condition on a header's first value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Present,
    Absent,
    OneOf(Vec<String>),
    Prefix(String),
    /// An item of a list with commas.
    Item(String),
}

/// The request at hand, with its normalised path once that was needed.
struct Subject<'a, H> {
    host: &'a H,
    path: OnceCell<Vec<u8>>,
}

// === impl Condition ===

impl Condition {
    /// Returns whether the request at hand is meant.
    pub(crate) fn holds<H: Host>(&self, host: &H) -> Result<bool, HostError> {
        let path = OnceCell::new();
        self.holds_for(&Subject { host, path })
    }

    fn holds_for<H: Host>(&self, subject: &Subject<'_, H>) -> Result<bool, HostError> {
        for test in &self.0 {
            if !test.holds(subject)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

// === impl Test ===

impl Test {
    fn holds<H: Host>(&self, subject: &Subject<'_, H>) -> Result<bool, HostError> {
        let host = subject.host;
        Ok(match self {
            Self::Path(patterns) => {
                let path = subject.path()?;
                patterns.iter().any(|pattern| pattern.fits(path))
            }
            Self::Method(methods) => {
                let method = host.request_header(":method")?.unwrap_or_default();
                methods.iter().any(|one| *one.as_bytes() == *method)
            }
            Self::Source(networks) => {
                let address = host.property(&["source", "address"])?;
                let address = address.and_then(|address| parse_address(&address));
                address.is_some_and(|address| networks.iter().any(|net| net.contains(&address)))
            }
            Self::Header(name, expected) => expected.fits(host.request_header(name)?.as_deref()),
            Self::Any(conditions) => {
                for condition in conditions {
                    if condition.holds_for(subject)? {
                        return Ok(true);
                    }
                }
                false
            }
            Self::All(conditions) => {
                for condition in conditions {
                    if !condition.holds_for(subject)? {
                        return Ok(false);
                    }
                }
                true
            }
            Self::Not(condition) => !condition.holds_for(subject)?,
        })
    }
}

// === impl PathPattern ===

impl PathPattern {
    fn fits(&self, path: &[u8]) -> bool {
        let bare = path.strip_suffix(b"/").unwrap_or(path);
        match self {
            Self::Exact(text) => bare == text.trim_end_matches('/').as_bytes(),
            Self::Under(text) => {
                let rest = bare.strip_prefix(text.trim_end_matches('/').as_bytes());
                rest.is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b'/'))
            }
            Self::Prefix(text) => path.starts_with(text.as_bytes()),
            // As the others, whether a slash is at its end or not.
            Self::Regex(regex) => {
                let fits = |path| regex.is_match(&String::from_utf8_lossy(path));
                fits(path) || bare.len() < path.len() && fits(bare)
            }
        }
    }
}

impl PartialEq for PathPattern {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(one), Self::Exact(other))
            | (Self::Under(one), Self::Under(other))
            | (Self::Prefix(one), Self::Prefix(other)) => one == other,
            (Self::Regex(one), Self::Regex(other)) => one.as_str() == other.as_str(),
            _ => false,
        }
    }
}

impl Eq for PathPattern {}

// === impl Expected ===

impl Expected {
    fn fits(&self, value: Option<&[u8]>) -> bool {
        let Some(value) = value else {
            return *self == Self::Absent;
        };
        match self {
            Self::Present => true,
            Self::Absent => false,
            Self::OneOf(values) => values.iter().any(|one| one.as_bytes() == value),
            Self::Prefix(prefix) => value.starts_with(prefix.as_bytes()),
            Self::Item(item) => {
                let mut items = value.split(|byte| *byte == b',');
                items.any(|one| one.trim_ascii() == item.as_bytes())
            }
        }
    }
}

// === impl Subject ===

impl<H: Host> Subject<'_, H> {
    fn path(&self) -> Result<&[u8], HostError> {
        if let Some(path) = self.path.get() {
            return Ok(path);
        }
        let path = self.host.request_header(":path")?.unwrap_or_default();
        Ok(self.path.get_or_init(|| normalised(&path)))
    }
}

// === free functions ===

/// Returns `path` without its query, percent-decoded once, and without empty segments, `.` and `..`: as the
/// upstream may read it. A slash at its end stays.
pub(crate) fn normalised(path: &[u8]) -> Vec<u8> {
    let end = path.iter().position(|byte| matches!(byte, b'?' | b'#'));
    let path = decoded_leniently(path.get(..end.unwrap_or(path.len())).unwrap_or_default());
    let mut segments: Vec<&[u8]> = Vec::new();
    let mut is_open = false;
    for segment in path.split(|byte| matches!(byte, b'/' | b'\\')) {
        is_open = matches!(segment, b"" | b"." | b"..");
        match segment {
            b"" | b"." => {}
            b".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let mut whole = Vec::with_capacity(path.len());
    for segment in &segments {
        whole.push(b'/');
        whole.extend_from_slice(segment);
    }
    if is_open || segments.is_empty() {
        whole.push(b'/');
    }
    whole
}

#[cfg(test)]
mod tests;
