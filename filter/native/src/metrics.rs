//! Metrics of a process: their numbers, and those that each configuration of Envoy's has for them.

use std::collections::BTreeMap;

use tollgate_filter::{Kind, METRICS_MAX, Metric};

/// Numbers that one configuration has in Envoy for metrics of the process.
pub(crate) type MetricIds = BTreeMap<Metric, usize>;

/// The number of metrics that Envoy does not know.
pub(crate) const NOT_SHOWN: Metric = Metric(u32::MAX);

/// Metrics of a process, each with its kind and name; a name keeps its number.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    kinds: Vec<Kind>,
    by_name: BTreeMap<String, Metric>,
}

// === impl Metrics ===

impl Metrics {
    /// Returns the number of a metric; beyond [`METRICS_MAX`], [`NOT_SHOWN`].
    pub(crate) fn number(&mut self, kind: Kind, name: &str) -> Metric {
        if let Some(metric) = self.by_name.get(name) {
            return *metric;
        }
        let number = u32::try_from(self.kinds.len()).ok();
        let number = number.filter(|_| self.kinds.len() < METRICS_MAX);
        let Some(metric) = number.map(Metric) else {
            return NOT_SHOWN;
        };
        self.kinds.push(kind);
        self.by_name.insert(name.to_owned(), metric);
        metric
    }

    /// Returns the kind of a metric.
    pub(crate) fn kind(&self, metric: Metric) -> Option<Kind> {
        let index = usize::try_from(metric.0).unwrap_or(usize::MAX);
        self.kinds.get(index).copied()
    }
}
