//! History of the last ten minutes: of all leases, or of one scope.

#![allow(unused_qualifications, reason = "utoipa's macros name types twice")]

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use tollgate_core::lease::Unit;
use tollgate_proto::v1;
use utoipa::{IntoParams, ToSchema};

use crate::App;
use crate::extract::{Query, count};
use crate::history::{
    HistoryOverview, HistoryWindow, RESOURCES_MAX, ScopeHistory, WindowSelection,
};
use crate::openapi::{BadRequest, Read};
use crate::peers::{Caller, history_window};
use crate::problem::RestError;
use crate::status::unit;

/// Number of resources in an overview by default.
const RESOURCES_DEFAULT: usize = 10;

/// The longest scope, in characters: no scope is longer.
const SCOPE_LEN_MAX: usize = 256;

/// History of all leases or of one scope.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(untagged)]
pub enum HistoryAnswer {
    /// Of one scope.
    Scope(ScopeHistory),
    /// Of all leases.
    Overview(HistoryOverview),
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct HistoryQuery {
    /// Only this scope, with its largest clients.
    #[param(min_length = 1, max_length = 256)]
    scope: Option<String>,
    /// The most of the busiest resources; without effect on a scope.
    #[param(minimum = 1, maximum = 200, default = 10)]
    resources: Option<usize>,
    /// Only resources of this unit; without effect on a scope.
    #[param(pattern = "^(requests|request_bytes|response_bytes|concurrency)$")]
    unit: Option<String>,
}

/// The last ten minutes: sums with the shares of the busiest resources, or one scope.
#[utoipa::path(
    get, path = "/v1/history", operation_id = "getHistory", tag = "leases", params(HistoryQuery),
    responses((status = 200, description = "Values by step", body = HistoryAnswer), Read, BadRequest)
)]
pub(crate) async fn get(
    State(app): State<App>,
    Query(query): Query<HistoryQuery>,
    caller: Caller,
) -> Result<Json<HistoryAnswer>, RestError> {
    Ok(Json(match query.checked()? {
        WindowSelection::Scope(scope) => {
            HistoryAnswer::Scope(scope_history(&app, &caller, scope, false).await)
        }
        WindowSelection::Busiest(resources, unit) => {
            HistoryAnswer::Overview(overview(&app, &caller, (resources, unit), false).await)
        }
    }))
}

// === impl HistoryQuery ===

impl HistoryQuery {
    fn checked(self) -> Result<WindowSelection, RestError> {
        let resources = self.resources.unwrap_or(RESOURCES_DEFAULT);
        let resources = count("resources", resources, RESOURCES_MAX)?;
        let unit = self.unit.as_deref().map(unit).transpose()?;
        let Some(scope) = self.scope else {
            return Ok(WindowSelection::Busiest(resources, unit));
        };
        if !(1..=SCOPE_LEN_MAX).contains(&scope.chars().count()) {
            let rule = format!("does not have 1 to {SCOPE_LEN_MAX} characters");
            return Err(RestError::parameter("scope", &scope, rule));
        }
        Ok(WindowSelection::Scope(scope))
    }
}

// === free functions ===

/// Returns the sums of the whole cluster, with so many of its busiest resources, for the status
/// `page` or not; these of one unit, if there is one here.
pub(crate) async fn overview(
    app: &App,
    caller: &Caller,
    (resources, unit): (usize, Option<Unit>),
    page: bool,
) -> HistoryOverview {
    let selection = WindowSelection::Busiest(resources, unit);
    let (window, unanswered) = everywhere(app, caller, &selection, page).await;
    HistoryOverview::new(window, unanswered)
}

/// Returns the history of `scope` in the whole cluster, for the status `page` or not.
pub(crate) async fn scope_history(
    app: &App,
    caller: &Caller,
    scope: String,
    page: bool,
) -> ScopeHistory {
    let selection = WindowSelection::Scope(scope.clone());
    let (window, unanswered) = everywhere(app, caller, &selection, page).await;
    ScopeHistory::new(scope, window, unanswered)
}

/// Returns what all nodes know of `selection`, and those that did not answer.
async fn everywhere(
    app: &App,
    caller: &Caller,
    selection: &WindowSelection,
    page: bool,
) -> (HistoryWindow, Vec<String>) {
    // Before the others answer: their steps are aligned with those of now.
    let own = app.parts.history.window(app.parts.clock.now(), selection);
    let answers = app.ask(
        caller,
        message(selection, page),
        |mut client, request| async move { client.get_history(request).await },
        history_window,
    );
    let (others, unanswered) = answers.await;
    let Some(peers) = &app.parts.peers else {
        return (own, unanswered);
    };
    let shards = peers.masters().iter().count();
    (own.of_cluster(others, shards, selection), unanswered)
}

/// Returns the request for `selection` to another node.
fn message(selection: &WindowSelection, page: bool) -> v1::GetHistoryRequest {
    let (scope, resources, unit) = match selection {
        WindowSelection::Scope(scope) => (scope.clone(), 0, None),
        WindowSelection::Busiest(resources, unit) => (String::new(), *resources, *unit),
    };
    v1::GetHistoryRequest {
        scope,
        resources: resources as u32,
        unit: unit.map(Unit::name).unwrap_or_default().to_owned(),
        page,
    }
}

/// Reads the request of another node.
///
/// # Errors
/// If this node does not know the unit.
pub(crate) fn selection(message: v1::GetHistoryRequest) -> Result<WindowSelection, RestError> {
    if !message.scope.is_empty() {
        return Ok(WindowSelection::Scope(message.scope));
    }
    let only = Some(message.unit.as_str()).filter(|unit| !unit.is_empty());
    let resources = usize::try_from(message.resources).unwrap_or(RESOURCES_MAX);
    let resources = resources.clamp(1, RESOURCES_MAX);
    Ok(WindowSelection::Busiest(
        resources,
        only.map(unit).transpose()?,
    ))
}
