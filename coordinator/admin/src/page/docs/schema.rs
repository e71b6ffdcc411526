//! One schema of the API.

use maud::{Markup, html};
use serde_json::Value;

use super::{entries, prose, text};

/// Rules that a value follows, with the words before and after their values.
const RULES: [(&str, &str, &str); 7] = [
    ("format", "", ""),
    ("minimum", "at least ", ""),
    ("maximum", "at most ", ""),
    ("minLength", "at least ", " characters"),
    ("maxLength", "at most ", " characters"),
    ("pattern", "as ", ""),
    ("default", "by default ", ""),
];

/// Returns all about the schema called `name`.
pub(super) fn schema(name: &str, schema: &Value) -> Markup {
    let required = schema["required"].as_array();
    let needs = |field: &str| required.is_some_and(|names| names.iter().any(|name| name == field));
    let parts: Vec<&Value> = parts(schema).collect();
    html! {
        section.operation id={ "schema-" (name) } {
            h3 { code { (name) } a.anchor href={ "#schema-" (name) } aria-label="link" { "#" } }
            p { (prose(text(&schema["description"]))) }
            @if parts.iter().all(|part| part["properties"].is_null()) {
                p { (kind(schema)) }
            } @else {
                @for part in parts.iter().filter(|part| part["$ref"].is_string()) {
                    p { "All of " (kind(part)) ", and:" }
                }
                table.rows {
                    thead { tr {
                        th scope="col" { "field" } th scope="col" { "type" } th scope="col" { "meaning" }
                    } }
                    tbody { @for part in &parts { @for (field, one) in entries(&part["properties"]) {
                        (property(field, one, needs(field) || is_in(&part["required"], field)))
                    } } }
                }
            }
        }
    }
}

/// Returns the type of `schema` in words, with links to others.
pub(super) fn kind(schema: &Value) -> Markup {
    if let Some(name) = reference(schema) {
        return html! { a href={ "#schema-" (name) } { (name) } };
    }
    if let Some(choices) = ["oneOf", "anyOf", "allOf"]
        .iter()
        .find_map(|of| schema[*of].as_array())
    {
        return joined(
            choices.iter().map(kind),
            if schema["allOf"].is_array() {
                " and "
            } else {
                " or "
            },
        );
    }
    if let Some(values) = schema["enum"].as_array() {
        return joined(
            values
                .iter()
                .map(|value| html! { code { (value.to_string()) } }),
            " or ",
        );
    }
    let types = match &schema["type"] {
        Value::Array(types) => types.iter().collect(),
        Value::Null => Vec::new(),
        one => vec![one],
    };
    let is_any = types.is_empty();
    html! {
        @if is_any { "anything" }
        (joined(types.into_iter().map(|one| plain_kind(text(one), schema)), " or "))
        (rules(schema))
    }
}

/// Returns the name of the schema that `schema` refers to.
pub(super) fn reference(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.rsplit('/').next()
}

/// The schemas of which `schema` is made: itself, or all of several.
fn parts(schema: &Value) -> impl Iterator<Item = &Value> {
    let all = schema["allOf"].as_array().into_iter().flatten();
    std::iter::once(schema).chain(all)
}

fn plain_kind(name: &str, schema: &Value) -> Markup {
    html! {
        @match name {
            "array" => { "list of " (kind(&schema["items"])) }
            "object" if schema["additionalProperties"].is_object() => {
                "map to " (kind(&schema["additionalProperties"]))
            }
            other => { (other) }
        }
    }
}

fn rules(schema: &Value) -> Markup {
    html! {
        @for (rule, before, after) in RULES {
            @if !schema[rule].is_null() {
                ", " (before)
                @match &schema[rule] {
                    Value::String(text) if rule == "format" => { (text) }
                    value => { code { (value.to_string()) } }
                }
                (after)
            }
        }
    }
}

fn property(field: &str, schema: &Value, is_required: bool) -> Markup {
    html! {
        tr {
            th scope="row" {
                code { (field) }
                @if !is_required { small { "optional" } }
            }
            td data-label="type" { (kind(schema)) }
            td data-label="meaning" { (prose(text(&schema["description"]))) }
        }
    }
}

fn is_in(names: &Value, name: &str) -> bool {
    let names = names.as_array();
    names.is_some_and(|names| names.iter().any(|one| one == name))
}

fn joined(parts: impl Iterator<Item = Markup>, between: &str) -> Markup {
    html! {
        @for (i, part) in parts.enumerate() {
            @if i > 0 { (between) }
            (part)
        }
    }
}
