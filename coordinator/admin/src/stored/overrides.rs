//! Overrides: limits of one scope in place of the file's globs.

use serde::{Deserialize, Serialize};
use tollgate_config::catalog::spec::LimitsSpec;
use tollgate_config::catalog::{Catalog, CatalogEntry, OverrideKind, name};
use utoipa::ToSchema;

use super::{StoredKind, Texts};
use crate::problem::RestError;

/// The limits of one scope.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = Override)]
pub struct OverrideView {
    /// The scope.
    pub scope: String,
    /// Its revision; the entity tag is the same.
    pub revision: Option<u64>,
    /// Its limits.
    pub spec: LimitsSpec,
}

/// Some overrides, by scope.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct OverridePage {
    /// The overrides.
    pub overrides: Vec<OverrideView>,
    /// The value of `after` for the next page; none if this was the last.
    pub next: Option<String>,
}

const TEXTS: Texts = Texts {
    path: "/v1/overrides",
    variables: &[("*scope", "The scope; `/` may stand as it is", 256)],
    tag: "overrides",
    one: "Override",
    several: "Overrides",
    list: "Overrides, by scope.",
    get: "The override of a scope.",
    put: "Replaces the limits that the file's globs give a scope, all of them.",
    put_more: Some("A unit that is absent or null has no limit."),
    is_bound: true,
    patch: "Changes single fields of the limits that hold for a scope, by a merge patch (RFC 7396): those of its override, or else of the file.",
    delete: "Gives a scope back the limits of the file's globs.",
    found: "The override",
    etag: "Its revision",
    replaced: "Replaced, or changed",
    created: "Created",
    deleted: "Deleted",
};

// === impl StoredKind ===

impl StoredKind for OverrideKind {
    type View = OverrideView;
    type Detail = OverrideView;
    type Page = OverridePage;

    fn texts(self) -> &'static Texts {
        &TEXTS
    }

    fn view(entry: CatalogEntry<LimitsSpec>) -> OverrideView {
        OverrideView {
            scope: entry.name.as_ref().to_owned(),
            revision: entry.revision,
            spec: entry.value,
        }
    }

    fn page(overrides: Vec<OverrideView>, next: Option<String>) -> OverridePage {
        OverridePage { overrides, next }
    }

    fn detail(_: &Catalog, limits: OverrideView) -> OverrideView {
        limits
    }

    fn missing(self, scope: &str) -> String {
        format!("the limits of {scope:?} are not overridden")
    }

    fn check_one(self, scope: &str) -> Result<(), RestError> {
        name::check_one_scope(scope).map_err(|rule| RestError::parameter("scope", scope, rule))
    }
}
