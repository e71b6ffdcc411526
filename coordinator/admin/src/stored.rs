//! Groups, attachments and overrides: objects that the file or this API defines.
//!
//! All kinds are listed, read, written and deleted by the same handlers.

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router, routing};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tollgate_config::catalog::check::ConfigErrors;
use tollgate_config::catalog::{
    Catalog, CatalogEntry, GroupKind, MemberKind, ObjectKind, OverrideKind, RaiseKind,
    WriteOutcome, name,
};
use tollgate_config::yaml;
use tollgate_core::lease::Unit;
use tollgate_core::quantity::{self, QuantityUnit};
use utoipa::ToSchema;

use self::description::{Texts, describe};
use super::App;
use super::body::Body;
use super::extract::{PageQuery, Path, Query};
use super::problem::RestError;
use super::revision::{Tags, tag};

mod attachments;
mod description;
mod groups;
mod overrides;
mod raises;

pub use self::attachments::{AttachmentPage, AttachmentView};
pub use self::groups::{GroupDetail, GroupPage, GroupView};
pub use self::overrides::{OverridePage, OverrideView};
pub use self::raises::{RaisePage, RaiseView};

/// Kind of object, as the API shows it.
trait StoredKind: ObjectKind<Spec: ToSchema> {
    /// An object.
    type View: Serialize + ToSchema;
    /// An object with what is told about one alone.
    type Detail: Serialize + ToSchema;
    /// Some objects, and the value of `after` for the next page.
    type Page: Serialize + ToSchema;

    /// Returns the texts of the description.
    fn texts(self) -> &'static Texts;

    /// Shows one object.
    fn view(entry: CatalogEntry<Self::Spec>) -> Self::View;

    /// Shows a page of objects, and where the `next` one begins.
    fn page(views: Vec<Self::View>, next: Option<String>) -> Self::Page;

    /// Returns what is told about one object alone.
    fn detail(catalog: &Catalog, view: Self::View) -> Self::Detail;

    /// Returns the error that no object is called `name`.
    fn missing(self, name: &str) -> String;

    /// Checks that a caller means one object by `name`, and not a pattern.
    fn check_one(self, name: &str) -> Result<(), RestError> {
        name::check_one(name).map_err(|rule| RestError::parameter("name", name, rule))
    }
}

/// Origin of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DefinedBy {
    /// The configuration file, which alone can change it.
    File,
    /// This API.
    Api,
}

// === impl DefinedBy ===

impl DefinedBy {
    /// Returns the word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Api => "api",
        }
    }

    /// Returns the origin of a definition with `revision`.
    fn of(revision: Option<u64>) -> Self {
        match revision {
            None => Self::File,
            Some(_) => Self::Api,
        }
    }
}

// === free functions ===

/// Lowers the safe capacity of `unit` to a capacity that a change makes less, unless the change has one, too: a limit
/// that is lowered in an incident must not be refused for what nobody named.
fn lower_safe(unit: Unit, whole: &mut Value, change: &Value) {
    let capacity = if unit.is_concurrency() { "max" } else { "rate" };
    let Some(changed) = change.get(unit.name()) else {
        return;
    };
    if changed.get(capacity).is_none() || changed.get("safe").is_some() {
        return;
    }
    let Some(limit) = whole.get_mut(unit.name()).and_then(Value::as_object_mut) else {
        return;
    };
    let quantity = |name: &str| {
        let value = limit.get(name)?;
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        quantity::parse_rate(&text, QuantityUnit::of(unit)).ok()
    };
    if quantity("safe")
        .zip(quantity(capacity))
        .is_some_and(|(safe, most)| safe > most)
        && let Some(most) = limit.get(capacity).cloned()
    {
        limit.insert("safe".to_owned(), most);
    }
}

/// Merges `change` into `whole`: what is null goes, objects are merged, and all else replaces what was there.
fn merge(whole: &mut Value, change: &Value) {
    let Some(change) = change.as_object() else {
        *whole = change.clone();
        return;
    };
    if !whole.is_object() {
        *whole = json!({});
    }
    for (name, value) in change {
        match (value, whole.as_object_mut()) {
            (Value::Null, Some(fields)) => drop(fields.remove(name)),
            _ => merge(&mut whole[name.as_str()], value),
        }
    }
}

/// Adds the routes of all kinds to `router`, and their descriptions to `document`.
pub(super) fn add(router: Router<App>, document: &mut Value) -> Router<App> {
    let router = add_kind(GroupKind, router, document);
    let router = add_kind(MemberKind::Tenant, router, document);
    let router = add_kind(MemberKind::Namespace, router, document);
    let router = add_kind(OverrideKind, router, document);
    add_kind(RaiseKind, router, document)
}

/// Adds the routes of the objects of `kind`. A name that takes several segments of the path has a
/// `/` between them.
fn add_kind<K: StoredKind>(kind: K, router: Router<App>, document: &mut Value) -> Router<App> {
    type Name = Path<Vec<String>>;
    let list =
        async move |State(app): State<App>, Query(query): Query<PageQuery>| list(kind, &app, query);
    let get = async move |State(app): State<App>, Path(name): Name, tags: Tags| {
        get(kind, &app, &name.join("/"), &tags)
    };
    let put = async move |State(app): State<App>,
                          Path(name): Name,
                          tags: Tags,
                          Body(spec): Body<K::Spec>| {
        put(kind, &app, &name.join("/"), &tags, spec).await
    };
    let patch = async move |State(app): State<App>,
                            Path(name): Name,
                            tags: Tags,
                            Body(change): Body<Value>| {
        patch(kind, &app, &name.join("/"), &tags, change).await
    };
    let delete = async move |State(app): State<App>, Path(name): Name, tags: Tags| {
        delete(kind, &app, &name.join("/"), &tags).await
    };
    describe(kind, document);
    let texts = kind.texts();
    let one = routing::get(get).put(put).patch(patch).delete(delete);
    router
        .route(texts.path, routing::get(list))
        .route(&texts.path_of_one(), one)
}

fn list<K: StoredKind>(kind: K, app: &App, query: PageQuery) -> Result<Json<K::Page>, RestError> {
    let (limit, after) = query.checked()?;
    let catalog = app.parts.writer.catalog();
    let (entries, next) = page(limit, catalog.list(kind, &after), |entry| &entry.name);
    let views = entries.into_iter().map(view::<K>).collect();
    Ok(Json(K::page(views, next)))
}

fn get<K: StoredKind>(kind: K, app: &App, name: &str, tags: &Tags) -> Result<Response, RestError> {
    let catalog = app.parts.writer.catalog();
    let entry = catalog.find(kind, name);
    let entry = entry.ok_or_else(|| RestError::NotFound(kind.missing(name)))?;
    let revision = entry.revision;
    Ok(tags.answer(revision, Json(K::detail(&catalog, view::<K>(entry)))))
}

async fn put<K: StoredKind>(
    kind: K,
    app: &App,
    name: &str,
    tags: &Tags,
    spec: K::Spec,
) -> Result<Response, RestError> {
    kind.check_one(name)?;
    let expect = tags.expect(found(kind, app, name))?;
    let outcome = app
        .parts
        .writer
        .put(kind, name, spec.clone(), expect)
        .await?;
    Ok(answer(kind, name, spec, outcome))
}

/// Changes the fields that `change` has, by the rules of a merge patch (RFC 7396), of what there is when it is written.
async fn patch<K: StoredKind>(
    kind: K,
    app: &App,
    name: &str,
    tags: &Tags,
    change: Value,
) -> Result<Response, RestError> {
    kind.check_one(name)?;
    let expect = tags.expect(found(kind, app, name))?;
    let checked = Arc::new(Mutex::new(None));
    let make = {
        let (checked, name) = (checked.clone(), name.to_owned());
        move |catalog: &Catalog| {
            let spec = patched(kind, catalog, &name, &change)?;
            let object = kind.check(&name, spec.clone())?;
            *checked.lock().unwrap_or_else(PoisonError::into_inner) = Some(spec);
            Ok(object)
        }
    };
    let outcome = app.parts.writer.patch(kind, name, make, expect).await?;
    let spec = checked
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let spec = spec.ok_or_else(|| RestError::NotFound(kind.missing(name)))?;
    Ok(answer(kind, name, spec, outcome))
}

/// Returns the object called `name` with a change. Where there is none, what holds instead is changed.
fn patched<K: StoredKind>(
    kind: K,
    catalog: &Catalog,
    name: &str,
    change: &Value,
) -> Result<K::Spec, ConfigErrors> {
    let before = catalog.find(kind, name);
    let before = before.map(|entry| K::spec(&entry.value));
    let mut whole = json!(before.or_else(|| kind.otherwise(catalog, name)));
    merge(&mut whole, change);
    for unit in Unit::ALL {
        lower_safe(unit, &mut whole, change);
    }
    yaml::read(&whole.to_string())
}

fn answer<K: StoredKind>(_: K, name: &str, spec: K::Spec, outcome: WriteOutcome) -> Response {
    let WriteOutcome { revision, created } = outcome;
    let status = if created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let view = K::view(CatalogEntry {
        name: name.into(),
        value: spec,
        revision: Some(revision),
    });
    (status, [tag(revision)], Json(view)).into_response()
}

async fn delete<K: StoredKind>(
    kind: K,
    app: &App,
    name: &str,
    tags: &Tags,
) -> Result<StatusCode, RestError> {
    let expect = tags.expect(found(kind, app, name))?;
    app.parts.writer.delete(kind, name, expect).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the revision of the object called `name`, if the API has written it.
fn found<K: StoredKind>(kind: K, app: &App, name: &str) -> Option<u64> {
    app.parts.writer.catalog().find(kind, name)?.revision
}

fn view<K: StoredKind>(entry: CatalogEntry<K::Object>) -> K::View {
    K::view(entry.map(|object| K::spec(&object)))
}

/// Returns the first `limit` of `entries`, and the value of `after` for those that follow, if any do.
pub(super) fn page<T>(
    limit: usize,
    mut entries: impl Iterator<Item = T>,
    name: impl Fn(&T) -> &str,
) -> (Vec<T>, Option<String>) {
    let page: Vec<T> = entries.by_ref().take(limit).collect();
    let more = entries.next().is_some();
    let last = page.last().map(|last| name(last).to_owned());
    (page, last.filter(|_| more))
}
