//! Metrics of the lease tables at the time of a scrape.
//!
//! Collected anew for each scrape, so a scope without leases has no series, and two scrapes at a time do
//! not mix.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tollgate_core::lease::Unit;

use super::{LeaseStats, ResourceStats};

/// Name of all scopes without series of their own.
const OTHER: &str = "other";

/// The name of a gauge, its help, and its value in some figures, if it has one.
type Figure = (
    &'static str,
    &'static str,
    fn(&ResourceStats) -> Option<f64>,
);

const OF_UNITS: [Figure; 7] = [
    ("resources", "Resources with clients", |f| {
        Some(f.resources as f64)
    }),
    ("clients", "Clients of all resources", |f| {
        Some(f.clients as f64)
    }),
    (
        "waiting_clients",
        "Clients that have less than they want",
        |f| Some(f.waiting as f64),
    ),
    ("learning_resources", "Resources in learning mode", |f| {
        Some(f.learning as f64)
    }),
    (
        "capacity",
        "Sum of the capacities of limited resources with clients",
        |f| Some(f.capacity),
    ),
    ("leased", "Sum of the leases of limited resources", |f| {
        Some(f.has)
    }),
    ("wanted", "Sum of what clients want", |f| Some(f.wants)),
];

const OF_SCOPES: [Figure; 6] = [
    ("scope_clients", "Clients of the scope", |f| {
        Some(f.clients as f64)
    }),
    (
        "scope_waiting_clients",
        "Clients of the scope that have less than they want",
        |f| Some(f.waiting as f64),
    ),
    (
        "scope_learning",
        "Whether the scope is in learning mode; of the others, how many are",
        |f| Some(f.learning as f64),
    ),
    (
        "scope_capacity",
        "Capacity of the scope; absent if it is unlimited",
        |f| limited(f, f.capacity),
    ),
    (
        "scope_has",
        "Sum of the leases of the scope; absent if it is unlimited",
        |f| limited(f, f.has),
    ),
    (
        "scope_wants",
        "Sum of what the clients of the scope want",
        |f| Some(f.wants),
    ),
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfUnit {
    unit: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfScope {
    scope: String,
    unit: &'static str,
}

// === impl LeaseStats ===

impl LeaseStats {
    /// Registers its figures.
    pub fn register(&self, registry: &mut Registry) {
        let units = Unit::ALL.map(|unit| {
            let figures = self.units.get(&unit).copied().unwrap_or_default();
            (OfUnit { unit: unit.name() }, figures)
        });
        gauges(registry, &OF_UNITS, &units);
        let scope = |scope: &str, unit: Unit| OfScope {
            scope: scope.to_owned(),
            unit: unit.name(),
        };
        let named = self.named.iter();
        let named = named.map(|(id, figures)| (scope(&id.scope, id.unit), *figures));
        let other = self.other.iter();
        let other = other.map(|(unit, figures)| (scope(OTHER, *unit), *figures));
        let scopes: Vec<_> = named.chain(other).collect();
        gauges(registry, &OF_SCOPES, &scopes);
    }
}

// === free functions ===

fn gauges<L>(registry: &mut Registry, kinds: &[Figure], all: &[(L, ResourceStats)])
where
    L: Clone + std::hash::Hash + Eq + EncodeLabelSet + std::fmt::Debug + Send + Sync + 'static,
{
    for &(name, help, value) in kinds {
        let family = Family::<L, Gauge<f64, AtomicU64>>::default();
        for (labels, figures) in all {
            if let Some(value) = value(figures) {
                family.get_or_create(labels).set(value);
            }
        }
        registry.register(name, help, family);
    }
}

fn limited(figures: &ResourceStats, value: f64) -> Option<f64> {
    (figures.unlimited < figures.resources).then_some(value)
}
