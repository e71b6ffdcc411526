//! Request path of one Tollgate process, without I/O: admission, wait queues, the table that its
//! workers share, and the calls to the coordinators.
//!
//! An [`Engine`] is one worker of a process. Its embedder, an Envoy filter or a simulator, finds the
//! keys of a request, hands these over, and carries out what the engine decides: at once as a
//! [`Decision`], later as [`Effect`]s. All that the engine needs of its surroundings is a [`Host`]:
//! a clock, data that the workers share, and calls to the coordinators.
//!
//! Nothing here can panic in a release build: arithmetic saturates and look-ups are checked.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod admission;
mod config;
mod decision;
mod effect;
mod engine;
mod equal;
mod host;
mod lease_sync;
mod own_slots;
mod process;
mod refusal;
mod reply;
mod roots;
mod rules;
mod shared_memory;
mod shared_table;
mod stats;
#[cfg(test)]
mod testing;
mod users;
mod usual;
mod usual_limits;
mod wait_queues;

pub use admission::{Charge, Request};
pub use config::{
    EngineConfig, Estimate, HostFailure, Identity, Overflow, RULES_MAX, RuleConfig, RuleId, Shape,
};
pub use decision::{Decision, Shortfall};
pub use effect::{Effect, Report, StreamEnd, StreamNeeds, Waited};
pub use engine::Engine;
#[cfg(any(test, feature = "testing"))]
pub use engine::ScopeView;
pub use host::{Call, Host, HostError, Level};
pub use own_slots::OwnSlots;
pub use refusal::{Denial, LimitStatus, QuotaPolicy, Refusal, ScopeLevel};
pub use reply::{Formats, Refuser, Reply, policy, policy_of, quota_name, reason, seconds};
pub use roots::{Root, RootSettings};
pub use rules::{OVERFLOW, planned_key};
pub use shared_memory::{ABSENT, Cas, SharedMemory, Written};
pub use shared_table::codec;
pub use stats::{Counter, ProcessStats, Refusals, RuleStats, Stats};
pub use users::{InUse, Users};
