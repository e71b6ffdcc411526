//! Envoys and coordinators of a scenario.

use serde::{Deserialize, Serialize};

use super::quantity::{Amount, Share, Span};

/// Envoys that are alike: each is one process, and one client of its coordinator.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct EnvoyGroup {
    /// Name, for demand, events and reports.
    pub name: String,
    /// Number of Envoys.
    pub count: u32,
    /// Worker threads of each.
    pub workers: u32,
    /// Region, for the network; empty is one, too.
    pub region: String,
    /// Coordinator that they ask; the first one if none is named.
    pub coordinator: Option<String>,
    /// Time over which their starts are spread.
    pub start_over: Span,
    /// Interval of a worker's ticks while nothing is urgent.
    pub tick: Span,
    /// The most scopes that a process knows.
    pub max_scopes: u32,
    /// Requests per second of a scope without a lease, unless its limit says otherwise.
    pub safe: Amount,
    /// Rule for a scope without a lease.
    pub no_lease: NoLease,
    /// Time for which a scope's first requests may be held for its first lease.
    pub first_lease_wait: Span,
    /// Time after which a call to the coordinator counts as lost.
    pub call_timeout: Span,
    /// Longest time for which requests beyond the limit wait their turn; zero refuses them at once.
    pub max_wait: Span,
    /// Most by which their clocks are too fast or too slow, in millionths.
    pub drift_ppm: u32,
    /// Bytes per second of a scope without a lease, in each direction, unless its limit says otherwise.
    pub safe_bytes: Amount,
    /// The same for requests in flight.
    pub safe_concurrency: Amount,
    /// Priority band of their requests, 0 to 15.
    pub priority: u8,
    /// Time without requests after which a lease is given back.
    pub idle_after: Span,
    /// The most that may be owed for bytes that have passed, as a time at the present rate.
    pub max_debt: Span,
    /// Time by which requests may be decided late, those of so long together; also the shortest
    /// interval of a worker's ticks.
    pub resolution: Span,
    /// Chance at each access to shared data that another worker runs first.
    pub interleaving: Share,
    /// Chance at each tick of a worker that the caller of a waiting request gives up.
    pub gives_up: Share,
    /// Whether a restarted process has the client id of the one before, in a new incarnation.
    pub keeps_id: bool,
}

/// Rule for a scope without a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoLease {
    /// The safe capacity.
    #[default]
    Safe,
    /// The wants.
    Optimistic,
    /// Nothing.
    Pessimistic,
}

/// Coordinator, or a cluster of them with one master for each shard.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CoordinatorSpec {
    /// Name, for events and reports.
    pub name: String,
    /// Coordinator of which it borrows.
    pub parent: Option<String>,
    /// Region, for the network.
    pub region: String,
    /// Number of shards.
    pub shards: u16,
    /// Whether the first master knows that nothing is lent.
    pub start: FirstTerm,
    /// Limits of its own: the number of one of the simulation's. Those in force if none are named.
    pub limits: Option<usize>,
    /// Time after which a call to the parent counts as lost.
    pub call_timeout: Span,
}

/// Start of a coordinator's first master. Later ones learn, unless they are handed the leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FirstTerm {
    /// The fleet is new: it lends at once.
    #[default]
    Fresh,
    /// It learns first which leases are out.
    Learning,
}

// === impl EnvoyGroup ===

impl Default for EnvoyGroup {
    fn default() -> Self {
        Self {
            name: "envoy".to_owned(),
            count: 1,
            workers: 1,
            region: String::new(),
            coordinator: None,
            start_over: Span::default(),
            tick: Span::from_millis(20),
            max_scopes: 10_000,
            safe: Amount(10.0),
            no_lease: NoLease::Safe,
            first_lease_wait: Span::from_millis(250),
            call_timeout: Span::from_secs(1),
            max_wait: Span::default(),
            drift_ppm: 0,
            safe_bytes: Amount(1_048_576.0),
            safe_concurrency: Amount(10.0),
            priority: 0,
            idle_after: Span::from_secs(10),
            max_debt: Span::from_secs(10),
            resolution: Span::from_millis(1),
            interleaving: Share(0.0),
            gives_up: Share(0.0),
            keeps_id: false,
        }
    }
}

// === impl CoordinatorSpec ===

impl Default for CoordinatorSpec {
    fn default() -> Self {
        Self {
            name: "coordinator".to_owned(),
            parent: None,
            region: String::new(),
            shards: 1,
            start: FirstTerm::Fresh,
            limits: None,
            call_timeout: Span::from_secs(1),
        }
    }
}
