//! Status of the coordinator and its cluster, for people and for `tollgate status`.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use tollgate_config::UnmatchedLimit;
use tollgate_config::catalog::GroupKind;
use tollgate_core::lease::ResourceId;
use tollgate_core::lease_server::LeaseServer;
use tollgate_core::units::Instant;
use utoipa::ToSchema;

use super::App;
use super::extract::Query;
use super::openapi::{BadRequest, ReadLeases};
use super::peers::{Caller, view};
use super::problem::RestError;
use crate::lease_view::{BusyResource, ms};
use crate::stats::{LeaseStats, ResourceStats};

mod cluster;
mod group;
mod parent;
mod query;
mod rules;

pub use self::cluster::{ClusterStatus, NodeStatus, ShardStatus};
pub use self::group::{GroupBucket, GroupStatus, GroupUnit};
pub use self::parent::{BorrowedStatus, ParentStatus};
use self::query::StatusQuery;
pub(super) use self::query::{RESOURCES_MAX, Shown, unit};
pub use self::rules::RuleStatus;

/// Status of the coordinator; in a cluster, of all nodes that answer.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
pub struct Status {
    /// The version of the program that answers.
    pub version: String,
    /// The term of this run; in a cluster, the highest of all masters.
    pub epoch: u64,
    /// The time since the coordinator that answers has started.
    pub uptime_ms: u64,
    /// Scopes refreshed per second, the mean of the last ten seconds; one that a node has forwarded
    /// to another counts in both.
    #[schema(minimum = 0)]
    pub refreshes_per_second: f64,
    /// Sums by unit, over all resources with clients.
    pub units: BTreeMap<String, ResourceStats>,
    /// The number of groups.
    pub group_count: usize,
    /// The clients with a lease, or waiting for one, each counted once; of a cluster at least so many: the
    /// most of one node.
    #[serde(default)]
    pub client_count: usize,
    /// The first groups by name, as many as resources are asked for.
    pub groups: Vec<GroupStatus>,
    /// The cluster, if this coordinator is a node of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub cluster: Option<ClusterStatus>,
    /// The coordinator above, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub parent: Option<ParentStatus>,
    /// The number of resources with clients.
    #[serde(default)]
    pub resource_count: usize,
    /// The number of those that the query selects; all of them if it selects none.
    #[serde(default)]
    pub match_count: usize,
    /// The first of the selected resources in the order of the query. By default the busiest: first
    /// by how much of the capacity is wanted, then by how much is.
    pub busiest: Vec<BusyResource>,
    /// The rules that clients ask for; absent if a node did not answer or knows too many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub rules: Option<RuleStatus>,
    /// The number of limits, overrides and raises whose rules are not among these, so that they limit
    /// nothing; 0 within two minutes after a start, and until a client asks for anything.
    #[serde(default)]
    pub unmatched_limit_count: usize,
    /// The first hundred of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub unmatched_limits: Vec<UnmatchedLimit>,
    /// The nodes of the cluster that did not answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub unanswered: Vec<String>,
}

/// Status of the coordinator, with its busiest resources or others; in a cluster, those of all nodes.
#[utoipa::path(
    get, path = "/v1/status", operation_id = "getStatus", tag = "leases", params(StatusQuery),
    responses((status = 200, description = "Now", body = Status), ReadLeases, BadRequest)
)]
pub(super) async fn get(
    State(app): State<App>,
    Query(query): Query<StatusQuery>,
    caller: Caller,
) -> Result<Json<Status>, RestError> {
    let shown = query.checked()?;
    Ok(Json(Status::everywhere(&app, &caller, shown, false).await?))
}

// === impl Status ===

impl Status {
    /// Returns the status of the whole cluster, also for the status `page`.
    ///
    /// # Errors
    /// If its own leases cannot be reached.
    pub(super) async fn everywhere(
        app: &App,
        caller: &Caller,
        shown: Shown,
        page: bool,
    ) -> Result<Self, RestError> {
        let message = shown.message(page);
        let answers = app.ask(
            caller,
            message,
            |mut client, request| async move { client.get_status(request).await },
            view,
        );
        let (own, answers) = tokio::join!(Self::of(app, &shown), answers);
        let mut whole = own?;
        let (there, unanswered) = answers;
        for other in there {
            whole.join(other);
        }
        whole.unanswered = unanswered;
        whole.find_unmatched(app);
        if app.parts.peers.is_some() {
            shown.selection.arrange(&mut whole.busiest);
            whole.busiest.truncate(shown.resources);
        }
        Ok(whole)
    }

    /// Adds the status of another node.
    fn join(&mut self, other: Self) {
        self.epoch = self.epoch.max(other.epoch);
        self.refreshes_per_second += other.refreshes_per_second;
        for (unit, more) in other.units {
            self.units.entry(unit).or_default().add(&more);
        }
        group::join(&mut self.groups, other.groups);
        if let (Some(cluster), Some(other)) = (&mut self.cluster, other.cluster) {
            cluster.join(other);
        }
        match (&mut self.parent, other.parent) {
            (Some(parent), Some(other)) => parent.join(other),
            (parent, other) => *parent = parent.take().or(other),
        }
        self.resource_count += other.resource_count;
        self.client_count = self.client_count.max(other.client_count);
        self.match_count += other.match_count;
        self.busiest.extend(other.busiest);
        let rules = self.rules.take().zip(other.rules);
        self.rules = rules.map(|(rules, more)| rules.joined(more));
    }

    /// Returns the status of this node alone.
    pub(super) async fn of(app: &App, shown: &Shown) -> Result<Self, RestError> {
        let LeaseStats {
            units: sums,
            first,
            matching,
            clients,
            learning,
            borrowed,
            ..
        } = app
            .lease_stats(shown.selection.clone(), shown.resources)
            .await?;
        let catalog = app.parts.writer.catalog();
        let groups = group::selected(&catalog, shown);
        let look = {
            let (first, clients) = (first.clone(), shown.clients);
            move |node: &LeaseServer, now: Instant| {
                let find = |id: &ResourceId| {
                    let busy = BusyResource::find(node, now, id, clients)?;
                    Some((id.clone(), busy))
                };
                let busiest: Vec<_> = first.iter().filter_map(|(id, _)| find(id)).collect();
                let groups = groups.iter();
                let groups =
                    groups.map(|(group, count)| GroupStatus::new(node, now, group, *count));
                (busiest, groups.collect::<Vec<_>>())
            }
        };
        let shards = app.parts.shards.view(look).await?;
        let (mut found, mut groups) = (BTreeMap::new(), Vec::new());
        for (busy, of_shard) in shards {
            found.extend(busy);
            group::join(&mut groups, of_shard);
        }
        let now = app.parts.clock.now();
        let uptime_ms = ms(now.saturating_since(Instant::ZERO));
        let refreshes_per_second = app.rate.look(now, app.parts.leases.refreshes());
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let me = |node: &mut NodeStatus| {
            node.alive = true;
            node.version = Some(version.clone());
            node.uptime_ms = Some(uptime_ms);
            node.refreshes_per_second = Some(refreshes_per_second);
        };
        let peers = app.parts.peers.as_ref();
        let parent = app.parts.parent.as_ref();
        Ok(Self {
            epoch: app.parts.shards.epoch().0,
            uptime_ms,
            refreshes_per_second,
            resource_count: sums.values().map(|sums| sums.resources).sum(),
            units: sums
                .into_iter()
                .map(|(unit, figures)| (unit.name().to_owned(), figures))
                .collect(),
            client_count: clients,
            group_count: catalog.list(GroupKind, "").count(),
            groups,
            cluster: peers.map(|peers| ClusterStatus::of(peers, &app.parts.shards, &learning, me)),
            parent: parent.map(|parent| ParentStatus::of(parent, &borrowed)),
            match_count: matching,
            busiest: first
                .iter()
                .filter_map(|(id, _)| found.remove(id))
                .collect(),
            rules: RuleStatus::of(app.parts.shards.rules(), now),
            version,
            ..Self::default()
        })
    }
}

#[cfg(test)]
mod tests;
