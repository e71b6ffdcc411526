//! Stands in for the exporter in a build without the feature `otlp`.

use std::convert::Infallible;
use std::time::Duration;

use tracing_subscriber::layer::Identity;

use super::super::LogError;
use super::Otlp;

/// An exporter that this build does not have; there is no value of it.
#[derive(Debug)]
pub(in crate::logging) enum Tracer {}

// === impl Tracer ===

impl Tracer {
    /// Refuses every endpoint.
    pub(super) fn start(_: &Otlp) -> Result<Self, LogError> {
        Err(LogError::WithoutOtlp)
    }

    /// As of the exporter.
    pub(in crate::logging) fn layer(&self) -> Identity {
        match *self {}
    }

    /// As of the exporter.
    pub(in crate::logging) fn end(self, _: Duration) -> Result<(), Infallible> {
        match self {}
    }
}
