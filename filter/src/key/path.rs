//! Keys out of a path: one segment, or what a template captures.
//!
//! A path is split before it is decoded, so that an encoded slash does not make two segments of
//! one. Empty segments are left out, as most servers do. A path with `.` or `..` has no key: servers differ in whose
//! it is.

use core::fmt;
use std::borrow::Cow;

use super::Found;
use super::percent::{decoded, decoded_leniently};

/// The most segments of a template.
const SEGMENTS_MAX: usize = 64;

/// A path with segments that stand for others: `/v1/tenants/{tenant}/**`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    text: String,
    segments: Vec<Segment>,
    /// True if more may follow.
    open: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(String),
    /// `*`: any one.
    Any,
    /// `{name}`: the key, or a part of it.
    Captured,
}

/// Why a text is not a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TemplateError {
    #[error("it begins with a slash and has at most {SEGMENTS_MAX} segments")]
    Shape,
    #[error("** stands for all that follows, so it is the last segment")]
    Rest,
    #[error("a segment is text, *, ** or {{name}}, and not empty, . or ..")]
    Segment,
    #[error("at least one segment is a {{name}}, for the key is what these match")]
    NothingCaptured,
}

// === impl Template ===

impl Template {
    /// Takes a template apart.
    ///
    /// # Errors
    /// If it is none, or would capture nothing.
    pub(crate) fn parse(text: &str) -> Result<Self, TemplateError> {
        let path = text.strip_prefix('/').ok_or(TemplateError::Shape)?;
        let mut parts: Vec<&str> = path.split('/').collect();
        if parts.len() > SEGMENTS_MAX {
            return Err(TemplateError::Shape);
        }
        let open = parts.last() == Some(&"**");
        if open {
            parts.pop();
        }
        let segments: Vec<Segment> = parts
            .into_iter()
            .map(Segment::parse)
            .collect::<Result<_, _>>()?;
        if !segments.contains(&Segment::Captured) {
            return Err(TemplateError::NothingCaptured);
        }
        Ok(Self {
            text: text.to_owned(),
            segments,
            open,
        })
    }

    /// Returns the captures of a path, several with slashes between; none where one has a
    /// slash of its own, for the parts could not be told apart.
    pub(super) fn captured<'a>(&self, path: &[u8]) -> Found<'a> {
        let Some(segments) = segments_of(path) else {
            return Found::Missing;
        };
        let mut rest = segments.into_iter();
        let mut key: Vec<u8> = Vec::new();
        for segment in &self.segments {
            let Some(part) = rest.next() else {
                return Found::Missing;
            };
            match (segment, decoded(part)) {
                (Segment::Any, _) => {}
                (Segment::Literal(text), Some(part)) if *part == *text.as_bytes() => {}
                (Segment::Literal(_), _) => return Found::Missing,
                (Segment::Captured, None) => return Found::Missing,
                (Segment::Captured, Some(part)) if part.is_empty() => return Found::Missing,
                (Segment::Captured, Some(part)) => {
                    if self.captures_several() && part.contains(&b'/') {
                        return Found::Missing;
                    }
                    if !key.is_empty() {
                        key.push(b'/');
                    }
                    key.extend_from_slice(&part);
                }
            }
        }
        if rest.next().is_some() && !self.open {
            Found::Missing
        } else {
            Found::Value(Cow::Owned(key))
        }
    }

    fn captures_several(&self) -> bool {
        let captured = self.segments.iter();
        captured
            .filter(|other| **other == Segment::Captured)
            .count()
            > 1
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

// === impl Segment ===

impl Segment {
    fn parse(text: &str) -> Result<Self, TemplateError> {
        if text == "**" {
            return Err(TemplateError::Rest);
        }
        if matches!(text, "" | "." | "..") {
            return Err(TemplateError::Segment);
        }
        if text == "*" {
            return Ok(Self::Any);
        }
        let special = |text: &str| text.contains(['{', '}', '*', '?', '#']);
        let name = text
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'));
        match name {
            Some(name) if !name.is_empty() && !special(name) => Ok(Self::Captured),
            None if !special(text) => Ok(Self::Literal(text.to_owned())),
            _ => Err(TemplateError::Segment),
        }
    }
}

// === free functions ===

/// The segment with that number, counted from one.
pub(super) fn segment<'a>(path: &[u8], number: usize) -> Found<'a> {
    let segments = segments_of(path).unwrap_or_default();
    match segments
        .get(number.saturating_sub(1))
        .map(|part| decoded(part))
    {
        None | Some(None) => Found::Missing,
        Some(Some(part)) => Found::Value(Cow::Owned(part.into_owned())),
    }
}

/// `path` without its query.
fn without_query(path: &[u8]) -> &[u8] {
    let end = path.iter().position(|byte| matches!(byte, b'?' | b'#'));
    path.get(..end.unwrap_or(path.len())).unwrap_or_default()
}

/// The segments of a path, without empty ones; none if one is `.` or `..`, however it is written.
fn segments_of(path: &[u8]) -> Option<Vec<&[u8]>> {
    let mut segments = Vec::new();
    for segment in without_query(path).split(|byte| *byte == b'/') {
        match &*decoded_leniently(segment) {
            b"" => {}
            b"." | b".." => return None,
            _ => segments.push(segment),
        }
    }
    Some(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value<'a>(text: &str) -> Found<'a> {
        Found::Value(Cow::Owned(text.as_bytes().to_vec()))
    }

    #[test]
    fn segments_are_counted_from_one_and_decoded() {
        let rows = [
            ("/v1/acme", 2, value("acme")),
            ("/v1/acme/", 2, value("acme")),
            ("/v1/acme?x=/y", 2, value("acme")),
            ("/v1/acme?x=/y", 3, Found::Missing),
            ("/v1/ac%6De/orders", 2, value("acme")),
            ("/v1/a%2Fb/orders", 2, value("a/b")),
            ("/v1/50%/orders", 2, Found::Missing),
            ("/v1", 2, Found::Missing),
            ("/", 1, Found::Missing),
            ("//v1//acme/", 2, value("acme")),
            ("/v1/./acme", 2, Found::Missing),
            ("*", 2, Found::Missing),
        ];
        for (path, number, want) in rows {
            assert_eq!(segment(path.as_bytes(), number), want, "{path} {number}");
        }
    }

    #[test]
    fn a_template_captures_what_its_names_stand_for() {
        let rows = [
            ("/v1/{t}", "/v1/acme", value("acme")),
            ("/v1/{t}", "/v1/acme/?a=b", value("acme")),
            ("/v1/{t}", "/v1/acme/orders", Found::Missing),
            ("/v1/{t}", "/v2/acme", Found::Missing),
            ("/v1/{t}", "/%76%31/acme", value("acme")),
            ("/v1/{t}", "/v1/", Found::Missing),
            ("/v1/{t}/**", "/v1/acme", value("acme")),
            ("/v1/{t}/**", "/v1/acme/a/b/c", value("acme")),
            ("/v1/{t}/*", "/v1/acme", Found::Missing),
            ("/v1/{t}/*", "/v1/acme/a", value("acme")),
            ("/v1/{t}/*", "/v1/acme/a/b", Found::Missing),
            (
                "/v1/{t}/ns/{n}/**",
                "/v1/acme/ns/orders/7",
                value("acme/orders"),
            ),
            ("/v1/{t}/ns/{n}", "/v1/a%2Fb/ns/c", Found::Missing),
            ("/v1/{t}", "/v1/a%2Fb", value("a/b")),
            ("/v1/{t}", "/v1/50%", Found::Missing),
            ("/{t}/{n}", "/a//b", value("a/b")),
            ("/v1/{t}/**", "/v1/acme/x/../../beta", Found::Missing),
            ("/v1/{t}/**", "/v1/acme/%2e%2E/beta", Found::Missing),
        ];
        for (template, path, want) in rows {
            let template = Template::parse(template).unwrap();
            assert_eq!(
                template.captured(path.as_bytes()),
                want,
                "{template} {path}"
            );
        }
    }

    #[test]
    fn what_is_not_a_template_is_refused() {
        let long = format!("/{{a}}{}", "/x".repeat(64));
        let rows = [
            ("v1/{t}", TemplateError::Shape),
            (long.as_str(), TemplateError::Shape),
            ("/v1/*", TemplateError::NothingCaptured),
            ("/**", TemplateError::NothingCaptured),
            ("/**/{t}", TemplateError::Rest),
            ("/{}", TemplateError::Segment),
            ("/{t}/", TemplateError::Segment),
            ("/{t}//{n}", TemplateError::Segment),
            ("/../{t}", TemplateError::Segment),
            ("/a{t}", TemplateError::Segment),
            ("/{t}/a*", TemplateError::Segment),
            ("/{t}?a", TemplateError::Segment),
        ];
        for (text, want) in rows {
            assert_eq!(Template::parse(text), Err(want), "{text}");
        }
    }
}
