//! Figures of a run: what a planner compares.

use serde::Serialize;

/// Figures of a run. Those of samples are of the samples after the start-up.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// Seconds from the first request until an Envoy had a lease.
    pub first_lease: Option<f64>,
    /// Seconds that an Envoy waited for its first lease: the longest of all.
    pub longest_first_lease: Option<f64>,
    /// Seconds from the start until 95 % of what is attainable was handed out.
    pub settled: Option<f64>,
    /// Mean of the capacity that was handed out, as a part of the capacity.
    pub of_capacity: f64,
    /// The same as a part of the smaller of capacity and wants.
    pub of_attainable: f64,
    /// Requests that went on, as a part of those that one bucket for the whole fleet would have let go
    /// on, of all limits together; none if that is nothing.
    pub of_ideal: Option<f64>,
    /// The same of the limit where it is least.
    pub least_of_ideal: Option<f64>,
    /// Requests of one limit that went on beyond `burst + rate * t`, in the window of any length where
    /// they are most.
    pub beyond_ideal: f64,
    /// Part of such requests that went on without a lease, with safe capacity; of the limit where it is
    /// most.
    pub beyond_safe: f64,
    /// Bytes beyond the same bound that requests turned out to have when they had gone on; of the limit
    /// where they are most.
    pub beyond_late: f64,
    /// Requests beyond that nothing explains; of the limit where they are most.
    pub beyond_rest: f64,
    /// Samples.
    pub samples: u64,
    /// Samples in which the leases of a scope summed to more than its capacity.
    pub over_capacity: u64,
    /// Largest such sum, as a part of the capacity; at most 1 if there is none.
    pub worst: f64,
    /// Divisions that [`Self::fairness`] and [`Self::time_to_fair`] are of: capacities that more was
    /// wanted of than there was, in each sample.
    pub contended: u64,
    /// Mean of Jain's index over what clients have as a part of their max-min shares; none if nothing
    /// was contended.
    pub fairness: Option<f64>,
    /// Mean seconds from a sample in which 5 % of a contended capacity or more is not where max-min
    /// would have it, to the next sample in which that is over.
    pub time_to_fair: Option<f64>,
    /// The longest such time, which may go on at the end.
    pub longest_time_to_fair: Option<f64>,
    /// Capacities that are divided so at the end.
    pub unfair_at_end: usize,
    /// Leases that ended before there was another one.
    pub leases_lost: u64,
    /// Requests to coordinators for leases.
    pub refreshes: u64,
    /// Names of resources that coordinators sent, for the receivers to ask at once.
    pub nudges: u64,
    /// Messages sent.
    pub messages: u64,
    /// Messages that were lost.
    pub messages_lost: u64,
    /// Requests that went on.
    pub admitted: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Scopes that were asked for.
    pub scopes: usize,
    /// Laws that were seen broken.
    pub violations: usize,
    /// Equal for two runs of one scenario with one seed.
    pub digest: String,
}

/// Figures of one limit, after the start-up. Requests are counted by the tokens that they take.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LimitFigures {
    /// The scope, or the group.
    pub scope: String,
    /// The unit.
    pub unit: &'static str,
    /// Its capacity at the end, in units, per second unless they are requests in flight.
    pub capacity: f64,
    /// The same for the period for which it was written, if it named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written: Option<String>,
    /// Requests that came; one that comes again counts once.
    pub asked: u64,
    /// Requests that went on.
    pub admitted: u64,
    /// Requests that would have gone on if the fleet were one bucket, or one count.
    pub ideal: u64,
    /// The former as a part of the latter; none if that is nothing.
    pub of_ideal: Option<f64>,
    /// Units that passed beyond `burst + rate * t`, in the window of any length where they are most, or
    /// the most requests in flight beyond the limit.
    pub beyond: f64,
    /// Part of them that passed without a lease, with safe capacity.
    pub beyond_safe: f64,
    /// Part of them that requests turned out to have when they had gone on.
    pub beyond_late: f64,
    /// Part of them that nothing explains.
    pub beyond_rest: f64,
    /// Longest time, in seconds, that a refusal named until the request would pass.
    pub longest_pause: f64,
}
