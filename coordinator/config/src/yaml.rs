//! Reads YAML and JSON, and names the field in each error.
//!
//! The library says what is wrong and where, [`serde_path_to_error`] in which field. A value of the
//! wrong shape is quoted from the text.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde_path_to_error::{Path, Segment};
use serde_saphyr::{Error, Location, MessageFormatter as _, UserMessageFormatter};
use tollgate_core::lease::Unit;
use tollgate_core::quantity::{QuantityUnit, parse};

use super::fields::unknown_field;
use super::{ENTRIES_MAX, FILE_LEN_MAX};
use crate::catalog::check::{ConfigError, ConfigErrors, join};

/// The most scalars, lists and mappings in a file, also those that aliases stand for.
const NODES_MAX: usize = 50 * ENTRIES_MAX;

/// The most beginnings and ends of them.
const EVENTS_MAX: usize = 2 * NODES_MAX;

/// Depth to which an alias may lead to values that have aliases themselves.
const ALIAS_DEPTH_MAX: usize = 8;

/// The longest value that is quoted, in characters.
const QUOTED_MAX: usize = 40;

/// Reads the YAML of a file; an empty one has all defaults.
pub(super) fn read_or_default<T: DeserializeOwned + Default>(
    text: &str,
) -> Result<T, ConfigErrors> {
    Ok(read_any(text)?.unwrap_or_default())
}

/// Reads a value from YAML or JSON.
///
/// # Errors
/// If the text is too large, no YAML, empty, or of another shape.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, ConfigErrors> {
    read_any(text)?.ok_or_else(|| ConfigErrors::nowhere("", "is empty"))
}

fn read_any<T: DeserializeOwned>(text: &str) -> Result<Option<T>, ConfigErrors> {
    if text.len() > FILE_LEN_MAX {
        // How many it has is not known: of a larger file no more is read.
        let rule = format!("the file has more than {FILE_LEN_MAX} bytes");
        return Err(ConfigErrors::nowhere("", rule));
    }
    // The library's own bounds, made wide enough for the most entries of every section: a node is a
    // scalar or a collection, and a generous limit has about forty. Repeated values count, so the
    // number of aliases to one anchor does not matter.
    let options = serde_saphyr::options! {
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_events: EVENTS_MAX,
            max_nodes: NODES_MAX,
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: EVENTS_MAX,
            max_replay_stack_depth: ALIAS_DEPTH_MAX,
        },
    };
    let mut path = None;
    let read = serde_saphyr::with_deserializer_from_str_with_options(text, options, |reader| {
        serde_path_to_error::deserialize(reader).map_err(|error| {
            path = Some(error.path().clone());
            error.into_inner()
        })
    });
    read.map_err(|error: Error| ConfigErrors(vec![located(text, path.as_ref(), &error)]))
}

/// The field and the rule of `error`, which was found at `path` in `text`.
fn located(text: &str, path: Option<&Path>, error: &Error) -> ConfigError {
    // Of an error in repeated values this is the place of the alias: there they do not fit.
    let at = error.location().unwrap_or(Location::UNKNOWN);
    let mut inner = error;
    while let Error::AliasError { error, .. } = inner {
        inner = error;
    }
    let name = match inner {
        Error::SerdeUnknownField { field, .. } => Some(&**field),
        Error::DuplicateMappingKey { key, .. } => key.as_deref(),
        Error::SerdeMissingField { field, .. } => Some(*field),
        _ => None,
    };
    let field = field(path, name);
    let mut value = None;
    let rule = match inner {
        Error::SerdeUnknownField {
            field, expected, ..
        } => unknown_field(field, expected),
        Error::DuplicateMappingKey { .. } => "is here twice".to_owned(),
        Error::SerdeMissingField { .. } => "is missing".to_owned(),
        Error::SerdeUnknownVariant {
            variant, expected, ..
        } => format!("`{variant}` is none of {}", expected.join(", ")),
        Error::SerdeInvalidType {
            unexpected,
            expected,
            ..
        }
        | Error::SerdeInvalidValue {
            unexpected,
            expected,
            ..
        } => format!("{unexpected} is not {expected}"),
        inner if let Some(expected) = expected(inner) => {
            // Not quoted: the value may be a token.
            let source = source(text, at).filter(|_| !field.starts_with("admin"));
            let source = source.map(|source| source.trim_matches(['"', '\'']));
            value = source.filter(|source| !["", "[", "{"].contains(source));
            let rule = unexpected(&expected, &field, source.and_then(found));
            rule + &value.map_or_else(String::new, |value| instead(&field, value))
        }
        Error::AliasReplayLimitExceeded { .. } | Error::Budget { .. } => format!(
            "the file is too large: more than {NODES_MAX} values with all that aliases (`*name`) \
             repeat, or too many anchors or levels; write fewer, or repeat less"
        ),
        Error::AliasReplayStackDepthExceeded { .. } => {
            format!("aliases (`*name`) lead to other aliases more than {ALIAS_DEPTH_MAX} times")
        }
        error => UserMessageFormatter.format_message(error).into_owned(),
    };
    let error = ConfigError::new(at, field, rule);
    match value {
        Some(value) => error.of_value(value),
        None => error,
    }
}

/// The names from the root to the field at `path`, the last of which is `name` if there is one.
fn field(path: Option<&Path>, name: Option<&str>) -> String {
    let mut field = String::new();
    let mut last = "";
    let mut hidden = false;
    for segment in path.into_iter().flat_map(Path::iter) {
        match segment {
            Segment::Seq { index } => {
                field.push_str(&format!("[{index}]"));
                last = "";
            }
            // The value of a `LocatedValue` is no field of the file; a second one in a row is.
            Segment::Map { key } if key == "value" && !hidden => {
                hidden = true;
                continue;
            }
            Segment::Map { key } | Segment::Enum { variant: key } => {
                field = join(&field, &key.escape_debug().to_string());
                last = key;
            }
            Segment::Unknown => continue,
        }
        hidden = false;
    }
    match name.filter(|name| *name != last) {
        Some(name) => join(&field, &name.escape_debug().to_string()),
        None => field,
    }
}

/// The text that stands `at` a place in `text`.
fn source(text: &str, at: Location) -> Option<&str> {
    let span = at.span();
    let rest = text.get(usize::try_from(span.byte_offset()?).ok()?..)?;
    rest.get(..usize::try_from(span.byte_len()?).ok()?)
}

/// A value: quoted if it is a scalar, else its kind; none for a list or a mapping without brackets.
fn found(value: &str) -> Option<String> {
    Some(match value {
        "" => return None,
        "[" => "a list".to_owned(),
        "{" => "a mapping".to_owned(),
        scalar => {
            let mut quoted: String = scalar.chars().take(QUOTED_MAX).collect();
            if quoted.len() < scalar.len() {
                quoted.push('…');
            }
            format!("`{}`", quoted.escape_debug())
        }
    })
}

/// The way to write the scalar `value` of `field`, if that is a unit: its limit is a mapping, where
/// people expect a number.
fn instead(field: &str, value: &str) -> String {
    let last = field.rsplit('.').next().unwrap_or(field);
    let Some(unit) = Unit::ALL.into_iter().find(|unit| unit.name() == last) else {
        return String::new();
    };
    let counted = QuantityUnit::of(unit);
    let amount = value.trim_matches(['"', '\'']);
    let amount = amount.strip_suffix("/s").unwrap_or(amount).trim_end();
    let good = amount == "unlimited" || parse(amount, counted).is_ok();
    let amount = if good { amount } else { "100" };
    let name = match unit {
        Unit::Concurrency => "max",
        _ => "rate",
    };
    format!("; write `{last}: {{{name}: {amount}}}`")
}

/// The shape that stands where `error` found another one.
fn expected(error: &Error) -> Option<Cow<'static, str>> {
    let whole = |most: u64| Some(format!("a whole number from 0 to {most}").into());
    let shape = match error {
        Error::Unexpected { expected, .. } => match *expected {
            "mapping start" => "a mapping",
            "sequence start" => "a list",
            "string scalar" => "a single value",
            other => other,
        },
        Error::ExternallyTaggedEnumExpectedScalarOrMapping { .. } => "a word that may stand here",
        Error::InvalidScalar { ty, .. } => match *ty {
            "u16" => return whole(u16::MAX.into()),
            "u32" => return whole(u32::MAX.into()),
            "u64" | "usize" => "a whole number from 0 on",
            "boolean" => "true or false",
            "floating point" => "a number",
            other => other,
        },
        _ => return None,
    };
    Some(shape.into())
}

fn unexpected(expected: &str, field: &str, found: Option<String>) -> String {
    match found {
        Some(found) if found.starts_with('`') => format!("{found} is not {expected}"),
        Some(found) => format!("is {found}, not {expected}"),
        None if field.is_empty() => format!("the file is not {expected}"),
        None => format!("is not {expected}"),
    }
}
