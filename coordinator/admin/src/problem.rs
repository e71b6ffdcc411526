//! Errors of the API: `application/problem+json` (RFC 9457).

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tollgate_config::catalog::WriteRefusal;
use tollgate_config::catalog::check::ConfigErrors;
use tollgate_config::catalog::store::StoreError;
use tollgate_config::tokens::Role;
use tollgate_config::writer::WriteError;
use tollgate_core::fleet::QuotaError;
use tollgate_core::lease_server::DrainError;
use tollgate_leases::{DriverError, QuotaFault};
use tonic::{Code, Status};
use utoipa::ToSchema;

/// Time after which a failed write should be tried again: etcd elects within about that.
const RETRY_AFTER_S: u32 = 2;

/// Error of a request.
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
    /// No token, or an unknown one.
    #[error("{0}")]
    Unauthenticated(&'static str),
    /// A token that does not allow this.
    #[error("this needs a token of role {}; that of {name:?} is {}", needs.name(), has.name())]
    Role {
        /// The name of the token.
        name: String,
        /// Its role.
        has: Role,
        /// The role that it would need.
        needs: Role,
    },
    /// A request that a web page elsewhere may have made a browser send.
    #[error("{0}")]
    Foreign(String),
    /// A body that is not said to be JSON.
    #[error("the body must be JSON, with `content-type: application/json`")]
    MediaType,
    /// A body that is too large.
    #[error("the body has more than {0} bytes")]
    TooLarge(usize),
    /// A body that is no JSON.
    #[error("the body is not JSON: {0}")]
    Unreadable(String),
    /// JSON of another shape than is expected, or values that break rules.
    #[error("{}", all(.0))]
    Invalid(Vec<FieldFault>),
    /// The write contradicts the stored state.
    #[error(transparent)]
    Refused(WriteRefusal),
    /// The caller expects another version.
    #[error("{}", WriteRefusal::Mismatch { found: *found })]
    Mismatch {
        /// The stored revision.
        found: Option<u64>,
    },
    /// A client cannot be drained.
    #[error(transparent)]
    Drain(#[from] DrainError),
    /// The lease table did not answer.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A quota is not changed.
    #[error(transparent)]
    Quota(#[from] QuotaFault),
    /// Another node, which is master of the scope's shard, refused it.
    #[error("{detail}")]
    AtPeer {
        /// The status of its answer.
        status: u16,
        /// The reason.
        detail: String,
    },
    /// No node is master of the scope's shard now.
    #[error("no coordinator answers for this scope now{}", no_answer(.unanswered))]
    NoMaster {
        /// Nodes that did not answer.
        unanswered: Vec<String>,
    },
    /// Nodes of the cluster did not answer.
    #[error("these nodes did not answer: {}", .0.join(", "))]
    Unanswered(Vec<String>),
    /// A write could not be made durable.
    #[error("{}", not_durable(.0))]
    Store(StoreError),
    /// The catalog writer has ended.
    #[error("the coordinator is shutting down")]
    Stopped,
    /// A bug.
    #[error("{0} cannot be written as text")]
    Text(&'static str),
}

/// A field that breaks a rule.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema, thiserror::Error)]
#[error("{}", located(.field, .rule))]
pub struct FieldFault {
    /// The way to the field.
    #[schema(example = "requests.rate")]
    pub field: String,
    /// Its value, as text, if the rule quotes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The rule that it breaks.
    #[schema(example = "-5 is negative")]
    pub rule: String,
}

/// Problem of a request (RFC 9457).
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(default)]
pub struct Problem {
    /// The kind of problem: `about:blank` where the status says everything.
    #[schema(format = "uri-reference")]
    pub r#type: String,
    /// The status in words.
    pub title: String,
    /// The status of the answer.
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    /// The fault of this request.
    pub detail: String,
    /// The first field that breaks a rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The value of that field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The rule that it breaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// All fields that break a rule, if that is what is wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub errors: Vec<FieldFault>,
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
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::NoPath(_) | Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::NoMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::Parameter(_) | Self::Query(_) | Self::Unreadable(_) => StatusCode::BAD_REQUEST,
            Self::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Refused(_) | Self::Drain(_) => StatusCode::CONFLICT,
            Self::Quota(QuotaFault::Refused(QuotaError::Unknown | QuotaError::NoCredit)) => {
                StatusCode::NOT_FOUND
            }
            Self::Quota(QuotaFault::Refused(QuotaError::Expired)) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Self::Quota(QuotaFault::Refused(_)) => StatusCode::CONFLICT,
            Self::AtPeer { status, .. } => {
                StatusCode::from_u16(*status).unwrap_or(StatusCode::BAD_GATEWAY)
            }
            Self::Mismatch { .. } => StatusCode::PRECONDITION_FAILED,
            Self::Unauthenticated(_) => StatusCode::UNAUTHORIZED,
            Self::Role { .. } | Self::Foreign(_) => StatusCode::FORBIDDEN,
            Self::Driver(_)
            | Self::Unanswered(_)
            | Self::NoMaster { .. }
            | Self::Quota(QuotaFault::NotStored)
            | Self::Store(_)
            | Self::Stopped => StatusCode::SERVICE_UNAVAILABLE,
            Self::Text(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns the gRPC code for other nodes.
    pub(super) fn code(&self) -> Code {
        match self.status().as_u16() {
            400 | 422 => Code::InvalidArgument,
            401 => Code::Unauthenticated,
            403 => Code::PermissionDenied,
            409 => Code::ResourceExhausted,
            503 => Code::Unavailable,
            _ => Code::Unknown,
        }
    }

    /// Tells conflicts apart, which have one status; for the others the status says everything.
    fn kind(&self) -> &'static str {
        match self {
            Self::Refused(WriteRefusal::DefinedInFile { .. }) => {
                "urn:tollgate:problem:defined-in-file"
            }
            Self::Refused(WriteRefusal::Attached { .. }) => "urn:tollgate:problem:attached",
            Self::Refused(WriteRefusal::Bound { .. }) | Self::Drain(_) => {
                "urn:tollgate:problem:bound-reached"
            }
            _ => "about:blank",
        }
    }

    fn faults(&self) -> Vec<FieldFault> {
        match self {
            Self::Parameter(fault) => vec![fault.clone()],
            Self::Invalid(faults) => faults.clone(),
            _ => Vec::new(),
        }
    }

    /// Returns the challenge that RFC 6750 asks for.
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

// === impl From ===

impl From<ConfigErrors> for RestError {
    fn from(errors: ConfigErrors) -> Self {
        let faults = errors.0.into_iter().map(|error| FieldFault {
            field: error.field,
            value: error.value,
            rule: error.rule,
        });
        Self::Invalid(faults.collect())
    }
}

impl From<WriteError> for RestError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Invalid(errors) => errors.into(),
            WriteError::Refused(refusal) => refusal.into(),
            WriteError::Store(error) => Self::Store(error),
            WriteError::Stopped => Self::Stopped,
        }
    }
}

impl From<WriteRefusal> for RestError {
    fn from(refusal: WriteRefusal) -> Self {
        match refusal {
            WriteRefusal::NotFound { .. } => Self::NotFound(refusal.to_string()),
            WriteRefusal::Mismatch { found } => Self::Mismatch { found },
            WriteRefusal::NoGroup(ref group) => Self::Invalid(vec![FieldFault {
                field: "group".to_owned(),
                value: Some(group.as_ref().to_owned()),
                rule: refusal.to_string(),
            }]),
            other => Self::Refused(other),
        }
    }
}

/// Error text for a request without a token.
pub(super) const NO_TOKEN: &str = "this needs a token: `authorization: Bearer TOKEN`; a browser \
    asks for it on the pages: any name, and the token as the password";

impl From<&RestError> for Problem {
    fn from(error: &RestError) -> Self {
        let status = error.status();
        let errors = error.faults();
        let first = errors.first();
        Self {
            r#type: error.kind().to_owned(),
            title: status.canonical_reason().unwrap_or_default().to_owned(),
            status: status.as_u16(),
            detail: error.to_string(),
            field: first.map(|fault| fault.field.clone()),
            value: first.and_then(|fault| fault.value.clone()),
            rule: first.map(|fault| fault.rule.clone()),
            errors,
        }
    }
}

impl From<RestError> for Status {
    fn from(error: RestError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl IntoResponse for RestError {
    fn into_response(self) -> Response {
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        let problem = Problem::from(&self);
        let mut response = (self.status(), kind, Json(&problem)).into_response();
        // For the page that a browser gets instead.
        response.extensions_mut().insert(problem);
        if let Self::Store(_) = self {
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
        }
        // Only names of roles, so it is always a good value.
        if let Some(Ok(value)) = self.challenge().map(HeaderValue::try_from) {
            response
                .headers_mut()
                .append(header::WWW_AUTHENTICATE, value);
        }
        response
    }
}

// === free functions ===

fn not_durable(error: &StoreError) -> String {
    match error {
        StoreError::Unsure { .. } => format!("{error}; look before you try again"),
        StoreError::Unseen => error.to_string(),
        _ => format!("it could not be made durable, so nothing has changed: {error}"),
    }
}

fn no_answer(unanswered: &[String]) -> String {
    if unanswered.is_empty() {
        return String::new();
    }
    format!("; these nodes did not answer: {}", unanswered.join(", "))
}

fn all(faults: &[FieldFault]) -> String {
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    faults.join("; ")
}

fn located(field: &str, rule: &str) -> String {
    if field.is_empty() {
        return rule.to_owned();
    }
    format!("{field}: {rule}")
}
