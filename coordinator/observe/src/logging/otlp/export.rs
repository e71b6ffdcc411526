//! The exporter of traces.

use std::env;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use super::super::LogError;
use super::Otlp;
use crate::trace;

/// Exports spans in the background, in batches.
///
/// They wait in a bounded queue that drops spans without room, so that a collector that is slow or gone
/// holds up no call.
#[derive(Debug)]
pub(in crate::logging) struct Tracer(SdkTracerProvider);

// === impl Tracer ===

impl Tracer {
    /// Starts an exporter to `otlp.endpoint`.
    pub(super) fn start(otlp: &Otlp) -> Result<Self, LogError> {
        let exporter = SpanExporter::builder()
            .with_tonic()
            .with_endpoint(&otlp.endpoint)
            .build()
            .map_err(|error| LogError::Exporter(Box::new(error)))?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(Sampler::TraceIdRatioBased(otlp.sample))
            .with_resource(resource())
            .build();
        Ok(Self(provider))
    }

    /// A layer that exports the spans of [`crate::trace`], and no others: the exporter's own calls have
    /// some, too.
    pub(in crate::logging) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer("tollgate"))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_level(false)
            .with_tracked_inactivity(false)
            .with_filter(filter_fn(|span| span.target() == trace::TARGET))
    }

    /// Delivers the last spans, for at most `timeout`. Blocks, and needs the runtime meanwhile.
    ///
    /// # Errors
    /// If they were not delivered.
    pub(in crate::logging) fn end(
        self,
        timeout: Duration,
    ) -> Result<(), opentelemetry_sdk::error::OTelSdkError> {
        self.0.shutdown_with_timeout(timeout)
    }
}

// === free functions ===

/// This service in OpenTelemetry's words; OpenTelemetry's environment variables win.
fn resource() -> Resource {
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder().with_attribute(version);
    let named = ["OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"];
    if named
        .iter()
        .any(|name| env::var_os(name).is_some_and(|value| !value.is_empty()))
    {
        return resource.build();
    }
    resource.with_service_name("tollgate").build()
}
