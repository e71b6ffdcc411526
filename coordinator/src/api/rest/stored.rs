//! What groups, attachments and overrides have in common: they stand in the file or were written
//! here.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::problem::{FieldFault, RestError};
use super::revision::tag;
use crate::catalog::WriteOutcome;
use crate::catalog::check::ConfigErrors;
use crate::catalog::name::NameError;
use crate::catalog::writer::WriteError;

/// Where something is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DefinedBy {
    /// The configuration file, which alone can change it.
    File,
    /// This API.
    Api,
}

// === impl DefinedBy ===

impl DefinedBy {
    /// Returns the word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Api => "api",
        }
    }

    /// Where something with `revision` is defined.
    pub(super) fn of(revision: Option<u64>) -> Self {
        match revision {
            None => Self::File,
            Some(_) => Self::Api,
        }
    }
}

// === free functions ===

/// The answer to a write that put `view` there.
pub(super) fn put(written: WriteOutcome, view: impl Serialize) -> Response {
    let status = if written.created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    (status, [tag(written.revision)], Json(view)).into_response()
}

/// Why a write was refused; `faults` says what is wrong with its body.
pub(super) fn refused(
    error: WriteError,
    faults: impl Fn(&ConfigErrors) -> Vec<FieldFault>,
) -> RestError {
    match error {
        WriteError::Invalid(errors) => RestError::Invalid(faults(&errors)),
        WriteError::Refused(refusal) => refusal.into(),
        WriteError::Store(error) => RestError::Store(error),
        WriteError::Stopped => RestError::Stopped,
    }
}

/// Whether `name`, which is `field` of a path, is `valid` for what is to be written.
pub(super) fn writable(
    field: &str,
    name: &str,
    valid: Result<(), NameError>,
) -> Result<(), RestError> {
    valid.map_err(|rule| RestError::parameter(field, name, rule))
}

/// Why something was not deleted: there is no body that could be wrong.
pub(super) fn not_deleted(error: WriteError) -> RestError {
    refused(error, |errors| {
        let errors = errors.0.iter();
        let fault = |field: &str, rule: String| FieldFault {
            field: field.to_owned(),
            value: None,
            rule,
        };
        errors
            .map(|error| fault(&error.field, error.rule.clone()))
            .collect()
    })
}

/// The first `limit` of `entries`, and what to pass as `after` for those that follow, if any do.
pub(super) fn page<T>(
    limit: usize,
    mut entries: impl Iterator<Item = T>,
    name: impl Fn(&T) -> &str,
) -> (Vec<T>, Option<String>) {
    let page: Vec<T> = entries.by_ref().take(limit).collect();
    let more = entries.next().is_some();
    let last = page.last().map(|last| name(last).to_owned());
    (page, last.filter(|_| more))
}
