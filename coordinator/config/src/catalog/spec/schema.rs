//! OpenAPI schemas of scalars. The server reads them all as text and checks them in one place, so
//! these serve only readers and generators of requests.

use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// Pattern of a number with or without a suffix.
const QUANTITY: &str = "^[0-9]+(\\.[0-9]+)?([kMGT]|[KMGT]i)?B?$";

/// The same of a rate, which may name its period.
const RATE: &str =
    "^[0-9]+(\\.[0-9]+)?([kMGT]|[KMGT]i)?B?(/(s|sec|second|min|minute|h|hour|d|day))?$";

/// Declares types that stand for a schema in derived ones.
macro_rules! schemas {
    ($($(#[$doc:meta])* $name:ident = $schema:expr;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub(super) struct $name;

            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    $schema.into()
                }
            }

            impl ToSchema for $name {}
        )*
    };
}

schemas! {
    /// A number, such as `1000`, `"1k"` or, where bytes are counted, `"50MiB"`.
    QuantitySchema = quantity();
    /// A rate, such as `1000`, `"2k/s"` or `"10/min"`, or `unlimited`.
    RateSchema = rate().item(word(&["unlimited"]));
    /// A [`QuantitySchema`] or `unlimited`.
    AmountSchema = quantity().item(word(&["unlimited"]));
    /// A [`QuantitySchema`] or `dynamic`.
    SafeSchema = rate().item(word(&["dynamic"]));
    /// A whole number of milliseconds or more, with a unit.
    DurationSchema = text("^[0-9]+(ms|s|m|h)$").examples(["10s"]);
    /// A fraction of one.
    FractionSchema = number_or_text(Type::Number, (0, 1), "^(0(\\.[0-9]+)?|1(\\.0+)?)$");
    /// A weight among members.
    WeightSchema = number_or_text(Type::Integer, (1, 1_000_000), "^[1-9][0-9]{0,5}$");
    /// An algorithm that divides a capacity.
    AlgorithmSchema = word(&[
        "fair_share",
        "proportional_share",
        "usage_share",
        "max_rate",
        "static",
        "none",
    ]);
    /// First division of a group's capacity.
    FairBetweenSchema = word(&["members", "clients"]);
}

// === free functions ===

fn quantity() -> OneOfBuilder {
    number_or_text(Type::Number, (0, 1_000_000_000_000), QUANTITY)
}

fn rate() -> OneOfBuilder {
    number_or_text(Type::Number, (0, 1_000_000_000_000), RATE)
}

/// A number between `min` and `max`, or a text.
fn number_or_text(kind: Type, (min, max): (usize, usize), pattern: &str) -> OneOfBuilder {
    let number = ObjectBuilder::new().schema_type(kind);
    let number = number.minimum(Some(min)).maximum(Some(max));
    OneOfBuilder::new().item(number).item(text(pattern))
}

fn text(pattern: &str) -> ObjectBuilder {
    let builder = ObjectBuilder::new().schema_type(Type::String);
    builder.pattern(Some(pattern))
}

fn word(words: &'static [&'static str]) -> ObjectBuilder {
    let builder = ObjectBuilder::new().schema_type(Type::String);
    builder.enum_values(Some(words.iter().copied()))
}
