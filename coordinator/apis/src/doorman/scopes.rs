//! Which scope and unit a resource id of Doorman stands for.

use tollgate_config::DoormanScopes;
use tollgate_core::lease::{ID_LEN_MAX, IdError, ResourceId, Unit};
use tollgate_proto::Rule;

/// Before the id of a resource without a place of its own, and before every client's.
const PREFIX: &str = "doorman/";

/// The resource that Doorman's clients call `id`, which may be empty.
///
/// # Errors
/// If it is too long or has control characters.
pub(super) fn find(scopes: &DoormanScopes, id: &str) -> Result<ResourceId, Rule> {
    match scopes.get(id) {
        Some(resource) => Ok(resource.clone()),
        None => ResourceId::new(&prefixed(id), Unit::Requests).map_err(unprefixed),
    }
}

/// The id of ours for Doorman's `id`.
pub(super) fn prefixed(id: &str) -> String {
    format!("{PREFIX}{id}")
}

/// The rule that the id of a client breaks if `error` is of that id behind our prefix: the client
/// has not sent the prefix, so it is not counted.
pub(super) fn unprefixed(error: IdError) -> Rule {
    match error {
        IdError::TooLong(len) => Rule::IdTooLong {
            len: len.saturating_sub(PREFIX.len()),
            max: ID_LEN_MAX.saturating_sub(PREFIX.len()),
        },
        error => error.into(),
    }
}
