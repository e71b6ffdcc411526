//! Samples of a fleet, and remarks on its course.

use serde::Serialize;

/// State of a fleet at one time. Rates are requests per second.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sample {
    /// Seconds since the start.
    pub at: f64,
    /// Requests that come, over all scopes.
    pub wants: f64,
    /// Capacity of the scopes that are asked for; of scopes in a group that of the group.
    pub capacity: f64,
    /// Sum over these of the smaller of capacity and wants: there is no more to hand out.
    pub attainable: f64,
    /// Sum over these of the leases' capacity, as far as it is attainable.
    pub handed_out: f64,
    /// Sum of the leases' capacity.
    pub has: f64,
    /// Requests that went on since the last sample.
    pub admitted: f64,
    /// Requests that were refused since then.
    pub refused: f64,
    /// Envoys that run.
    pub envoys: u32,
    /// Leases that Envoys have.
    pub leases: u64,
    /// Scopes that Envoys know and have no lease of, although they had or asked for one.
    pub without_lease: u64,
    /// Requests that wait.
    pub waiting: u64,
    /// Messages since the last sample.
    pub messages: u64,
    /// The first scopes of the demand, and the first groups that they share.
    pub scopes: Vec<ScopeSample>,
    /// The first Envoys' part of the first scope.
    pub clients: Vec<ClientSample>,
}

/// State of one scope, or of a group: of all its members together. Rates are requests per second.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ScopeSample {
    /// Requests that come.
    pub wants: f64,
    /// Sum of the leases; none if they have no bound.
    pub has: Option<f64>,
    /// Its capacity; none if it has no limit, or one of each Envoy alone.
    pub capacity: Option<f64>,
    /// Requests that one bucket for the whole fleet would have let go on since the last sample; none if it
    /// has no limit.
    pub ideal: Option<f64>,
    /// Requests that went on since the last sample.
    pub admitted: f64,
    /// Requests that were refused since then.
    pub refused: f64,
}

/// State of one Envoy. Rates are requests per second.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ClientSample {
    /// Requests that come.
    pub wants: f64,
    /// Its lease; none if it has no bound.
    pub has: Option<f64>,
}

/// Remark on what happened.
#[derive(Clone, Debug, Serialize)]
pub struct Mark {
    /// Seconds since the start.
    pub at: f64,
    /// The event, in words.
    pub text: String,
}

/// Law that was seen broken, for the first time at one scope.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Violation {
    /// Seconds since the start.
    pub at: f64,
    /// Law and numbers.
    pub text: String,
}
