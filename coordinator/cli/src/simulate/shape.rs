//! Errors in the shape of a scenario, in plain words.

use serde_json::Value;
use tollgate_config::unknown_field;
use tollgate_sim::scenario::ScenarioError;

use super::document::Document;

// === free functions ===

/// Returns the rule that a value of `document` breaks, of serde's `error`.
pub(super) fn broken_rule(
    document: &Document,
    error: &serde_path_to_error::Error<serde_json::Error>,
) -> ScenarioError {
    let path = error.path().to_string();
    let path = if path == "." { "" } else { &path };
    let message = error.inner().to_string();
    let mut names = message.split('`').skip(1).step_by(2);
    let named = names.next().unwrap_or_default();
    let field = |field: &str| field.to_owned();
    let (field, rule) = match message.split_once(' ').map_or("", |(first, _)| first) {
        "missing" => (join(path, named), "is missing".to_owned()),
        "unknown" if message.starts_with("unknown field") => {
            let expected: Vec<_> = names.collect();
            (field(path), unknown_field(named, &expected))
        }
        "unknown" => {
            let expected = names.collect::<Vec<_>>().join(", ");
            (field(path), format!("`{named}` is none of {expected}"))
        }
        "invalid" => {
            let expected = message.split_once("expected ").map_or("", |(_, text)| text);
            let found = document.value_of(path).unwrap_or_default();
            let rule = format!("{} is not {}", quoted(&found), plain(expected));
            (field(path), rule)
        }
        _ => (field(path), message.clone()),
    };
    ScenarioError { field, rule }
}

fn join(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    }
}

/// Returns a value as errors name it.
fn quoted(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::String(text) => format!("`{text}`"),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
        other => format!("`{other}`"),
    }
}

/// Returns what serde expected, in the words of YAML.
fn plain(expected: &str) -> String {
    let whole = |most: u64| format!("a whole number from 0 to {most}");
    match expected {
        "u16" => whole(u16::MAX.into()),
        "u32" => whole(u32::MAX.into()),
        "u64" | "usize" => "a whole number from 0 on".to_owned(),
        "a string" => "a text".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "a mapping".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "an array of length 2" => "a list of two numbers".to_owned(),
        "string or map" => "a word of those that may stand here".to_owned(),
        of_type if of_type.starts_with("struct ") => "a mapping".to_owned(),
        of_type if of_type.starts_with("enum ") => "a word of those that may stand here".to_owned(),
        other => other.to_owned(),
    }
}
