//! Metrics, logs and traces of the coordinator.

#![forbid(unsafe_code)]

pub mod logging;
pub mod metrics;
pub mod trace;
