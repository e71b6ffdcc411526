//! From the message to the core's snapshot.

use std::num::NonZeroU32;
use std::time::Duration;

use tollgate_core::fleet::FleetBucketSnapshot;
use tollgate_core::lease::{Band, ClientId, ClientRun, Demand, Epoch, Priority, ResourceId};
use tollgate_core::lease_server::{ResourceSnapshot, Snapshot};
use tollgate_core::limit::{Algorithm, Guarantees, Limit, Part, SafeCapacity};
use tollgate_core::pool::PoolSnapshot;
use tollgate_core::quota::Quotas;
use tollgate_core::resource::{ClientDraws, ClientSnapshot, LeaseSnapshot, PresenceSnapshot};
use tollgate_core::units::{Capacity, RatePeriod, Tokens};

use super::FORM;
use crate::field::{FieldError, Rule};
use crate::request::{client_id, priority, subclients, to_run};
use crate::{number, v1};

/// Lists that the rest of a message refers to.
struct Lists {
    clients: Vec<ClientId>,
    limits: Vec<Limit>,
    pools: Vec<ResourceId>,
}

// === impl Snapshot ===

impl TryFrom<v1::Snapshot> for Snapshot {
    type Error = FieldError;

    fn try_from(message: v1::Snapshot) -> Result<Self, FieldError> {
        if message.form != FORM {
            return Err(FieldError::new("form", Rule::Form(message.form)));
        }
        let mut lists = Lists {
            clients: each("clients", &message.clients, |id| client_id(id))?,
            limits: each("limits", &message.limits, |limit| limit.try_into())?,
            pools: Vec::new(),
        };
        let pools = each("pools", &message.pools, |pool| lists.pool(pool))?;
        lists.pools = pools.iter().map(|pool| pool.id.clone()).collect();
        Ok(Self {
            epoch: Epoch(message.epoch),
            learning_for: message.learning_for_ms.map(Duration::from_millis),
            resources: each("resources", &message.resources, |r| lists.resource(r))?,
            drains: each("drains", &message.drains, |drain| lists.drain(drain))?,
            pools,
        })
    }
}

// === impl Lists ===

impl Lists {
    fn pool(&self, message: &v1::PoolSnapshot) -> Result<PoolSnapshot, FieldError> {
        Ok(PoolSnapshot {
            id: resource_id(&message.scope, message.unit)?,
            limit: at("limit", &self.limits, message.limit)?.clone(),
            crowded: Duration::from_millis(message.crowded_ms),
            bucket: message.bucket.as_ref().map(bucket),
            quotas: message.quotas.iter().map(Into::into).collect(),
        })
    }

    fn resource(&self, message: &v1::ResourceSnapshot) -> Result<ResourceSnapshot, FieldError> {
        let pool = message.pool.map(|pool| {
            let pool = at("pool", &self.pools, pool)?.clone();
            let weight = NonZeroU32::new(message.weight);
            let weight = weight.ok_or_else(|| FieldError::new("weight", Rule::NoSubclients))?;
            Ok((pool, weight))
        });
        Ok(ResourceSnapshot {
            id: resource_id(&message.scope, message.unit)?,
            limit: at("limit", &self.limits, message.limit)?.clone(),
            pool: pool.transpose()?,
            learning: Duration::from_millis(message.learning_ms),
            crowded: Duration::from_millis(message.crowded_ms),
            balance: Duration::from_millis(message.balance_ms),
            bucket: message.bucket.as_ref().map(bucket),
            quotas: message.quotas.iter().map(Into::into).collect(),
            clients: each("clients", &message.clients, |client_snapshot| {
                self.client_snapshot(client_snapshot)
            })?,
        })
    }

    fn client_snapshot(&self, message: &v1::ClientSnapshot) -> Result<ClientSnapshot, FieldError> {
        let prior = message.prior.as_ref().map(|prior| {
            let prior = lent(prior.capacity, prior.remaining_ms);
            prior.map_err(|error| FieldError {
                path: format!("prior.{}", error.path),
                ..error
            })
        });
        let max_rate = message.max_rate.map(|max| capacity("max_rate", max));
        Ok(ClientSnapshot {
            client: ClientRun {
                id: at("client", &self.clients, message.client)?.clone(),
                run: to_run((message.incarnation, message.term))?,
            },
            sequence: message.sequence,
            demand: demand(message)?,
            granted: lent(message.capacity, message.remaining_ms)?,
            granted_ago: Duration::from_millis(message.granted_ago_ms),
            max_rate: max_rate.transpose()?,
            fingerprint: message.fingerprint,
            prior: prior.transpose()?,
            presence: PresenceSnapshot {
                missed_in: Duration::from_millis(message.missed_in_ms),
                silent: message.silent,
                missed: message.missed,
                asked_ago: Duration::from_millis(message.asked_ago_ms),
                young_for: Duration::from_millis(message.young_for_ms),
            },
            throttled_for: message.throttled_for_ms.map(Duration::from_millis),
            draws: ClientDraws {
                account: message.account,
                is_offered: message.draws,
                granted: Tokens::from_micros(message.drawn),
                holds: Tokens::from_micros(message.holds),
                standby: Capacity::from_micros(message.standby),
            },
        })
    }

    fn drain(&self, message: &v1::DrainSnapshot) -> Result<(ClientId, Duration), FieldError> {
        let client = at("client", &self.clients, message.client)?.clone();
        Ok((client, Duration::from_millis(message.remaining_ms)))
    }
}

// === impl Limit ===

impl TryFrom<&v1::LimitSnapshot> for Limit {
    type Error = FieldError;

    fn try_from(message: &v1::LimitSnapshot) -> Result<Self, FieldError> {
        let fixed = message
            .safe
            .map(|safe| capacity("safe", safe))
            .transpose()?;
        let limit = Self {
            capacity: capacity("capacity", message.capacity)?,
            period: RatePeriod::from_seconds(message.period_s),
            burst: Tokens::from_micros(message.burst),
            algorithm: algorithm(message.algorithm)?,
            safe: match fixed {
                Some(safe) => SafeCapacity::Fixed(safe),
                None if message.safe_dynamic => SafeCapacity::Dynamic,
                None => SafeCapacity::Client,
            },
            lease: Duration::from_nanos(message.lease_ns),
            refresh: Duration::from_nanos(message.refresh_ns),
            min_refresh: Duration::from_nanos(message.min_refresh_ns),
            learning: Duration::from_nanos(message.learning_ns),
            headroom: part("headroom", message.headroom)?,
            reserve: part("reserve", message.reserve)?,
            guaranteed: guaranteed(&message.guaranteed)?,
            // They come with the first refresh.
            quotas: Quotas::default(),
        };
        let valid = limit.validate();
        valid.map_err(|error| FieldError::new("limit", error))?;
        Ok(limit)
    }
}

// === impl Band ===

impl TryFrom<&v1::BandSnapshot> for Band {
    type Error = FieldError;

    fn try_from(message: &v1::BandSnapshot) -> Result<Self, FieldError> {
        Ok(Self {
            priority: priority(message.priority)?,
            wants: capacity("wants", message.wants)?,
            subclients: subclients(message.subclients)?,
        })
    }
}

// === free functions ===

/// Applies `read` to each of the messages `list`.
fn each<T, U>(
    list: &str,
    messages: &[T],
    read: impl Fn(&T) -> Result<U, FieldError>,
) -> Result<Vec<U>, FieldError> {
    let messages = messages.iter().enumerate();
    messages
        .map(|(i, message)| read(message).map_err(|error| error.within(list, i)))
        .collect()
}

/// The entry of `list` to which `field` points.
fn at<'a, T>(field: &str, list: &'a [T], index: u32) -> Result<&'a T, FieldError> {
    let entry = usize::try_from(index).ok().and_then(|i| list.get(i));
    entry.ok_or_else(|| {
        let len = list.len();
        FieldError::new(field, Rule::Index { index, len })
    })
}

fn bucket(message: &v1::FleetBucketSnapshot) -> FleetBucketSnapshot {
    FleetBucketSnapshot {
        left: Tokens::from_micros(message.left),
        whole: Tokens::from_micros(message.whole),
        owed: Tokens::from_micros(message.owed),
        lacking: Tokens::from_micros(message.lacking),
        turn_in: Duration::from_millis(message.turn_ms),
        pressure: message.pressure,
    }
}

fn resource_id(scope: &str, unit: i32) -> Result<ResourceId, FieldError> {
    let unit = number::to_unit(unit).map_err(|rule| FieldError::new("unit", rule))?;
    ResourceId::new(scope, unit).map_err(|error| FieldError::new("scope", error))
}

fn capacity(field: &str, micros: u64) -> Result<Capacity, FieldError> {
    if micros == Capacity::UNLIMITED.as_micros() {
        return Ok(Capacity::UNLIMITED);
    }
    if micros > Capacity::MAX.as_micros() {
        return Err(FieldError::new(field, Rule::Micros(micros)));
    }
    Ok(Capacity::from_micros(micros))
}

fn lent(micros: u64, remaining_ms: u64) -> Result<LeaseSnapshot, FieldError> {
    let remaining = number::to_remaining(remaining_ms);
    Ok(LeaseSnapshot {
        capacity: capacity("capacity", micros)?,
        remaining: remaining.map_err(|rule| FieldError::new("remaining_ms", rule))?,
    })
}

/// The simple form, unless there are bands.
fn demand(message: &v1::ClientSnapshot) -> Result<Demand, FieldError> {
    if message.bands.is_empty() {
        return Ok(Demand::one(Band {
            priority: priority(message.priority)?,
            wants: capacity("wants", message.wants)?,
            subclients: NonZeroU32::new(message.subclients).unwrap_or(NonZeroU32::MIN),
        }));
    }
    let bands: Vec<Band> = each("bands", &message.bands, |band| band.try_into())?;
    Demand::try_from_bands(&bands).map_err(|error| FieldError::new("bands", error))
}

fn algorithm(number: i32) -> Result<Algorithm, FieldError> {
    use v1::limit_snapshot::Algorithm as Message;
    match Message::try_from(number) {
        Ok(Message::None) => Ok(Algorithm::None),
        Ok(Message::Static) => Ok(Algorithm::Static),
        Ok(Message::ProportionalShare) => Ok(Algorithm::ProportionalShare),
        Ok(Message::FairShare) => Ok(Algorithm::FairShare),
        Ok(Message::UsageShare) => Ok(Algorithm::UsageShare),
        Ok(Message::MaxRate) => Ok(Algorithm::MaxRate),
        Ok(Message::Unspecified) | Err(_) => {
            Err(FieldError::new("algorithm", Rule::UnknownAlgorithm(number)))
        }
    }
}

fn part(field: &str, micros: u32) -> Result<Part, FieldError> {
    Part::try_from_micros(micros).ok_or_else(|| FieldError::new(field, Rule::Part(micros)))
}

fn guaranteed(bands: &[u64]) -> Result<Guarantees, FieldError> {
    let (count, max) = (bands.len(), Priority::COUNT);
    if count > max {
        return Err(FieldError::new("guaranteed", Rule::TooMany { count, max }));
    }
    let mut guaranteed = Guarantees::default();
    for (level, micros) in (0..).map_while(Priority::new).zip(bands) {
        guaranteed = guaranteed.with(level, capacity("guaranteed", *micros)?);
    }
    Ok(guaranteed)
}
