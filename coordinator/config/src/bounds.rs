//! Section `bounds`: the most that the coordinator keeps.

use serde::Deserialize;
use tollgate_core::lease_server::Bounds;

use crate::catalog::CatalogBounds;
use crate::catalog::check::{Check, Rule};
use crate::catalog::spec::LocatedScalar;

/// More than any machine holds; keeps a typing error from meaning "no bound".
const COUNT_MAX: usize = 1_000_000_000;

/// The most leases by default.
const LEASES_MAX: usize = 1_000_000;

/// The most buckets of a shard that are stored by default.
const DURABLE_MAX: usize = 100_000;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawBounds {
    max_resources: Option<LocatedScalar>,
    max_clients_per_resource: Option<LocatedScalar>,
    max_leases: Option<LocatedScalar>,
    max_durable: Option<LocatedScalar>,
    max_groups: Option<LocatedScalar>,
    max_attachments: Option<LocatedScalar>,
    max_overrides: Option<LocatedScalar>,
    max_raises: Option<LocatedScalar>,
}

// === free functions ===

/// Checks the bounds of lease tables.
pub(super) fn bounds(check: &mut Check, raw: Option<&RawBounds>) -> Bounds {
    let mut bounds = Bounds {
        max_resources: 100_000,
        max_clients_per_resource: 100_000,
        max_leases: LEASES_MAX,
        max_durable: DURABLE_MAX,
    };
    let Some(raw) = raw else { return bounds };
    let (resources, clients) = (&raw.max_resources, &raw.max_clients_per_resource);
    set(check, "max_resources", resources, &mut bounds.max_resources);
    let of_clients = &mut bounds.max_clients_per_resource;
    set(check, "max_clients_per_resource", clients, of_clients);
    set(check, "max_leases", &raw.max_leases, &mut bounds.max_leases);
    let durable = &raw.max_durable;
    set(check, "max_durable", durable, &mut bounds.max_durable);
    bounds
}

/// Checks the bounds of groups, attachments and overrides that are written through the API.
pub(super) fn catalog_bounds(check: &mut Check, raw: Option<&RawBounds>) -> CatalogBounds {
    let mut bounds = CatalogBounds::default();
    let Some(raw) = raw else { return bounds };
    let (attachments, overrides) = (&raw.max_attachments, &raw.max_overrides);
    set(check, "max_groups", &raw.max_groups, &mut bounds.max_groups);
    set(
        check,
        "max_attachments",
        attachments,
        &mut bounds.max_attachments,
    );
    set(check, "max_overrides", overrides, &mut bounds.max_overrides);
    set(check, "max_raises", &raw.max_raises, &mut bounds.max_raises);
    bounds
}

fn set(check: &mut Check, name: &str, text: &Option<LocatedScalar>, bound: &mut usize) {
    check.set(bound, text, &format!("bounds.{name}"), count);
}

/// Reads a bound.
pub(super) fn count(text: &str) -> Result<usize, Rule> {
    let count = text.parse().ok();
    let count = count.filter(|count| (1..=COUNT_MAX).contains(count));
    count.ok_or_else(|| format!("{text:?} is not a whole number from 1 to {COUNT_MAX}").into())
}
