//! Values with their locations in a file.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_saphyr::{Location, Spanned};
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A value and its location: line and column in YAML, unknown in JSON.
#[derive(Clone, Debug)]
pub struct LocatedValue<T> {
    /// The value.
    pub value: T,
    /// Its location.
    pub at: Location,
}

/// A number or a word, as it was written. It is checked in one place, with errors that quote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar(pub String);

/// A scalar and its location.
pub type LocatedScalar = LocatedValue<Scalar>;

// === impl LocatedValue ===

impl<T> LocatedValue<T> {
    /// `value` without a location.
    pub const fn nowhere(value: T) -> Self {
        Self {
            value,
            at: Location::UNKNOWN,
        }
    }
}

impl LocatedScalar {
    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.value.0
    }
}

impl<T: PartialEq> PartialEq for LocatedValue<T> {
    /// Compares the values, regardless of their locations.
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for LocatedValue<T> {}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for LocatedValue<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned {
            value, referenced, ..
        } = Spanned::deserialize(deserializer)?;
        Ok(Self {
            value,
            at: referenced,
        })
    }
}

impl<T: Serialize> Serialize for LocatedValue<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl<T: ToSchema> PartialSchema for LocatedValue<T> {
    fn schema() -> RefOr<Schema> {
        T::schema()
    }
}

impl<T: ToSchema> ToSchema for LocatedValue<T> {
    fn name() -> Cow<'static, str> {
        T::name()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        T::schemas(schemas);
    }
}

// === impl Scalar ===

impl From<&str> for Scalar {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // YAML gives the text as it stands; JSON gives numbers as numbers.
        deserializer.deserialize_str(ScalarVisitor)
    }
}

impl Serialize for Scalar {
    /// A number if it is one, else a text.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Ok(number) = self.0.parse::<u64>() {
            return serializer.serialize_u64(number);
        }
        match self.0.parse::<f64>() {
            Ok(number) if number.is_finite() => serializer.serialize_f64(number),
            _ => serializer.serialize_str(&self.0),
        }
    }
}

impl PartialSchema for Scalar {
    fn schema() -> RefOr<Schema> {
        let of = |kind| ObjectBuilder::new().schema_type(SchemaType::Type(kind));
        let either = OneOfBuilder::new()
            .item(of(Type::Number))
            .item(of(Type::String));
        either.into()
    }
}

impl ToSchema for Scalar {}

/// Accepts texts and numbers.
struct ScalarVisitor;

impl Visitor<'_> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or a text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Scalar, E> {
        Ok(text.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Scalar, E> {
        Ok(Scalar(number.to_string()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Scalar, E> {
        Ok(Scalar(number.to_string()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Scalar, E> {
        Ok(Scalar(number.to_string()))
    }
}
