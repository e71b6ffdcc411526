//! Limits, groups and attachments as people write them, in the YAML file and in the API's JSON.
//!
//! One form for both, so that both mean the same and are judged by the same rules, which are in
//! [`crate::catalog::check`]. A value knows its place in the file; in JSON it has none.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_saphyr::Location;
use tollgate_core::lease::Unit;
use utoipa::ToSchema;

mod attachment;
mod quota;
mod schema;
mod text;

pub use attachment::AttachmentSpec;
pub use quota::{QuotaSpec, QuotaSpecs};
pub use text::{LocatedScalar, LocatedValue, Scalar};

/// Declares the written limit of a unit: fields of its own, then those that all units have.
macro_rules! unit_spec {
    (
        $(#[$of_struct:meta])*
        $name:ident { $($(#[$of_field:meta])* $field:ident: $of:ty,)* }
        ($capacity:ident, $burst:expr, $quota:expr)
    ) => {
        #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
        $(#[$of_struct])*
        pub struct $name {
            $(
                $(#[$of_field])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $field: Option<$of>,
            )*
            /// Fallback of each client without a lease; `dynamic` is the capacity over the clients.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[schema(inline, value_type = Option<schema::SafeSchema>)]
            pub safe: Option<LocatedScalar>,
            /// Length of a lease, such as `10s`; at most a day.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[schema(inline, value_type = Option<schema::DurationSchema>)]
            pub lease: Option<LocatedScalar>,
            /// Time between two refreshes of a client; shorter than the lease.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[schema(inline, value_type = Option<schema::DurationSchema>)]
            pub refresh: Option<LocatedScalar>,
            /// Least time between them, and the usual one while shares shift; at most `refresh`.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[schema(inline, value_type = Option<schema::DurationSchema>)]
            pub min_refresh: Option<LocatedScalar>,
            /// Part of the unwanted capacity that active clients get all the same; 0 to 1.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[schema(inline, value_type = Option<schema::FractionSchema>)]
            pub headroom: Option<LocatedScalar>,
            /// Part of the capacity that is kept for newcomers; 0 to 1.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[schema(inline, value_type = Option<schema::FractionSchema>)]
            pub reserve: Option<LocatedScalar>,
            /// `fair_share` (the default), `proportional_share`, `usage_share`, `max_rate`, `static`
            /// or `none`.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[schema(inline, value_type = Option<schema::AlgorithmSchema>)]
            pub algorithm: Option<LocatedScalar>,
            /// Capacity of each priority band, 0 to 15, before the others share the rest.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<BTreeMap<String, Scalar>>)]
            pub guaranteed: Option<BTreeMap<String, LocatedScalar>>,
        }

        impl LocatedValue<$name> {
            fn fields(&self) -> UnitFields<'_> {
                let spec = &self.value;
                let burst: fn(&$name) -> Option<&LocatedScalar> = $burst;
                let quota: fn(&$name) -> Option<&QuotaSpecs> = $quota;
                UnitFields {
                    at: self.at,
                    capacity: (stringify!($capacity), spec.$capacity.as_ref()),
                    burst: burst(spec),
                    quota: quota(spec),
                    safe: spec.safe.as_ref(),
                    lease: spec.lease.as_ref(),
                    refresh: spec.refresh.as_ref(),
                    min_refresh: spec.min_refresh.as_ref(),
                    headroom: spec.headroom.as_ref(),
                    reserve: spec.reserve.as_ref(),
                    algorithm: spec.algorithm.as_ref(),
                    guaranteed: spec.guaranteed.as_ref(),
                }
            }
        }
    };
}

unit_spec! {
    /// Limit of a unit that is a rate, as it is written.
    #[serde(deny_unknown_fields)]
    RateSpec {
        /// Per second unless it names another period (`10/min`), for the whole fleet; `0` blocks, `unlimited` is a
        /// word of its own.
        #[schema(inline, value_type = Option<schema::RateSchema>)]
        rate: LocatedScalar,
        /// At once after a pause, for the whole fleet; by default a second of the rate.
        #[schema(inline, value_type = Option<schema::QuantitySchema>)]
        burst: LocatedScalar,
        /// Amounts for the whole fleet within windows of time, beside the rate or without one.
        quota: QuotaSpecs,
    }
    (rate, |spec| spec.burst.as_ref(), |spec| spec.quota.as_ref())
}

unit_spec! {
    /// Limit of `concurrency`, a number of requests in flight, as it is written.
    #[serde(deny_unknown_fields)]
    ConcurrencySpec {
        /// In flight at a time, for the whole fleet; `0` blocks, `unlimited` is a word of its own.
        #[schema(inline, value_type = Option<schema::AmountSchema>)]
        max: LocatedScalar,
    }
    (max, |_| None, |_| None)
}

/// The limits of a scope, by unit; a unit that is absent or null has no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
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
#[serde(deny_unknown_fields)]
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
    /// Level at which the capacity is divided first: `members` (the default) or `clients`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline, value_type = Option<schema::FairBetweenSchema>)]
    pub fair_between: Option<LocatedScalar>,
}

/// Limits of a scope or a group for a time; a unit that is absent or null has no limit then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"requests": {"rate": "2k", "burst": "4k"}, "until": 4102444800_u64}))]
pub struct RaiseSpec {
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
    /// Its end, in whole seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub until: Option<LocatedScalar>,
}

/// Fields of the limit of one unit, whichever it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnitFields<'a> {
    /// Place of the limit.
    pub(crate) at: Location,
    /// `rate` or `max`, and its text.
    pub(crate) capacity: (&'static str, Option<&'a LocatedScalar>),
    pub(crate) burst: Option<&'a LocatedScalar>,
    pub(crate) quota: Option<&'a QuotaSpecs>,
    pub(crate) safe: Option<&'a LocatedScalar>,
    pub(crate) lease: Option<&'a LocatedScalar>,
    pub(crate) refresh: Option<&'a LocatedScalar>,
    pub(crate) min_refresh: Option<&'a LocatedScalar>,
    pub(crate) headroom: Option<&'a LocatedScalar>,
    pub(crate) reserve: Option<&'a LocatedScalar>,
    pub(crate) algorithm: Option<&'a LocatedScalar>,
    pub(crate) guaranteed: Option<&'a BTreeMap<String, LocatedScalar>>,
}

/// The units that are written, in their order.
pub(crate) type Units<'a> = Vec<(Unit, UnitFields<'a>)>;

/// Gives a type with a field for each unit the list of those that are written.
macro_rules! impl_units {
    ($name:ty) => {
        impl $name {
            /// The units that are written, in their order.
            pub(crate) fn units(&self) -> $crate::catalog::spec::Units<'_> {
                $crate::catalog::spec::units(
                    [&self.requests, &self.request_bytes, &self.response_bytes],
                    &self.concurrency,
                )
            }
        }
    };
}

pub(crate) use impl_units;

impl_units!(LimitsSpec);
impl_units!(GroupSpec);
impl_units!(RaiseSpec);

impl From<LimitsSpec> for RaiseSpec {
    fn from(limits: LimitsSpec) -> Self {
        Self {
            requests: limits.requests,
            request_bytes: limits.request_bytes,
            response_bytes: limits.response_bytes,
            concurrency: limits.concurrency,
            until: None,
        }
    }
}

impl From<GroupSpec> for RaiseSpec {
    fn from(group: GroupSpec) -> Self {
        Self {
            requests: group.requests,
            request_bytes: group.request_bytes,
            response_bytes: group.response_bytes,
            concurrency: group.concurrency,
            until: None,
        }
    }
}

// === free functions ===

/// The units that are written, in their order.
pub(crate) fn units<'a>(
    rates: [&'a Option<LocatedValue<RateSpec>>; 3],
    concurrency: &'a Option<LocatedValue<ConcurrencySpec>>,
) -> Units<'a> {
    let units = [Unit::Requests, Unit::RequestBytes, Unit::ResponseBytes];
    let rates = units.into_iter().zip(rates);
    let rates = rates.filter_map(|(unit, rate)| Some((unit, rate.as_ref()?.fields())));
    let concurrency = concurrency
        .as_ref()
        .map(LocatedValue::<ConcurrencySpec>::fields);
    rates
        .chain(concurrency.map(|fields| (Unit::Concurrency, fields)))
        .collect()
}
