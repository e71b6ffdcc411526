//! OpenAPI schemas of scalars. The server reads them all as text and checks them in one place, so
//! these serve only readers and generators of requests.

use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// Pattern of a number with or without a suffix.
const QUANTITY: &str = "^[0-9]+(\\.[0-9]+)?([kMGT]|[KMGT]i)?B?$";

/// A number, such as `1000`, `"1k"` or, where bytes are counted, `"50MiB"`.
#[derive(Debug)]
pub(super) struct QuantitySchema;

/// A [`QuantitySchema`] or `unlimited`.
#[derive(Debug)]
pub(super) struct AmountSchema;

/// A [`QuantitySchema`] or `dynamic`.
#[derive(Debug)]
pub(super) struct SafeSchema;

/// A whole number of milliseconds or more, with a unit.
#[derive(Debug)]
pub(super) struct DurationSchema;

/// A fraction of one.
#[derive(Debug)]
pub(super) struct FractionSchema;

/// A weight among members.
#[derive(Debug)]
pub(super) struct WeightSchema;

/// An algorithm that divides a capacity.
#[derive(Debug)]
pub(super) struct AlgorithmSchema;

/// First division of a group's capacity.
#[derive(Debug)]
pub(super) struct FairBetweenSchema;

// === impl PartialSchema ===

impl PartialSchema for QuantitySchema {
    fn schema() -> RefOr<Schema> {
        quantity().into()
    }
}

impl PartialSchema for AmountSchema {
    fn schema() -> RefOr<Schema> {
        quantity().item(word(&["unlimited"])).into()
    }
}

impl PartialSchema for SafeSchema {
    fn schema() -> RefOr<Schema> {
        quantity().item(word(&["dynamic"])).into()
    }
}

impl PartialSchema for DurationSchema {
    fn schema() -> RefOr<Schema> {
        text("^[0-9]+(ms|s|m|h)$").examples(["10s"]).into()
    }
}

impl PartialSchema for FractionSchema {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new()
            .schema_type(Type::Number)
            .minimum(Some(0))
            .maximum(Some(1));
        let text = text("^(0(\\.[0-9]+)?|1(\\.0+)?)$");
        OneOfBuilder::new().item(number).item(text).into()
    }
}

impl PartialSchema for WeightSchema {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(1))
            .maximum(Some(1_000_000));
        let text = text("^[1-9][0-9]{0,5}$");
        OneOfBuilder::new().item(number).item(text).into()
    }
}

impl PartialSchema for AlgorithmSchema {
    fn schema() -> RefOr<Schema> {
        word(&["fair_share", "proportional_share", "static", "none"]).into()
    }
}

impl PartialSchema for FairBetweenSchema {
    fn schema() -> RefOr<Schema> {
        word(&["members", "clients"]).into()
    }
}

impl ToSchema for QuantitySchema {}
impl ToSchema for AmountSchema {}
impl ToSchema for SafeSchema {}
impl ToSchema for DurationSchema {}
impl ToSchema for FractionSchema {}
impl ToSchema for WeightSchema {}
impl ToSchema for AlgorithmSchema {}
impl ToSchema for FairBetweenSchema {}

// === free functions ===

fn quantity() -> OneOfBuilder {
    let number = ObjectBuilder::new()
        .schema_type(Type::Number)
        .minimum(Some(0))
        .maximum(Some(1e12));
    OneOfBuilder::new().item(number).item(text(QUANTITY))
}

fn text(pattern: &str) -> ObjectBuilder {
    let builder = ObjectBuilder::new().schema_type(Type::String);
    builder.pattern(Some(pattern))
}

fn word(words: &'static [&'static str]) -> ObjectBuilder {
    let builder = ObjectBuilder::new().schema_type(Type::String);
    builder.enum_values(Some(words.iter().copied()))
}
