//! Bodies of requests in JSON, with located errors.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tollgate_config::catalog::check::{ConfigErrors, join};
use tollgate_config::unknown_field;

use super::problem::{FieldFault, RestError};

/// The largest body, in bytes: many times the size of all fields.
pub(super) const BODY_LEN_MAX: usize = 64 << 10;

/// Media types of bodies, of which a merge patch (RFC 7396) is JSON as well.
const MEDIA_TYPES: [&str; 2] = ["application/json", "application/merge-patch+json"];

/// The longest value that a rule quotes, in characters.
const QUOTED_MAX: usize = 40;

/// Body in JSON.
#[derive(Debug)]
pub(super) struct Body<T> {
    /// Value that it stands for.
    pub(super) value: T,
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
            StatusCode::PAYLOAD_TOO_LARGE => RestError::TooLarge(BODY_LEN_MAX),
            _ => RestError::Unreadable(rejection.body_text()),
        })?;
        let written = serde_json::from_slice(&bytes);
        let written = written.map_err(|error| RestError::Unreadable(error.to_string()))?;
        // From the bytes, not from the value, which forgets duplicate fields.
        let mut reader = serde_json::Deserializer::from_slice(&bytes);
        match serde_path_to_error::deserialize(&mut reader) {
            Ok(value) => Ok(Self { value, written }),
            Err(error) => Err(RestError::Invalid(vec![shape(&written, &error)])),
        }
    }
}

impl<T: DeserializeOwned> Body<T> {
    /// Returns `written` as a value.
    ///
    /// # Errors
    /// If it has not the form of one.
    pub(super) fn of(written: Value) -> Result<Self, FieldFault> {
        match serde_path_to_error::deserialize(&written) {
            Ok(value) => Ok(Self { value, written }),
            Err(error) => Err(shape(&written, &error)),
        }
    }
}

impl<T> Body<T> {
    /// Returns the value, and a function that locates errors in the body.
    pub(super) fn parts(self) -> (T, impl Fn(&ConfigErrors) -> Vec<FieldFault>) {
        let written = self.written;
        (self.value, move |errors: &ConfigErrors| {
            let errors = errors.0.iter();
            errors
                .map(|error| at(&written, error.field.clone(), error.rule.clone()))
                .collect()
        })
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

/// Returns the fault in the shape of `written`.
fn shape(written: &Value, error: &serde_path_to_error::Error<serde_json::Error>) -> FieldFault {
    if written.is_array() {
        // The path would lead into it.
        let rule = "the body is a list, not an object".to_owned();
        return at(written, String::new(), rule);
    }
    let text = error.inner().to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    let mut field = match error.path() {
        whole if whole.iter().len() == 0 => String::new(),
        path => path.to_string(),
    };
    if let Some((name, rule)) = named(text) {
        // Of some shapes the path ends before the name.
        if field.rsplit('.').next() != Some(name) {
            field = join(&field, name);
        }
        return at(written, field, rule);
    }
    let rule = match (value(written, &field), text.split_once(", expected ")) {
        (Some(value), Some((kind, expected))) if kind.starts_with("invalid ") => {
            let mut value = value.to_string();
            if value.chars().count() > QUOTED_MAX {
                value = value.chars().take(QUOTED_MAX).chain(['…']).collect();
            }
            format!("{value} is not {expected}")
        }
        _ => text.to_owned(),
    };
    at(written, field, rule)
}

/// Returns the field that serde's error `text` names as unknown or duplicate, and the rule it breaks.
fn named(text: &str) -> Option<(&str, String)> {
    if let Some(unknown) = text.strip_prefix("unknown field `") {
        let (name, expected) = unknown.split_once("`, expected ")?;
        let expected: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        return Some((name, unknown_field(name, &expected)));
    }
    let name = text.strip_prefix("duplicate field `")?.strip_suffix('`')?;
    Some((name, "is here twice".to_owned()))
}

/// `rule` of `field`, with the value that stands there in `written`.
fn at(written: &Value, field: String, rule: String) -> FieldFault {
    let value = value(written, &field);
    FieldFault {
        value: value.map(|value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }),
        rule,
        field,
    }
}

fn value<'a>(written: &'a Value, field: &str) -> Option<&'a Value> {
    let mut steps = field.split('.').filter(|step| !step.is_empty());
    steps.try_fold(written, |value, step| value.get(step))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tollgate_config::catalog::spec::GroupSpec;
    use tollgate_config::catalog::{GroupKind, ObjectKind as _};

    use super::*;

    /// Field, value and rule of everything that is wrong with a group.
    fn faults(written: &Value) -> Vec<(String, Option<String>, String)> {
        let spec: GroupSpec = serde_json::from_str(&written.to_string()).unwrap();
        let errors = GroupKind.check("gold", spec).unwrap_err();
        let faults = errors.0.iter();
        faults
            .map(|error| at(written, error.field.clone(), error.rule.clone()))
            .map(|fault| (fault.field, fault.value, fault.rule))
            .collect()
    }

    /// Returns the error in the shape of a group.
    fn shape_fault(body: &str) -> FieldFault {
        let written = serde_json::from_str(body).unwrap();
        let mut reader = serde_json::Deserializer::from_str(body);
        let error = serde_path_to_error::deserialize::<_, GroupSpec>(&mut reader).unwrap_err();
        shape(&written, &error)
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
    fn a_wrong_shape_names_field_value_and_rule() {
        let units = "request_bytes, response_bytes, concurrency, fair_between";
        let unknown =
            format!("unknown field, did you mean `requests`? Expected one of requests, {units}");
        let rows = [
            (
                "5",
                "",
                Some("5"),
                "5 is not an object like {\"requests\": {\"rate\": 1000}}",
            ),
            ("[5]", "", Some("[5]"), "the body is a list, not an object"),
            ("{\"request\": {}}", "request", Some("{}"), &unknown),
            (
                "{\"requests\": 5}",
                "requests",
                Some("5"),
                "5 is not an object like {\"rate\": 1000}",
            ),
            (
                "{\"requests\": [5]}",
                "requests",
                Some("[5]"),
                "[5] is not an object like {\"rate\": 1000}",
            ),
            (
                "{\"concurrency\": \"5\"}",
                "concurrency",
                Some("5"),
                "\"5\" is not an object like {\"max\": 64}",
            ),
            (
                "{\"concurrency\": {\"rate\": 5}}",
                "concurrency.rate",
                Some("5"),
                "unknown field, expected one of max, safe, lease, refresh, min_refresh, headroom, \
                 reserve, algorithm, guaranteed",
            ),
            (
                "{\"requests\": {\"rate\": 1, \"rate\": 2}}",
                "requests.rate",
                Some("2"),
                "is here twice",
            ),
            (
                "{\"requests\": {\"rate\": [1]}}",
                "requests.rate",
                Some("[1]"),
                "[1] is not a number or a text",
            ),
            (
                "{\"requests\": {\"rate\": 9, \"guaranteed\": {\"5\": null}}}",
                "requests.guaranteed.5",
                Some("null"),
                "null is not a number or a text",
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
