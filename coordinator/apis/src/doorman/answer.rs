//! From our answers to Doorman's.

use std::time::Duration;

use tollgate_core::lease::{Answer, Demand};
use tollgate_core::limit::{self, Limit};
use tollgate_leases::derived::DerivedAnswer;
use tollgate_proto::{doorman as wire, number};

use super::ask::ResourceAsk;

/// The shortest refresh interval that Doorman's clients can be told.
const REFRESH_MIN_S: i64 = 1;

/// Answer to a client for one resource.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answered {
    id: String,
    gets: wire::Lease,
    safe: f64,
    /// How the capacity is divided, for a server that lends it on.
    algorithm: Option<wire::Algorithm>,
}

// === impl Answered ===

impl Answered {
    /// Translates the answer `granted` to `asked`, whose request arrived `arrival` after 1970.
    ///
    /// `granted` is `None` if a bound was reached. Doorman cannot express that, and one resource
    /// must not fail the whole call: nothing is lent, and the client asks again.
    pub(super) fn new(
        asked: ResourceAsk,
        granted: Option<&DerivedAnswer>,
        arrival: Duration,
    ) -> Self {
        let id = asked.id;
        let Some(granted) = granted else {
            return Self {
                id,
                gets: nothing(arrival, Duration::ZERO),
                safe: 0.0,
                algorithm: None,
            };
        };
        // As Doorman: the capacity over the known clients, unless something is configured.
        let dynamic = || granted.answer.capacity.divided_by(granted.subclients);
        let safe = granted.answer.safe.unwrap_or_else(dynamic);
        Self {
            id,
            gets: lease(&asked.ask.demand, &granted.answer, arrival),
            safe: number::from_capacity(safe),
            algorithm: Some(algorithm(&granted.limit)),
        }
    }

    pub(super) fn for_client(self) -> wire::ResourceResponse {
        wire::ResourceResponse {
            resource_id: self.id,
            gets: self.gets,
            safe_capacity: Some(self.safe),
        }
    }

    pub(super) fn for_server(self) -> wire::ServerCapacityResourceResponse {
        wire::ServerCapacityResourceResponse {
            resource_id: self.id,
            gets: self.gets,
            algorithm: self.algorithm,
            safe_capacity: Some(self.safe),
        }
    }
}

// === free functions ===

fn algorithm(limit: &Limit) -> wire::Algorithm {
    use wire::algorithm::Kind;
    let kind = match limit.algorithm {
        _ if limit.capacity.is_unlimited() => Kind::NoAlgorithm,
        limit::Algorithm::None => Kind::NoAlgorithm,
        limit::Algorithm::Static => Kind::Static,
        limit::Algorithm::ProportionalShare => Kind::ProportionalShare,
        // The others are none of Doorman's: a server below ours divides fairly what it gets.
        limit::Algorithm::FairShare | limit::Algorithm::UsageShare | limit::Algorithm::MaxRate => {
            Kind::FairShare
        }
    };
    wire::Algorithm {
        kind: kind.into(),
        lease_length: seconds(limit.lease).max(1),
        refresh_interval: seconds(limit.refresh).max(REFRESH_MIN_S),
        parameters: Vec::new(),
        learning_mode_duration: Some(seconds(limit.learning)),
    }
}

fn lease(demand: &Demand, answer: &Answer, arrival: Duration) -> wire::Lease {
    let Some(terms) = answer.lease else {
        // Learning mode: the leases of other clients are not known yet.
        return nothing(arrival, answer.refresh_interval);
    };
    let capacity = if terms.capacity.is_unlimited() {
        // Doorman has no word for it either.
        demand.wants()
    } else {
        terms.capacity
    };
    wire::Lease {
        // Rounded down, and counted from the arrival: never longer than in the lease table.
        expiry_time: seconds(arrival.saturating_add(terms.duration)),
        refresh_interval: seconds(answer.refresh_interval).max(REFRESH_MIN_S),
        capacity: number::from_capacity(capacity),
    }
}

/// No capacity, until the client asks again.
fn nothing(arrival: Duration, refresh_interval: Duration) -> wire::Lease {
    let refresh_interval = seconds(refresh_interval).max(REFRESH_MIN_S);
    wire::Lease {
        expiry_time: seconds(arrival).saturating_add(refresh_interval),
        refresh_interval,
        capacity: 0.0,
    }
}

/// Whole seconds, rounded down.
fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}
