//! Traces to an OpenTelemetry collector, over gRPC.
//!
//! The exporter and its dependencies are the cargo feature `otlp`, which is on by default. A build
//! without it refuses an endpoint instead of losing traces in silence.

use super::LogError;

#[cfg(not(feature = "otlp"))]
mod absent;
#[cfg(feature = "otlp")]
mod export;

#[cfg(not(feature = "otlp"))]
pub(super) use absent::Tracer;
#[cfg(feature = "otlp")]
pub(super) use export::Tracer;

/// Destination of traces, and their part of the calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Otlp {
    /// The collector, such as `http://127.0.0.1:4317`.
    pub endpoint: String,
    /// The part of the calls that is traced, from 0 to 1.
    pub sample: f64,
}

// === impl Otlp ===

impl Otlp {
    /// Starts to export traces.
    ///
    /// # Errors
    /// If the sample is not a part, or nothing can be exported to the endpoint.
    pub(super) fn start(&self) -> Result<Tracer, LogError> {
        if !(0.0..=1.0).contains(&self.sample) {
            return Err(LogError::Sample(self.sample));
        }
        Tracer::start(self)
    }
}
