//! Logs on standard error, and traces to a collector for those who ask for them.
//!
//! A log line is one event as text or as JSON, whatever its values hold; what repeats is written a
//! few times and then counted, but for the lines of [`AUDIT`]. Traces go over OTLP in batches. Without a collector the spans of
//! [`crate::observe::trace`] are switched off where they stand, which costs a call one comparison.

use std::io::IsTerminal as _;
use std::num::NonZeroU32;
use std::time::Duration;

use tokio::task::JoinHandle;
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, fmt};

use crate::clock::Clock;
use crate::observe::trace;
use line::Lines;
use repeats::{Counted, Repeats};

mod line;
mod otlp;
mod repeats;
mod throttle;

pub use otlp::Otlp;

/// Where lines come from that say who changed what: all of them are written, however many.
pub const AUDIT: &str = "tollgate_coordinator::audit";

/// How often is looked for lines that were left out.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// How long the last traces have to reach the collector.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// What is logged, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which events, such as `info` or `tollgate_coordinator=debug`.
    pub filter: String,
    /// How a line looks.
    pub format: Format,
    /// How many lines of one place in the code are written in ten seconds; none for all.
    pub repeat: Option<NonZeroU32>,
    /// Where traces go, if anywhere.
    pub otlp: Option<Otlp>,
}

/// How a line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// An object a line, for machines.
    Json,
}

/// Why nothing can be logged as asked.
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

/// What has to be ended so that nothing is lost.
#[derive(Debug)]
pub struct Logs {
    repeats: Option<Repeats>,
    teller: Option<JoinHandle<()>>,
    tracer: Option<otlp::Tracer>,
}

type BoxedLayer = Box<dyn tracing_subscriber::Layer<Registry> + Send + Sync>;

// === impl Logs ===

impl Logs {
    /// Writes what was left out, and gives the last traces three seconds to be delivered.
    pub async fn end(self) {
        if let Some(teller) = self.teller {
            teller.abort();
        }
        if let Some(repeats) = self.repeats {
            repeats.tell_all();
        }
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
    let repeats = options
        .repeat
        .map(|lines| Repeats::new(lines, Clock::start()));
    let tracer = options.otlp.as_ref().map(Otlp::start).transpose()?;
    // A span that no layer wants is switched off: lines do without those of calls.
    let filter = filter.and(filter_fn(|event| event.target() != trace::TARGET));
    let lines = lines(options.format, repeats.clone()).with_filter(filter);
    let registry = tracing_subscriber::registry().with(lines);
    match &tracer {
        Some(tracer) => registry.with(tracer.layer()).try_init()?,
        // No layer is not the same as an absent one, which wants every span.
        None => registry.try_init()?,
    }
    Ok(Logs {
        teller: repeats.clone().map(|repeats| tokio::spawn(tell(repeats))),
        repeats,
        tracer,
    })
}

fn lines(format: Format, repeats: Option<Repeats>) -> BoxedLayer {
    // A standard error that cannot be written to is no reason to stop.
    let layer = fmt::layer()
        .with_writer(Lines::default)
        .log_internal_errors(false);
    match format {
        Format::Text => layer
            .with_ansi(std::io::stderr().is_terminal())
            .map_event_format(|format| Counted { format, repeats })
            .boxed(),
        Format::Json => layer
            .with_ansi(false)
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .map_event_format(|format| Counted { format, repeats })
            .boxed(),
    }
}

/// Says every second what was left out.
async fn tell(repeats: Repeats) {
    let mut ticks = tokio::time::interval(TELL_EVERY);
    loop {
        ticks.tick().await;
        repeats.tell_due();
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
            repeat: None,
            otlp: None,
        };
        let logs = start(&options).unwrap();
        assert!(tracing::enabled!(tracing::Level::INFO), "lines are written");
        assert!(trace::grpc("/tollgate.v1.LeaseService/Refresh").is_disabled());
        assert!(matches!(start(&options), Err(LogError::Started(_))));
        logs.end().await;
    }
}
