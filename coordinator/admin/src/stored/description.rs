//! OpenAPI description of the routes of stored objects.

use serde_json::{Value, json};
use utoipa::openapi::path::ParameterIn;
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{IntoParams as _, ToSchema};

use super::StoredKind;
use crate::count::plain;
use crate::extract::PageQuery;
use crate::openapi::{
    BAD_REQUEST, BAD_WRITE, CONFLICT, MISSING, READ, STALE, Statuses, UNAVAILABLE, WRITE, problems,
};

/// Paths, names and texts of one kind of objects in the OpenAPI description.
#[derive(Debug)]
pub(super) struct Texts {
    /// Path of the list.
    pub(super) path: &'static str,
    /// Variables of the path of one object behind that: name, description and greatest length. The
    /// value of `*name` may have slashes.
    pub(super) variables: &'static [(&'static str, &'static str, usize)],
    pub(super) tag: &'static str,
    /// Ends of the ids of operations.
    pub(super) one: &'static str,
    pub(super) several: &'static str,
    /// Summaries of operations.
    pub(super) list: &'static str,
    pub(super) get: &'static str,
    pub(super) put: &'static str,
    pub(super) put_more: Option<&'static str>,
    /// Whether the file can define one, too, or something can use it, so that it cannot be deleted.
    pub(super) is_bound: bool,
    pub(super) patch: &'static str,
    pub(super) delete: &'static str,
    /// Answers.
    pub(super) found: &'static str,
    pub(super) etag: &'static str,
    pub(super) replaced: &'static str,
    pub(super) created: &'static str,
    pub(super) deleted: &'static str,
}

/// Headers that make a write conditional.
const CONDITIONS: [(&str, &str); 2] = [
    (
        "if-match",
        "Write only if what is there has one of these tags; `*` for any",
    ),
    ("if-none-match", "`*`: write only if nothing is there"),
];

// === impl Texts ===

impl Texts {
    /// Returns the path of one object.
    pub(super) fn path_of_one(&self) -> String {
        let names = self.variables.iter();
        let segments = names.map(|(name, ..)| format!("/{{{name}}}"));
        self.path.to_owned() + &segments.collect::<String>()
    }

    /// Returns the parameters that name one object.
    fn name(&self) -> Vec<Value> {
        let variable = |(name, description, len_max): &(&str, &str, usize)| {
            json!({
                "name": name.trim_start_matches('*'), "in": "path", "description": description,
                "required": true,
                "schema": {"type": "string", "minLength": 1, "maxLength": len_max},
            })
        };
        self.variables.iter().map(variable).collect()
    }

    /// Returns the description of the list.
    fn list<K: StoredKind>(&self) -> Value {
        let page = json!({"200": answer::<K::Page>("A page")});
        json!({"get": {
            "tags": [self.tag], "operationId": format!("list{}", self.several),
            "summary": self.list,
            "parameters": PageQuery::into_params(|| Some(ParameterIn::Query)),
            "responses": responses(page, &[READ, BAD_REQUEST]),
        }})
    }

    /// Returns the description of one object.
    fn one<K: StoredKind>(&self) -> Value {
        let (name, written) = (self.name(), [self.name(), conditions()].concat());
        let found = json!({
            "200": tagged::<K::Detail>(self.found, self.etag),
            "304": {"description": "Its tag is in if-none-match"},
        });
        let stored = json!({
            "200": tagged::<K::View>(self.replaced, "Its new revision"),
            "201": tagged::<K::View>(self.created, "Its revision"),
        });
        let deleted = json!({"204": {"description": self.deleted}});
        let bad_put = [WRITE, UNAVAILABLE, BAD_WRITE, CONFLICT, STALE];
        let mut bad_delete = vec![WRITE, UNAVAILABLE, BAD_REQUEST, MISSING, STALE];
        bad_delete.extend(self.is_bound.then_some(CONFLICT));
        let mut one = json!({
            "get": {
                "tags": [self.tag], "operationId": format!("get{}", self.one),
                "summary": self.get, "parameters": name,
                "responses": responses(found, &[READ, BAD_REQUEST, MISSING]),
            },
            "put": {
                "tags": [self.tag], "operationId": format!("put{}", self.one),
                "summary": self.put, "parameters": written,
                "requestBody": {"content": content::<K::Spec>(), "required": true},
                "responses": responses(stored.clone(), &bad_put),
            },
            "patch": {
                "tags": [self.tag], "operationId": format!("patch{}", self.one),
                "summary": self.patch, "parameters": written,
                "requestBody": {
                    "content": {"application/merge-patch+json": {"schema": {"type": "object"}}}, "required": true,
                },
                "responses": responses(stored, &bad_put),
            },
            "delete": {
                "tags": [self.tag], "operationId": format!("delete{}", self.one),
                "summary": self.delete, "parameters": written,
                "responses": responses(deleted, &bad_delete),
            },
        });
        if let Some(more) = self.put_more {
            one["put"]["description"] = more.into();
        }
        one
    }
}

// === free functions ===

/// Adds the description of the objects of `kind` to `document`.
pub(super) fn describe<K: StoredKind>(kind: K, document: &mut Value) {
    let texts = kind.texts();
    document["paths"][texts.path] = texts.list::<K>();
    document["paths"][plain(&texts.path_of_one())] = texts.one::<K>();
    let schemas = [
        schemas::<K::Page>(),
        schemas::<K::Detail>(),
        schemas::<K::Spec>(),
    ];
    for (name, schema) in schemas.into_iter().flatten() {
        document["components"]["schemas"][name] = json!(schema);
    }
}

/// Returns the schema of `T` and those that it refers to.
fn schemas<T: ToSchema>() -> Vec<(String, RefOr<Schema>)> {
    let mut schemas = vec![(T::name().into_owned(), T::schema())];
    T::schemas(&mut schemas);
    schemas
}

/// Returns the parameters of [`CONDITIONS`].
fn conditions() -> Vec<Value> {
    let header = |(name, description)| {
        json!({
            "name": name, "in": "header", "description": description, "required": false,
            "schema": {"type": "string"},
        })
    };
    CONDITIONS.map(header).into()
}

/// Returns the answers `own` and the problems of `shared`.
fn responses(own: Value, shared: &[&Statuses]) -> Value {
    let mut all = json!(problems(&shared.concat()));
    for (status, answer) in own.as_object().into_iter().flatten() {
        all[status] = answer.clone();
    }
    all
}

fn content<T: ToSchema>() -> Value {
    json!({"application/json": {"schema": Ref::from_schema_name(T::name())}})
}

fn answer<T: ToSchema>(description: &str) -> Value {
    json!({"description": description, "content": content::<T>()})
}

/// Returns an answer with the header `etag`.
fn tagged<T: ToSchema>(description: &str, etag: &str) -> Value {
    let mut tagged = answer::<T>(description);
    tagged["headers"] = json!({"etag": {"description": etag, "schema": {"type": "string"}}});
    tagged
}
