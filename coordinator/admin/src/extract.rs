//! axum's extractors, with problems in JSON where axum answers in plain text.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequestParts, Path as AxumPath, Query as AxumQuery};
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use super::problem::RestError;

/// Entries on a page if the request does not say.
const ENTRIES_DEFAULT: usize = 100;

/// The most entries on a page: the driver makes views of its lease table, and answers no client
/// meanwhile.
pub(super) const ENTRIES_MAX: usize = 1000;

/// The longest `after`, in characters: no name is longer.
const AFTER_LEN_MAX: usize = 512;

/// The variables of a path, percent-decoded once.
#[derive(Debug)]
pub(super) struct Path<T>(pub(super) T);

/// The fields of a query.
#[derive(Debug)]
pub(super) struct Query<T>(pub(super) T);

/// Which part of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PageQuery {
    /// The most entries.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
    /// Only entries after this one: `next` of the page before.
    #[param(max_length = 512)]
    after: Option<String>,
}

// === impl Path ===

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = RestError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, RestError> {
        let result = AxumPath::<T>::from_request_parts(parts, state).await;
        let AxumPath(value) = result.map_err(|rejection: PathRejection| {
            RestError::parameter("path", parts.uri.path(), rejection.body_text())
        })?;
        Ok(Self(value))
    }
}

// === impl Query ===

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = RestError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, RestError> {
        let result = AxumQuery::<T>::from_request_parts(parts, state).await;
        let AxumQuery(value) =
            result.map_err(|rejection: QueryRejection| RestError::Query(rejection.body_text()))?;
        Ok(Self(value))
    }
}

// === impl PageQuery ===

impl PageQuery {
    /// Returns the number of entries, and the name after which they begin.
    ///
    /// # Errors
    /// If there are to be too many or none.
    pub(super) fn checked(self) -> Result<(usize, String), RestError> {
        let after = self.after.unwrap_or_default();
        if after.chars().count() > AFTER_LEN_MAX {
            let rule = format!("has more than {AFTER_LEN_MAX} characters");
            return Err(RestError::parameter("after", &after, rule));
        }
        let limit = count("limit", self.limit.unwrap_or(ENTRIES_DEFAULT), ENTRIES_MAX)?;
        Ok((limit, after))
    }
}

// === free functions ===

/// Returns `asked`, if the field `name` may ask for so many entries.
///
/// # Errors
/// If it is none or more than `max`.
pub(super) fn count(name: &str, asked: usize, max: usize) -> Result<usize, RestError> {
    if !(1..=max).contains(&asked) {
        let rule = format!("{asked} is not between 1 and {max}");
        return Err(RestError::parameter(name, &asked.to_string(), rule));
    }
    Ok(asked)
}
