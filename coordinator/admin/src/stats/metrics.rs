//! Metrics of the lease tables at the time of a scrape.
//!
//! Collected anew for each scrape, so a scope without leases has no series, and two scrapes at a time do
//! not mix.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tollgate_core::lease::Unit;

use super::{LeaseStats, ResourceStats};

/// Name of all scopes without series of their own.
const OTHER: &str = "other";

/// Labels of a series: scope and unit, or the unit alone.
type Labels = Vec<(&'static str, String)>;

// === impl LeaseStats ===

impl LeaseStats {
    /// Registers its figures.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let help = "Tokens that clients have drawn of limits that are not leased";
        registry.register("drawn", help, ConstCounter::new(self.drawn));
        self.register_units(registry);
        self.register_scopes(registry);
        self.register_top(registry);
    }

    fn register_units(&self, registry: &mut Registry) {
        let units = Unit::ALL.map(|unit| {
            let figures = self.units.get(&unit).copied().unwrap_or_default();
            (vec![("unit", unit.name().to_owned())], figures)
        });
        let mut gauge = |name, help, value: fn(&ResourceStats) -> f64| {
            register_gauge(registry, (name, help), &units, |f| Some(value(f)));
        };
        gauge("resources", "Resources with clients", |f| {
            f.resources as f64
        });
        gauge("clients", "Clients of all resources", |f| f.clients as f64);
        let help = "Clients that get less than they want";
        gauge("waiting_clients", help, |f| f.waiting as f64);
        let help = "Resources in learning mode";
        gauge("learning_resources", help, |f| f.learning as f64);
        let help = "Sum of the capacities of limited resources with clients";
        gauge("capacity", help, |f| f.capacity);
        gauge("leased", "Sum of the leases of limited resources", |f| {
            f.has
        });
        gauge("wanted", "Sum of what clients want", |f| f.wants);
        let help = "Sum of what clients were asked for in the last ten to twenty seconds";
        gauge("attempts_per_second", help, |f| f.attempts_per_second);
        let help = "The part of these attempts that clients refused";
        gauge("refused_per_second", help, |f| f.refused_per_second);
    }

    fn register_scopes(&self, registry: &mut Registry) {
        let named = self.named.iter();
        let named = named.map(|(id, figures)| (labels(&id.scope, id.unit), *figures));
        let other = self.other.iter();
        let other = other.map(|(unit, figures)| (labels(OTHER, *unit), *figures));
        let scopes: Vec<_> = named.chain(other).collect();
        let mut gauge = |name, help, value: fn(&ResourceStats) -> Option<f64>| {
            register_gauge(registry, (name, help), &scopes, value);
        };
        gauge("scope_clients", "Clients of the scope", |f| {
            Some(f.clients as f64)
        });
        let help = "Clients of the scope that get less than they want";
        gauge("scope_waiting_clients", help, |f| Some(f.waiting as f64));
        let help = "Whether the scope is in learning mode; of the others, how many are";
        gauge("scope_learning", help, |f| Some(f.learning as f64));
        let help = "Capacity of the scope; absent if it is unlimited";
        gauge("scope_capacity", help, |f| limited(f, f.capacity));
        let help = "Sum of the leases of the scope; absent if it is unlimited";
        gauge("scope_has", help, |f| limited(f, f.has));
        let help = "Sum of what the clients of the scope want";
        gauge("scope_wants", help, |f| Some(f.wants));
        let help = "What clients of the scope were asked for in the last ten to twenty seconds";
        gauge("scope_attempts_per_second", help, |f| {
            Some(f.attempts_per_second)
        });
        let help = "The part of these attempts that they refused";
        gauge("scope_refused_per_second", help, |f| {
            Some(f.refused_per_second)
        });
    }

    /// Registers the figures of the first resources, which are in the other series as well.
    fn register_top(&self, registry: &mut Registry) {
        if self.first.is_empty() {
            return;
        }
        let top = self.first.iter();
        let top = top.map(|(id, figures)| (labels(&id.scope, id.unit), *figures));
        let top: Vec<_> = top.collect();
        let mut gauge = |name, help, value: fn(&ResourceStats) -> Option<f64>| {
            register_gauge(registry, (name, help), &top, value);
        };
        let help = "Capacity of a scope of the busiest; absent if it is unlimited";
        gauge("top_scope_capacity", help, |f| limited(f, f.capacity));
        let help = "Sum of the leases of a scope of the busiest; absent if it is unlimited";
        gauge("top_scope_has", help, |f| limited(f, f.has));
        let help = "Sum of what the clients of a scope of the busiest want";
        gauge("top_scope_wants", help, |f| Some(f.wants));
        let help =
            "What clients of a scope of the busiest refused in the last ten to twenty seconds";
        gauge("top_scope_refused_per_second", help, |f| {
            Some(f.refused_per_second)
        });
        let help = "Clients of a scope of the busiest that get less than they want";
        gauge("top_scope_waiting_clients", help, |f| {
            Some(f.waiting as f64)
        });
    }
}

// === free functions ===

/// Labels of the series of a scope.
fn labels(scope: &str, unit: Unit) -> Labels {
    let unit = unit.name().to_owned();
    vec![("scope", scope.to_owned()), ("unit", unit)]
}

/// Registers a gauge with the series for which `value` says something.
fn register_gauge(
    registry: &mut Registry,
    (name, help): (&str, &str),
    series: &[(Labels, ResourceStats)],
    value: impl Fn(&ResourceStats) -> Option<f64>,
) {
    let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
    for (labels, figures) in series {
        if let Some(value) = value(figures) {
            family.get_or_create(labels).set(value);
        }
    }
    registry.register(name, help, family);
}

fn limited(figures: &ResourceStats, value: f64) -> Option<f64> {
    (figures.unlimited < figures.resources).then_some(value)
}
