//! One operation of the API.

use maud::{Markup, html};
use serde_json::Value;

use super::example::example;
use super::schema::{kind, reference};
use super::{entries, prose, text};

/// Operation of an OpenAPI document.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation<'a> {
    pub(super) id: &'a str,
    pub(super) tag: &'a str,
    method: &'static str,
    path: &'a str,
    spec: &'a Value,
}

// === impl Operation ===

impl<'a> Operation<'a> {
    /// The operation `spec` of `method` at `path`.
    pub(super) fn new(method: &'static str, path: &'a str, spec: &'a Value) -> Self {
        Self {
            id: text(&spec["operationId"]),
            tag: text(&spec["tags"][0]),
            method,
            path,
            spec,
        }
    }

    /// Method and path.
    pub(super) fn signature(&self) -> Markup {
        html! { b.method { (self.method.to_uppercase()) } " " code { (broken(self.path)) } }
    }

    /// Returns all about it, with examples that follow the references into `document`.
    pub(super) fn section(&self, document: &Value) -> Markup {
        html! {
            section.operation id=(self.id) {
                h3 { (self.signature()) a.anchor href={ "#" (self.id) } aria-label="link" { "#" } }
                p { (prose(text(&self.spec["summary"]))) }
                @if let Some(more) = self.spec["description"].as_str() { p { (prose(more)) } }
                (self.parameters())
                (self.body(document))
                (self.responses(document))
                pre { (self.command(document)) }
            }
        }
    }

    fn parameters(&self) -> Markup {
        let parameters = self.spec["parameters"].as_array();
        html! {
            @if let Some(parameters) = parameters {
                table.rows {
                    thead { tr {
                        th scope="col" { "parameter" } th scope="col" { "in" }
                        th scope="col" { "type" } th scope="col" { "meaning" }
                    } }
                    tbody { @for one in parameters { (parameter(one)) } }
                }
            }
        }
    }

    fn body(&self, document: &Value) -> Markup {
        html! {
            @for (media, content) in entries(&self.spec["requestBody"]["content"]) {
                p { "Body (" code { (media) } "): " (kind(&content["schema"])) }
                pre { (pretty(&example(&content["schema"], document))) }
            }
        }
    }

    fn responses(&self, document: &Value) -> Markup {
        html! {
            table.rows {
                thead { tr {
                    th scope="col" { "status" } th scope="col" { "meaning" } th scope="col" { "content" }
                } }
                tbody { @for (status, response) in entries(&self.spec["responses"]) {
                    tr {
                        th scope="row" { (status) }
                        td data-label="meaning" { (prose(text(&response["description"]))) }
                        td data-label="content" { (content(response)) }
                    }
                } }
            }
            @if let Some(value) = self.answer(document) {
                details { summary { "example of an answer" } pre { (pretty(&value)) } }
            }
        }
    }

    /// An answer in JSON.
    fn answer(&self, document: &Value) -> Option<Value> {
        let schema = &self.spec["responses"]["200"]["content"]["application/json"]["schema"];
        (!schema.is_null()).then(|| example(schema, document))
    }

    /// The command that calls it from a shell.
    fn command(&self, document: &Value) -> String {
        let method = match self.method {
            "get" => String::new(),
            other => format!(" -X {}", other.to_uppercase()),
        };
        let path = self.path.replace('{', "$").replace('}', "");
        let mut command = format!("curl{method} -H \"authorization: Bearer $TOKEN\"");
        let schema = &self.spec["requestBody"]["content"]["application/json"]["schema"];
        if !schema.is_null() {
            let body = example(schema, document).to_string().replace('\'', "'\\''");
            command += &format!(" \\\n  -H 'content-type: application/json' -d '{body}'");
        }
        format!("{command} \\\n  \"$TOLLGATE{path}\"")
    }
}

// === free functions ===

fn parameter(parameter: &Value) -> Markup {
    let is_required = parameter["required"] == true;
    html! {
        tr {
            th scope="row" {
                code { (text(&parameter["name"])) }
                @if is_required { small { "required" } }
            }
            td data-label="in" { (text(&parameter["in"])) }
            td data-label="type" { (kind(&parameter["schema"])) }
            td data-label="meaning" { (prose(text(&parameter["description"]))) }
        }
    }
}

fn content(response: &Value) -> Markup {
    html! {
        @for (media, content) in entries(&response["content"]) {
            div {
                code { (media) } " "
                @match reference(&content["schema"]) {
                    Some(name) => { a href={ "#schema-" (name) } { (name) } }
                    None => {}
                }
            }
        }
        @for (name, header) in entries(&response["headers"]) {
            div { code { (name) } ": " (prose(text(&header["description"]))) }
        }
    }
}

/// A path that may be broken before each of its parts.
fn broken(path: &str) -> Markup {
    html! {
        @for (i, part) in path.split('/').enumerate() {
            @if i > 0 { wbr; "/" }
            (part)
        }
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
