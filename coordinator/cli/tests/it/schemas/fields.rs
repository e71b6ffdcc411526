//! Fields of the schemas.

use std::collections::BTreeSet;

use super::*;

/// Follows the reference of `node`, if it has one.
fn referred<'a>(root: &'a Value, node: &'a Value) -> &'a Value {
    match node["$ref"].as_str() {
        Some(at) => referred(root, root.pointer(at.trim_start_matches('#')).unwrap()),
        None => node,
    }
}

/// The fields that the parser expects in the object that `wrap` puts into a file.
fn expected(wrap: &dyn Fn(Value) -> Value) -> BTreeSet<String> {
    let text = wrap(json!({"no such field": 1})).to_string();
    let error = parse(&text).unwrap_err();
    let names = error.split("expected one of ").nth(1);
    let names = names.unwrap_or_else(|| panic!("{text}: {error}"));
    names.split(", ").map(str::to_owned).collect()
}

/// Compares the fields of each object in `node` with those that the parser expects there, and counts them.
fn compare(root: &Value, node: &Value, wrap: &dyn Fn(Value) -> Value) -> usize {
    let node = referred(root, node);
    let mut count = 0;
    if let Some(fields) = node["properties"].as_object() {
        assert_eq!(node["additionalProperties"], false, "{node}");
        let names: BTreeSet<String> = fields.keys().cloned().collect();
        assert_eq!(names, expected(wrap));
        count += names.len();
        for (name, field) in fields {
            let wrap = |inner| wrap(json!({name: inner}));
            count += compare(root, field, &wrap);
        }
    }
    if let Some(entry) = node.get("items") {
        count += compare(root, entry, &|inner| wrap(json!([inner])));
    }
    if let Some(entry) = node.get("additionalProperties").filter(|of| of.is_object()) {
        count += compare(root, entry, &|inner| wrap(json!({"x": inner})));
    }
    count
}

#[test]
fn the_coordinators_schema_has_the_fields_of_its_parser_and_no_others() {
    let schema = schema(COORDINATOR);
    let count = compare(&schema, &schema, &|inner| inner);
    assert!(count > 150, "{count}");
}

/// Checks that each field in `node` has a description.
fn check_descriptions(root: &Value, node: &Value) {
    for (name, child) in node.as_object().into_iter().flatten() {
        let fields = child.as_object().into_iter().flatten();
        for (field, of_field) in fields.filter(|_| name == "properties") {
            let described = [of_field, referred_once(root, of_field)];
            let mut texts = described.iter().filter_map(|of| of["description"].as_str());
            let text = texts
                .next()
                .unwrap_or_else(|| panic!("{field} has no description"));
            assert!(
                text.ends_with('.') && !text.contains(". "),
                "{field}: {text}"
            );
        }
        if name != "if" {
            check_descriptions(root, child);
        }
    }
    let entries = node.as_array().into_iter().flatten();
    entries.for_each(|entry| check_descriptions(root, entry));
}

/// The node that `node` refers to, or itself.
fn referred_once<'a>(root: &'a Value, node: &'a Value) -> &'a Value {
    let at = node["$ref"].as_str();
    at.map_or(node, |at| root.pointer(at.trim_start_matches('#')).unwrap())
}

#[test]
fn both_schemas_are_schemas_and_describe_each_field_in_a_sentence() {
    for text in [COORDINATOR, FILTER] {
        let schema = schema(text);
        assert!(jsonschema::draft202012::meta::is_valid(&schema));
        check_descriptions(&schema, &schema);
    }
}
