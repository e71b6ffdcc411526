//! Amounts of units.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tollgate_core::lease::Unit;
use tollgate_core::limit::Limit;
use tollgate_core::quantity::{amount_text, named_period, rate_text};
use tollgate_core::units::{Capacity, RatePeriod};
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A number of units, or no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// This number.
    Number(f64),
    /// No limit.
    Unlimited,
}

// === impl Amount ===

impl Amount {
    /// Returns the capacity of `limit`, as it was written: a limit with a quota alone has none.
    pub(crate) fn of_limit(limit: &Limit) -> Self {
        if limit.has_capacity() {
            limit.capacity.into()
        } else {
            Self::Unlimited
        }
    }

    /// Returns this amount of the unit of that name in a few digits, or the word `unlimited`.
    pub fn text(self, unit: &str) -> String {
        match self {
            Self::Unlimited => "unlimited".to_owned(),
            Self::Number(amount) => amount_text(unit, amount),
        }
    }

    /// Returns this amount per second for the period that a limit names as it was `written`, if it names one.
    pub fn text_as(self, unit: &str, written: Option<&str>) -> String {
        match self {
            Self::Unlimited => self.text(unit),
            Self::Number(rate) => rate_text(unit, rate, written.and_then(named_period)),
        }
    }

    /// Returns this limit for the `period` for which it was written, if it named one.
    pub(crate) fn written(self, unit: Unit, period: Option<RatePeriod>) -> Option<String> {
        match self {
            Self::Unlimited => None,
            Self::Number(rate) => Some(rate_text(unit.name(), rate, Some(period?))),
        }
    }
}

impl From<Capacity> for Amount {
    fn from(capacity: Capacity) -> Self {
        if capacity.is_unlimited() {
            return Self::Unlimited;
        }
        Self::Number(capacity.as_f64())
    }
}

impl From<f64> for Amount {
    fn from(units: f64) -> Self {
        Self::Number(units)
    }
}

impl Serialize for Amount {
    /// A number, or the word `unlimited` as in the configuration.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(units) => serializer.serialize_f64(*units),
            Self::Unlimited => serializer.serialize_str("unlimited"),
        }
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum AmountForm {
            Number(f64),
            Word(AmountWord),
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum AmountWord {
            Unlimited,
        }
        Ok(match AmountForm::deserialize(deserializer)? {
            AmountForm::Number(units) => Self::Number(units),
            AmountForm::Word(AmountWord::Unlimited) => Self::Unlimited,
        })
    }
}

impl ToSchema for Amount {}

impl PartialSchema for Amount {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new()
            .schema_type(Type::Number)
            .minimum(Some(0));
        let word = ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some(["unlimited"]));
        OneOfBuilder::new()
            .item(number)
            .item(word)
            .description(Some("A number of units, or no limit"))
            .into()
    }
}
