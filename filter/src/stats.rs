//! Counters and gauges in Envoy's statistics.
//!
//! A host call per request would cost more than the decision, so a worker counts in its own
//! memory and hands the sums over on its tick. Names are bounded by the configuration: rules, never
//! scopes. All workers of a process add to the same counters.

use core::time::Duration;
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
    /// Requests that went on after they had waited for their turn.
    pub(crate) waited: Counter,
    /// Requests whose time was over before it was their turn.
    pub(crate) wait_timeouts: Counter,
    /// Requests that were refused because they would have had to wait too long.
    pub(crate) wait_hopeless: Counter,
    /// Requests that were refused because too many were waiting.
    pub(crate) wait_full: Counter,
    pub(crate) refreshes: Counter,
    pub(crate) refresh_errors: Counter,
    /// Answers that were not applied because a later master had answered before.
    pub(crate) lower_epochs: Counter,
    /// Answers that were not applied because no real master has their epoch.
    pub(crate) epoch_jumps: Counter,
    pub(crate) overflow: Counter,
    pub(crate) host_failures: Counter,
    pub(crate) malformed_costs: Counter,
    pub(crate) config_rejected: Counter,
    /// How long requests waited for their turn, in milliseconds, whatever became of them.
    wait_ms: Option<Metric>,
    /// What [`Survey`] has; whoever holds the pen sets these.
    safe_mode: Option<Metric>,
    missing_clusters: Option<Metric>,
    slots_used: Option<Metric>,
    waiting: Option<Metric>,
    in_flight: Option<Metric>,
    vm_memory_bytes: Option<Metric>,
}

/// How the process stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Survey {
    /// Scopes without a lease.
    pub(crate) safe_mode: u64,
    /// Clusters of coordinators that the configuration names and Envoy does not have.
    pub(crate) missing_clusters: u64,
    /// Slots in use.
    pub(crate) slots_used: u64,
    /// Of all workers together, but for the memory: that of the largest VM.
    pub(crate) waiting: u64,
    pub(crate) in_flight: u64,
    pub(crate) vm_memory_bytes: u64,
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

// === impl Stats ===

impl Stats {
    /// Makes the process's metrics known to Envoy, once per VM.
    pub(crate) fn define<H: Host>(&mut self, host: &H) -> Result<(), HostError> {
        let counters = [
            ("allowed", &mut self.allowed),
            ("held", &mut self.held),
            ("waited", &mut self.waited),
            ("wait_timeouts", &mut self.wait_timeouts),
            ("wait_hopeless", &mut self.wait_hopeless),
            ("wait_full", &mut self.wait_full),
            ("refreshes", &mut self.refreshes),
            ("refresh_errors", &mut self.refresh_errors),
            ("lower_epochs", &mut self.lower_epochs),
            ("epoch_jumps", &mut self.epoch_jumps),
            ("overflow", &mut self.overflow),
            ("host_failures", &mut self.host_failures),
            ("malformed_costs", &mut self.malformed_costs),
            ("config_rejected", &mut self.config_rejected),
        ];
        for (name, counter) in counters {
            counter.metric = Some(defined(&mut self.metrics, host, Kind::Counter, name)?);
        }
        let metrics = &mut self.metrics;
        self.wait_ms = Some(defined(metrics, host, Kind::Histogram, "wait_ms")?);
        let mut gauge = |name| defined(metrics, host, Kind::Gauge, name).map(Some);
        self.safe_mode = gauge("safe_mode")?;
        self.missing_clusters = gauge("missing_clusters")?;
        self.slots_used = gauge("slots_used")?;
        self.waiting = gauge("waiting")?;
        self.in_flight = gauge("in_flight")?;
        self.vm_memory_bytes = gauge("vm_memory_bytes")?;
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
    pub(crate) fn flush<H: Host>(&mut self, host: &H) -> Result<(), HostError> {
        for counter in [
            &mut self.allowed,
            &mut self.held,
            &mut self.waited,
            &mut self.wait_timeouts,
            &mut self.wait_hopeless,
            &mut self.wait_full,
            &mut self.refreshes,
            &mut self.refresh_errors,
            &mut self.lower_epochs,
            &mut self.epoch_jumps,
            &mut self.overflow,
            &mut self.host_failures,
            &mut self.malformed_costs,
            &mut self.config_rejected,
        ] {
            counter.flush(host)?;
        }
        Ok(())
    }

    /// Adds a wait that has ended to the histogram of all.
    pub(crate) fn record_wait<H: Host>(&self, host: &H, wait: Duration) -> Result<(), HostError> {
        let Some(metric) = self.wait_ms else {
            return Ok(());
        };
        host.record(metric, u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
    }

    /// Says how the process stands.
    pub(crate) fn tell<H: Host>(&self, host: &H, survey: &Survey) -> Result<(), HostError> {
        for (metric, value) in [
            (self.safe_mode, survey.safe_mode),
            (self.missing_clusters, survey.missing_clusters),
            (self.slots_used, survey.slots_used),
            (self.waiting, survey.waiting),
            (self.in_flight, survey.in_flight),
            (self.vm_memory_bytes, survey.vm_memory_bytes),
        ] {
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
