//! Query of the status: the resources that are shown, and their order.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::IntoDeserializer as _;
use tollgate_config::catalog::Catalog;
use tollgate_core::lease::Unit;
use tollgate_proto::v1;
use utoipa::{IntoParams, ToSchema};

use crate::extract::count;
use crate::problem::RestError;
use crate::stats::{GroupScopes, ResourceSelection, ResourceSort, SortOrder};

/// The most resources that are shown, and clients of each.
pub(crate) const RESOURCES_MAX: usize = 200;
const CLIENTS_MAX: usize = 50;

/// The longest search, in characters.
const SEARCH_LEN_MAX: usize = 200;

/// Answer by default.
pub(crate) const DEFAULT: Shown = Shown {
    resources: 50,
    clients: 12,
    selection: ResourceSelection::busiest(),
};

/// Resources in an answer, and its size.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) resources: usize,
    pub(crate) clients: usize,
    pub(crate) selection: ResourceSelection,
}

/// Query of a request for the status.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct StatusQuery {
    /// The most resources.
    #[param(minimum = 1, maximum = 200, default = 50)]
    resources: Option<usize>,
    /// The most clients of each.
    #[param(minimum = 1, maximum = 50, default = 12)]
    clients: Option<usize>,
    /// Only scopes with this text in their ids, whatever the case.
    #[param(max_length = 200)]
    search: Option<String>,
    /// Only this unit.
    #[param(pattern = "^(requests|request_bytes|response_bytes|concurrency)$")]
    unit: Option<String>,
    /// Only resources with clients that get less than they want.
    #[param(inline)]
    only: Option<Only>,
    /// The order of the resources; `capacity` is the most that the binding limit lets clients have.
    #[param(inline)]
    sort: Option<ResourceSort>,
    /// The direction; by default scopes ascend and figures descend.
    #[param(inline)]
    order: Option<SortOrder>,
}

/// Condition on resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Only {
    /// Clients get less than they want.
    Throttled,
}

// === impl StatusQuery ===

impl StatusQuery {
    /// Returns the answer that is asked for.
    ///
    /// # Errors
    /// If a field breaks a rule.
    pub(crate) fn checked(self) -> Result<Shown, RestError> {
        let resources = self.resources.unwrap_or(DEFAULT.resources);
        let clients = self.clients.unwrap_or(DEFAULT.clients);
        let search = self.search.unwrap_or_default();
        if search.chars().count() > SEARCH_LEN_MAX {
            let rule = format!("has more than {SEARCH_LEN_MAX} characters");
            return Err(RestError::parameter("search", &search, rule));
        }
        let selection = ResourceSelection {
            unit: self.unit.as_deref().map(unit).transpose()?,
            throttled_only: self.only == Some(Only::Throttled),
            ..ResourceSelection::busiest()
        };
        let sort = self.sort.unwrap_or_default();
        Ok(Shown {
            resources: count("resources", resources, RESOURCES_MAX)?,
            clients: count("clients", clients, CLIENTS_MAX)?,
            selection: selection.searching(&search).sorted_by(sort, self.order),
        })
    }
}

// === impl Shown ===

impl Shown {
    /// Returns the request to another node, for the status page or not.
    pub(super) fn message(&self, page: bool) -> v1::GetStatusRequest {
        let selection = &self.selection;
        let group = selection.group.as_ref();
        v1::GetStatusRequest {
            resources: self.resources as u32,
            clients: self.clients as u32,
            page,
            search: selection.search.clone(),
            unit: selection
                .unit
                .map(Unit::name)
                .unwrap_or_default()
                .to_owned(),
            throttled_only: selection.throttled_only,
            sort: selection.sort.name().to_owned(),
            reversed: selection.is_reversed,
            group: group.map_or("", GroupScopes::name).to_owned(),
        }
    }

    /// Reads the request of another node, at a node with `catalog`.
    ///
    /// # Errors
    /// If this node does not know the unit.
    pub(crate) fn of_message(
        message: v1::GetStatusRequest,
        catalog: Arc<Catalog>,
    ) -> Result<Self, RestError> {
        let group = Some(message.group.as_str()).filter(|name| !name.is_empty());
        let sort: Result<_, serde::de::value::Error> =
            ResourceSort::deserialize(message.sort.into_deserializer());
        let only = Some(message.unit.as_str()).filter(|unit| !unit.is_empty());
        let selection = ResourceSelection {
            unit: only.map(unit).transpose()?,
            throttled_only: message.throttled_only,
            // The node that asks arranges all answers again: an order that is not known here leaves
            // out resources, but shows none in a wrong place.
            sort: sort.unwrap_or_default(),
            is_reversed: message.reversed,
            group: group.map(|name| GroupScopes::new(catalog, name)),
            ..ResourceSelection::busiest()
        };
        let limit = |wanted: u32, max| usize::try_from(wanted).unwrap_or(max).clamp(1, max);
        Ok(Self {
            resources: limit(message.resources, RESOURCES_MAX),
            clients: limit(message.clients, CLIENTS_MAX),
            selection: selection.searching(&message.search),
        })
    }
}

// === free functions ===

/// Returns the unit called `name`.
///
/// # Errors
/// If there is none.
pub(crate) fn unit(name: &str) -> Result<Unit, RestError> {
    Unit::from_name(name).ok_or_else(|| {
        let rule =
            format!("{name:?} is not a unit: requests, request_bytes, response_bytes, concurrency");
        RestError::parameter("unit", name, rule)
    })
}
