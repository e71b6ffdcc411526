//! Settings of an engine, which its embedder reads from its users' configuration.

use core::time::Duration;

use tollgate_core::client::Policy;
use tollgate_core::units::Tokens;

/// The most rules of a configuration, hence of buckets that a request needs.
pub const RULES_MAX: usize = 16;

/// A rule of an engine: one with the same name in a later configuration is the same. Once no configuration has it,
/// and none of its scopes is remembered, another rule may get its id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleId(pub u16);

/// Identity of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The worker's number, drawn at random at its start.
    pub worker: u64,
    /// The name of the proxy that the process is, the first part of its client id.
    pub node: String,
    /// The plugin, where plugins of other settings see the same shared data; else empty.
    pub plugin: String,
    /// Random bits: the second part of the client id, if this worker is the first of its process.
    pub process: u128,
}

/// Settings of an engine.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineConfig {
    /// The cluster of coordinators, or another name that the host knows them by. The process keeps
    /// their leases under it.
    pub coordinator: String,
    /// The clusters that lead to the masters of the shards, in order.
    pub shards: Vec<String>,
    /// True if anything is limited at all.
    pub enabled: bool,
    /// The scope rules, at most [`RULES_MAX`].
    pub rules: Vec<RuleConfig>,
    /// The most slots, and the most scopes that a worker remembers.
    pub max_scopes: u32,
    /// The most requests that a worker holds for first leases at once.
    pub max_pending: usize,
    /// The most requests that wait for their turn in a worker at once.
    pub max_waiting: usize,
    /// The time between two ticks while nothing is urgent.
    pub tick: Duration,
    /// The time after which the host ends a call without an answer.
    pub call_timeout: Duration,
    /// Fate of a request when the host fails.
    pub host_failure: HostFailure,
    /// True if [`Report`](crate::Report)s say how the buckets of admitted requests stand.
    pub reports_limits: bool,
}

/// Limits of the scopes of one rule, where no coordinator says otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleConfig {
    /// The first part of the scope ids.
    pub name: String,
    /// Wants, waits and fallbacks of the rule's leases.
    pub policy: Policy,
    /// Percentage of its refusals that have an effect; zero is shadow mode.
    pub enforced: u8,
    /// Fate of scopes for which no slot is left.
    pub on_overflow: Overflow,
    /// Tokens that a request takes at its beginning, if only its end tells what it has cost.
    pub final_cost: Option<Estimate>,
    /// Waiting of its requests for their turn; without it they are refused.
    pub shape: Option<Shape>,
    /// True if its refusals have no effect but are told to the upstream.
    pub marks: bool,
}

/// Tokens that a request takes at its beginning, of a rule of which its end tells the cost. More becomes a debt, less
/// comes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Estimate {
    /// As many as it takes of any other rule.
    #[default]
    Request,
    /// So many, or what its bucket can hold if that is less.
    Tokens(Tokens),
    /// As many as requests of its scope usually turn out to have cost, as far as the worker knows, or what its bucket
    /// can hold if that is less.
    Usual,
}

/// Bounds on the waiting of requests beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The longest wait of a request.
    pub max_wait: Duration,
    /// The most requests of one key that wait in one worker.
    pub max_waiting: usize,
}

/// Fate of scopes for which no slot is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// They share one.
    Share,
    /// The rule does not apply to them.
    Pass,
    /// They are refused.
    Refuse,
}

/// Fate of a request when the host fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostFailure {
    /// It goes on.
    Open,
    /// It is refused.
    Closed,
}

// === impl RuleId ===

impl RuleId {
    /// A rule that has no place: the host fails for its requests.
    pub(crate) const NONE: Self = Self(u16::MAX);

    /// Returns its place among the rules of its engine.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}
