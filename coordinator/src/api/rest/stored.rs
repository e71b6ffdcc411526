//! Reads and writes of groups, attachments and overrides, which the file or this API defines.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::Body;
use super::problem::{FieldFault, RestError};
use super::revision::{Tags, tag};
use crate::catalog::check::ConfigErrors;
use crate::catalog::name::NameError;
use crate::catalog::{CatalogEntry, Precondition, WriteOutcome};
use crate::config::writer::WriteError;

/// Origin of a definition.
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

    /// Returns the origin of a definition with `revision`.
    pub(super) fn of(revision: Option<u64>) -> Self {
        match revision {
            None => Self::File,
            Some(_) => Self::Api,
        }
    }
}

// === free functions ===

/// Answers with the view of `entry`, unless the caller knows it.
pub(super) fn get<S, V: From<CatalogEntry<S>> + Serialize>(
    entry: CatalogEntry<S>,
    tags: &Tags,
) -> Response {
    tags.answer(entry.revision, Json(V::from(entry)))
}

/// Stores the body of a request as `name` with `write`, if what is `found` there is as `tags` expect.
pub(super) async fn put<S: Clone, V: From<CatalogEntry<S>> + Serialize, F>(
    name: &str,
    found: Option<u64>,
    tags: &Tags,
    body: Body<S>,
    write: impl FnOnce(S, Precondition) -> F,
) -> Result<Response, RestError>
where
    F: Future<Output = Result<WriteOutcome, WriteError>>,
{
    let (spec, faults) = body.parts();
    let written = write(spec.clone(), tags.expect(found)?).await;
    let WriteOutcome { revision, created } = written.map_err(|error| refused(error, faults))?;
    let status = match created {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    let view = V::from(CatalogEntry {
        name: name.into(),
        value: spec,
        revision: Some(revision),
    });
    Ok((status, [tag(revision)], Json(view)).into_response())
}

/// Deletes something with `write`, if what is `found` there is as `tags` expect.
pub(super) async fn delete<F>(
    found: Option<u64>,
    tags: &Tags,
    write: impl FnOnce(Precondition) -> F,
) -> Result<StatusCode, RestError>
where
    F: Future<Output = Result<WriteOutcome, WriteError>>,
{
    let deleted = write(tags.expect(found)?).await;
    // There is no body that could be wrong.
    deleted.map_err(|error| refused(error, |_| Vec::new()))?;
    Ok(StatusCode::NO_CONTENT)
}

/// Why a write was refused; `faults` says what is wrong with its body.
fn refused(error: WriteError, faults: impl Fn(&ConfigErrors) -> Vec<FieldFault>) -> RestError {
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

/// Returns the first `limit` of `entries`, and the value of `after` for those that follow, if any do.
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
