//! Quotas as people write them.

#![allow(unused_qualifications, reason = "utoipa's macros name types twice")]

use std::borrow::Cow;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::schema::{ArrayBuilder, OneOfBuilder};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::LocatedScalar;
use super::schema::QuantitySchema;

/// Amount that the whole fleet may use within a window of time, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"amount": "5M", "per": "month", "timezone": "Europe/Berlin"}))]
pub struct QuotaSpec {
    /// Amount of one window.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline, value_type = Option<QuantitySchema>)]
    pub amount: Option<LocatedScalar>,
    /// `minute`, `hour`, `day`, `week`, `month` or `year`; or a duration such as `24h`, which counts what was used in
    /// the time before each instant.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub per: Option<LocatedScalar>,
    /// Name of the time zone whose calendar counts; by default UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub timezone: Option<LocatedScalar>,
    /// Day on which a month begins, 1 to 31; by default 1. In a shorter month it is the last day.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u8>)]
    pub anchor: Option<LocatedScalar>,
}

/// Quotas of a limit: one, or a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaSpecs(pub Vec<QuotaSpec>);

/// Accepts one quota, or a list of them.
struct QuotasVisitor;

// === impl QuotaSpecs ===

impl<'de> Deserialize<'de> for QuotaSpecs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QuotasVisitor)
    }
}

impl<'de> Visitor<'de> for QuotasVisitor {
    type Value = QuotaSpecs;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quota, such as {amount: 1000, per: day}, or a list of them")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<QuotaSpecs, A::Error> {
        let quota = QuotaSpec::deserialize(MapAccessDeserializer::new(map))?;
        Ok(QuotaSpecs(vec![quota]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<QuotaSpecs, A::Error> {
        let mut quotas = Vec::new();
        while let Some(quota) = list.next_element()? {
            quotas.push(quota);
        }
        Ok(QuotaSpecs(quotas))
    }
}

impl Serialize for QuotaSpecs {
    /// One as such, several as a list.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &*self.0 {
            [quota] => quota.serialize(serializer),
            quotas => quotas.serialize(serializer),
        }
    }
}

impl PartialSchema for QuotaSpecs {
    fn schema() -> RefOr<Schema> {
        let quota = || Ref::from_schema_name(QuotaSpec::name());
        let list = ArrayBuilder::new().items(quota());
        OneOfBuilder::new().item(quota()).item(list).into()
    }
}

impl ToSchema for QuotaSpecs {
    fn name() -> Cow<'static, str> {
        "QuotaSpecs".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((QuotaSpec::name().into(), QuotaSpec::schema()));
        QuotaSpec::schemas(schemas);
    }
}
