//! Scenario file of `tollgate simulate` with limits of one capacity each.

use std::fs;
use std::time::Duration;

use serde::Deserialize;
use tollgate_core::limit::Limit;
use tollgate_core::units::{Capacity, Tokens};
use tollgate_sim::limits::FixedLimits;
use tollgate_sim::scenario::{Amount, Scenario, Span};

/// Limit as the file has it: a pattern that ends with `*`.
#[derive(Deserialize)]
struct LimitSpec {
    #[serde(rename = "match")]
    pattern: String,
    requests: RateSpec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RateSpec {
    rate: Amount,
    burst: Option<Amount>,
    lease: Span,
    refresh: Span,
    min_refresh: Span,
}

/// A scenario with its limits.
pub(crate) struct ScenarioFile {
    pub(crate) scenario: Scenario,
    limits: Vec<(String, Limit)>,
}

// === impl ScenarioFile ===

impl ScenarioFile {
    pub(crate) fn read(path: &str) -> Self {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut map: serde_json::Map<String, serde_json::Value> =
            serde_saphyr::from_str(&text).expect("a mapping");
        let limits = map.remove("limits").expect("limits of its own");
        let limits: Vec<LimitSpec> = serde_json::from_value(limits).expect("simple limits");
        Self {
            scenario: serde_json::from_value(map.into()).expect("a scenario"),
            limits: limits.iter().map(LimitSpec::limit).collect(),
        }
    }

    pub(crate) fn limits(&self) -> FixedLimits {
        FixedLimits::new(self.limits.clone())
    }

    /// Returns the interval at which the roots' clients refresh.
    pub(crate) fn refresh(&self) -> Duration {
        let intervals = self.limits.iter().map(|(_, limit)| limit.refresh);
        intervals.max().unwrap_or_default()
    }
}

// === impl LimitSpec ===

impl LimitSpec {
    fn limit(&self) -> (String, Limit) {
        let RateSpec {
            rate,
            burst,
            lease,
            refresh,
            min_refresh,
        } = &self.requests;
        let burst = burst.unwrap_or(*rate).0;
        let limit = Limit {
            burst: Tokens::from_whole(burst as u64),
            lease: lease.0,
            learning: lease.0,
            refresh: refresh.0,
            min_refresh: min_refresh.0,
            ..Limit::new(Capacity::from_whole(rate.0 as u64))
        };
        (self.pattern.trim_end_matches('*').to_owned(), limit)
    }
}
