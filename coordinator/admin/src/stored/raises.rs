//! Raises: limits of a scope or a group for a time.

use serde::{Deserialize, Serialize};
use tollgate_config::catalog::spec::RaiseSpec;
use tollgate_config::catalog::{Catalog, CatalogEntry, RaiseKind, name};
use utoipa::ToSchema;

use super::{StoredKind, Texts};
use crate::problem::RestError;

/// Limits of a scope or a group for a time.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = Raise)]
pub struct RaiseView {
    /// The scope; that of a group is `group/NAME`.
    pub scope: String,
    /// Its revision; the entity tag is the same.
    pub revision: Option<u64>,
    /// Its limits, and its end.
    pub spec: RaiseSpec,
}

/// Some raises, by scope.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct RaisePage {
    /// The raises.
    pub raises: Vec<RaiseView>,
    /// The value of `after` for the next page; none if this was the last.
    pub next: Option<String>,
}

const TEXTS: Texts = Texts {
    path: "/v1/raises",
    variables: &[(
        "*scope",
        "The scope, or `group/NAME`; `/` may stand as it is",
        256,
    )],
    tag: "raises",
    one: "Raise",
    several: "Raises",
    list: "Raises that have not ended, by scope.",
    get: "The raise of a scope or group.",
    put: "Gives a scope or group other limits until a time, whatever else limits it.",
    put_more: Some("A unit that is absent or null has no limit until then."),
    is_bound: false,
    patch: "Changes single fields of the limits that hold for a scope or group, until a time, by a merge patch (RFC 7396).",
    delete: "Ends a raise.",
    found: "The raise",
    etag: "Its revision",
    replaced: "Replaced, or changed",
    created: "Created",
    deleted: "Ended",
};

// === impl StoredKind ===

impl StoredKind for RaiseKind {
    type View = RaiseView;
    type Detail = RaiseView;
    type Page = RaisePage;

    fn texts(self) -> &'static Texts {
        &TEXTS
    }

    fn view(entry: CatalogEntry<RaiseSpec>) -> RaiseView {
        RaiseView {
            scope: entry.name.as_ref().to_owned(),
            revision: entry.revision,
            spec: entry.value,
        }
    }

    fn page(raises: Vec<RaiseView>, next: Option<String>) -> RaisePage {
        RaisePage { raises, next }
    }

    fn detail(_: &Catalog, raise: RaiseView) -> RaiseView {
        raise
    }

    fn missing(self, scope: &str) -> String {
        format!("{scope:?} is not raised")
    }

    fn check_one(self, scope: &str) -> Result<(), RestError> {
        name::check_one_scope(scope).map_err(|rule| RestError::parameter("scope", scope, rule))
    }
}
