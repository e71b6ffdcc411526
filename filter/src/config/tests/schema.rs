//! The JSON schema of the filter, held against its parser.

use super::documentation::asked_for;
use super::*;

const SCHEMA: &str = include_str!("../../../../envoy/filter.schema.json");

/// The schemas that `node` consists of: itself, the one that it refers to, and its alternatives.
fn parts<'a>(root: &'a Value, node: &'a Value) -> Vec<&'a Value> {
    let reference = node["$ref"].as_str().and_then(|at| at.strip_prefix('#'));
    let referred = reference.map(|at| root.pointer(at).unwrap());
    let alternatives = node["anyOf"].as_array().into_iter().flatten();
    let others = referred.into_iter().chain(alternatives);
    let others = others.flat_map(|other| parts(root, other));
    [node].into_iter().chain(others).collect()
}

/// The schema of the field at `path`, such as `scopes[0].key`.
fn field_of<'a>(root: &'a Value, path: &str) -> Option<&'a Value> {
    let steps = path.split(['.', '[']);
    steps.into_iter().try_fold(root, |node, step| {
        let mut parts = parts(root, node).into_iter();
        if step.ends_with(']') {
            parts.find_map(|part| part.get("items"))
        } else {
            parts.find_map(|part| part["properties"].get(step))
        }
    })
}

/// The fields in `node`, at any depth, by name.
fn fields_in<'a>(node: &'a Value, fields: &mut Vec<(&'a String, &'a Value)>) {
    let children = node.as_object().into_iter().flatten();
    for (name, child) in children.filter(|(name, _)| *name != "if") {
        if name == "properties" {
            fields.extend(child.as_object().unwrap());
        }
        fields_in(child, fields);
    }
    for entry in node.as_array().into_iter().flatten() {
        fields_in(entry, fields);
    }
}

#[test]
fn every_field_of_the_parser_is_in_the_schema_and_no_other() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let mut unread = Vec::new();
    fields_in(&schema, &mut unread);
    assert!(unread.len() > 70);
    for path in asked_for() {
        // A field of 0.1, which the parser knows to say what replaces it.
        if path.ends_with(".mode") {
            continue;
        }
        let found = field_of(&schema, &path);
        let found = found.unwrap_or_else(|| panic!("{path} is not in the schema"));
        unread.retain(|(_, field)| !core::ptr::eq(*field, found));
    }
    // The values of headers are read as they are.
    let names: Vec<_> = unread.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["item", "prefix"]);
}
