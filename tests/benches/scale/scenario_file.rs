//! Scenario file of `tollgate simulate` with limits of one capacity each, by the starts of names.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde::Deserialize;
use tollgate_core::limit::Limit;
use tollgate_core::units::{Capacity, Tokens};
use tollgate_sim::limits::FixedLimits;
use tollgate_sim::scenario::{Amount, Scenario, Span};

/// Characters that mean something in a pattern.
const SPECIAL: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

/// Limit as the file has it: a pattern that ends with its only `*`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
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
    /// Reads the file of `path`.
    ///
    /// # Errors
    /// If it is no scenario, or has limits that this model does not know.
    pub(crate) fn read(path: &str) -> Result<Self> {
        let text = fs::read_to_string(path).context(path.to_owned())?;
        Self::parse(&text).context(path.to_owned())
    }

    fn parse(text: &str) -> Result<Self> {
        let mut map: serde_json::Map<String, serde_json::Value> = serde_saphyr::from_str(text)?;
        let limits = map
            .remove("limits")
            .ok_or_else(|| anyhow!("limits: the model needs limits in the scenario itself"))?;
        let limits: Vec<LimitSpec> = serde_json::from_value(limits)
            .context("limits: the model knows a rate of requests, its lease and its intervals")?;
        Ok(Self {
            scenario: serde_json::from_value(map.into())?,
            limits: limits.iter().map(LimitSpec::limit).collect::<Result<_>>()?,
        })
    }

    pub(crate) fn limits(&self) -> FixedLimits {
        FixedLimits::new(self.limits.clone())
    }

    /// Returns the interval at which the roots' clients refresh.
    pub(crate) fn refresh(&self) -> Duration {
        let intervals = self.limits.iter().map(|(_, limit)| limit.refresh);
        intervals.max().unwrap_or_default()
    }

    /// Returns the shortest of the limits' minimum intervals.
    pub(crate) fn min_refresh(&self) -> Duration {
        let intervals = self.limits.iter().map(|(_, limit)| limit.min_refresh);
        intervals.min().unwrap_or_default()
    }
}

// === impl LimitSpec ===

impl LimitSpec {
    /// Returns the start of the names that the pattern matches, and the limit.
    fn limit(&self) -> Result<(String, Limit)> {
        let pattern = &self.pattern;
        let start = pattern.strip_suffix('*').unwrap_or(pattern);
        ensure!(
            start != pattern && !start.contains(SPECIAL),
            "limits: match: {pattern}: the model knows only patterns whose one special character \
             is `*` at their end, as `tenant/*`"
        );
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
        Ok((start.to_owned(), limit))
    }
}
