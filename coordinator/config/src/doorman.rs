//! Section `doorman`: the scopes that the resources of Doorman's clients stand for.

use std::collections::BTreeMap;

use serde::Deserialize;
use tollgate_core::lease::{ResourceId, Unit};

use super::ENTRIES_MAX;
use crate::catalog::check::Check;
use crate::catalog::spec::{LocatedScalar, LocatedValue};

/// Resources by the ids that Doorman's clients give them; another id stands for a scope of its own.
pub type DoormanScopes = BTreeMap<String, ResourceId>;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDoorman {
    scopes: Option<LocatedValue<BTreeMap<String, LocatedScalar>>>,
}

// === free functions ===

/// Checks the section.
pub(super) fn doorman(check: &mut Check, raw: Option<&RawDoorman>) -> DoormanScopes {
    let mut scopes = BTreeMap::new();
    let Some(raw) = raw.and_then(|raw| raw.scopes.as_ref()) else {
        return scopes;
    };
    if !check.is_within(ENTRIES_MAX, raw.value.len(), raw.at, "doorman.scopes") {
        return scopes;
    }
    for (id, text) in &raw.value {
        let field = format!("doorman.scopes.{}", id.escape_debug());
        let resource = check.value(text, &field, |scope| {
            Ok(ResourceId::new(scope, Unit::Requests)?)
        });
        scopes.extend(resource.map(|resource| (id.clone(), resource)));
    }
    scopes
}
