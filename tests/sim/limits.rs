//! Limits of a fleet, as a coordinator's configuration has them.

use std::rc::Rc;
use std::sync::Arc;

use crate::plan::Work;
use serde_json::{Map, Value, json};
use tollgate_config::Config;
use tollgate_config::catalog::Catalog;
use tollgate_core::lease::Unit;
use tollgate_core::limit::{Limit, SafeCapacity};
use tollgate_core::quota::Quota;
use tollgate_core::units::{Capacity, MICRO};
use tollgate_sim::limits::{LimitSource, PoolOfUnit, ScopeLimits, UnitLimit};

/// Sections `limits`, `groups` and `attach` of a configuration, all about one unit.
#[derive(Clone, Debug)]
pub(crate) struct LimitsFile {
    pub(crate) unit: Unit,
    /// Limits of tenants, by name.
    pub(crate) tenants: Vec<(&'static str, Limit)>,
    /// The group, if there is one.
    pub(crate) group: Option<GroupLimit>,
}

/// Limit of a group, and the tenants that are attached to it.
#[derive(Clone, Debug)]
pub(crate) struct GroupLimit {
    pub(crate) limit: Limit,
    /// Whether its capacity is divided between its members first.
    pub(crate) is_pool: bool,
    /// Tenants with their weights.
    pub(crate) attached: Vec<(String, u32)>,
}

/// Limits of a catalog.
#[derive(Debug)]
struct CatalogLimits(Catalog);

/// Name of the group.
pub(crate) const GROUP: &str = "gold";

// === impl LimitsFile ===

impl LimitsFile {
    /// Returns the limit of a tenant, or of the first ones together in a group if they are several.
    pub(crate) fn of_all(limit: &Limit, name: &'static str, work: Work) -> Self {
        let count = work.members();
        let group = || GroupLimit {
            limit: limit.clone(),
            is_pool: false,
            attached: (0..count).map(|k| (format!("t{k}"), 1)).collect(),
        };
        Self {
            unit: work.unit(),
            tenants: (count == 1)
                .then(|| (name, limit.clone()))
                .into_iter()
                .collect(),
            group: (count > 1).then(group),
        }
    }

    /// Returns the sections.
    pub(crate) fn sections(&self) -> Map<String, Value> {
        let tenants = self.tenants.iter().map(|(name, limit)| {
            let mut entry = self.units(limit);
            entry.insert("match".to_owned(), format!("tenant/{name}").into());
            Value::Object(entry)
        });
        let mut sections = Map::new();
        sections.insert("limits".to_owned(), tenants.collect());
        if let Some(group) = &self.group {
            let mut entry = self.units(&group.limit);
            let fair_between = if group.is_pool { "members" } else { "clients" };
            entry.insert("fair_between".to_owned(), fair_between.into());
            sections.insert("groups".to_owned(), json!({GROUP: entry}));
            let attached = group.attached.iter();
            let attached = attached.map(|(name, weight)| {
                let attachment = if group.is_pool {
                    json!({"group": GROUP, "weight": weight})
                } else {
                    json!({"group": GROUP})
                };
                (name.clone(), attachment)
            });
            let tenants: Map<String, Value> = attached.collect();
            sections.insert("attach".to_owned(), json!({"tenants": tenants}));
        }
        sections
    }

    /// Returns the limits as the simulation takes them.
    pub(crate) fn source(&self) -> Rc<dyn LimitSource> {
        source(&self.sections())
    }

    fn units(&self, limit: &Limit) -> Map<String, Value> {
        let unit = limit_spec(self.unit, limit);
        Map::from_iter([(self.unit.name().to_owned(), unit)])
    }
}

// === impl CatalogLimits ===

impl LimitSource for CatalogLimits {
    fn limits_of(&self, scope: &Arc<str>) -> ScopeLimits {
        let resolved = self.0.resolve(scope);
        let units = Unit::ALL.into_iter().filter_map(|unit| {
            let terms = resolved.terms(unit)?;
            let pool = terms.pool.map(|pool| PoolOfUnit {
                id: pool.pool.clone(),
                limit: pool.limit.clone(),
                weight: pool.weight,
            });
            let limit = terms.limit.clone();
            Some(UnitLimit { unit, limit, pool })
        });
        ScopeLimits {
            units: units.collect(),
            canonical: resolved.canonical.clone(),
            home: resolved.home().into(),
            limited: resolved.limited.clone(),
        }
    }
}

// === free functions ===

/// Returns the limits of the sections of a configuration.
pub(crate) fn source(sections: &Map<String, Value>) -> Rc<dyn LimitSource> {
    let text = Value::Object(sections.clone()).to_string();
    let config = Config::parse(&text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    Rc::new(CatalogLimits(Catalog::new(config.catalog.clone())))
}

/// Changes the capacity as an operator does; no safe capacity is above the capacity.
pub(crate) fn set_capacity(limit: &mut Limit, capacity: Capacity) {
    limit.capacity = capacity;
    if let SafeCapacity::Fixed(safe) = &mut limit.safe {
        *safe = (*safe).min(capacity);
    }
}

/// Returns a limit as it is written.
fn limit_spec(unit: Unit, limit: &Limit) -> Value {
    let capacity = if limit.capacity.is_unlimited() {
        json!("unlimited")
    } else {
        json!(limit.capacity.as_f64())
    };
    let times = [
        ("lease", limit.lease),
        ("refresh", limit.refresh),
        ("min_refresh", limit.min_refresh),
    ];
    let times = times.map(|(name, time)| (name, json!(format!("{}ms", time.as_millis()))));
    let parts = [("headroom", limit.headroom), ("reserve", limit.reserve)];
    let parts = parts.map(|(name, part)| (name, json!(f64::from(part.as_micros()) / 1e6)));
    let fields = times.into_iter().chain(parts);
    let fields = fields.map(|(name, value)| (name.to_owned(), value));
    let mut spec: Map<String, Value> = fields.collect();
    spec.insert("algorithm".to_owned(), limit.algorithm.name().into());
    if !limit.quotas.is_empty() {
        let quota = |quota: &Quota| {
            let amount = quota.amount.as_micros() as f64 / MICRO as f64;
            json!({"amount": amount, "per": quota.period.to_string()})
        };
        let quotas: Vec<_> = limit.quotas.iter().map(quota).collect();
        spec.insert("quota".to_owned(), json!(quotas));
    }
    if unit.is_concurrency() {
        spec.insert("max".to_owned(), capacity)
    } else {
        spec.insert("rate".to_owned(), capacity)
    };
    if !unit.is_concurrency() && !limit.capacity.is_unlimited() {
        let burst = limit.burst.as_micros() as f64 / MICRO as f64;
        spec.insert("burst".to_owned(), json!(burst));
    }
    match limit.safe {
        SafeCapacity::Client => {}
        SafeCapacity::Fixed(safe) => {
            spec.insert("safe".to_owned(), json!(safe.as_f64()));
        }
        SafeCapacity::Dynamic => {
            spec.insert("safe".to_owned(), json!("dynamic"));
        }
    }
    Value::Object(spec)
}
