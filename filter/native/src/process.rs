//! A process as a client of one cluster of coordinators: what its workers share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tollgate_engine::{Identity, OwnSlots, SharedMemory};
use tollgate_filter::{HostError, Kind, Metric};

use crate::calls::{CallId, Calls, Order, StreamId};
use crate::engine::Engine;
use crate::envoy::{ConfigPtr, ConfigScheduler};
use crate::lock::lock;
use crate::metrics::{MetricIds, Metrics};
use crate::settings::Settings;

/// All processes, by the name of their coordinators. They stay, with the balances of their buckets, while
/// configurations come and go.
static PROCESSES: Mutex<BTreeMap<String, Arc<Process>>> = Mutex::new(BTreeMap::new());

/// State that the workers share that ask the same coordinators.
#[derive(Debug)]
pub(crate) struct Process {
    /// Tells it apart from all others.
    number: u64,
    pub(crate) slots: OwnSlots,
    /// Records that the workers share beside the slots, and that ticks read and write.
    pub(crate) records: Mutex<SharedMemory>,
    node: String,
    random: u128,
    engines: Mutex<Vec<Arc<dyn Engine>>>,
    /// Those that Envoy uses, oldest first.
    attached: Mutex<Vec<Attached>>,
    /// Held while Envoy resets a stream, so that its configuration stays. Hooks that run meanwhile may need
    /// `attached`.
    resets: Mutex<()>,
    calls: Mutex<Calls>,
    /// Names that are no cluster's, as far as was tried.
    missing_clusters: Mutex<BTreeSet<String>>,
    metrics: Mutex<Metrics>,
}

/// A configuration in use, with what it is in Envoy.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) envoy: ConfigPtr,
    pub(crate) scheduler: ConfigScheduler,
    pub(crate) metric_ids: MetricIds,
    pub(crate) settings: Arc<Settings>,
}

// === impl Process ===

impl Process {
    /// Returns the process as the client of the coordinators called `coordinator`.
    pub(crate) fn of(coordinator: &str) -> Arc<Self> {
        let mut processes = lock(&PROCESSES);
        let known = processes.entry(coordinator.to_owned());
        Arc::clone(known.or_insert_with(|| Arc::new(Self::new())))
    }

    /// Returns all processes.
    pub(crate) fn all() -> Vec<Arc<Self>> {
        lock(&PROCESSES).values().cloned().collect()
    }

    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut random = [0; 16];
        // Two clients with the same id would share a lease, so a constant is not good enough; the time
        // of the start is, together with the node.
        if getrandom::fill(&mut random).is_err() {
            random = u128::from(tollgate_filter::now().as_nanos()).to_le_bytes();
        }
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            slots: OwnSlots::default(),
            records: Mutex::default(),
            node: node(),
            random: u128::from_le_bytes(random),
            engines: Mutex::default(),
            attached: Mutex::default(),
            resets: Mutex::default(),
            calls: Mutex::default(),
            missing_clusters: Mutex::default(),
            metrics: Mutex::default(),
        }
    }

    /// Returns the identity of a new worker.
    pub(crate) fn identity(&self) -> Identity {
        let worker = getrandom::u64().unwrap_or_else(|_| tollgate_filter::now().as_nanos());
        Identity {
            worker,
            node: self.node.clone(),
            plugin: String::new(),
            process: self.random,
        }
    }

    /// Adds the engine of a new worker.
    pub(crate) fn add_engine(&self, engine: Arc<dyn Engine>) {
        lock(&self.engines).push(engine);
    }

    /// Returns the engines, without those that a panic has left behind: what waits there is decided
    /// without them.
    pub(crate) fn engines(&self) -> Vec<Arc<dyn Engine>> {
        let mut engines = lock(&self.engines);
        let lost: Vec<_> = engines.extract_if(.., |engine| engine.is_lost()).collect();
        let living = engines.clone();
        drop(engines);
        for engine in lost {
            engine.give_up(self.latest().map(|latest| latest.config.host_failure()));
        }
        living
    }

    /// Adds a configuration that Envoy uses from now on.
    pub(crate) fn attach(&self, attached: Attached) {
        lock(&self.attached).push(attached);
    }

    /// Removes a configuration; returns whether it was in use.
    pub(crate) fn detach(&self, id: u64) -> bool {
        let _kept = lock(&self.resets);
        let mut attached = lock(&self.attached);
        let index = attached.iter().position(|known| known.settings.id == id);
        index.map(|index| attached.remove(index)).is_some()
    }

    /// Returns the settings of the configuration that came last, if Envoy uses any.
    pub(crate) fn latest(&self) -> Option<Arc<Settings>> {
        let attached = lock(&self.attached);
        attached.last().map(|last| Arc::clone(&last.settings))
    }

    /// Returns whether Envoy uses any configuration.
    pub(crate) fn is_used(&self) -> bool {
        !lock(&self.attached).is_empty()
    }

    /// Makes all engines take new settings over.
    pub(crate) fn take_over(&self, settings: &Settings) {
        for engine in self.engines() {
            engine.take_over(settings);
        }
    }

    /// Returns the calls, for a short look.
    pub(crate) fn calls(&self) -> MutexGuard<'_, Calls> {
        lock(&self.calls)
    }

    /// Returns the number of the process, which no other one has.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number of the call that has `token` in this process.
    pub(crate) fn call_id(&self, token: u32) -> CallId {
        CallId {
            process: self.number,
            token,
        }
    }

    /// Orders something of the main thread, under a new token.
    ///
    /// # Errors
    /// If Envoy uses no configuration, or its main thread is stuck.
    pub(crate) fn order(&self, order: impl FnOnce(u32) -> Order) -> Result<u32, HostError> {
        let attached = lock(&self.attached);
        let latest = attached.last().ok_or(HostError {
            call: "start_http_stream",
            status: 0,
        })?;
        let mut calls = self.calls();
        if calls.is_full() {
            return Err(HostError {
                call: "config_scheduler_commit",
                status: 0,
            });
        }
        let token = calls.new_token();
        if calls.push(order(token)) {
            latest.scheduler.commit();
        }
        Ok(token)
    }

    /// Makes the main thread look after the orders, in the hook of the latest configuration; false if
    /// Envoy uses none.
    pub(crate) fn wake_main(&self) -> bool {
        let attached = lock(&self.attached);
        let latest = attached.last();
        latest.map(|latest| latest.scheduler.commit()).is_some()
    }

    /// Resets a stream, on the main thread. Its configuration may be an older one, which Envoy uses until
    /// connections have drained.
    pub(crate) fn reset_stream(&self, id: StreamId) {
        let _kept = lock(&self.resets);
        let envoy = {
            let attached = lock(&self.attached);
            let mut all = attached.iter();
            let known = all.find(|known| known.settings.id == id.configuration);
            known.map(|known| known.envoy)
        };
        if let Some(envoy) = envoy {
            envoy.reset_stream(id.number);
        }
    }

    /// Returns whether `name` was found to be no cluster's.
    pub(crate) fn lacks_cluster(&self, name: &str) -> bool {
        lock(&self.missing_clusters).contains(name)
    }

    /// Notes whether there is a cluster called `name`.
    pub(crate) fn note_cluster(&self, name: &str, exists: bool) {
        let mut missing = lock(&self.missing_clusters);
        if exists {
            missing.remove(name)
        } else {
            missing.insert(name.to_owned())
        };
    }

    /// Returns the number of a metric.
    pub(crate) fn metric(&self, kind: Kind, name: &str) -> Metric {
        lock(&self.metrics).number(kind, name)
    }

    /// Adds to a counter in Envoy, by the latest configuration that has it.
    pub(crate) fn add(&self, metric: Metric, by: u64) {
        self.with_metric(metric, |envoy, id| envoy.add(id, by));
    }

    /// Sets a gauge in Envoy, or adds a value to a histogram.
    pub(crate) fn record(&self, metric: Metric, value: u64) {
        let kind = lock(&self.metrics).kind(metric);
        match kind {
            Some(Kind::Gauge) => self.with_metric(metric, |envoy, id| envoy.set_gauge(id, value)),
            Some(Kind::Histogram) => {
                // Without a configuration there is no histogram.
                let _ = self.order(|_| Order::Record { metric, value });
            }
            Some(Kind::Counter) | None => {}
        }
    }

    /// Adds a value to a histogram, on the main thread.
    pub(crate) fn record_here(&self, metric: Metric, value: u64) {
        self.with_metric(metric, |envoy, id| envoy.record(id, value));
    }

    /// The lock is held meanwhile, so that Envoy does not destroy the configuration.
    fn with_metric(&self, metric: Metric, change: impl FnOnce(ConfigPtr, usize)) {
        let attached = lock(&self.attached);
        let mut latest_first = attached.iter().rev();
        let known =
            latest_first.find_map(|known| Some((known.envoy, *known.metric_ids.get(&metric)?)));
        if let Some((envoy, id)) = known {
            change(envoy, id);
        }
    }
}

// === free functions ===

/// The node's id, which Envoy does not tell dynamic modules: `TOLLGATE_NODE`, else `--service-node` of
/// the command line, else the name of the machine.
fn node() -> String {
    let of_environment = std::env::var("TOLLGATE_NODE").ok();
    let named = of_environment.filter(|name| !name.is_empty());
    named
        .or_else(|| service_node(std::env::args_os().filter_map(|arg| arg.into_string().ok())))
        .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok())
        .map(|name| name.trim().to_owned())
        .unwrap_or_default()
}

fn service_node(arguments: impl Iterator<Item = String>) -> Option<String> {
    const OPTION: &str = "--service-node";
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        match argument.strip_prefix(OPTION) {
            Some("") => return arguments.next(),
            Some(rest) if rest.starts_with(['=', ' ']) => return rest.get(1..).map(str::to_owned),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_is_read_from_the_command_line() {
        let node = |line: &str| service_node(line.split('|').map(str::to_owned));
        assert_eq!(
            node("envoy|--service-node|edge-1|-c|e.yaml").as_deref(),
            Some("edge-1")
        );
        assert_eq!(
            node("envoy|--service-node=edge-2").as_deref(),
            Some("edge-2")
        );
        assert_eq!(node("envoy|--service-node-x|edge-3"), None);
        assert_eq!(node("envoy|--service-node"), None);
    }
}
