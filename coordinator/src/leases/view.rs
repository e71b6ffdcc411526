//! What the books look like from outside: plain values that REST and metrics show.
//!
//! Made inside the driver from one state of the books, so the numbers of one view agree.

#![allow(unused_qualifications, reason = "utoipa's macros name types twice")]

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::lease_server::{BindingLimit, LeaseServer, LimitOwner};
use tollgate_core::resource::{ClientRecord, Resource};
use tollgate_core::units::{Capacity, Instant, MICRO};
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// Clients of a resource among which those that have most are sought.
const LOOKED_AT: usize = 1000;

/// Some scopes, in the order of their ids.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct ScopePage {
    /// The scopes.
    pub scopes: Vec<ScopeSummary>,
    /// What to pass as `after` for the scopes that follow; none if these were the last.
    pub next: Option<String>,
    /// The nodes of the cluster that did not answer for their books.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub unanswered: Vec<String>,
}

/// One scope in a list.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct ScopeSummary {
    /// Its id.
    pub scope: String,
    /// Its resources by unit.
    pub units: BTreeMap<String, UnitSummary>,
}

/// One resource in a list. Amounts are per second for the unit `requests`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct UnitSummary {
    /// What the fleet may use.
    pub capacity: Amount,
    /// What each client falls back to, if the coordinator says so.
    pub safe: Option<Amount>,
    /// How long learning mode lasts from now; 0 if it is over.
    pub learning_ms: u64,
    /// The sum of what clients may be using.
    pub sum_has: Amount,
    /// The sum of what clients want.
    pub sum_wants: Amount,
    /// How many clients have a lease or wait for one.
    pub client_count: usize,
    /// The limit that binds it; null if nothing limits it.
    #[serde(default)]
    pub limited_by: Option<LimitedBy>,
}

/// The limit that leaves the clients of a resource least.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct LimitedBy {
    /// The owner of the limit, in words: `own limit`, `parent`, or as `group gold`.
    pub whose: String,
    /// The most that it lets the resource's clients have together now.
    pub at_most: Amount,
}

/// One scope with its clients.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct ScopeDetail {
    /// Its id.
    pub scope: String,
    /// Its resources by unit.
    pub units: BTreeMap<String, UnitDetail>,
    /// The nodes of the cluster that did not answer for their books.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub unanswered: Vec<String>,
}

/// One resource with its clients.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct UnitDetail {
    /// The resource.
    #[serde(flatten)]
    pub summary: UnitSummary,
    /// How many clients have less than they want.
    pub waiting_count: usize,
    /// Its clients, or as many as were asked for.
    pub clients: Vec<ResourceClient>,
}

/// What the books say of one client.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct ResourceClient {
    /// Its id.
    pub client: String,
    /// What it last wanted.
    pub wants: Amount,
    /// The most that it may be using.
    pub has: Amount,
    /// When that ends, from now, unless it refreshes.
    pub expires_in_ms: u64,
}

/// One of the busiest resources.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct BusyResource {
    /// Its scope.
    pub scope: String,
    /// Its unit.
    pub unit: String,
    /// The resource.
    #[serde(flatten)]
    pub summary: UnitSummary,
    /// How many clients have less than they want.
    pub waiting_count: usize,
    /// The clients that have most, of the first thousand.
    pub clients: Vec<ResourceClient>,
}

/// A number of units, or no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// So many.
    Number(f64),
    /// Any number.
    Unlimited,
}

// === impl ScopePage ===

impl ScopePage {
    /// The first `limit` scopes whose ids come after `after`.
    pub(crate) fn new(node: &LeaseServer, now: Instant, after: &str, limit: usize) -> Self {
        let mut scopes: Vec<ScopeSummary> = Vec::new();
        let mut next = None;
        let [.., last_unit] = Unit::ALL;
        let after = ResourceId {
            scope: after.into(),
            unit: last_unit,
        };
        for (id, resource) in node.resources_after(&after) {
            let last = scopes.last().map(|last| last.scope.as_str());
            if last != Some(&id.scope) {
                if scopes.len() >= limit {
                    next = last.map(str::to_owned);
                    break;
                }
                scopes.push(ScopeSummary {
                    scope: id.scope.as_ref().to_owned(),
                    units: BTreeMap::new(),
                });
            }
            if let Some(scope) = scopes.last_mut() {
                let summary = UnitSummary::new(node, now, id, resource);
                scope.units.insert(id.unit.name().to_owned(), summary);
            }
        }
        Self {
            scopes,
            next,
            unanswered: Vec::new(),
        }
    }
}

// === impl ScopeDetail ===

impl ScopeDetail {
    /// The scope called `scope`, if it is in the books, with at most `clients` of its clients.
    pub(crate) fn find(
        node: &LeaseServer,
        now: Instant,
        scope: &str,
        clients: usize,
    ) -> Option<Self> {
        let mut units = BTreeMap::new();
        for unit in Unit::ALL {
            let id = ResourceId::new(scope, unit).ok()?;
            if let Some(resource) = node.resource(&id) {
                let summary = UnitSummary::new(node, now, &id, resource);
                units.insert(
                    unit.name().to_owned(),
                    UnitDetail::new(now, summary, resource, clients),
                );
            }
        }
        let scope = scope.to_owned();
        (!units.is_empty()).then_some(Self {
            scope,
            units,
            unanswered: Vec::new(),
        })
    }
}

// === impl UnitSummary ===

impl UnitSummary {
    fn new(node: &LeaseServer, now: Instant, id: &ResourceId, resource: &Resource) -> Self {
        Self {
            capacity: resource.capacity().into(),
            safe: resource.safe().map(Into::into),
            learning_ms: ms(resource.learning_until().saturating_since(now)),
            sum_has: sum(resource.sum_has()),
            sum_wants: sum(resource.sum_wants()),
            client_count: resource.client_count(),
            limited_by: node.binding_limit(id).map(LimitedBy::from),
        }
    }

    /// The most that the resource's clients may have together, by the limit that binds it.
    pub fn at_most(&self) -> Amount {
        let limited_by = self.limited_by.as_ref();
        limited_by.map_or(self.capacity, |limited_by| limited_by.at_most)
    }
}

// === impl LimitedBy ===

impl From<BindingLimit<'_>> for LimitedBy {
    fn from(binding: BindingLimit<'_>) -> Self {
        let whose = match binding.of {
            LimitOwner::Resource => "own limit".to_owned(),
            LimitOwner::Parent => "parent".to_owned(),
            LimitOwner::Pool(pool) => pool.scope.replacen('/', " ", 1),
        };
        Self {
            whose,
            at_most: binding.at_most.into(),
        }
    }
}

// === impl BusyResource ===

impl BusyResource {
    /// The resource called `id`, if it is in the books, with at most `clients` of its clients.
    pub(crate) fn find(
        node: &LeaseServer,
        now: Instant,
        id: &ResourceId,
        clients: usize,
    ) -> Option<Self> {
        let resource = node.resource(id)?;
        let mut most: Vec<ClientRecord<'_>> = resource.clients().take(LOOKED_AT).collect();
        most.sort_by_key(|client| (Reverse(client.has), Reverse(client.wants)));
        most.truncate(clients);
        Some(Self {
            scope: id.scope.as_ref().to_owned(),
            unit: id.unit.name().to_owned(),
            summary: UnitSummary::new(node, now, id, resource),
            waiting_count: waiting(resource),
            clients: most
                .iter()
                .map(|client| ResourceClient::new(now, client))
                .collect(),
        })
    }
}

// === impl UnitDetail ===

impl UnitDetail {
    fn new(now: Instant, summary: UnitSummary, resource: &Resource, clients: usize) -> Self {
        let clients = resource.clients().take(clients);
        Self {
            summary,
            waiting_count: waiting(resource),
            clients: clients
                .map(|client| ResourceClient::new(now, &client))
                .collect(),
        }
    }
}

// === impl ResourceClient ===

impl ResourceClient {
    fn new(now: Instant, client: &ClientRecord<'_>) -> Self {
        Self {
            client: client.id.as_str().to_owned(),
            wants: client.wants.into(),
            has: client.has.into(),
            expires_in_ms: ms(client.expiry.saturating_since(now)),
        }
    }
}

// === impl Amount ===

impl From<Capacity> for Amount {
    fn from(capacity: Capacity) -> Self {
        if capacity.is_unlimited() {
            return Self::Unlimited;
        }
        Self::Number(capacity.as_f64())
    }
}

impl From<f64> for Amount {
    fn from(units: f64) -> Self {
        Self::Number(units)
    }
}

impl Serialize for Amount {
    /// A number, or the word that the configuration uses.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(units) => serializer.serialize_f64(*units),
            Self::Unlimited => serializer.serialize_str("unlimited"),
        }
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum AmountForm {
            Number(f64),
            Word(AmountWord),
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum AmountWord {
            Unlimited,
        }
        Ok(match AmountForm::deserialize(deserializer)? {
            AmountForm::Number(units) => Self::Number(units),
            AmountForm::Word(AmountWord::Unlimited) => Self::Unlimited,
        })
    }
}

impl ToSchema for Amount {}

impl PartialSchema for Amount {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new()
            .schema_type(Type::Number)
            .minimum(Some(0));
        let word = ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some(["unlimited"]));
        OneOfBuilder::new()
            .item(number)
            .item(word)
            .description(Some("A number of units, or no limit"))
            .into()
    }
}

// === free functions ===

/// So long in whole milliseconds.
pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// How many clients have less than they want.
pub(crate) fn waiting(resource: &Resource) -> usize {
    let waiting = resource
        .clients()
        .filter(|client| client.has < client.wants);
    waiting.count()
}

/// So many millionths as a number of units.
pub(crate) fn units(micros: u128) -> f64 {
    micros as f64 / MICRO as f64
}

/// A sum of capacities; one that has an unlimited one in it is unlimited.
fn sum(micros: u128) -> Amount {
    if micros >= u128::from(Capacity::UNLIMITED.as_micros()) {
        return Amount::Unlimited;
    }
    Amount::Number(units(micros))
}
