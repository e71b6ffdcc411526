//! What comes in the body of a request.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, JsonRejection};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::problem::{FieldFault, RestError};
use crate::config::{ConfigErrors, Problem as ConfigProblem};

/// The largest body, in bytes: many times what all fields take.
pub(super) const BODY_LEN_MAX: usize = 64 << 10;

/// A body in JSON, and what it says.
#[derive(Debug)]
pub(super) struct Body<T> {
    /// What it says.
    pub(super) says: T,
    /// As it was written, for errors that quote it.
    written: Value,
}

// === impl Body ===

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = RestError;

    async fn from_request(request: Request, state: &S) -> Result<Self, RestError> {
        if !is_json(request.headers()) {
            return Err(RestError::MediaType);
        }
        let bytes = Bytes::from_request(request, state).await;
        let bytes = bytes.map_err(|rejection: BytesRejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => RestError::TooLarge,
            _ => RestError::Unreadable(rejection.body_text()),
        })?;
        let written = serde_json::from_slice(&bytes);
        let written = written.map_err(|error| RestError::Unreadable(error.to_string()))?;
        // From the bytes, not from the value, which forgets what is there twice.
        match Json::from_bytes(&bytes) {
            Ok(Json(says)) => Ok(Self { says, written }),
            Err(rejection) => Err(RestError::Shape(reason(&rejection))),
        }
    }
}

impl<T> Body<T> {
    /// What the body says, and how to say what is wrong with it.
    pub(super) fn parts(self) -> (T, impl Fn(&ConfigErrors) -> Vec<FieldFault>) {
        let written = self.written;
        (self.says, move |errors: &ConfigErrors| {
            let errors = errors.0.iter();
            errors
                .map(|error| fault(&written, &error.field, &error.problem))
                .collect()
        })
    }
}

// === free functions ===

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let (kind, _parameters) = kind.split_once(';').unwrap_or((kind, ""));
    kind.trim().eq_ignore_ascii_case("application/json")
}

/// What is wrong with the shape of a body, without what axum says to programmers.
fn reason(rejection: &JsonRejection) -> String {
    let text = rejection.body_text();
    let prefix = "Failed to deserialize the JSON body into the target type: ";
    text.strip_prefix(prefix).unwrap_or(&text).to_owned()
}

/// `problem` of the field `path` with the value that stands there in `written`.
fn fault(written: &Value, path: &str, problem: &ConfigProblem) -> FieldFault {
    let text = problem.to_string();
    // These say themselves which of the fields below `path` is at fault.
    let (field, rule) = match (problem, text.split_once(": ")) {
        (ConfigProblem::Limit(_), Some((below, rule))) => (format!("{path}.{below}"), rule),
        _ => (path.to_owned(), text.as_str()),
    };
    let mut steps = field.split('.');
    let value = steps.try_fold(written, |value, step| value.get(step));
    FieldFault {
        value: value.map(|value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }),
        rule: rule.to_owned(),
        field,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::check_group;
    use crate::spec::GroupSpec;

    /// Field, value and rule of everything that is wrong with a group.
    fn faults(written: &Value) -> Vec<(String, Option<String>, String)> {
        let spec: GroupSpec = serde_json::from_str(&written.to_string()).unwrap();
        let errors = check_group("gold", spec).unwrap_err();
        let faults = errors.0.iter();
        faults
            .map(|error| fault(written, &error.field, &error.problem))
            .map(|fault| (fault.field, fault.value, fault.rule))
            .collect()
    }

    #[test]
    fn a_fault_names_field_value_and_rule() {
        let rows = [
            (
                json!({"requests": {"rate": -5}}),
                ("requests.rate", Some("-5"), "-5 is negative"),
            ),
            (
                json!({"requests": {"rate": 5, "safe": 6}}),
                ("requests.safe", Some("6"), "6 is more than the capacity, 5"),
            ),
            (
                json!({"requests": {}}),
                ("requests.rate", None, "is missing"),
            ),
            (
                json!({"fair_between": "all"}),
                (
                    "fair_between",
                    Some("all"),
                    "\"all\" is none of members, clients",
                ),
            ),
        ];
        for (written, (field, value, rule)) in rows {
            let want = (field.to_owned(), value.map(str::to_owned), rule.to_owned());
            assert_eq!(faults(&written), [want], "{written}");
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
