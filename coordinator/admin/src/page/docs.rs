//! Page of the API's description: its operations by tag, and its schemas.
//!
//! It shows the OpenAPI document that the coordinator serves. Browsers of such documents bring a
//! megabyte of script, which the policy of the pages does not let work.

use axum::extract::State;
use maud::{Markup, html};
use serde_json::{Map, Value};

use self::operation::Operation;
use self::schema::schema;
use super::Page;
use crate::App;
use crate::openapi::Read;

mod example;
mod operation;
mod schema;

/// Methods in the order in which a path's operations are shown.
const METHODS: [&str; 5] = ["get", "put", "patch", "post", "delete"];

/// The page of this description.
#[utoipa::path(
    get, path = "/v1/docs", operation_id = "getDocsPage", tag = "pages",
    responses((status = 200, description = "HTML", body = str, content_type = "text/html"), Read)
)]
pub(crate) async fn get(State(app): State<App>) -> Page {
    Page::fixed("API", main(&app.openapi))
}

/// Returns the content of the page about `document`.
pub(super) fn main(document: &Value) -> Markup {
    let operations = operations(document);
    let schemas = &document["components"]["schemas"];
    html! {
        div.docs {
            nav.contents aria-label="Contents" { (contents(&operations, schemas)) }
            div.body {
                h1 { (text(&document["info"]["title"])) small { (text(&document["info"]["version"])) } }
                p { (prose(text(&document["info"]["description"]))) }
                p {
                    "For programs: " a href="/v1/openapi.json" { code { "/v1/openapi.json" } }
                    " (OpenAPI " (text(&document["openapi"])) ")."
                }
                p { "The examples for a shell need the address and, if there are tokens, one of them:" }
                pre { "export TOLLGATE=http://127.0.0.1:7711 TOKEN=…" }
                @for tag in tags(&operations) {
                    h2 id={ "tag-" (tag) } { (tag) }
                    @for one in operations.iter().filter(|one| one.tag == tag) {
                        (one.section(document))
                    }
                }
                h2 #schemas { "schemas" }
                @for (name, one) in entries(schemas) { (schema(name, one)) }
            }
        }
    }
}

fn contents(operations: &[Operation<'_>], schemas: &Value) -> Markup {
    html! {
        ul {
            @for tag in tags(operations) {
                li {
                    a href={ "#tag-" (tag) } { (tag) }
                    ul { @for one in operations.iter().filter(|one| one.tag == tag) {
                        li { a href={ "#" (one.id) } { (one.signature()) } }
                    } }
                }
            }
            li {
                a href="#schemas" { "schemas" }
                ul { @for (name, _) in entries(schemas) {
                    li { a href={ "#schema-" (name) } { (name) } }
                } }
            }
        }
    }
}

/// The operations of `document`, in its order.
fn operations(document: &Value) -> Vec<Operation<'_>> {
    let mut operations = Vec::new();
    for (path, item) in entries(&document["paths"]) {
        let of_path = METHODS.iter().filter_map(|method| {
            let spec = item.get(method)?;
            Some(Operation::new(method, path, spec))
        });
        operations.extend(of_path);
    }
    operations
}

/// The tags of `operations`, each once, in their order.
fn tags<'a>(operations: &[Operation<'a>]) -> Vec<&'a str> {
    let mut tags = Vec::new();
    for one in operations {
        if !tags.contains(&one.tag) {
            tags.push(one.tag);
        }
    }
    tags
}

/// The fields of `object`; none of anything else.
fn entries(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let fields = object.as_object().into_iter().flat_map(Map::iter);
    fields.map(|(name, value)| (&**name, value))
}

/// `value`, if it is a text; else an empty one.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A description: words in backquotes are code.
fn prose(text: &str) -> Markup {
    html! {
        @for (i, part) in text.split('`').enumerate() {
            @if i % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

#[cfg(test)]
mod tests;
