//! Entity tags: conditions of reads and writes (RFC 9110, section 13).
//!
//! The tag of a stored thing is its revision, which is never given twice. The catalog writer compares
//! the revision that a write expects with the stored one, one write after the other, so of two writes
//! that expect the same only one can win.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tollgate_config::catalog::Precondition;

use super::problem::RestError;

/// Conditions of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tags {
    matching: Option<Wanted>,
    none_matching: Option<Wanted>,
}

/// The tags in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    /// `*`.
    Any,
    /// These revisions. A tag that is none of ours is left out: nothing can match it.
    Revisions(Vec<u64>),
}

// === impl Tags ===

impl<S: Send + Sync> FromRequestParts<S> for Tags {
    type Rejection = RestError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, RestError> {
        Ok(Self {
            matching: wanted(&parts.headers, &header::IF_MATCH)?,
            none_matching: wanted(&parts.headers, &header::IF_NONE_MATCH)?,
        })
    }
}

impl Tags {
    /// Returns the state that a write expects, if this coordinator knows the revision `found`: only the
    /// catalog writer can tell whether that is still stored.
    ///
    /// # Errors
    /// If no state meets the conditions, or they make no sense for a write.
    pub(super) fn expect(&self, found: Option<u64>) -> Result<Precondition, RestError> {
        let one_of = |revisions: &[u64]| {
            let known = found.filter(|found| revisions.contains(found));
            let revision = known.or_else(|| revisions.first().copied());
            let mismatch = RestError::Mismatch { found };
            revision.map(Precondition::Revision).ok_or(mismatch)
        };
        match (&self.matching, &self.none_matching) {
            (None, None) => Ok(Precondition::Anything),
            (Some(Wanted::Any), None) => Ok(Precondition::Something),
            (Some(Wanted::Revisions(revisions)), None) => one_of(revisions),
            (None, Some(Wanted::Any)) => Ok(Precondition::Nothing),
            _ => Err(RestError::parameter(
                "if-none-match",
                "",
                "is for writes only `*`, and not together with if-match",
            )),
        }
    }

    /// `answer` with the tag of `revision`; only that it has not changed if the caller knows it.
    pub(super) fn answer(&self, revision: Option<u64>, answer: impl IntoResponse) -> Response {
        let Some(revision) = revision else {
            // The file's: it has no revision.
            return answer.into_response();
        };
        let known = match &self.none_matching {
            None => false,
            Some(Wanted::Any) => true,
            Some(Wanted::Revisions(revisions)) => revisions.contains(&revision),
        };
        if known {
            return (StatusCode::NOT_MODIFIED, [tag(revision)]).into_response();
        }
        ([tag(revision)], answer).into_response()
    }
}

// === free functions ===

/// The header that says `revision`.
pub(super) fn tag(revision: u64) -> (HeaderName, HeaderValue) {
    let value = HeaderValue::try_from(format!("\"{revision}\""));
    let digits = value.unwrap_or(HeaderValue::from_static("\"\""));
    (header::ETAG, digits)
}

fn wanted(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Wanted>, RestError> {
    let mut revisions = Vec::new();
    let mut there = false;
    for value in headers.get_all(name) {
        there = true;
        let text = value.to_str().unwrap_or_default();
        if text.trim() == "*" {
            return Ok(Some(Wanted::Any));
        }
        for tag in text.split(',').map(str::trim) {
            // A weak tag is good enough to know a thing by, but not to write it.
            let strong = tag.strip_prefix("W/").unwrap_or(tag);
            let inner = strong
                .strip_prefix('"')
                .and_then(|tag| tag.strip_suffix('"'));
            let Some(inner) = inner else {
                let rule = "is neither `*` nor a list of tags in double quotes";
                return Err(RestError::parameter(name.as_str(), text, rule));
            };
            if strong == tag || name == header::IF_NONE_MATCH {
                revisions.extend(inner.parse::<u64>());
            }
        }
    }
    Ok(there.then_some(Wanted::Revisions(revisions)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(lines: &[(&'static str, &'static str)]) -> Result<Tags, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        let read = |name| wanted(&headers, &name).map_err(|error| error.to_string());
        Ok(Tags {
            matching: read(header::IF_MATCH)?,
            none_matching: read(header::IF_NONE_MATCH)?,
        })
    }

    #[test]
    fn a_write_says_what_it_expects() {
        let rows = [
            (vec![], Ok(Precondition::Anything)),
            (vec![("if-match", "*")], Ok(Precondition::Something)),
            (vec![("if-match", "\"7\"")], Ok(Precondition::Revision(7))),
            (
                vec![("if-match", "\"6\", \"7\"")],
                Ok(Precondition::Revision(7)),
            ),
            (
                vec![("if-match", "\"6\""), ("if-match", "\"7\"")],
                Ok(Precondition::Revision(7)),
            ),
            (vec![("if-none-match", "*")], Ok(Precondition::Nothing)),
            // Another coordinator may have written it a moment ago: the writer says.
            (vec![("if-match", "\"6\"")], Ok(Precondition::Revision(6))),
            (
                vec![("if-match", "\"6\", \"8\"")],
                Ok(Precondition::Revision(6)),
            ),
            (vec![("if-match", "W/\"7\"")], Err(412)),
            (vec![("if-match", "\"other\"")], Err(412)),
            (vec![("if-none-match", "\"7\"")], Err(400)),
            (vec![("if-none-match", "*"), ("if-match", "*")], Err(400)),
        ];
        for (lines, want) in rows {
            let expect = tags(&lines).unwrap().expect(Some(7));
            let expect = expect.map_err(|error| error.into_response().status().as_u16());
            assert_eq!(expect, want, "{lines:?}");
        }
        for bad in ["7", "\"7", "*, \"7\"", "\"7\" \"8\"x", ""] {
            assert!(tags(&[("if-match", bad)]).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_reader_who_knows_it_is_not_told_again() {
        let rows = [
            (vec![], 200),
            (vec![("if-none-match", "\"7\"")], 304),
            (vec![("if-none-match", "\"6\", \"7\"")], 304),
            (vec![("if-none-match", "*")], 304),
            (vec![("if-none-match", "W/\"7\"")], 304),
            (vec![("if-none-match", "\"6\"")], 200),
        ];
        for (lines, want) in rows {
            let answer = tags(&lines).unwrap().answer(Some(7), "body");
            assert_eq!(answer.status().as_u16(), want, "{lines:?}");
            assert_eq!(answer.headers()[header::ETAG], "\"7\"", "{lines:?}");
            let of_file = tags(&lines).unwrap().answer(None, "body");
            assert_eq!(of_file.status().as_u16(), 200, "{lines:?}");
            assert!(!of_file.headers().contains_key(header::ETAG));
        }
    }
}
