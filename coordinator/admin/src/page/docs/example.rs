//! Examples of values, made from their schemas.

use serde_json::{Map, Value, json};

use super::schema::reference;

/// How deep an example goes; deeper values are null.
const DEPTH_MAX: usize = 8;

/// Returns an example of `schema`, whose references lead into `document`.
pub(super) fn example(schema: &Value, document: &Value) -> Value {
    of_schema(schema, document, DEPTH_MAX)
}

fn of_schema(schema: &Value, document: &Value, depth: usize) -> Value {
    if depth == 0 {
        return Value::Null;
    }
    let deeper = |schema: &Value| of_schema(schema, document, depth - 1);
    if let Some(name) = reference(schema) {
        return deeper(&document["components"]["schemas"][name]);
    }
    for given in ["example", "default"] {
        if !schema[given].is_null() {
            return schema[given].clone();
        }
    }
    for first in ["examples", "enum"] {
        if !schema[first][0].is_null() {
            return schema[first][0].clone();
        }
    }
    if let Some(all) = schema["allOf"].as_array() {
        return merged(
            all.iter()
                .chain([schema])
                .map(|part| match part["allOf"].is_array() {
                    true => object(part, &deeper),
                    false => deeper(part),
                }),
        );
    }
    for choice in ["oneOf", "anyOf"] {
        let mut choices = schema[choice].as_array().into_iter().flatten();
        if let Some(first) = choices.find(|one| one["type"] != "null") {
            return deeper(first);
        }
    }
    match kind(schema) {
        "array" => json!([deeper(&schema["items"])]),
        "object" => object(schema, &deeper),
        "string" => text(schema).into(),
        "integer" => schema["minimum"].as_u64().unwrap_or(1).max(1).into(),
        "number" => json!(1.5),
        "boolean" => true.into(),
        _ => Value::Null,
    }
}

/// The first type of `schema` that is not null.
fn kind(schema: &Value) -> &str {
    let kind = match &schema["type"] {
        Value::Array(types) => types.iter().find(|one| *one != "null"),
        one => Some(one),
    };
    kind.and_then(Value::as_str).unwrap_or_default()
}

fn object(schema: &Value, deeper: &dyn Fn(&Value) -> Value) -> Value {
    let mut fields = Map::new();
    for (name, one) in super::entries(&schema["properties"]) {
        fields.insert(name.to_owned(), deeper(one));
    }
    if schema["additionalProperties"].is_object() {
        fields.insert("name".to_owned(), deeper(&schema["additionalProperties"]));
    }
    Value::Object(fields)
}

fn text(schema: &Value) -> &str {
    match schema["format"].as_str() {
        Some("uri-reference") => "about:blank",
        _ => "text",
    }
}

fn merged(parts: impl Iterator<Item = Value>) -> Value {
    let mut fields = Map::new();
    for part in parts {
        if let Value::Object(more) = part {
            fields.extend(more);
        }
    }
    Value::Object(fields)
}
