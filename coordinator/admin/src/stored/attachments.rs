//! Attachments: which tenant or namespace shares which group.

use serde::{Deserialize, Serialize};
use tollgate_config::catalog::spec::AttachmentSpec;
use tollgate_config::catalog::{Catalog, CatalogEntry, MemberKind};
use utoipa::ToSchema;

use super::{DefinedBy, StoredKind, Texts};

/// Attachment of a tenant or a namespace to a group.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = Attachment)]
pub struct AttachmentView {
    /// The tenant, or `tenant/namespace`.
    pub name: String,
    /// Where it is defined.
    pub defined_by: DefinedBy,
    /// Its revision, if it was written here; the entity tag is the same.
    pub revision: Option<u64>,
    /// The group and the weight in it.
    pub spec: AttachmentSpec,
}

/// Some attachments, by name.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct AttachmentPage {
    /// The attachments.
    pub attachments: Vec<AttachmentView>,
    /// The value of `after` for the next page; none if this was the last.
    pub next: Option<String>,
}

const TENANTS: Texts = Texts {
    path: "/v1/attachments/tenants",
    variables: &[("tenant", "Its name", 249)],
    tag: "attachments",
    one: "Tenant",
    several: "Tenants",
    list: "Tenants that are attached to a group, by name.",
    get: "Group of a tenant.",
    put: "Attaches a tenant to a group, whatever it was attached to.",
    put_more: None,
    is_bound: true,
    patch: "Changes single fields of an attachment, by a merge patch (RFC 7396).",
    delete: "Detaches a tenant from its group.",
    found: "Its attachment",
    etag: "Its revision, if it was written here",
    replaced: "Attached anew",
    created: "Attached",
    deleted: "Detached",
};

const NAMESPACES: Texts = Texts {
    path: "/v1/attachments/namespaces",
    variables: &[
        ("tenant", "Its tenant", 244),
        ("namespace", "Its name", 244),
    ],
    one: "Namespace",
    several: "Namespaces",
    list: "Namespaces that are attached to a group themselves, by name.",
    get: "Group of a namespace itself, not through its tenant.",
    put: "Attaches a namespace to a group, whatever it or its tenant was attached to.",
    delete: "Detaches a namespace from its group; it then uses what its tenant is attached to.",
    ..TENANTS
};

// === impl StoredKind ===

impl StoredKind for MemberKind {
    type View = AttachmentView;
    type Detail = AttachmentView;
    type Page = AttachmentPage;

    fn texts(self) -> &'static Texts {
        match self {
            Self::Tenant => &TENANTS,
            Self::Namespace => &NAMESPACES,
        }
    }

    fn view(entry: CatalogEntry<AttachmentSpec>) -> AttachmentView {
        AttachmentView {
            name: entry.name.as_ref().to_owned(),
            defined_by: DefinedBy::of(entry.revision),
            revision: entry.revision,
            spec: entry.value,
        }
    }

    fn page(attachments: Vec<AttachmentView>, next: Option<String>) -> AttachmentPage {
        AttachmentPage { attachments, next }
    }

    fn detail(_: &Catalog, attachment: AttachmentView) -> AttachmentView {
        attachment
    }

    fn missing(self, name: &str) -> String {
        format!("no {} {name:?} is attached to a group", self.name())
    }
}
