//! Counters and gauges in Envoy's statistics.
//!
//! A host call per request would cost more than the decision, so a worker counts in its own
//! memory and hands the sums over on its tick. Names are bounded by the configuration: rules, never
//! scopes. All workers of a process add to the same counters.

use std::collections::BTreeMap;

use tollgate_core::lease::Unit;

use crate::host::{Host, HostError, Kind, Metric};
use crate::refusal::Refusal;

/// What a worker counts, by name.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    metrics: BTreeMap<String, Metric>,
    pub(crate) allowed: Counter,
    pub(crate) held: Counter,
    pub(crate) refreshes: Counter,
    pub(crate) refresh_errors: Counter,
    pub(crate) overflow: Counter,
    pub(crate) host_failures: Counter,
    pub(crate) config_rejected: Counter,
    /// Requests that this worker holds; the gauge adds up over the workers.
    pub(crate) waiting: Level,
    /// Streams that this worker counts until they end.
    in_flight: Level,
    /// Scopes without a lease, and slots in use; whoever holds the pen sets them.
    safe_mode: Option<Metric>,
    slots_used: Option<Metric>,
}

/// What a worker counts for one rule.
#[derive(Debug, Default)]
pub(crate) struct RuleStats {
    /// Requests that were refused.
    pub(crate) refused: Refusals,
    /// Requests that went on although the rule would have refused them.
    pub(crate) shadowed: Refusals,
}

/// Refusals by their cause.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    requests: Counter,
    request_bytes: Counter,
    response_bytes: Counter,
    concurrency: Counter,
    missing: Counter,
    malformed: Counter,
}

/// A count that has not been handed over yet.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    metric: Option<Metric>,
    count: i64,
}

/// A level whose changes are handed over.
#[derive(Debug, Default)]
pub(crate) struct Level {
    metric: Option<Metric>,
    told: i64,
}

// === impl Stats ===

impl Stats {
    /// Makes the process's metrics known to Envoy, once per VM.
    pub(crate) fn define<H: Host>(&mut self, host: &H) -> Result<(), HostError> {
        let counters = [
            ("allowed", &mut self.allowed),
            ("held", &mut self.held),
            ("refreshes", &mut self.refreshes),
            ("refresh_errors", &mut self.refresh_errors),
            ("overflow", &mut self.overflow),
            ("host_failures", &mut self.host_failures),
            ("config_rejected", &mut self.config_rejected),
        ];
        for (name, counter) in counters {
            counter.metric = Some(defined(&mut self.metrics, host, Kind::Counter, name)?);
        }
        let metrics = &mut self.metrics;
        self.waiting.metric = Some(defined(metrics, host, Kind::Gauge, "waiting")?);
        self.in_flight.metric = Some(defined(metrics, host, Kind::Gauge, "in_flight")?);
        self.safe_mode = Some(defined(metrics, host, Kind::Gauge, "safe_mode")?);
        self.slots_used = Some(defined(metrics, host, Kind::Gauge, "slots_used")?);
        Ok(())
    }

    /// Makes the metrics of a rule known to Envoy, once per VM.
    pub(crate) fn define_rule<H: Host>(
        &mut self,
        host: &H,
        rule: &str,
    ) -> Result<RuleStats, HostError> {
        let mut refusals = |what: &str| {
            let mut counter = |cause: &str| {
                let name = format!("{what}.{rule}.{cause}");
                let metric = defined(&mut self.metrics, host, Kind::Counter, &name)?;
                Ok(Counter {
                    metric: Some(metric),
                    count: 0,
                })
            };
            Ok(Refusals {
                requests: counter(Unit::Requests.name())?,
                request_bytes: counter(Unit::RequestBytes.name())?,
                response_bytes: counter(Unit::ResponseBytes.name())?,
                concurrency: counter(Unit::Concurrency.name())?,
                missing: counter("missing")?,
                malformed: counter("malformed")?,
            })
        };
        Ok(RuleStats {
            refused: refusals("refused")?,
            shadowed: refusals("shadowed")?,
        })
    }

    /// Hands over what was counted since the last time.
    pub(crate) fn flush<H: Host>(
        &mut self,
        host: &H,
        waiting: usize,
        in_flight: usize,
    ) -> Result<(), HostError> {
        for counter in [
            &mut self.allowed,
            &mut self.held,
            &mut self.refreshes,
            &mut self.refresh_errors,
            &mut self.overflow,
            &mut self.host_failures,
            &mut self.config_rejected,
        ] {
            counter.flush(host)?;
        }
        self.waiting.set(host, waiting)?;
        self.in_flight.set(host, in_flight)
    }

    /// Says how many scopes have no lease and how many slots are in use.
    pub(crate) fn survey<H: Host>(
        &self,
        host: &H,
        safe_mode: u64,
        slots_used: u64,
    ) -> Result<(), HostError> {
        for (metric, value) in [(self.safe_mode, safe_mode), (self.slots_used, slots_used)] {
            if let Some(metric) = metric {
                host.record(metric, value)?;
            }
        }
        Ok(())
    }
}

// === impl RuleStats ===

impl RuleStats {
    /// Like [`Stats::flush`].
    pub(crate) fn flush<H: Host>(&mut self, host: &H) -> Result<(), HostError> {
        self.refused.flush(host)?;
        self.shadowed.flush(host)
    }
}

// === impl Refusals ===

impl Refusals {
    /// The counter for what caused `refusal`.
    pub(crate) fn of(&mut self, refusal: Refusal) -> &mut Counter {
        match refusal {
            Refusal::Missing { .. } => &mut self.missing,
            Refusal::Malformed { .. } => &mut self.malformed,
            Refusal::Denied { denial, .. } => match denial.unit {
                Unit::Requests => &mut self.requests,
                Unit::RequestBytes => &mut self.request_bytes,
                Unit::ResponseBytes => &mut self.response_bytes,
                Unit::Concurrency => &mut self.concurrency,
            },
            Refusal::HostFailure => &mut self.requests,
        }
    }

    fn flush<H: Host>(&mut self, host: &H) -> Result<(), HostError> {
        self.requests.flush(host)?;
        self.request_bytes.flush(host)?;
        self.response_bytes.flush(host)?;
        self.concurrency.flush(host)?;
        self.missing.flush(host)?;
        self.malformed.flush(host)
    }
}

// === impl Counter ===

impl Counter {
    #[inline]
    pub(crate) fn add_one(&mut self) {
        self.count = self.count.saturating_add(1);
    }

    pub(crate) fn flush<H: Host>(&mut self, host: &H) -> Result<(), HostError> {
        let Some(metric) = self.metric.filter(|_| self.count > 0) else {
            return Ok(());
        };
        host.increment(metric, core::mem::take(&mut self.count))
    }
}

// === impl Level ===

impl Level {
    fn set<H: Host>(&mut self, host: &H, level: usize) -> Result<(), HostError> {
        let level = i64::try_from(level).unwrap_or(i64::MAX);
        let change = level.saturating_sub(self.told);
        let Some(metric) = self.metric.filter(|_| change != 0) else {
            return Ok(());
        };
        self.told = level;
        host.increment(metric, change)
    }
}

// === free functions ===

/// The metric called `tollgate.<name>`; defining it twice in a VM would leak an id in Envoy.
fn defined<H: Host>(
    metrics: &mut BTreeMap<String, Metric>,
    host: &H,
    kind: Kind,
    name: &str,
) -> Result<Metric, HostError> {
    if let Some(metric) = metrics.get(name) {
        return Ok(*metric);
    }
    let metric = host.define(kind, &format!("tollgate.{name}"))?;
    metrics.insert(name.to_owned(), metric);
    Ok(metric)
}
