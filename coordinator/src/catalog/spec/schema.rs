//! What scalars look like in OpenAPI. They are all read as text and judged in one place, so these
//! are for readers and generators of requests only.

use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A number with a suffix or without.
const QUANTITY: &str = "^[0-9]+(\\.[0-9]+)?([kMGT]|[KMGT]i)?B?$";

/// A number, such as `1000`, `"1k"` or, where bytes are counted, `"50MiB"`.
#[derive(Debug)]
pub(super) struct Quantity;

/// A [`Quantity`] or `unlimited`.
#[derive(Debug)]
pub(super) struct Amount;

/// A [`Quantity`] or `dynamic`.
#[derive(Debug)]
pub(super) struct Safe;

/// A whole number of milliseconds or more, with a unit.
#[derive(Debug)]
pub(super) struct Span;

/// A part of a whole.
#[derive(Debug)]
pub(super) struct Part;

/// What a part is in proportion to.
#[derive(Debug)]
pub(super) struct Weight;

/// How a capacity is divided.
#[derive(Debug)]
pub(super) struct AlgorithmWord;

/// Between whom a group is divided first.
#[derive(Debug)]
pub(super) struct BetweenWord;

// === impl PartialSchema ===

impl PartialSchema for Quantity {
    fn schema() -> RefOr<Schema> {
        quantity().into()
    }
}

impl PartialSchema for Amount {
    fn schema() -> RefOr<Schema> {
        quantity().item(word(&["unlimited"])).into()
    }
}

impl PartialSchema for Safe {
    fn schema() -> RefOr<Schema> {
        quantity().item(word(&["dynamic"])).into()
    }
}

impl PartialSchema for Span {
    fn schema() -> RefOr<Schema> {
        text("^[0-9]+(ms|s|m|h)$").examples(["10s"]).into()
    }
}

impl PartialSchema for Part {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new()
            .schema_type(Type::Number)
            .minimum(Some(0))
            .maximum(Some(1));
        let text = text("^(0(\\.[0-9]+)?|1(\\.0+)?)$");
        OneOfBuilder::new().item(number).item(text).into()
    }
}

impl PartialSchema for Weight {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(1))
            .maximum(Some(1_000_000));
        let text = text("^[1-9][0-9]{0,5}$");
        OneOfBuilder::new().item(number).item(text).into()
    }
}

impl PartialSchema for AlgorithmWord {
    fn schema() -> RefOr<Schema> {
        word(&["fair_share", "proportional_share", "static", "none"]).into()
    }
}

impl PartialSchema for BetweenWord {
    fn schema() -> RefOr<Schema> {
        word(&["members", "clients"]).into()
    }
}

impl ToSchema for Quantity {}
impl ToSchema for Amount {}
impl ToSchema for Safe {}
impl ToSchema for Span {}
impl ToSchema for Part {}
impl ToSchema for Weight {}
impl ToSchema for AlgorithmWord {}
impl ToSchema for BetweenWord {}

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
