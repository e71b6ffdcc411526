//! Logs on standard error, and traces to a collector for those who ask for them.
//!
//! A log line is one event as text or as JSON, whatever its values hold. A line that repeats is
//! written a few times in ten seconds, but for those of [`AUDIT`]. Traces go over OTLP in batches.
//! Without a collector the spans of [`crate::trace`] are switched off where they stand,
//! which costs a call one comparison.

use std::io::IsTerminal as _;
use std::time::Duration;

use line::Lines;
use repeats::Repeats;
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, fmt};

use crate::trace;

mod line;
mod otlp;
mod repeats;

pub use otlp::Otlp;

/// Target of the lines that name the author of a change: all of them are written, however many.
pub const AUDIT: &str = "tollgate_coordinator::audit";

/// Time in which the last traces have to reach the collector.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// Options of logs and traces.
#[derive(Clone, Debug)]
pub struct Options {
    /// Filter of events, such as `info` or `tollgate=debug`.
    pub filter: String,
    /// Format of a line.
    pub format: Format,
    /// Destination of traces; none for no traces.
    pub otlp: Option<Otlp>,
}

/// Format of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// An object a line, for machines.
    Json,
}

/// Reason for which logging cannot start.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter cannot be read.
    #[error("--log: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// The part of the calls that is traced is no part.
    #[error("--otlp-sample: {0} is not between 0 and 1")]
    Sample(f64),
    /// The exporter does not take the endpoint.
    #[error("--otlp-endpoint: {0}")]
    Exporter(Box<dyn std::error::Error + Send + Sync>),
    /// This build cannot export traces.
    #[error("--otlp-endpoint: this build exports no traces: build it with the feature `otlp`")]
    WithoutOtlp,
    /// Logs are written already.
    #[error("logging has been started before: {0}")]
    Started(#[from] tracing_subscriber::util::TryInitError),
}

/// Running logs and traces, which are ended so that nothing is lost.
#[derive(Debug)]
pub struct Logs {
    tracer: Option<otlp::Tracer>,
}

type BoxedLayer = Box<dyn tracing_subscriber::Layer<Registry> + Send + Sync>;

// === impl Logs ===

impl Logs {
    /// Gives the last traces three seconds to be delivered.
    pub async fn end(self) {
        let Some(tracer) = self.tracer else { return };
        // Blocks, and what it waits for needs this runtime.
        let flush = move || tracer.end(FLUSH_TIMEOUT);
        if let Ok(Err(error)) = tokio::task::spawn_blocking(flush).await {
            tracing::warn!(%error, "traces: last spans were not delivered");
        }
    }
}

// === free functions ===

/// Starts to log as `options` say; must be called within a tokio runtime.
///
/// # Errors
/// If an option has a bad value, or logs are written already.
pub fn start(options: &Options) -> Result<Logs, LogError> {
    let filter = EnvFilter::try_new(&options.filter)?;
    let tracer = options.otlp.as_ref().map(Otlp::start).transpose()?;
    // A span that no layer wants is switched off: lines do without those of calls.
    let filter = filter.and(filter_fn(|event| event.target() != trace::TARGET));
    let lines = lines(options.format).with_filter(filter);
    let registry = tracing_subscriber::registry().with(lines);
    match &tracer {
        Some(tracer) => registry.with(tracer.layer()).try_init()?,
        // No layer is not the same as an absent one, which wants every span.
        None => registry.try_init()?,
    }
    Ok(Logs { tracer })
}

fn lines(format: Format) -> BoxedLayer {
    // A standard error that cannot be written to is no reason to stop.
    let layer = fmt::layer()
        .with_writer(Lines::default)
        .log_internal_errors(false);
    match format {
        Format::Text => layer
            .with_ansi(std::io::stderr().is_terminal())
            .map_event_format(Repeats::new)
            .boxed(),
        Format::Json => layer
            .with_ansi(false)
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .map_event_format(Repeats::new)
            .boxed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The one test that starts to log in this process.
    #[tokio::test]
    async fn without_a_collector_spans_are_switched_off_where_they_stand() {
        let options = Options {
            filter: "trace".to_owned(),
            format: Format::Text,
            otlp: None,
        };
        let logs = start(&options).unwrap();
        assert!(tracing::enabled!(tracing::Level::INFO), "lines are written");
        assert!(trace::grpc("/tollgate.v1.LeaseService/Refresh").is_disabled());
        assert!(matches!(start(&options), Err(LogError::Started(_))));
        logs.end().await;
    }
}
