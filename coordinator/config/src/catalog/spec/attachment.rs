//! Written form of a tenant's or namespace's attachment to a group.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::{LocatedScalar, LocatedValue};

/// A group, and a weight among its members: `gold`, or `{group: gold, weight: 3}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(example = json!({"group": "gold", "weight": 3}))]
pub struct AttachmentSpec {
    /// The group's name.
    #[schema(value_type = String)]
    pub group: Option<LocatedValue<String>>,
    /// Weight of the member's part; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline, value_type = Option<super::schema::WeightSchema>)]
    pub weight: Option<LocatedScalar>,
}

/// The longer form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AttachmentMapping {
    group: Option<LocatedValue<String>>,
    weight: Option<LocatedScalar>,
}

// === impl AttachmentSpec ===

impl<'de> Deserialize<'de> for AttachmentSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // An untagged enum would lose the locations.
        deserializer.deserialize_any(AttachmentVisitor)
    }
}

/// Accepts both forms.
struct AttachmentVisitor;

impl<'de> Visitor<'de> for AttachmentVisitor {
    type Value = AttachmentSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a group, or a mapping of `group` and `weight`")
    }

    fn visit_str<E: Error>(self, group: &str) -> Result<AttachmentSpec, E> {
        Ok(AttachmentSpec {
            group: Some(LocatedValue::nowhere(group.to_owned())),
            weight: None,
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<AttachmentSpec, A::Error> {
        let AttachmentMapping { group, weight } =
            AttachmentMapping::deserialize(MapAccessDeserializer::new(map))?;
        Ok(AttachmentSpec { group, weight })
    }
}
