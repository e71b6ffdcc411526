//! From the core's snapshot to the message.

use std::collections::BTreeMap;
use std::time::Duration;

use prost::Message as _;
use tollgate_core::fleet::FleetBucketSnapshot;
use tollgate_core::lease::{Band, ClientId, Priority, ResourceId};
use tollgate_core::lease_server::{ResourceSnapshot, Snapshot};
use tollgate_core::limit::{Algorithm, Guarantees, Limit, SafeCapacity};
use tollgate_core::resource::{ClientSnapshot, LeaseSnapshot};
use tollgate_core::units::RatePeriod;

use super::FORM;
use crate::request::from_run;
use crate::{number, v1};

/// Index of a list whose entries are there once.
struct Index<K> {
    places: BTreeMap<K, u32>,
}

/// The lists that a message refers to, as they grow.
struct Lists<'a> {
    clients: Index<&'a str>,
    /// By their bytes.
    limits: Index<Vec<u8>>,
    pools: BTreeMap<&'a ResourceId, u32>,
    message: v1::Snapshot,
}

// === impl Snapshot ===

impl From<&Snapshot> for v1::Snapshot {
    fn from(snapshot: &Snapshot) -> Self {
        let mut lists = Lists {
            clients: Index::new(),
            limits: Index::new(),
            pools: BTreeMap::new(),
            message: Self {
                epoch: snapshot.epoch.0,
                form: FORM,
                learning_for_ms: snapshot.learning_for.map(past_ms),
                ..Self::default()
            },
        };
        for (pool, index) in snapshot.pools.iter().zip(0..) {
            lists.pools.insert(&pool.id, index);
            let pool = v1::PoolSnapshot {
                scope: pool.id.scope.as_ref().to_owned(),
                unit: number::from_unit(pool.id.unit),
                limit: lists.limit(&pool.limit),
                crowded_ms: left_ms(pool.crowded),
                bucket: pool.bucket.map(Into::into),
                quotas: pool.quotas.iter().map(Into::into).collect(),
            };
            lists.message.pools.push(pool);
        }
        for resource in &snapshot.resources {
            let resource = lists.resource(resource);
            lists.message.resources.push(resource);
        }
        for (client, remaining) in &snapshot.drains {
            let drain = v1::DrainSnapshot {
                client: lists.client(client),
                remaining_ms: left_ms(*remaining),
            };
            lists.message.drains.push(drain);
        }
        lists.message
    }
}

// === impl Lists ===

impl<'a> Lists<'a> {
    fn client(&mut self, client: &'a ClientId) -> u32 {
        let (index, new) = self.clients.of(client.as_str());
        if new {
            self.message.clients.push(client.as_str().to_owned());
        }
        index
    }

    fn limit(&mut self, limit: &Limit) -> u32 {
        let limit = v1::LimitSnapshot::from(limit);
        let (index, new) = self.limits.of(limit.encode_to_vec());
        if new {
            self.message.limits.push(limit);
        }
        index
    }

    fn resource(&mut self, snapshot: &'a ResourceSnapshot) -> v1::ResourceSnapshot {
        let pool = snapshot.pool.as_ref();
        v1::ResourceSnapshot {
            scope: snapshot.id.scope.as_ref().to_owned(),
            unit: number::from_unit(snapshot.id.unit),
            limit: self.limit(&snapshot.limit),
            // A member's pool is in the snapshot; were it not, its index would be that of no pool.
            pool: pool.map(|(id, _)| self.pools.get(id).copied().unwrap_or(u32::MAX)),
            weight: pool.map_or(0, |(_, weight)| weight.get()),
            learning_ms: left_ms(snapshot.learning),
            crowded_ms: left_ms(snapshot.crowded),
            balance_ms: left_ms(snapshot.balance),
            bucket: snapshot.bucket.map(Into::into),
            quotas: snapshot.quotas.iter().map(Into::into).collect(),
            clients: snapshot
                .clients
                .iter()
                .map(|client_snapshot| self.client_snapshot(client_snapshot))
                .collect(),
        }
    }

    fn client_snapshot(&mut self, client_snapshot: &'a ClientSnapshot) -> v1::ClientSnapshot {
        let (incarnation, term) = from_run(client_snapshot.client.run);
        let mut message = v1::ClientSnapshot {
            client: self.client(&client_snapshot.client.id),
            incarnation,
            term,
            sequence: client_snapshot.sequence,
            capacity: client_snapshot.granted.capacity.as_micros(),
            remaining_ms: left_ms(client_snapshot.granted.remaining),
            granted_ago_ms: past_ms(client_snapshot.granted_ago),
            max_rate: client_snapshot.max_rate.map(|max| max.as_micros()),
            fingerprint: client_snapshot.fingerprint,
            prior: client_snapshot.prior.map(Into::into),
            throttled_for_ms: client_snapshot.throttled_for.map(past_ms),
            missed_in_ms: left_ms(client_snapshot.presence.missed_in),
            asked_ago_ms: past_ms(client_snapshot.presence.asked_ago),
            young_for_ms: left_ms(client_snapshot.presence.young_for),
            silent: client_snapshot.presence.silent,
            missed: client_snapshot.presence.missed,
            draws: client_snapshot.draws.is_offered,
            account: client_snapshot.draws.account,
            drawn: client_snapshot.draws.granted.as_micros(),
            holds: client_snapshot.draws.holds.as_micros(),
            standby: client_snapshot.draws.standby.as_micros(),
            ..v1::ClientSnapshot::default()
        };
        match client_snapshot.demand.bands() {
            [band] => {
                message.wants = band.wants.as_micros();
                message.priority = band.priority.level().into();
                message.subclients = number::from_subclients(band.subclients);
            }
            bands => message.bands = bands.iter().map(Into::into).collect(),
        }
        message
    }
}

// === impl Index ===

impl<K: Ord> Index<K> {
    fn new() -> Self {
        Self {
            places: BTreeMap::new(),
        }
    }

    /// The index of `key`, and whether it is new.
    fn of(&mut self, key: K) -> (u32, bool) {
        let next = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        let index = *self.places.entry(key).or_insert(next);
        (index, index == next)
    }
}

// === impl Limit ===

impl From<&Limit> for v1::LimitSnapshot {
    fn from(limit: &Limit) -> Self {
        Self {
            capacity: limit.capacity.as_micros(),
            burst: limit.burst.as_micros(),
            algorithm: algorithm(limit.algorithm).into(),
            safe: match limit.safe {
                SafeCapacity::Fixed(safe) => Some(safe.as_micros()),
                SafeCapacity::Client | SafeCapacity::Dynamic => None,
            },
            safe_dynamic: limit.safe == SafeCapacity::Dynamic,
            lease_ns: nanos(limit.lease),
            refresh_ns: nanos(limit.refresh),
            min_refresh_ns: nanos(limit.min_refresh),
            learning_ns: nanos(limit.learning),
            headroom: limit.headroom.as_micros(),
            reserve: limit.reserve.as_micros(),
            guaranteed: guaranteed(&limit.guaranteed),
            period_s: limit.period.map_or(0, RatePeriod::seconds),
        }
    }
}

// === impl Band and LeaseSnapshot ===

impl From<&Band> for v1::BandSnapshot {
    fn from(band: &Band) -> Self {
        Self {
            priority: band.priority.level().into(),
            wants: band.wants.as_micros(),
            subclients: band.subclients.get(),
        }
    }
}

impl From<LeaseSnapshot> for v1::LeaseSnapshot {
    fn from(lent: LeaseSnapshot) -> Self {
        Self {
            capacity: lent.capacity.as_micros(),
            remaining_ms: left_ms(lent.remaining),
        }
    }
}

impl From<FleetBucketSnapshot> for v1::FleetBucketSnapshot {
    fn from(bucket: FleetBucketSnapshot) -> Self {
        Self {
            left: bucket.left.as_micros(),
            whole: bucket.whole.as_micros(),
            owed: bucket.owed.as_micros(),
            lacking: bucket.lacking.as_micros(),
            turn_ms: left_ms(bucket.turn_in),
            pressure: bucket.pressure,
        }
    }
}

// === free functions ===

fn algorithm(algorithm: Algorithm) -> v1::limit_snapshot::Algorithm {
    match algorithm {
        Algorithm::None => v1::limit_snapshot::Algorithm::None,
        Algorithm::Static => v1::limit_snapshot::Algorithm::Static,
        Algorithm::ProportionalShare => v1::limit_snapshot::Algorithm::ProportionalShare,
        Algorithm::FairShare => v1::limit_snapshot::Algorithm::FairShare,
        Algorithm::UsageShare => v1::limit_snapshot::Algorithm::UsageShare,
        Algorithm::MaxRate => v1::limit_snapshot::Algorithm::MaxRate,
    }
}

fn guaranteed(guaranteed: &Guarantees) -> Vec<u64> {
    if guaranteed.is_none() {
        return Vec::new();
    }
    let bands = (0..).map_while(Priority::new);
    bands.map(|band| guaranteed.of(band).as_micros()).collect()
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Whole milliseconds that have passed, rounded down.
fn past_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Whole milliseconds that remain, rounded up.
fn left_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
