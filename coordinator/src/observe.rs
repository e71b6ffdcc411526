//! Metrics, logs and traces.

pub mod logging;
pub mod metrics;
pub mod trace;
