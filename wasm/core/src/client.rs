//! State of one Envoy process as a client of the coordinators.
//!
//! One process is one client. Its workers share a [`ScopeState`] for each scope, with a
//! [`RateLimiter`] or a [`ConcurrencyLimiter`] for each unit, kept as a record in the memory that
//! they share: a worker that reads a record, decides with it and writes it back, unchanged in
//! between, has decided for all. So everything here is plain data.

#[cfg(test)]
mod clocks;
mod concurrency_limiter;
mod demand_estimator;
mod draws;
mod fair_order;
mod leader_lock;
mod policy;
mod process_lease;
mod rate_limiter;
mod safe_mode;
mod scope_state;
mod slot_record;
mod wait_queue;
mod worth;

pub use self::concurrency_limiter::{AwaitAction, ConcurrencyLimiter, PermitResult, WorkerUsage};
pub use self::demand_estimator::DemandEstimator;
pub use self::fair_order::{FairOrder, Waiter};
pub use self::leader_lock::{LeaderLock, LeaderRole};
pub use self::policy::{Mode, Policy};
pub use self::process_lease::{LeaseState, NudgeEffect};
pub use self::rate_limiter::{BucketLevel, DrawResult, RateLimiter};
pub use self::safe_mode::{CallHistory, SafeMode, SafeModeReport};
pub use self::scope_state::ScopeState;
pub use self::wait_queue::{Shortage, WaitQueue};
pub use self::worth::Worth;
pub use crate::lease_client::{KnownLimit, LeaseMessage};
