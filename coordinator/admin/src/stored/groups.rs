//! Groups: limits that all attached tenants and namespaces share.

use serde::{Deserialize, Serialize};
use tollgate_config::catalog::spec::GroupSpec;
use tollgate_config::catalog::{Catalog, CatalogEntry, GroupKind};
use utoipa::ToSchema;

use super::{DefinedBy, StoredKind, Texts};

/// A group.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = Group)]
pub struct GroupView {
    /// Its name; its scope is `group/<name>`.
    pub name: String,
    /// Where it is defined.
    pub defined_by: DefinedBy,
    /// Its revision, if it was written here; the entity tag is the same.
    pub revision: Option<u64>,
    /// Its limits.
    pub spec: GroupSpec,
}

/// A group with its number of members.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct GroupDetail {
    /// The group.
    #[serde(flatten)]
    pub group: GroupView,
    /// The number of tenants and namespaces that are attached to it.
    pub attached_count: usize,
}

/// Some groups, by name.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct GroupPage {
    /// The groups.
    pub groups: Vec<GroupView>,
    /// The value of `after` for the next page; none if this was the last.
    pub next: Option<String>,
}

const TEXTS: Texts = Texts {
    path: "/v1/groups",
    variables: &[("name", "Its name", 250)],
    tag: "groups",
    one: "Group",
    several: "Groups",
    list: "Groups, by name.",
    get: "One group.",
    put: "Creates a group, or replaces it as a whole.",
    put_more: Some("A unit that is absent or null has no limit."),
    is_bound: true,
    patch: "Changes single fields of a group, by a merge patch (RFC 7396).",
    delete: "Deletes a group that nothing is attached to.",
    found: "The group",
    etag: "Its revision, if it was written here",
    replaced: "Replaced, or changed",
    created: "Created",
    deleted: "Deleted",
};

// === impl StoredKind ===

impl StoredKind for GroupKind {
    type View = GroupView;
    type Detail = GroupDetail;
    type Page = GroupPage;

    fn texts(self) -> &'static Texts {
        &TEXTS
    }

    fn view(entry: CatalogEntry<GroupSpec>) -> GroupView {
        GroupView {
            name: entry.name.as_ref().to_owned(),
            defined_by: DefinedBy::of(entry.revision),
            revision: entry.revision,
            spec: entry.value,
        }
    }

    fn page(groups: Vec<GroupView>, next: Option<String>) -> GroupPage {
        GroupPage { groups, next }
    }

    fn detail(catalog: &Catalog, group: GroupView) -> GroupDetail {
        GroupDetail {
            attached_count: catalog.attached_count(&group.name),
            group,
        }
    }

    fn missing(self, name: &str) -> String {
        format!("no group is called {name:?}")
    }
}
