//! Clients and their leases.
//!
//! Lease tables are kept by resource, so both answers come out of a scan of all of them, in steps
//! between which clients are answered.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use tollgate_core::lease::{ClientId, ResourceId};
use tollgate_core::lease_server::LeaseServer;
use tollgate_core::resource::Resource;
use tollgate_core::units::Instant;
use tollgate_leases::visit::ResourceVisitor;
use tollgate_proto::v1;
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::extract::{ENTRIES_MAX, PageQuery, Path, Query};
use super::merge::{self, Entry, Merge};
use super::openapi::{BadRequest, Conflict, Missing, ReadLeases, Write};
use super::peers::{Caller, view};
use super::problem::RestError;
use crate::lease_view::{Amount, is_throttled, ms};

/// Time of a drain by default; long enough to take a client out of service.
const DRAIN_DEFAULT: Duration = Duration::from_secs(600);

/// The longest drain. It is for going out of service, not for a client that is to get nothing.
pub(super) const DRAIN_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A client in a list.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
pub struct ClientSummary {
    /// Its id, `<node id>/<random>`.
    pub client: String,
    /// The resources that it has or wants a lease of.
    pub resource_count: usize,
    /// Those of them of which it gets less than it wants.
    pub waiting_count: usize,
}

/// Some clients, by id.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct ClientPage {
    /// The clients.
    pub clients: Vec<ClientSummary>,
    /// The value of `after` for the next page; none if this was the last.
    pub next: Option<String>,
    /// The nodes of the cluster that did not answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub unanswered: Vec<String>,
}

/// A client with its leases.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
pub struct ClientDetail {
    /// Its id.
    pub client: String,
    /// For how long from now it is given nothing, if it is being drained.
    pub drained_for_ms: Option<u64>,
    /// The number of leases that it has or wants.
    pub lease_count: usize,
    /// The first thousand of them, by scope and unit. One that has started again under its id has
    /// the leases of its earlier run as well, until they expire.
    pub leases: Vec<LeaseView>,
    /// The nodes of the cluster that did not answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub unanswered: Vec<String>,
}

/// Lease of a client.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct LeaseView {
    /// The scope.
    pub scope: String,
    /// The unit.
    pub unit: String,
    /// The amount that it last wanted.
    pub wants: Amount,
    /// The most that it may be using.
    pub has: Amount,
    /// When that ends, from now, unless it refreshes.
    pub expires_in_ms: u64,
}

/// For how long a client is drained.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DrainQuery {
    /// For how long, such as `90s` or `2h`; 10 minutes if absent, a day at most.
    #[serde(rename = "for")]
    #[param(rename = "for", pattern = "^[1-9][0-9]{0,6}(ms|s|m)$")]
    time: Option<String>,
}

/// The clients that come first after an id.
#[derive(Debug)]
struct First {
    after: String,
    /// One more than the page has, which tells whether there is a next one.
    max: usize,
    clients: BTreeMap<String, ClientSummary>,
}

/// The leases of one client.
#[derive(Debug)]
struct Leases {
    client: ClientId,
    detail: ClientDetail,
}

/// Clients, by id.
#[utoipa::path(
    get, path = "/v1/clients", operation_id = "listClients", tag = "leases", params(PageQuery),
    responses((status = 200, description = "A page", body = ClientPage), ReadLeases, BadRequest)
)]
pub(super) async fn list(
    State(app): State<App>,
    Query(query): Query<PageQuery>,
    caller: Caller,
) -> Result<Json<ClientPage>, RestError> {
    let (limit, after) = query.checked()?;
    let message = v1::ListPeerRequest {
        after: after.clone(),
        limit: limit as u32,
    };
    let own = own_page(&app, after, limit).await?;
    let answers = app.ask(
        &caller,
        message,
        |mut client, request| async move { client.list_clients(request).await },
        view::<ClientPage>,
    );
    let (there, unanswered) = answers.await;
    let pages = std::iter::once(own).chain(there);
    let pages = pages.map(|page| (page.clients, page.next.is_some()));
    let (clients, next) = merge::page(pages, limit);
    Ok(Json(ClientPage {
        clients,
        next,
        unanswered,
    }))
}

/// One client with its leases.
#[utoipa::path(
    get, path = "/v1/clients/{id}", operation_id = "getClient", tag = "leases",
    params(("id" = String, Path, description = "Its id, with `/` as %2F", min_length = 1)),
    responses(
        (status = 200, description = "What it has", body = ClientDetail),
        ReadLeases, BadRequest, Missing
    )
)]
pub(super) async fn get(
    State(app): State<App>,
    Path(id): Path<String>,
    caller: Caller,
) -> Result<Json<ClientDetail>, RestError> {
    let client = client_id(&id)?;
    let found = everywhere(&app, &client, &caller).await?;
    found.map(Json).ok_or_else(|| missing(&client))
}

/// Gives a client nothing for a time, so that its leases go to the others.
///
/// They shrink to nothing at its next refreshes, and it then refuses what it is asked for; take it
/// out of service first.
#[utoipa::path(
    post, path = "/v1/clients/{id}/drain", operation_id = "drainClient", tag = "leases",
    params(("id" = String, Path, description = "Its id, with `/` as %2F", min_length = 1), DrainQuery),
    responses(
        (status = 200, description = "What it still has", body = ClientDetail),
        Write, BadRequest, Missing, Conflict
    )
)]
pub(super) async fn drain(
    State(app): State<App>,
    Path(id): Path<String>,
    Query(query): Query<DrainQuery>,
    caller: Caller,
) -> Result<Json<ClientDetail>, RestError> {
    let client = client_id(&id)?;
    let time = query.time()?;
    // A name with a slip in it is an error.
    let found = everywhere(&app, &client, &caller).await?;
    found.ok_or_else(|| missing(&client))?;
    let (there, unanswered) = drain_everywhere(&app, &client, time, &caller).await?;
    let own = detail(&app, &client).await?;
    let found = merge::one(own.into_iter().chain(there));
    let found = found.map(|one| ClientDetail { unanswered, ..one });
    found.map(Json).ok_or_else(|| missing(&client))
}

/// Lets a client that is being drained serve again.
#[utoipa::path(
    delete, path = "/v1/clients/{id}/drain", operation_id = "undrainClient", tag = "leases",
    params(("id" = String, Path, description = "Its id, with `/` as %2F", min_length = 1)),
    responses((status = 204, description = "It is not drained"), Write, BadRequest)
)]
pub(super) async fn undrain(
    State(app): State<App>,
    Path(id): Path<String>,
    caller: Caller,
) -> Result<StatusCode, RestError> {
    let client = client_id(&id)?;
    let (_, unanswered) = drain_everywhere(&app, &client, Duration::ZERO, &caller).await?;
    if unanswered.is_empty() {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(RestError::Unanswered(unanswered))
    }
}

// === impl ClientSummary ===

impl Merge for ClientSummary {
    fn merge(&mut self, other: Self) {
        self.resource_count += other.resource_count;
        self.waiting_count += other.waiting_count;
    }
}

impl Entry for ClientSummary {
    fn key(&self) -> &str {
        &self.client
    }
}

// === impl ClientDetail ===

impl Merge for ClientDetail {
    fn merge(&mut self, other: Self) {
        self.lease_count += other.lease_count;
        self.drained_for_ms = self.drained_for_ms.max(other.drained_for_ms);
        self.leases.extend(other.leases);
        self.leases
            .sort_by(|one, other| (&one.scope, &one.unit).cmp(&(&other.scope, &other.unit)));
        self.leases.truncate(ENTRIES_MAX);
    }
}

// === impl DrainQuery ===

impl DrainQuery {
    fn time(&self) -> Result<Duration, RestError> {
        let Some(text) = &self.time else {
            return Ok(DRAIN_DEFAULT);
        };
        let wrong = |rule: String| RestError::parameter("for", text, rule);
        let time = humantime::parse_duration(text);
        let time =
            time.map_err(|cause| wrong(format!("{text:?} is not a duration like 10m: {cause}")))?;
        if time.is_zero() || time > DRAIN_MAX {
            return Err(wrong(format!("{text:?} is not between 1ms and a day")));
        }
        Ok(time)
    }
}

// === free functions ===

pub(super) fn client_id(id: &str) -> Result<ClientId, RestError> {
    ClientId::new(id).map_err(|error| RestError::parameter("id", id, error))
}

/// Returns the first `limit` clients of this node after `after`.
pub(super) async fn own_page(
    app: &App,
    after: String,
    limit: usize,
) -> Result<ClientPage, RestError> {
    let first = First {
        after,
        max: limit + 1,
        clients: BTreeMap::new(),
    };
    let First { clients, .. } = {
        let _one = app.scans.lock().await;
        app.parts.shards.visit(first).await?
    };
    let own = std::iter::once((clients.into_values().collect(), false));
    let (clients, next) = merge::page(own, limit);
    Ok(ClientPage {
        clients,
        next,
        unanswered: Vec::new(),
    })
}

/// Returns the leases of `client` at this node; none if it has none.
pub(super) async fn detail(
    app: &App,
    client: &ClientId,
) -> Result<Option<ClientDetail>, RestError> {
    let detail = ClientDetail {
        client: client.as_str().to_owned(),
        ..ClientDetail::default()
    };
    let client = client.clone();
    let leases = Leases { client, detail };
    let _one = app.scans.lock().await;
    let Leases { mut detail, client } = app.parts.shards.visit(leases).await?;
    if detail.lease_count == 0 {
        return Ok(None);
    }
    let drained = move |node: &LeaseServer, now: Instant| {
        let until = node.drained_until(now, &client)?;
        Some(ms(until.saturating_since(now)))
    };
    let drained = app.parts.shards.view(drained).await?;
    detail.drained_for_ms = drained.into_iter().flatten().max();
    Ok(Some(detail))
}

/// Returns the leases of `client` in the whole cluster; none if it has none.
async fn everywhere(
    app: &App,
    client: &ClientId,
    caller: &Caller,
) -> Result<Option<ClientDetail>, RestError> {
    let own = detail(app, client).await?;
    let message = v1::GetClientRequest {
        client: client.as_str().to_owned(),
    };
    let answers = app.ask(
        caller,
        message,
        |mut client, request| async move { client.get_client(request).await },
        view,
    );
    let (there, unanswered) = answers.await;
    let found = merge::one(own.into_iter().chain(there));
    Ok(found.map(|one| ClientDetail { unanswered, ..one }))
}

/// Drains `client` for `time` at all nodes, also where it has no lease yet; returns its leases at the
/// others, and those that did not answer.
async fn drain_everywhere(
    app: &App,
    client: &ClientId,
    time: Duration,
    caller: &Caller,
) -> Result<(Vec<ClientDetail>, Vec<String>), RestError> {
    app.parts.shards.drain(client, time).await??;
    let message = v1::DrainRequest {
        client: client.as_str().to_owned(),
        time_ms: ms(time),
    };
    let answers = app.ask(
        caller,
        message,
        |mut client, request| async move { client.drain(request).await },
        view,
    );
    Ok(answers.await)
}

fn missing(client: &ClientId) -> RestError {
    RestError::NotFound(format!("{:?} has and wants no lease", client.as_str()))
}

// === impl First ===

impl ResourceVisitor for First {
    fn add(&mut self, _: &LeaseServer, _: &ResourceId, resource: &Resource, _: Instant) {
        let mut records = resource.clients().peekable();
        while let Some(client) = records.next() {
            let mut waiting = is_throttled(&client);
            // Of one that has started again there is more than one run.
            while let Some(run) = records.next_if(|run| run.id == client.id) {
                waiting |= is_throttled(&run);
            }
            self.count(client.id.as_str(), waiting);
        }
    }
}

impl First {
    /// Counts a resource of the client `id`.
    fn count(&mut self, id: &str, waiting: bool) {
        if id <= self.after.as_str() {
            return;
        }
        if !self.clients.contains_key(id) {
            let last = self.clients.last_key_value();
            let full = self.clients.len() >= self.max;
            if full && last.is_some_and(|(last, _)| last.as_str() < id) {
                return;
            }
            let summary = ClientSummary {
                client: id.to_owned(),
                ..ClientSummary::default()
            };
            self.clients.insert(id.to_owned(), summary);
            if full {
                self.clients.pop_last();
            }
        }
        if let Some(summary) = self.clients.get_mut(id) {
            summary.resource_count += 1;
            summary.waiting_count += usize::from(waiting);
        }
    }
}

// === impl Leases ===

impl ResourceVisitor for Leases {
    fn add(&mut self, _: &LeaseServer, id: &ResourceId, resource: &Resource, now: Instant) {
        let runs = resource
            .clients()
            .filter(|record| *record.id == self.client);
        for record in runs {
            self.detail.lease_count += 1;
            if self.detail.leases.len() < ENTRIES_MAX {
                self.detail.leases.push(LeaseView {
                    scope: id.scope.as_ref().to_owned(),
                    unit: id.unit.name().to_owned(),
                    wants: record.wants.into(),
                    has: record.has.into(),
                    expires_in_ms: ms(record.expiry.saturating_since(now)),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
