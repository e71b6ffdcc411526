//! Written form of limits, groups and attachments, in the YAML file and in the API's JSON.
//!
//! Both use one form and the same rules, which are in [`crate::config`]. A value knows its place in
//! the file; in JSON it has none.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_saphyr::Location;
use tollgate_core::lease::Unit;
use utoipa::ToSchema;

mod attachment;
mod schema;
mod text;

pub use attachment::AttachmentSpec;
pub use text::{LocatedScalar, LocatedValue, Scalar};

/// Limit of a unit that is a rate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object like {\"rate\": 1000}")]
pub struct RateSpec {
    /// Rate per second, for the whole fleet; `0` blocks, or `unlimited`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline, value_type = Option<schema::AmountSchema>)]
    pub rate: Option<LocatedScalar>,
    /// Units at once after a pause, for the whole fleet; by default a second of the rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline, value_type = Option<schema::QuantitySchema>)]
    pub burst: Option<LocatedScalar>,
    /// Fallback of each client without a lease; `dynamic` is the capacity over the clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline, value_type = Option<schema::SafeSchema>)]
    pub safe: Option<LocatedScalar>,
    /// Duration of a lease, such as `10s`; at most a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline, value_type = Option<schema::DurationSchema>)]
    pub lease: Option<LocatedScalar>,
    /// Interval of refreshes; shorter than the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline, value_type = Option<schema::DurationSchema>)]
    pub refresh: Option<LocatedScalar>,
    /// Shortest interval of refreshes, used while shares shift; at most `refresh`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline, value_type = Option<schema::DurationSchema>)]
    pub min_refresh: Option<LocatedScalar>,
    /// Duration of learning mode, in which a new coordinator only confirms leases; at least
    /// `lease`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline, value_type = Option<schema::DurationSchema>)]
    pub learning: Option<LocatedScalar>,
    /// Part of the unwanted capacity that is lent to active clients all the same; 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline, value_type = Option<schema::FractionSchema>)]
    pub headroom: Option<LocatedScalar>,
    /// Part of the capacity that is kept for newcomers; 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline, value_type = Option<schema::FractionSchema>)]
    pub reserve: Option<LocatedScalar>,
    /// `fair_share` (the default), `proportional_share`, `static` or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline, value_type = Option<schema::AlgorithmSchema>)]
    pub algorithm: Option<LocatedScalar>,
    /// Amounts that priority bands, 0 to 15, get before the others share the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, Scalar>>)]
    pub guaranteed: Option<BTreeMap<String, LocatedScalar>>,
}

/// Limit of `concurrency`, the number of requests in flight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object like {\"max\": 64}")]
pub struct ConcurrencySpec {
    /// Requests in flight, for the whole fleet; `0` blocks, or `unlimited`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline, value_type = Option<schema::AmountSchema>)]
    pub max: Option<LocatedScalar>,
    /// Fallback of each client without a lease; `dynamic` is the capacity over the clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline, value_type = Option<schema::SafeSchema>)]
    pub safe: Option<LocatedScalar>,
    /// Duration of a lease, such as `10s`; at most a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline, value_type = Option<schema::DurationSchema>)]
    pub lease: Option<LocatedScalar>,
    /// Interval of refreshes; shorter than the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline, value_type = Option<schema::DurationSchema>)]
    pub refresh: Option<LocatedScalar>,
    /// Shortest interval of refreshes, used while shares shift; at most `refresh`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline, value_type = Option<schema::DurationSchema>)]
    pub min_refresh: Option<LocatedScalar>,
    /// Duration of learning mode, in which a new coordinator only confirms leases; at least
    /// `lease`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline, value_type = Option<schema::DurationSchema>)]
    pub learning: Option<LocatedScalar>,
    /// Part of the unwanted capacity that is lent to active clients all the same; 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline, value_type = Option<schema::FractionSchema>)]
    pub headroom: Option<LocatedScalar>,
    /// Part of the capacity that is kept for newcomers; 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline, value_type = Option<schema::FractionSchema>)]
    pub reserve: Option<LocatedScalar>,
    /// `fair_share` (the default), `proportional_share`, `static` or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline, value_type = Option<schema::AlgorithmSchema>)]
    pub algorithm: Option<LocatedScalar>,
    /// Amounts that priority bands, 0 to 15, get before the others share the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, Scalar>>)]
    pub guaranteed: Option<BTreeMap<String, LocatedScalar>>,
}

/// The limits of a scope, by unit; a unit that is absent or null has no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object like {\"requests\": {\"rate\": 1000}}"
)]
#[schema(example = json!({"requests": {"rate": 1000, "burst": 200}, "concurrency": {"max": 64}}))]
pub struct LimitsSpec {
    /// Requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<RateSpec>)]
    pub requests: Option<LocatedValue<RateSpec>>,
    /// Bytes of request bodies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<RateSpec>)]
    pub request_bytes: Option<LocatedValue<RateSpec>>,
    /// Bytes of response bodies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<RateSpec>)]
    pub response_bytes: Option<LocatedValue<RateSpec>>,
    /// Requests in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ConcurrencySpec>)]
    pub concurrency: Option<LocatedValue<ConcurrencySpec>>,
}

/// A group: limits that tenants and namespaces share; a unit that is absent or null has no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object like {\"requests\": {\"rate\": 1000}}"
)]
#[schema(example = json!({"requests": {"rate": "20k"}, "fair_between": "members"}))]
pub struct GroupSpec {
    /// Requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<RateSpec>)]
    pub requests: Option<LocatedValue<RateSpec>>,
    /// Bytes of request bodies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<RateSpec>)]
    pub request_bytes: Option<LocatedValue<RateSpec>>,
    /// Bytes of response bodies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<RateSpec>)]
    pub response_bytes: Option<LocatedValue<RateSpec>>,
    /// Requests in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ConcurrencySpec>)]
    pub concurrency: Option<LocatedValue<ConcurrencySpec>>,
    /// First division of the capacity, between `members` (the default) or `clients`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline, value_type = Option<schema::FairBetweenSchema>)]
    pub fair_between: Option<LocatedScalar>,
}

/// Written form of the limit of one unit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum UnitSpec<'a> {
    Rate(&'a LocatedValue<RateSpec>),
    Gauge(&'a LocatedValue<ConcurrencySpec>),
}

/// The units that are written, in order.
pub(crate) type Units<'a> = Vec<(Unit, UnitSpec<'a>)>;

// === impl UnitSpec ===

impl UnitSpec<'_> {
    /// Its place in the file.
    pub(crate) fn at(self) -> Location {
        match self {
            Self::Rate(spec) => spec.at,
            Self::Gauge(spec) => spec.at,
        }
    }
}

// === impl LimitsSpec ===

impl LimitsSpec {
    pub(crate) fn units(&self) -> Units<'_> {
        units(
            [
                (Unit::Requests, &self.requests),
                (Unit::RequestBytes, &self.request_bytes),
                (Unit::ResponseBytes, &self.response_bytes),
            ],
            &self.concurrency,
        )
    }
}

// === impl GroupSpec ===

impl GroupSpec {
    pub(crate) fn units(&self) -> Units<'_> {
        units(
            [
                (Unit::Requests, &self.requests),
                (Unit::RequestBytes, &self.request_bytes),
                (Unit::ResponseBytes, &self.response_bytes),
            ],
            &self.concurrency,
        )
    }
}

// === free functions ===

pub(crate) fn units<'a>(
    rates: [(Unit, &'a Option<LocatedValue<RateSpec>>); 3],
    concurrency: &'a Option<LocatedValue<ConcurrencySpec>>,
) -> Units<'a> {
    let rates = rates.into_iter();
    let rates = rates.filter_map(|(unit, rate)| Some((unit, UnitSpec::Rate(rate.as_ref()?))));
    let gauge = concurrency.as_ref().map(UnitSpec::Gauge);
    rates
        .chain(gauge.map(|gauge| (Unit::Concurrency, gauge)))
        .collect()
}
