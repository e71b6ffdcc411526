//! How the coordinator is doing, for people and for `tollgate status`.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::limit::Limit;
use tollgate_core::node::Node;
use tollgate_core::units::Instant;
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::extract::{Query, count};
use super::openapi::{BadRequest, ReadBooks};
use super::problem::RestError;
use crate::catalog::Group;
use crate::survey::{Figures, Survey};
use crate::view::{Amount, BusyResource, ms, units};

/// The most resources that are shown, and clients of each.
const RESOURCES_MAX: usize = 200;
const CLIENTS_MAX: usize = 50;

/// What is shown if nobody says.
pub(super) const DEFAULT: Shown = Shown {
    resources: 50,
    clients: 12,
};

/// How much is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) resources: usize,
    pub(super) clients: usize,
}

/// How the coordinator is doing.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Status {
    /// The version of the program.
    pub(super) version: &'static str,
    /// The term of this run.
    pub(super) epoch: u64,
    /// How long it has been running.
    pub(super) uptime_ms: u64,
    /// Scopes refreshed per second since somebody last looked, at least a second ago.
    #[schema(minimum = 0)]
    pub(super) refreshes_per_second: f64,
    /// Sums by unit, over all resources with clients.
    pub(super) units: BTreeMap<&'static str, UnitStatus>,
    /// How many groups there are.
    pub(super) group_count: usize,
    /// The first of them by name, as many as resources are asked for.
    pub(super) groups: Vec<GroupStatus>,
    /// The busiest resources: first by how much of the capacity is wanted, then by how much is.
    pub(super) busiest: Vec<BusyResource>,
}

/// A group and who uses it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct GroupStatus {
    /// Its name.
    pub(super) name: String,
    /// Between whom it is divided first.
    pub(super) fair_between: &'static str,
    /// How many tenants and namespaces are attached to it.
    pub(super) attached_count: usize,
    /// What they share, by unit.
    pub(super) units: BTreeMap<&'static str, GroupUnit>,
}

/// What the members of a group share of a unit.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(super) struct GroupUnit {
    /// What there is.
    pub(super) capacity: Amount,
    /// What the members' clients may be using.
    #[schema(minimum = 0)]
    pub(super) sum_has: f64,
    /// What the members want.
    #[schema(minimum = 0)]
    pub(super) sum_wants: f64,
    /// The members that have or want a lease; 0 for a group that is divided between clients.
    pub(super) member_count: usize,
}

/// Sums over all resources of a unit.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(super) struct UnitStatus {
    /// Resources with clients.
    pub(super) resource_count: usize,
    /// Those of them that have no limit.
    pub(super) unlimited_count: usize,
    /// Their clients; a client of two resources counts twice.
    pub(super) client_count: usize,
    /// Clients that have less than they want.
    pub(super) waiting_count: usize,
    /// Resources in learning mode.
    pub(super) learning_count: usize,
    /// The capacity of those with a limit.
    #[schema(minimum = 0)]
    pub(super) capacity: f64,
    /// What the clients of those may be using.
    #[schema(minimum = 0)]
    pub(super) sum_has: f64,
    /// What all clients want.
    #[schema(minimum = 0)]
    pub(super) sum_wants: f64,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct StatusQuery {
    /// How many of the busiest resources.
    #[param(minimum = 1, maximum = 200, default = 50)]
    resources: Option<usize>,
    /// How many clients of each.
    #[param(minimum = 1, maximum = 50, default = 12)]
    clients: Option<usize>,
}

/// How the coordinator is doing, with its busiest resources.
#[utoipa::path(
    get, path = "/v1/status", operation_id = "getStatus", tag = "books", params(StatusQuery),
    responses((status = 200, description = "Now", body = Status), ReadBooks, BadRequest)
)]
pub(super) async fn get(
    State(app): State<App>,
    Query(query): Query<StatusQuery>,
) -> Result<Json<Status>, RestError> {
    let shown = Shown {
        resources: count(
            "resources",
            query.resources.unwrap_or(DEFAULT.resources),
            RESOURCES_MAX,
        )?,
        clients: count(
            "clients",
            query.clients.unwrap_or(DEFAULT.clients),
            CLIENTS_MAX,
        )?,
    };
    Ok(Json(Status::of(&app, shown).await?))
}

// === impl Status ===

impl Status {
    /// How the coordinator of `app` is doing.
    pub(super) async fn of(app: &App, shown: Shown) -> Result<Self, RestError> {
        let Survey {
            units: sums,
            busiest,
            ..
        } = app.survey(shown.resources).await?;
        let catalog = app.keeper.catalog();
        let groups: Vec<_> = catalog.groups("").take(shown.resources).collect();
        let attached = groups
            .iter()
            .map(|group| catalog.attached_count(&group.name));
        let attached: Vec<usize> = attached.collect();
        let look = move |node: &Node, now: Instant| {
            let find = |id| BusyResource::find(node, now, id, shown.clients);
            let busiest: Vec<_> = busiest.iter().filter_map(find).collect();
            let groups = groups.iter().zip(attached);
            let groups = groups.map(|(group, count)| GroupStatus::new(node, &group.value, count));
            (busiest, groups.collect())
        };
        let (busiest, groups) = app.driver.view(look).await?;
        let now = app.clock.now();
        let mut rate = app.rate.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            epoch: app.driver.epoch().0,
            uptime_ms: ms(now.saturating_since(Instant::ZERO)),
            refreshes_per_second: rate.look(now, app.metrics.refreshes()),
            units: sums
                .into_iter()
                .map(|(unit, figures)| (unit.name(), figures.into()))
                .collect(),
            group_count: catalog.groups("").count(),
            groups,
            busiest,
        })
    }
}

// === impl GroupStatus ===

impl GroupStatus {
    fn new(node: &Node, group: &Group, attached_count: usize) -> Self {
        let limits = group.limits().iter();
        let unit = |(unit, limit): (Unit, &Limit)| {
            let scope = group.scope().clone();
            let id = ResourceId { scope, unit };
            let capacity = limit.capacity.into();
            (unit.name(), GroupUnit::new(node, &id, capacity))
        };
        Self {
            name: group.name().as_ref().to_owned(),
            fair_between: group.fair_between().name(),
            attached_count,
            units: limits.map(unit).collect(),
        }
    }
}

// === impl GroupUnit ===

impl GroupUnit {
    fn new(node: &Node, id: &ResourceId, capacity: Amount) -> Self {
        let pool = node.pool(id);
        let pool = pool.map(|pool| (pool.sum_has(), pool.sum_wants(), pool.member_count()));
        let own = || {
            let own = node.resource(id);
            own.map_or((0, 0, 0), |own| (own.sum_has(), own.sum_wants(), 0))
        };
        let (has, wants, member_count) = pool.unwrap_or_else(own);
        Self {
            capacity,
            sum_has: units(has),
            sum_wants: units(wants),
            member_count,
        }
    }
}

// === impl UnitStatus ===

impl From<Figures> for UnitStatus {
    fn from(figures: Figures) -> Self {
        Self {
            resource_count: figures.resources,
            unlimited_count: figures.unlimited,
            client_count: figures.clients,
            waiting_count: figures.waiting,
            learning_count: figures.learning,
            capacity: figures.capacity,
            sum_has: figures.has,
            sum_wants: figures.wants,
        }
    }
}
