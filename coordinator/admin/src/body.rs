//! Bodies of requests in JSON, with located errors.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::{DeserializeOwned, IgnoredAny};
use tollgate_config::yaml;

use super::problem::RestError;

/// The largest body, in bytes: many times the size of all fields.
pub(super) const BODY_LEN_MAX: usize = 64 << 10;

/// Media types of bodies, of which a merge patch (RFC 7396) is JSON as well.
const MEDIA_TYPES: [&str; 2] = ["application/json", "application/merge-patch+json"];

/// Value of a body in JSON.
#[derive(Debug)]
pub(super) struct Body<T>(pub(super) T);

// === impl Body ===

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = RestError;

    async fn from_request(request: Request, state: &S) -> Result<Self, RestError> {
        if !is_json(request.headers()) {
            return Err(RestError::MediaType);
        }
        let bytes = Bytes::from_request(request, state).await;
        let bytes = bytes.map_err(|rejection: BytesRejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => RestError::TooLarge(BODY_LEN_MAX),
            _ => RestError::Unreadable(rejection.body_text()),
        })?;
        Self::read(&bytes)
    }
}

impl<T: DeserializeOwned> Body<T> {
    /// Reads a value.
    ///
    /// # Errors
    /// If it is no JSON, or of another shape.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, RestError> {
        let unreadable = |error: &dyn std::error::Error| RestError::Unreadable(error.to_string());
        let text = str::from_utf8(bytes).map_err(|error| unreadable(&error))?;
        // JSON is YAML, whose reader has typed errors, but YAML is not JSON.
        serde_json::from_str::<IgnoredAny>(text).map_err(|error| unreadable(&error))?;
        Ok(Self(yaml::read(text)?))
    }
}

// === free functions ===

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let (kind, _parameters) = kind.split_once(';').unwrap_or((kind, ""));
    let kind = kind.trim();
    MEDIA_TYPES
        .iter()
        .any(|known| kind.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use tollgate_config::catalog::spec::GroupSpec;

    use super::*;
    use crate::problem::FieldFault;

    /// Returns the error in the shape of a group.
    fn shape_fault(body: &str) -> FieldFault {
        match Body::<GroupSpec>::read(body.as_bytes()) {
            Err(RestError::Invalid(mut faults)) => faults.remove(0),
            other => panic!("{body}: {other:?}"),
        }
    }

    #[test]
    fn a_wrong_shape_names_field_value_and_rule() {
        let units = "request_bytes, response_bytes, concurrency, fair_between";
        let unknown =
            format!("unknown field, did you mean `requests`? Expected one of requests, {units}");
        let rows = [
            ("null", "", None, "is empty"),
            ("5", "", Some("5"), "`5` is not a mapping"),
            ("[5]", "", None, "is a list, not a mapping"),
            ("{\"request\": {}}", "request", None, &unknown),
            (
                "{\"requests\": 5}",
                "requests",
                Some("5"),
                "`5` is not a mapping; write `requests: {rate: 5}`",
            ),
            (
                "{\"requests\": [5]}",
                "requests",
                None,
                "is a list, not a mapping",
            ),
            (
                "{\"concurrency\": \"5\"}",
                "concurrency",
                Some("5"),
                "`5` is not a mapping; write `concurrency: {max: 5}`",
            ),
            (
                "{\"concurrency\": {\"rate\": 5}}",
                "concurrency.rate",
                None,
                "unknown field, expected one of max, safe, lease, refresh, min_refresh, headroom, \
                 reserve, algorithm, guaranteed",
            ),
            (
                "{\"requests\": {\"rate\": 1, \"rate\": 2}}",
                "requests.rate",
                None,
                "is here twice",
            ),
            (
                "{\"requests\": {\"rate\": [1]}}",
                "requests.rate",
                None,
                "is a list, not a single value",
            ),
        ];
        for (body, field, value, rule) in rows {
            let want = FieldFault {
                field: field.to_owned(),
                value: value.map(str::to_owned),
                rule: rule.to_owned(),
            };
            assert_eq!(shape_fault(body), want, "{body}");
        }
    }

    #[test]
    fn a_misspelt_and_a_removed_field_say_what_to_write_instead() {
        let misspelt = shape_fault("{\"requests\": {\"rate\": 1, \"burts\": 5}}");
        assert_eq!(misspelt.field, "requests.burts");
        let rule = misspelt.rule;
        assert!(
            rule.starts_with("unknown field, did you mean `burst`?"),
            "{rule}"
        );
        let removed = shape_fault("{\"requests\": {\"rate\": 1, \"learning\": \"5s\"}}");
        let rule = "unknown field, removed: learning mode lasts as long as a lease";
        assert_eq!(
            (&*removed.field, &*removed.rule),
            ("requests.learning", rule)
        );
    }

    #[test]
    fn all_of_json_is_read_and_nothing_else() {
        let name = |body: &str| Body::<serde_json::Value>::read(body.as_bytes());
        let texts = [
            "{\n\t\"a\":\t\"\\ud83d\\ude00\\/\\u0001\"\n}",
            "{\"a\":\"😀/\\u0001\"}",
        ];
        let [one, other] = texts.map(|body| name(body).unwrap().0);
        assert_eq!(one, other);
        assert_eq!(one["a"], "😀/\u{1}");
        for body in [
            "a: 1",
            "{a: 1}",
            "{\"a\": 'b'}",
            "{\"a\": &x 1}",
            "{\"a\": 1} # x",
            "",
        ] {
            assert!(
                matches!(name(body), Err(RestError::Unreadable(_))),
                "{body}"
            );
        }
    }

    #[test]
    fn only_json_is_read_as_json() {
        let is = |kind: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
            is_json(&headers)
        };
        for good in ["application/json", "Application/JSON; charset=utf-8"] {
            assert!(is(good), "{good}");
        }
        for bad in ["text/plain", "application/jsonp", "application/yaml", ""] {
            assert!(!is(bad), "{bad}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }
}
