//! `doorman`: which scopes the resources of Doorman's clients are.

use std::collections::BTreeMap;

use serde::Deserialize;
use tollgate_core::lease::{ResourceId, Unit};

use super::ENTRIES_MAX;
use super::check::Check;
use super::error::Problem;
use crate::api::doorman::Scopes;
use crate::catalog::spec::{LocatedScalar, LocatedValue};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDoorman {
    scopes: Option<LocatedValue<BTreeMap<String, LocatedScalar>>>,
}

// === free functions ===

/// Checks the section.
pub(super) fn doorman(check: &mut Check, raw: Option<&RawDoorman>) -> Scopes {
    let mut scopes = BTreeMap::new();
    let Some(raw) = raw.and_then(|raw| raw.scopes.as_ref()) else {
        return Scopes::default();
    };
    if raw.value.len() > ENTRIES_MAX {
        check.refuse(
            raw.at,
            "doorman.scopes",
            Problem::TooMany {
                count: raw.value.len(),
                max: ENTRIES_MAX,
            },
        );
        return Scopes::default();
    }
    for (id, text) in &raw.value {
        let field = format!("doorman.scopes.{id}");
        let resource = check.value(Some(text), &field, |scope| {
            Ok(ResourceId::new(scope, Unit::Requests)?)
        });
        scopes.extend(resource.map(|resource| (id.clone(), resource)));
    }
    Scopes(scopes)
}
