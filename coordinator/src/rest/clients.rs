//! Clients: which there are, and what each has.
//!
//! The books are kept by resource, so both answers come out of a walk through all of them, in steps
//! between which clients are answered.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use tollgate_core::lease::{ClientId, ResourceId};
use tollgate_core::resource::Resource;
use tollgate_core::units::Instant;
use utoipa::ToSchema;

use super::App;
use super::extract::{ENTRIES_MAX, PageQuery, Path, Query};
use super::openapi::{BadRequest, Missing, ReadBooks};
use super::problem::RestError;
use crate::survey::{Walk, walk};
use crate::view::{Amount, ms};

/// A client in a list.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct ClientSummary {
    /// Its id, `<node id>/<random>`.
    client: String,
    /// The resources that it has or wants a lease of.
    resource_count: usize,
    /// Those of them of which it has less than it wants.
    waiting_count: usize,
}

/// Some clients, by id.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct ClientPage {
    /// The clients.
    clients: Vec<ClientSummary>,
    /// What to pass as `after` for those that follow; none if these were the last.
    next: Option<String>,
}

/// A client with its leases.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct ClientDetail {
    /// Its id.
    client: String,
    /// How many leases it has or wants.
    lease_count: usize,
    /// The first thousand of them, by scope and unit.
    leases: Vec<LeaseView>,
}

/// What a client has of a resource.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct LeaseView {
    /// The scope.
    scope: String,
    /// The unit.
    unit: &'static str,
    /// What it last wanted.
    wants: Amount,
    /// The most that it may be using.
    has: Amount,
    /// When that ends, from now, unless it refreshes.
    expires_in_ms: u64,
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
    get, path = "/v1/clients", operation_id = "listClients", tag = "books", params(PageQuery),
    responses((status = 200, description = "A page", body = ClientPage), ReadBooks, BadRequest)
)]
pub(super) async fn list(
    State(app): State<App>,
    Query(query): Query<PageQuery>,
) -> Result<Json<ClientPage>, RestError> {
    let (limit, after) = query.checked()?;
    let first = First {
        after,
        max: limit + 1,
        clients: BTreeMap::new(),
    };
    let _one = app.surveys.lock().await;
    let First { clients, .. } = walk(&app.driver, first).await?;
    let mut clients: Vec<ClientSummary> = clients.into_values().collect();
    let more = clients.len() > limit;
    clients.truncate(limit);
    let last = clients.last().map(|last| last.client.clone());
    Ok(Json(ClientPage {
        clients,
        next: last.filter(|_| more),
    }))
}

/// One client with its leases.
#[utoipa::path(
    get, path = "/v1/clients/{id}", operation_id = "getClient", tag = "books",
    params(("id" = String, Path, description = "Its id, with `/` as %2F", min_length = 1)),
    responses(
        (status = 200, description = "What it has", body = ClientDetail),
        ReadBooks, BadRequest, Missing
    )
)]
pub(super) async fn get(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<ClientDetail>, RestError> {
    let client = ClientId::new(&id);
    let client = client.map_err(|error| RestError::parameter("id", &id, error))?;
    let leases = Leases {
        detail: ClientDetail {
            client: id.clone(),
            lease_count: 0,
            leases: Vec::new(),
        },
        client,
    };
    let _one = app.surveys.lock().await;
    let Leases { detail, .. } = walk(&app.driver, leases).await?;
    if detail.lease_count == 0 {
        return Err(RestError::NotFound(format!(
            "{id:?} has and wants no lease"
        )));
    }
    Ok(Json(detail))
}

// === impl First ===

impl Walk for First {
    fn add(&mut self, _: &ResourceId, resource: &Resource, _: Instant) {
        for books in resource.clients() {
            let id = books.id.as_str();
            if id <= self.after.as_str() {
                continue;
            }
            if !self.clients.contains_key(id) {
                let last = self.clients.last_key_value();
                let full = self.clients.len() >= self.max;
                if full && last.is_some_and(|(last, _)| last.as_str() < id) {
                    continue;
                }
                self.clients.insert(id.to_owned(), ClientSummary::new(id));
                if full {
                    self.clients.pop_last();
                }
            }
            if let Some(summary) = self.clients.get_mut(id) {
                summary.resource_count += 1;
                summary.waiting_count += usize::from(books.has < books.wants);
            }
        }
    }
}

// === impl ClientSummary ===

impl ClientSummary {
    fn new(client: &str) -> Self {
        Self {
            client: client.to_owned(),
            resource_count: 0,
            waiting_count: 0,
        }
    }
}

// === impl Leases ===

impl Walk for Leases {
    fn add(&mut self, id: &ResourceId, resource: &Resource, now: Instant) {
        let Some(books) = resource.clients().find(|books| *books.id == self.client) else {
            return;
        };
        self.detail.lease_count += 1;
        if self.detail.leases.len() < ENTRIES_MAX {
            self.detail.leases.push(LeaseView {
                scope: id.scope.as_ref().to_owned(),
                unit: id.unit.name(),
                wants: books.wants.into(),
                has: books.has.into(),
                expires_in_ms: ms(books.expiry.saturating_since(now)),
            });
        }
    }
}

#[cfg(test)]
mod tests;
