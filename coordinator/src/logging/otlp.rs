//! Traces to an OpenTelemetry collector, over gRPC.

use std::env;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use super::LogError;
use crate::trace;

/// Where traces go, and how many.
#[derive(Clone, Debug, PartialEq)]
pub struct Otlp {
    /// The collector, such as `http://127.0.0.1:4317`.
    pub endpoint: String,
    /// The part of the calls that is traced, from 0 to 1.
    pub sample: f64,
}

// === free functions ===

/// Sends to the collector in the background: in batches, from a bounded queue that drops what finds
/// no place, so that a collector that is slow or gone holds up no call.
pub(super) fn provider(otlp: &Otlp) -> Result<SdkTracerProvider, LogError> {
    if !(0.0..=1.0).contains(&otlp.sample) {
        return Err(LogError::Sample(otlp.sample));
    }
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(&otlp.endpoint)
        .build()?;
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_sampler(Sampler::TraceIdRatioBased(otlp.sample))
        .with_resource(resource())
        .build())
}

/// Hands the spans of [`crate::trace`] to `provider`, and no others: the exporter's own calls have
/// some, too.
pub(super) fn layer<S>(provider: &SdkTracerProvider) -> impl Layer<S> + use<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("tollgate"))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_level(false)
        .with_tracked_inactivity(false)
        .with_filter(filter_fn(|span| span.target() == trace::TARGET))
}

/// Who sends, in OpenTelemetry's words; its environment variables have the last one.
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
