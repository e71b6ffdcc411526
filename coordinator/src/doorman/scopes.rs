//! Which scope and unit a resource id of Doorman stands for.

use std::collections::BTreeMap;

use tollgate_core::lease::{IdError, ResourceId, Unit};

/// Before the id of a resource without a place of its own, and before every client's.
pub(super) const PREFIX: &str = "doorman/";

/// The resources of Doorman's clients that have a place of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scopes(pub BTreeMap<String, ResourceId>);

// === impl Scopes ===

impl Scopes {
    /// The resource that Doorman's clients call `id`, which may be empty.
    ///
    /// # Errors
    /// If it is too long or has control characters.
    pub fn find(&self, id: &str) -> Result<ResourceId, IdError> {
        match self.0.get(id) {
            Some(resource) => Ok(resource.clone()),
            None => ResourceId::new(&format!("{PREFIX}{id}"), Unit::Requests),
        }
    }
}
