//! Fallbacks of a configuration: what each Envoy admits under its limits without a lease.

use serde::Serialize;
use tollgate_admin::view::{Amount, LimitView};
use tollgate_config::catalog::FileCatalog;
use tollgate_core::client::{KnownLimit, Policy};
use tollgate_core::lease::Unit;
use tollgate_core::limit::{Limit, SafeCapacity};
use tollgate_core::units::Capacity;

use crate::failure::Failure;
use crate::print;

/// Rows that are shown to people.
const ROWS_MAX: usize = 20;

/// Capacity of each Envoy without a lease under one limit.
#[derive(Debug, Serialize)]
pub(super) struct Fallback {
    /// The `match` of the limit, or the scope of the group.
    of: String,
    unit: &'static str,
    /// For each Envoy, whose filter has no settings of its own.
    each_envoy: Amount,
    /// The limit for the period for which it was written, if it named one.
    #[serde(skip)]
    written: Option<String>,
    /// Tokens at once; null for requests in flight.
    at_once: Option<Amount>,
    why: String,
}

// === impl Fallback ===

impl Fallback {
    /// The fallbacks of all limits of `catalog`, in their order, then those of its groups.
    pub(super) fn all(catalog: &FileCatalog) -> Vec<Self> {
        let limits = catalog.limits.in_order().into_iter();
        let limits = limits.map(|matched| (matched.pattern.to_string(), matched.limits.clone()));
        let groups = catalog.groups.values();
        let groups = groups.map(|group| (group.scope().to_string(), group.limits().clone()));
        let all = limits.chain(groups).flat_map(|(of, limits)| {
            let fallbacks = limits
                .iter()
                .map(|(unit, limit)| Self::new(&of, unit, limit));
            fallbacks.collect::<Vec<_>>()
        });
        all.collect()
    }

    fn new(of: &str, unit: Unit, limit: &Limit) -> Self {
        let policy = Policy::default();
        let unlimited = limit.capacity.is_unlimited();
        let known = KnownLimit {
            capacity: limit.capacity,
            burst: (!unlimited).then_some(limit.burst),
            safe: match limit.safe {
                SafeCapacity::Fixed(safe) => Some(safe),
                SafeCapacity::Client if !unlimited => None,
                SafeCapacity::Dynamic | SafeCapacity::Client => Some(limit.capacity),
            },
        };
        let capacity = policy.without_lease(unit, Some(known), Capacity::ZERO);
        let (_, burst) = policy.flow_without_lease(unit, Some(known), Capacity::ZERO);
        let burst = if capacity.is_unlimited() {
            capacity
        } else {
            Capacity::from_micros(burst.as_micros())
        };
        Self {
            of: of.to_owned(),
            unit: unit.name(),
            each_envoy: capacity.into(),
            written: LimitView::new(unit, limit).written,
            at_once: (!unit.is_concurrency()).then(|| burst.into()),
            why: why(unit, limit, &policy),
        }
    }

    fn row(&self) -> Vec<String> {
        let amount = |amount: Amount| amount.text(self.unit);
        vec![
            self.of.clone(),
            self.unit.to_owned(),
            self.each_envoy.text_as(self.unit, self.written.as_deref()),
            print::or_dash(self.at_once.map(amount)),
            self.why.clone(),
        ]
    }
}

// === free functions ===

fn why(unit: Unit, limit: &Limit, policy: &Policy) -> String {
    match limit.safe {
        SafeCapacity::Fixed(_) => "safe".to_owned(),
        _ if limit.capacity.is_unlimited() => "there is no limit".to_owned(),
        SafeCapacity::Dynamic => "at most: the limit over the known Envoys".to_owned(),
        SafeCapacity::Client if limit.capacity <= policy.safe_of(unit) => {
            "the whole limit, for want of safe".to_owned()
        }
        SafeCapacity::Client => "for want of safe, unless its filter says otherwise".to_owned(),
    }
}

/// Prints the fallbacks for people; of many the first ones.
pub(super) fn show(fallbacks: &[Fallback]) -> Result<(), Failure> {
    if fallbacks.is_empty() {
        return Ok(());
    }
    let rows = fallbacks.iter().take(ROWS_MAX).map(Fallback::row).collect();
    print::table("WITHOUT A LEASE|UNIT|EACH ENVOY|AT ONCE|WHY", rows)?;
    match fallbacks.len().saturating_sub(ROWS_MAX) {
        0 => Ok(()),
        more => print::lines(&format!("and {more} more; --json has all")),
    }
}
