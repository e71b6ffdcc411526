//! From Doorman's requests to ours.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use tollgate_config::DoormanScopes;
use tollgate_core::lease::{Band, ClientId, Demand, IdError, Priority, ResourceId};
use tollgate_proto::request::SCOPES_MAX;
use tollgate_proto::{FieldError, Rule, doorman as wire, number};

use super::field;
use super::repeated_lease::{DoormanAsk, RepeatedLease};
use super::scopes::{find, prefixed, unprefixed};

/// Request for one resource.
#[derive(Clone, Debug)]
pub(super) struct ResourceAsk {
    /// As the client calls it.
    pub(super) id: String,
    pub(super) ask: DoormanAsk,
}

// === impl ResourceAsk ===

impl ResourceAsk {
    fn new(
        id: &str,
        has: Option<&wire::Lease>,
        demand: Demand,
        scopes: &DoormanScopes,
        now: Duration,
    ) -> Result<Self, FieldError> {
        Ok(Self {
            ask: DoormanAsk {
                resource: field("resource_id", find(scopes, id))?,
                repeated: has.map(|lease| repeated(lease, now)).transpose()?,
                demand,
            },
            id: id.to_owned(),
        })
    }
}

// === free functions ===

/// The client that calls itself `id` in `name`.
pub(super) fn client(name: &str, id: &str) -> Result<ClientId, FieldError> {
    if id.is_empty() {
        return Err(FieldError::new(name, IdError::Empty));
    }
    field(name, ClientId::new(&prefixed(id)).map_err(unprefixed))
}

/// Reads the requests of a client.
pub(super) fn of_client(
    resources: &[wire::ResourceRequest],
    scopes: &DoormanScopes,
    now: Duration,
) -> Result<Vec<ResourceAsk>, FieldError> {
    each(resources, "resource", |resource| {
        let band = Band {
            priority: Priority::nearest(resource.priority),
            wants: field("wants", number::to_capacity(resource.wants))?,
            subclients: NonZeroU32::MIN,
        };
        let has = resource.has.as_ref();
        ResourceAsk::new(&resource.resource_id, has, Demand::one(band), scopes, now)
    })
}

/// Reads the requests of a server for its clients.
pub(super) fn of_server(
    resources: &[wire::ServerCapacityResourceRequest],
    scopes: &DoormanScopes,
    now: Duration,
) -> Result<Vec<ResourceAsk>, FieldError> {
    each(resources, "resource", |resource| {
        let has = resource.has.as_ref();
        let demand = demand(&resource.wants)?;
        ResourceAsk::new(&resource.resource_id, has, demand, scopes, now)
    })
}

/// The resources that are given back; empty names are left out, because Doorman's Go client sends
/// some and means nothing by them.
pub(super) fn released(
    ids: &[String],
    scopes: &DoormanScopes,
) -> Result<Vec<ResourceId>, FieldError> {
    bounded(ids, "resource_id")?;
    let named = ids.iter().enumerate().filter(|(_, id)| !id.is_empty());
    named
        .map(|(i, id)| field(&format!("resource_id[{i}]"), find(scopes, id)))
        .collect()
}

/// Reads the lease that a client repeats; `now` is the wall clock's time.
fn repeated(lease: &wire::Lease, now: Duration) -> Result<RepeatedLease, FieldError> {
    let expiry = Duration::from_secs(u64::try_from(lease.expiry_time).unwrap_or(0));
    Ok(RepeatedLease {
        capacity: field("has.capacity", number::to_capacity(lease.capacity))?,
        remaining: expiry.saturating_sub(now),
    })
}

/// Bands of the priorities that we have; several of Doorman's can be one of ours.
fn demand(bands: &[wire::PriorityBandAggregate]) -> Result<Demand, FieldError> {
    let mut merged: BTreeMap<Priority, Band> = BTreeMap::new();
    let bands = each(bands, "wants", |band| {
        let clients = u32::try_from(band.num_clients.min(i64::from(u32::MAX)));
        let clients = clients.ok().and_then(NonZeroU32::new);
        Ok(Band {
            priority: Priority::nearest(band.priority),
            wants: field("wants", number::to_capacity(band.wants))?,
            subclients: field("num_clients", clients.ok_or(Rule::NoSubclients))?,
        })
    })?;
    for band in bands {
        let of_priority = merged.entry(band.priority);
        let add = |sum: &mut Band| {
            sum.wants = sum.wants.saturating_add(band.wants);
            sum.subclients = sum.subclients.saturating_add(band.subclients.get());
        };
        of_priority.and_modify(add).or_insert(band);
    }
    let bands: Vec<Band> = merged.into_values().collect();
    // Each priority is there once, so what can be wrong is that there is none.
    let demand = Demand::try_from_bands(&bands).map_err(|_| Rule::Empty);
    field("wants", demand)
}

/// Applies `read` to each entry of `list`; an error names the entry.
fn each<T, R>(
    list: &[T],
    name: &str,
    read: impl Fn(&T) -> Result<R, FieldError>,
) -> Result<Vec<R>, FieldError> {
    bounded(list, name)?;
    let entries = list.iter().enumerate();
    let read = entries.map(|(i, entry)| read(entry).map_err(|error| error.within(name, i)));
    read.collect()
}

/// Refuses a list that is so long that one call would keep all others waiting.
fn bounded<T>(list: &[T], name: &str) -> Result<(), FieldError> {
    let (count, max) = (list.len(), SCOPES_MAX);
    let too_many = (count > max).then(|| FieldError::new(name, Rule::TooMany { count, max }));
    too_many.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests;
