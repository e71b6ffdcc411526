//! Counters and gauges in Envoy's statistics.
//!
//! A host call per request would cost more than the decision, so an engine counts in its own memory,
//! and the difference since the last time is handed over on its ticks. Names are bounded by the
//! configuration: rules, never scopes. All workers of a process add to the same counters.

use core::time::Duration;
use std::collections::BTreeMap;

use tollgate_core::lease::Unit;
use tollgate_engine::{Counter, Engine, ProcessStats, Refusals, RuleStats, Stats};

use crate::engine_host::EngineHost;
use crate::host::{Host, HostError, Kind, Level, Metric};

/// The most metrics that are ever defined, for about a thousand names of rules: Envoy forgets none.
pub const METRICS_MAX: usize = 10_000;

/// Metrics of one worker, by name.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    metrics: BTreeMap<String, Metric>,
    /// In the order of [`Metrics::counters`].
    counters: Vec<Published>,
    /// By the ids of the rules.
    rules: Vec<OfRule>,
    /// In the order of [`levels`].
    gauges: Vec<Metric>,
    /// Whether there was a rule without metrics.
    is_full: bool,
    /// Waits of requests for their turn, in milliseconds, whatever became of them.
    wait_ms: Option<Metric>,
    /// Costs of requests that could not be read.
    pub(crate) invalid_costs: Counter,
    /// Fields of routes' metadata that are ignored.
    pub(crate) invalid_route_fields: Counter,
}

/// Counters of a rule, in the order of [`causes`].
#[derive(Debug)]
struct OfRule {
    name: String,
    counters: Vec<Published>,
}

/// A counter, and how much of it Envoy knows of.
#[derive(Debug)]
struct Published {
    metric: Metric,
    sent: u64,
}

// === impl Metrics ===

impl Metrics {
    /// Makes the process's metrics known to Envoy, once per VM.
    pub(crate) fn define<H: Host>(&mut self, host: &H) -> Result<(), HostError> {
        if self.wait_ms.is_some() {
            return Ok(());
        }
        // A configuration that is refused is counted by the root context, which has no worker then.
        self.metric(host, Kind::Counter, "config_rejected")?;
        let mut published = Vec::new();
        for (name, _) in self.counters(&Stats::default()) {
            published.push(self.counter(host, name)?);
        }
        self.counters = published;
        let mut gauges = Vec::new();
        for (name, _) in levels(&ProcessStats::default()) {
            gauges.push(self.metric(host, Kind::Gauge, name)?);
        }
        self.gauges = gauges;
        self.wait_ms = Some(self.metric(host, Kind::Histogram, "wait_ms")?);
        Ok(())
    }

    /// Makes the metrics of the engine's rules known to Envoy, as far as they are new: a rule may have the id of one that
    /// nobody uses any more.
    pub(crate) fn define_rules<H: Host>(
        &mut self,
        host: &H,
        engine: &Engine<EngineHost<H>>,
    ) -> Result<(), HostError> {
        for (index, (rule, _)) in engine.rule_stats().enumerate() {
            if self
                .rules
                .get(index)
                .is_some_and(|known| known.name == rule)
            {
                continue;
            }
            let name = rule.to_owned();
            let counters = self.counters_of(host, rule)?;
            let new = OfRule { name, counters };
            match self.rules.get_mut(index) {
                Some(known) => *known = new,
                None => self.rules.push(new),
            }
        }
        Ok(())
    }

    fn counters_of<H: Host>(&mut self, host: &H, rule: &str) -> Result<Vec<Published>, HostError> {
        let none = RuleStats::default();
        let names = causes(&none);
        let names = names.map(|(outcome, cause, _)| format!("{outcome}.{rule}.{cause}"));
        let names: Vec<_> = names.collect();
        let is_known = names.iter().all(|name| self.metrics.contains_key(name));
        let has_room = is_known || self.metrics.len() < METRICS_MAX;
        if !has_room && !core::mem::replace(&mut self.is_full, true) {
            let message =
                format!("tollgate: too many metrics: none of rule {rule} and of later ones");
            host.log(Level::Warn, &message);
        }
        let names = names.iter().filter(|_| has_room);
        names.map(|name| self.counter(host, name)).collect()
    }

    /// Hands over what the engine has counted since the last time, and how the process stands.
    pub(crate) fn publish<H: Host>(
        &mut self,
        host: &H,
        engine: &Engine<EngineHost<H>>,
    ) -> Result<(), HostError> {
        self.define_rules(host, engine)?;
        if let Some(process) = engine.process_stats() {
            for (metric, (_, level)) in self.gauges.iter().zip(levels(&process)) {
                host.record(*metric, level)?;
            }
        }
        let all = self.counters(engine.stats());
        for (published, (_, counter)) in self.counters.iter_mut().zip(all) {
            published.send(host, counter)?;
        }
        for (rule, (_, stats)) in self.rules.iter_mut().zip(engine.rule_stats()) {
            for (published, (_, _, counter)) in rule.counters.iter_mut().zip(causes(stats)) {
                published.send(host, counter)?;
            }
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

    fn counters(&self, stats: &Stats) -> [(&'static str, Counter); 23] {
        [
            ("allowed", stats.allowed),
            ("pending", stats.pending),
            ("waited", stats.waited),
            ("wait_timeouts", stats.wait_timeouts),
            ("wait_too_long", stats.wait_too_long),
            ("wait_full", stats.wait_full),
            ("refreshes", stats.refreshes),
            ("refresh_errors", stats.refresh_errors),
            ("nudges", stats.nudges),
            ("nudge_errors", stats.nudge_errors),
            ("watches", stats.watches),
            ("watch_floods", stats.watch_floods),
            ("lower_epochs", stats.lower_epochs),
            ("epoch_jumps", stats.epoch_jumps),
            ("overflow", stats.overflow),
            ("contended", stats.contended),
            ("host_failures", stats.host_failures),
            ("costs_unknown", stats.costs_unknown),
            ("tokens_reserved", stats.tokens_reserved),
            ("tokens_charged", stats.tokens_charged),
            ("tokens_refunded", stats.tokens_refunded),
            ("invalid_costs", self.invalid_costs),
            ("invalid_route_fields", self.invalid_route_fields),
        ]
    }

    fn counter<H: Host>(&mut self, host: &H, name: &str) -> Result<Published, HostError> {
        let metric = self.metric(host, Kind::Counter, name)?;
        Ok(Published { metric, sent: 0 })
    }

    /// The metric called `tollgate.<name>`; defining it twice in a VM would leak an id in Envoy.
    fn metric<H: Host>(&mut self, host: &H, kind: Kind, name: &str) -> Result<Metric, HostError> {
        if let Some(metric) = self.metrics.get(name) {
            return Ok(*metric);
        }
        let metric = host.define(kind, &format!("tollgate.{name}"))?;
        self.metrics.insert(name.to_owned(), metric);
        Ok(metric)
    }
}

// === impl Published ===

impl Published {
    fn send<H: Host>(&mut self, host: &H, counter: Counter) -> Result<(), HostError> {
        let count = counter.get();
        let more = count.saturating_sub(self.sent);
        if more > 0 {
            host.increment(self.metric, i64::try_from(more).unwrap_or(i64::MAX))?;
            self.sent = count;
        }
        Ok(())
    }
}

// === free functions ===

fn levels(process: &ProcessStats) -> [(&'static str, u64); 7] {
    [
        ("safe_mode", process.safe_mode),
        ("missing_clusters", process.missing_clusters),
        ("slots_used", process.slots_used),
        ("watch_streams", process.watch_streams),
        ("waiting", process.waiting),
        ("in_flight", process.in_flight),
        ("vm_memory_bytes", process.vm_memory_bytes),
    ]
}

/// The counters of a rule, each with its outcome and cause.
fn causes(rule: &RuleStats) -> impl Iterator<Item = (&'static str, &'static str, Counter)> {
    let by_cause = |outcome: &'static str, refusals: &Refusals| {
        [
            (Unit::Requests.name(), refusals.requests),
            (Unit::RequestBytes.name(), refusals.request_bytes),
            (Unit::ResponseBytes.name(), refusals.response_bytes),
            (Unit::Concurrency.name(), refusals.concurrency),
            ("missing", refusals.missing),
        ]
        .map(|(cause, counter)| (outcome, cause, counter))
    };
    let refused = by_cause("refused", &rule.refused).into_iter();
    refused.chain(by_cause("shadowed", &rule.shadowed))
}
