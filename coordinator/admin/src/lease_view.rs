//! Views of the lease table: plain values for REST and metrics.
//!
//! Built inside the driver from one state of the table, so the numbers of one view agree.

#![allow(unused_qualifications, reason = "utoipa's macros name types twice")]

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::lease_server::{BindingLimit, LeaseServer, LimitOwner};
use tollgate_core::pool::Pool;
use tollgate_core::resource::{ClientRecord, Resource};
use tollgate_core::traffic::{Counts, Traffic};
use tollgate_core::units::{Capacity, Instant, MICRO, Tokens};
use tollgate_leases::DriverError;
use tollgate_leases::shards::Shards;
use utoipa::ToSchema;

mod amount;
mod quota;
mod throttled;

pub use self::amount::Amount;
pub use self::quota::{CreditView, EndedWindowView, QuotaChangeView, QuotaView};
pub(crate) use self::throttled::is_throttled;
pub(crate) use self::throttled::waiting;
use self::throttled::{first_throttled, longest_throttled};

/// Clients of a resource that are compared to find those with the largest leases.
const LOOKED_AT: usize = 1000;

/// Some scopes, in the order of their ids.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct ScopePage {
    /// The scopes.
    pub scopes: Vec<ScopeSummary>,
    /// Value of `after` for the next page; none on the last page.
    pub next: Option<String>,
    /// Nodes of the cluster that did not answer.
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
    /// Capacity for the whole fleet.
    pub capacity: Amount,
    /// Fallback of each client without a lease, if the coordinator sets one.
    pub safe: Option<Amount>,
    /// Remaining time of learning mode; 0 if it is over.
    pub learning_ms: u64,
    /// Sum of the leases.
    pub sum_has: Amount,
    /// Sum of the clients' wants.
    pub sum_wants: Amount,
    /// Number of clients that have a lease or wait for one.
    pub client_count: usize,
    /// The binding limit; null if nothing limits the resource.
    #[serde(default)]
    pub limited_by: Option<LimitedBy>,
    /// The most that the binding limit lets clients have together, for the period for which it was written: `100/min`; absent
    /// if it was written as a plain number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub written: Option<String>,
    /// Tokens of a limit of which clients draw instead of having leases; absent if they have leases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub bucket: Option<BucketView>,
    /// Its quotas; absent without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub quotas: Vec<QuotaView>,
    /// Attempts and refusals of its clients; none of clients that do not report them.
    #[serde(default)]
    pub traffic: TrafficView,
}

/// Traffic of a resource, as its clients report it with each refresh: in tokens, or requests in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct TrafficView {
    /// Those that were asked for, admitted or not, of the last ten to twenty seconds.
    #[schema(minimum = 0)]
    pub attempts_per_second: f64,
    /// Those of them that were refused.
    #[schema(minimum = 0)]
    pub refused_per_second: f64,
    /// All that were asked for since the resource is known to this node.
    pub attempts: u64,
    /// Those of them that were refused.
    pub refused: u64,
}

/// Bucket of the whole fleet, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct BucketView {
    /// Tokens that can be drawn.
    #[schema(minimum = 0)]
    pub left: f64,
    /// Tokens that clients have drawn and may not have spent.
    #[schema(minimum = 0)]
    pub held: f64,
    /// All tokens that clients have drawn since the resource is known to this node.
    #[schema(minimum = 0)]
    pub drawn: f64,
}

/// The limit that leaves the clients of a resource least.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct LimitedBy {
    /// Owner of the limit: `own limit`, `parent`, or `group gold`.
    pub whose: String,
    /// The most that the limit lets the resource's clients have together now.
    pub at_most: Amount,
}

/// One scope with its clients.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct ScopeDetail {
    /// Its id.
    pub scope: String,
    /// Its resources by unit.
    pub units: BTreeMap<String, UnitDetail>,
    /// Nodes of the cluster that did not answer.
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
    /// Number of clients that get less than they want.
    pub waiting_count: usize,
    /// The longest time for which a client has got less than it wants: its `throttled_for_ms`; absent
    /// if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub throttled_for_ms: Option<u64>,
    /// Its clients, up to the number requested: of more, those throttled for longest, then those
    /// with the largest leases.
    pub clients: Vec<ResourceClient>,
}

/// One client of a resource.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct ResourceClient {
    /// Its id.
    pub client: String,
    /// Its last wants.
    pub wants: Amount,
    /// Its lease: the most that it may be using.
    pub has: Amount,
    /// Time until the lease expires unless it is refreshed.
    pub expires_in_ms: u64,
    /// The time for which it has got less than it wants at each refresh; absent if it got as much
    /// at the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub throttled_for_ms: Option<u64>,
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
    /// Number of clients that get less than they want.
    pub waiting_count: usize,
    /// The longest time for which a client has got less than it wants: its `throttled_for_ms`; absent
    /// if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub throttled_for_ms: Option<u64>,
    /// The clients with the largest leases, of the first thousand.
    pub clients: Vec<ResourceClient>,
}

// === impl TrafficView ===

impl TrafficView {
    /// Those that were admitted, of the last ten to twenty seconds.
    pub fn admitted_per_second(&self) -> f64 {
        (self.attempts_per_second - self.refused_per_second).max(0.0)
    }
}

// === impl ScopePage ===

impl ScopePage {
    /// Returns the first `limit` scopes whose ids come after `after`, for each of `shards`.
    ///
    /// # Errors
    /// If a driver cannot be reached.
    pub async fn of_shards(
        shards: &Shards,
        after: &str,
        limit: usize,
    ) -> Result<Vec<Self>, DriverError> {
        let after = after.to_owned();
        let look = move |server: &_, now| Self::new(server, now, &after, limit);
        shards.view(look).await
    }

    /// Returns the first `limit` scopes whose ids come after `after`.
    pub fn new(node: &LeaseServer, now: Instant, after: &str, limit: usize) -> Self {
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
    /// Its units, those first whose requests are refused or whose clients get less than they want.
    pub fn by_trouble(&self) -> Vec<(&String, &UnitDetail)> {
        let mut units: Vec<_> = self.units.iter().collect();
        let is_well = |detail: &UnitDetail| {
            detail.waiting_count == 0 && detail.summary.traffic.refused_per_second == 0.0
        };
        units.sort_by_key(|(_, detail)| is_well(detail));
        units
    }

    /// Returns one scope with at most `clients` of its clients, for each of `shards` that has it: two
    /// while the scope moves from one shard to the other.
    ///
    /// # Errors
    /// If a driver cannot be reached.
    pub async fn of_shards(
        shards: &Shards,
        scope: &str,
        clients: usize,
    ) -> Result<Vec<Self>, DriverError> {
        let scope = scope.to_owned();
        let find = move |server: &_, now| Self::find(server, now, &scope, clients);
        let details = shards.view(find).await?;
        Ok(details.into_iter().flatten().collect())
    }

    /// Returns the scope called `scope` with at most `clients` of its clients, if the table has it.
    pub fn find(node: &LeaseServer, now: Instant, scope: &str, clients: usize) -> Option<Self> {
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
        let limited_by = node.binding_limit(id).map(LimitedBy::from);
        let period = resource.limit().period;
        let written = limited_by.as_ref();
        let written = written.and_then(|limit| limit.at_most.written(id.unit, period));
        Self {
            capacity: if resource.limit().has_capacity() {
                resource.capacity().into()
            } else {
                Amount::Unlimited
            },
            safe: resource.safe().map(Into::into),
            learning_ms: ms(resource.learning_until().saturating_since(now)),
            sum_has: sum(resource.sum_has()),
            sum_wants: sum(resource.sum_wants()),
            client_count: resource.client_count(),
            limited_by,
            written,
            bucket: BucketView::find(now, resource, node.pool_of(id).map(|(_, pool)| pool)),
            quotas: QuotaView::all(&resource.quotas(now)),
            traffic: TrafficView::of(now, resource.traffic()),
        }
    }

    /// Capacity in use: the leases, or of a limit that is drawn what passes.
    pub fn in_use(&self) -> Amount {
        let TrafficView {
            attempts_per_second,
            refused_per_second,
            ..
        } = self.traffic;
        match self.bucket {
            // A refusal may be reported a moment after its attempt.
            Some(_) => Amount::Number((attempts_per_second - refused_per_second).max(0.0)),
            None => self.sum_has,
        }
    }

    /// Returns an amount of `unit` per second for the period for which the limit was written.
    pub fn text(&self, unit: &str, amount: Amount) -> String {
        amount.text_as(unit, self.written.as_deref())
    }

    /// The most that the resource's clients may have together, by the binding limit.
    pub fn at_most(&self) -> Amount {
        let limited_by = self.limited_by.as_ref();
        limited_by.map_or(self.capacity, |limited_by| limited_by.at_most)
    }
}

// === impl TrafficView ===

impl TrafficView {
    /// The view of `traffic` at `now`.
    pub fn of(now: Instant, traffic: &Traffic) -> Self {
        let (recent, time) = traffic.recent(now);
        // Of a shorter time a single request would be a high rate.
        let secs = time.as_secs_f64().max(1.0);
        let Counts { attempts, refused } = traffic.all();
        Self {
            attempts_per_second: recent.attempts as f64 / secs,
            refused_per_second: recent.refused as f64 / secs,
            attempts,
            refused,
        }
    }
}

// === impl BucketView ===

impl BucketView {
    /// The bucket of `resource`, if clients draw of it: as much as the one of its `pool` has, too.
    fn find(now: Instant, resource: &Resource, pool: Option<&Pool>) -> Option<Self> {
        let of_pool = pool.and_then(Pool::fleet_bucket);
        let buckets = [resource.fleet_bucket(), of_pool].into_iter().flatten();
        let left = buckets.map(|bucket| bucket.left(now)).min()?;
        resource.is_drawn().then(|| Self {
            left: tokens(left),
            held: tokens(resource.held_by_clients()),
            drawn: tokens(resource.drawn()),
        })
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
    /// Returns the resource called `id` with at most `clients` of its clients, if the table has it.
    pub fn find(node: &LeaseServer, now: Instant, id: &ResourceId, clients: usize) -> Option<Self> {
        let resource = node.resource(id)?;
        let mut most: Vec<ClientRecord<'_>> = resource.clients().take(LOOKED_AT).collect();
        most.sort_by_key(|client| (Reverse(client.has), Reverse(client.wants)));
        most.truncate(clients);
        Some(Self {
            scope: id.scope.as_ref().to_owned(),
            unit: id.unit.name().to_owned(),
            summary: UnitSummary::new(node, now, id, resource),
            waiting_count: waiting(resource),
            throttled_for_ms: longest_throttled(resource, now),
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
        let clients = first_throttled(resource, now, clients);
        Self {
            summary,
            waiting_count: waiting(resource),
            throttled_for_ms: longest_throttled(resource, now),
            clients: clients
                .iter()
                .map(|client| ResourceClient::new(now, client))
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
            throttled_for_ms: client.throttled_since.map(|since| ms(since.elapsed(now))),
        }
    }
}

// === free functions ===

/// `duration` in whole milliseconds.
pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// `micros` millionths as a number of units.
pub(crate) fn units(micros: u128) -> f64 {
    micros as f64 / MICRO as f64
}

/// `tokens` as a number.
pub(crate) fn tokens(tokens: Tokens) -> f64 {
    units(tokens.as_micros().into())
}

/// A sum of capacities; unlimited if one of them is.
fn sum(micros: u128) -> Amount {
    if micros >= u128::from(Capacity::UNLIMITED.as_micros()) {
        return Amount::Unlimited;
    }
    Amount::Number(units(micros))
}

#[cfg(test)]
mod tests;
