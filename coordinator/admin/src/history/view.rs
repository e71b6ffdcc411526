//! Views of the history: plain values for REST and the status page.

#![allow(unused_qualifications, reason = "utoipa's macros name types twice")]

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::STEP;
use super::window::{HistoryWindow, ResourceWindow, UnitWindow};
use crate::lease_view::ms;

/// Values by step, the oldest first; the last is `newest_age_ms` old, each other one `step_ms`
/// more. `None` where nothing is known, which is not zero.
pub type Values = Vec<Option<f32>>;

/// History of the last ten minutes: sums, and shares of the busiest resources.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct HistoryOverview {
    /// The time between two values.
    pub step_ms: u64,
    /// The age of the last value.
    pub newest_age_ms: u64,
    /// Sums over all resources, by unit.
    pub units: BTreeMap<String, UnitHistory>,
    /// The busiest resources, the busiest of all ten minutes first.
    pub resources: Vec<ResourceHistory>,
    /// The nodes of the cluster that did not answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub unanswered: Vec<String>,
}

/// Sums over all resources of a unit by step; null where no node knows.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct UnitHistory {
    /// The capacity of those with a limit.
    pub capacity: Values,
    /// The amount that the clients of those may be using.
    pub sum_has: Values,
    /// The amount that all clients want.
    pub sum_wants: Values,
    /// Clients that get less than they want.
    pub waiting_count: Values,
}

/// Share of one resource by step; null where no node knows.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct ResourceHistory {
    /// Its scope.
    pub scope: String,
    /// Its unit.
    pub unit: String,
    /// The amount that its clients may be using; null also without a limit.
    pub sum_has: Values,
}

/// History of one scope in the last ten minutes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct ScopeHistory {
    /// Its id.
    pub scope: String,
    /// The time between two values.
    pub step_ms: u64,
    /// The age of the last value.
    pub newest_age_ms: u64,
    /// Those of its resources by unit that were among the busiest.
    pub units: BTreeMap<String, ScopeUnitHistory>,
    /// The nodes of the cluster that did not answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub unanswered: Vec<String>,
}

/// Figures of one resource by step; null where no node knows.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct ScopeUnitHistory {
    /// The most that the binding limit lets its clients have; null also without a limit.
    pub at_most: Values,
    /// The amount that its clients may be using; null also without a limit.
    pub sum_has: Values,
    /// The amount that its clients want.
    pub sum_wants: Values,
    /// Clients that get less than they want.
    pub waiting_count: Values,
    /// Its largest clients.
    pub clients: Vec<ClientHistory>,
}

/// Share of one client of a resource by step; null where no node knows.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct ClientHistory {
    /// Its id.
    pub client: String,
    /// The amount that it may be using; null also without a limit.
    pub has: Values,
}

// === impl HistoryOverview ===

impl HistoryOverview {
    /// Returns the overview of `window`.
    pub fn new(mut window: HistoryWindow, unanswered: Vec<String>) -> Self {
        let newest_age_ms = ms(window.newest_age);
        let units = std::mem::take(&mut window.units).into_iter();
        let units = units.filter(|(_, sums)| sums.is_used());
        let units = units.map(|(unit, sums)| (unit.name().to_owned(), sums.into()));
        let units = units.collect();
        let resources = window.into_busiest().into_iter();
        let resources = resources.map(|(id, resource)| ResourceHistory {
            scope: id.scope.as_ref().to_owned(),
            unit: id.unit.name().to_owned(),
            sum_has: values(&resource.has),
        });
        Self {
            step_ms: ms(STEP),
            newest_age_ms,
            units,
            resources: resources.collect(),
            unanswered,
        }
    }
}

// === impl ScopeHistory ===

impl ScopeHistory {
    /// Returns the history of `scope`, of which `window` has all resources.
    pub fn new(scope: String, window: HistoryWindow, unanswered: Vec<String>) -> Self {
        let resources = window.resources.into_iter();
        let units = resources.map(|(id, resource)| (id.unit.name().to_owned(), resource.into()));
        Self {
            scope,
            step_ms: ms(STEP),
            newest_age_ms: ms(window.newest_age),
            units: units.collect(),
            unanswered,
        }
    }
}

// === impl UnitHistory ===

impl UnitWindow {
    /// Whether any client has had or wanted anything.
    fn is_used(&self) -> bool {
        let values = [&self.capacity, &self.has, &self.wants];
        values.into_iter().flatten().any(|value| *value > 0.0)
    }
}

impl From<UnitWindow> for UnitHistory {
    fn from(window: UnitWindow) -> Self {
        Self {
            capacity: values(&window.capacity),
            sum_has: values(&window.has),
            sum_wants: values(&window.wants),
            waiting_count: values(&window.waiting),
        }
    }
}

// === impl ScopeUnitHistory ===

impl From<ResourceWindow> for ScopeUnitHistory {
    /// The clients are in the order of what they had over all steps, the largest first.
    fn from(window: ResourceWindow) -> Self {
        let clients = window.clients.into_iter();
        let mut clients: Vec<_> = clients
            .map(|(client, has)| {
                let known = has.iter().filter(|has| has.is_finite());
                (known.sum::<f32>(), client, has)
            })
            .collect();
        clients.sort_by(|(one, _, _), (other, _, _)| other.total_cmp(one));
        let clients = clients.into_iter().map(|(_, client, has)| ClientHistory {
            client,
            has: values(&has),
        });
        Self {
            at_most: values(&window.at_most),
            sum_has: values(&window.has),
            sum_wants: values(&window.wants),
            waiting_count: values(&window.waiting),
            clients: clients.collect(),
        }
    }
}

// === free functions ===

fn values(values: &[f32]) -> Values {
    let values = values.iter().copied();
    values
        .map(|value| value.is_finite().then_some(value))
        .collect()
}
