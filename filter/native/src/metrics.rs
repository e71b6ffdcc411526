//! Metrics of a process: their numbers, and those that each configuration of Envoy's has for them.

use std::collections::BTreeMap;

use tollgate_filter::{Kind, METRICS_MAX, Metric};

/// Numbers that one configuration has in Envoy for metrics of the process.
pub(crate) type MetricIds = BTreeMap<Metric, usize>;

/// Room for metrics that are no rule's.
const FIXED_MAX: usize = 100;
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
    /// Returns the number of a metric; [`NOT_SHOWN`] if there are too many.
    pub(crate) fn number(&mut self, kind: Kind, name: &str) -> Metric {
        if let Some(metric) = self.by_name.get(name) {
            return *metric;
        }
        if self.kinds.len() >= METRICS_MAX + FIXED_MAX {
            return NOT_SHOWN;
        }
        let metric = Metric(u32::try_from(self.kinds.len()).unwrap_or(u32::MAX));
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
