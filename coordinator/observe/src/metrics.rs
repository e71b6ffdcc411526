//! Metrics as Prometheus reads them; docs/metrics.md lists their names.
//!
//! Each part of the coordinator registers its own. No label has a value that a request can invent: a
//! caller could invent any number of them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::text;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

mod exposition;
mod labels;
mod process;
mod register;

pub use self::exposition::Exposition;
pub use self::labels::{LabelValue, LabeledCounter};
use self::process::ProcessStats;
pub use self::register::{AddMetrics, Durations};

const PREFIX: &str = "tollgate";

/// All registered metrics of a coordinator; clones share them.
#[derive(Clone, Debug)]
pub struct Exporter {
    registry: Arc<Registry>,
    /// When the process started, since 1970.
    started: Option<Duration>,
}

// === impl Exporter ===

impl Exporter {
    /// Exports the metrics that were registered in `registry`.
    pub fn new(registry: Registry) -> Self {
        Self {
            registry: Arc::new(registry),
            started: process::started(),
        }
    }

    /// Returns all metrics as `format`, with those of the process and those that `register` adds
    /// for this scrape.
    ///
    /// # Errors
    /// If a metric cannot be written as text, which is a bug.
    pub fn encode(
        &self,
        format: Exposition,
        register: impl FnOnce(&mut Registry),
    ) -> Result<String, fmt::Error> {
        let mut of_this_scrape = Registry::with_prefix(PREFIX);
        register(&mut of_this_scrape);
        let process = ProcessStats::read().registry(self.started);
        let mut page = String::new();
        for registry in [&self.registry, &of_this_scrape, &process] {
            text::encode_registry(&mut page, registry)?;
        }
        text::encode_eof(&mut page)?;
        Ok(format.of(page))
    }
}

// === free functions ===

/// A registry in which the parts of the coordinator register their metrics; it has the build.
pub fn registry() -> Registry {
    let mut registry = Registry::with_prefix(PREFIX);
    let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("build", "The build", build);
    registry
}
