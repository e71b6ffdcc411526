//! What is said when a request cannot be done: `application/problem+json` (RFC 9457).

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::auth::Role;
use crate::driver::DriverError;

/// Why a request has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum RestError {
    /// Nothing has this path.
    #[error("nothing is served at {0}")]
    NoPath(String),
    /// Something has this path, but not this method.
    #[error("the method is not one of those in the header `allow`")]
    NoMethod,
    /// The thing that the path names is not there.
    #[error("{0}")]
    NotFound(String),
    /// A part of the path or of the query breaks a rule.
    #[error("{0}")]
    Parameter(FieldFault),
    /// The query cannot be read.
    #[error("{0}")]
    Query(String),
    /// No token, or one that nobody has.
    #[error("{0}")]
    Unauthenticated(&'static str),
    /// A token that does not allow this.
    #[error("this needs a token of role {}; that of {name:?} is {}", needs.name(), has.name())]
    Role {
        /// Whose token it is.
        name: String,
        /// Its role.
        has: Role,
        /// The role that it would need.
        needs: Role,
    },
    /// A request that a web page elsewhere may have made a browser send.
    #[error("{0}")]
    Foreign(String),
    /// The books did not answer.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A bug.
    #[error("{0} cannot be written as text")]
    Text(&'static str),
}

/// A field that breaks a rule.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema, thiserror::Error)]
#[error("{field}: {rule}")]
pub(super) struct FieldFault {
    /// The way to the field.
    #[schema(example = "requests.rate")]
    pub(super) field: String,
    /// What stands there, as text; absent if nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<String>,
    /// The rule that it breaks.
    #[schema(example = "-5 is negative")]
    pub(super) rule: String,
}

/// Why a request was refused (RFC 9457).
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Problem {
    /// What kind of problem this is: `about:blank` where the status says everything.
    #[schema(format = "uri-reference")]
    r#type: &'static str,
    /// The status in words.
    title: &'static str,
    /// The status of the answer.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What is wrong with this request.
    detail: String,
    /// The first field that breaks a rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// What stands in that field.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// The rule that it breaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    /// All fields that break a rule, if that is what is wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    errors: Vec<FieldFault>,
}

// === impl RestError ===

impl RestError {
    /// The part `field` of a path or a query, which is `value`, breaks `rule`.
    pub(super) fn parameter(field: &str, value: &str, rule: impl ToString) -> Self {
        Self::Parameter(FieldFault {
            field: field.to_owned(),
            value: Some(value.to_owned()),
            rule: rule.to_string(),
        })
    }

    /// The one place where errors become statuses.
    fn status(&self) -> StatusCode {
        match self {
            Self::NoPath(_) | Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::NoMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::Parameter(_) | Self::Query(_) => StatusCode::BAD_REQUEST,
            Self::Unauthenticated(_) => StatusCode::UNAUTHORIZED,
            Self::Role { .. } | Self::Foreign(_) => StatusCode::FORBIDDEN,
            Self::Driver(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Text(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn kind(&self) -> &'static str {
        "about:blank"
    }

    fn faults(&self) -> Vec<FieldFault> {
        match self {
            Self::Parameter(fault) => vec![fault.clone()],
            _ => Vec::new(),
        }
    }

    /// What RFC 6750 wants said of the token.
    fn challenge(&self) -> Option<String> {
        let error = match self {
            Self::Unauthenticated(NO_TOKEN) => String::new(),
            Self::Unauthenticated(_) => ", error=\"invalid_token\"".to_owned(),
            Self::Role { needs, .. } => {
                format!(", error=\"insufficient_scope\", scope=\"{}\"", needs.name())
            }
            _ => return None,
        };
        Some(format!("Bearer realm=\"tollgate\"{error}"))
    }
}

/// What is said to who shows no token.
pub(super) const NO_TOKEN: &str = "this needs a token: `authorization: Bearer TOKEN`";

impl From<&RestError> for Problem {
    fn from(error: &RestError) -> Self {
        let status = error.status();
        let errors = error.faults();
        let first = errors.first();
        Self {
            r#type: error.kind(),
            title: status.canonical_reason().unwrap_or_default(),
            status: status.as_u16(),
            detail: error.to_string(),
            field: first.map(|fault| fault.field.clone()),
            value: first.and_then(|fault| fault.value.clone()),
            rule: first.map(|fault| fault.rule.clone()),
            errors,
        }
    }
}

impl IntoResponse for RestError {
    fn into_response(self) -> Response {
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        let mut response = (self.status(), kind, Json(Problem::from(&self))).into_response();
        // Only names of roles, so it is always a good value.
        if let Some(Ok(value)) = self.challenge().map(HeaderValue::try_from) {
            response
                .headers_mut()
                .append(header::WWW_AUTHENTICATE, value);
        }
        response
    }
}
