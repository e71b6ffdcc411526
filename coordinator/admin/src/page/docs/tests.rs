use serde_json::json;

use super::*;

fn document() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {"title": "API", "version": "1", "description": "Reading needs `viewer`."},
        "paths": {"/v1/groups/{name}": {
            "put": {
                "operationId": "putGroup", "tags": ["groups"], "summary": "Creates a group.",
                "parameters": [{
                    "name": "name", "in": "path", "required": true, "description": "Its name",
                    "schema": {"type": "string", "minLength": 1, "maxLength": 250}
                }],
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Group"}}}},
                "responses": {
                    "200": {"description": "Replaced", "content": {
                        "application/json": {"schema": {"$ref": "#/components/schemas/Group"}}
                    }},
                    "409": {"description": "Defined in <the file>"}
                }
            }
        }},
        "components": {"schemas": {
            "Group": {
                "type": "object", "required": ["rate"], "description": "A group.",
                "properties": {
                    "rate": {"$ref": "#/components/schemas/Rate"},
                    "parent": {"$ref": "#/components/schemas/Group"},
                    "names": {"type": ["array", "null"], "items": {"type": "string"}}
                }
            },
            "Rate": {"oneOf": [{"type": "number", "minimum": 0}, {"type": "string", "enum": ["unlimited"]}]}
        }}
    })
}

#[test]
fn an_operation_has_all_that_is_needed_to_call_it() {
    let html = main(&document()).into_string();
    for part in [
        "<h2 id=\"tag-groups\">groups</h2>",
        "<section class=\"operation\" id=\"putGroup\">",
        "<a href=\"#putGroup\"><b class=\"method\">PUT</b>",
        "<p>Reading needs <code>viewer</code>.</p>",
        "<code>name</code><small>required</small>",
        "string, at least <code>1</code> characters, at most <code>250</code> characters",
        "<td data-label=\"meaning\">Defined in &lt;the file&gt;</td>",
        "<a href=\"#schema-Group\">Group</a>",
        "curl -X PUT -H &quot;authorization: Bearer $TOKEN&quot; \\\n  -H 'content-type: application/json' -d '{",
        "  &quot;$TOLLGATE/v1/groups/$name&quot;",
    ] {
        assert!(html.contains(part), "no {part} in\n{html}");
    }
}

#[test]
fn a_schema_names_its_fields_and_what_they_may_be() {
    let html = main(&document()).into_string();
    for part in [
        "<section class=\"operation\" id=\"schema-Rate\">",
        "number, at least <code>0</code> or <code>&quot;unlimited&quot;</code>",
        "<code>names</code><small>optional</small>",
        "list of string or null",
    ] {
        assert!(html.contains(part), "no {part} in\n{html}");
    }
}

#[test]
fn an_example_ends_although_its_schema_does_not() {
    let document = document();
    let group = json!({"$ref": "#/components/schemas/Group"});
    let example = example::example(&group, &document);
    assert_eq!(example["rate"], 1.5);
    assert_eq!(example["names"], json!(["text"]));
    assert!(example["parent"]["rate"].is_number());
    assert!(serde_json::to_string(&example).unwrap().len() < 1000);
}
