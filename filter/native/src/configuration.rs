//! A configuration of the filter in Envoy.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_engine::InUse;
use tollgate_filter::{Binding, Config, ConfigError, HostError, Kind, Level, Worker};

use crate::address_calls;
use crate::at_hand::{self, AtHand};
use crate::calls::{self, StreamId};
use crate::envoy::{self, ConfigPtr};
use crate::host::NativeHost;
use crate::metrics::MetricIds;
use crate::process::{Attached, Process};
use crate::ticker;

/// A configuration that Envoy uses.
#[derive(Debug)]
pub(crate) struct Configuration {
    /// Tells it apart from all others of this Envoy's life.
    pub(crate) id: u64,
    pub(crate) config: Config,
    /// Fields of it that this version does not know.
    pub(crate) unknown: Vec<String>,
    /// Keeps its rules in all engines.
    user: InUse,
    pub(crate) process: Arc<Process>,
}

/// Why a configuration is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Rejected {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("Envoy gives no scheduler to the configuration")]
    NoScheduler,
    #[error("no thread for ticks could be started: {0}")]
    Ticker(std::io::Error),
}

// === impl Configuration ===

impl Configuration {
    /// Returns the configuration in `json`; `None` if it is refused, so that Envoy keeps the one before.
    pub(crate) fn load(envoy: ConfigPtr, json: &[u8]) -> Option<Arc<Self>> {
        match Self::try_load(envoy, json) {
            Ok(configuration) => Some(configuration),
            Err(error) => {
                let message = format!("tollgate: configuration refused: {error}");
                envoy::log(Level::Error, &message);
                if let Some(id) = envoy.define(Kind::Counter, "tollgate.config_rejected") {
                    envoy.add(id, 1);
                }
                None
            }
        }
    }

    fn try_load(envoy: ConfigPtr, json: &[u8]) -> Result<Arc<Self>, Rejected> {
        let (configuration, metric_ids) = Self::prepare(envoy, json)?;
        if !envoy::only_validates() {
            let take_over = || configuration.process.take_over(&configuration);
            configuration.attach(envoy, metric_ids, take_over)?;
        }
        Ok(configuration)
    }

    /// Returns the configuration in `json`, which no engine uses yet, and its metrics.
    pub(crate) fn prepare(
        envoy: ConfigPtr,
        json: &[u8],
    ) -> Result<(Arc<Self>, MetricIds), Rejected> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let (config, unknown) = Config::parse(json)?;
        config.check_properties(crate::property::is_known)?;
        let process = Process::of(config.coordinator());
        let config = compiled(config, &process)?;
        let metric_ids = defined(&process, envoy, &config, &unknown)?;
        let configuration = Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            config,
            unknown,
            user: InUse::default(),
            process,
        };
        Ok((Arc::new(configuration), metric_ids))
    }

    /// Makes the process know it, and its engines by `take_over`. After a panic it is unknown again: Envoy
    /// then destroys it.
    pub(crate) fn attach(
        self: &Arc<Self>,
        envoy: ConfigPtr,
        metric_ids: MetricIds,
        take_over: impl FnOnce(),
    ) -> Result<(), Rejected> {
        let scheduler = envoy.scheduler().ok_or(Rejected::NoScheduler)?;
        ticker::start().map_err(Rejected::Ticker)?;
        address_calls::enter();
        self.process.attach(Attached {
            envoy,
            scheduler,
            metric_ids,
            configuration: Arc::clone(self),
        });
        if let Err(panic) = catch_unwind(AssertUnwindSafe(take_over)) {
            self.detach();
            resume_unwind(panic);
        }
        Ok(())
    }

    /// Makes an engine take it over.
    pub(crate) fn bind(&self, worker: &mut Worker<NativeHost>) -> Result<Binding, HostError> {
        Binding::new(worker, &self.config, &self.unknown, &self.user)
    }

    /// Returns the stream that Envoy calls `number` in this configuration.
    pub(crate) fn stream(&self, number: u64) -> StreamId {
        StreamId {
            configuration: self.id,
            number,
        }
    }

    /// Leaves the process; Envoy has no more streams with this configuration. If it was the latest, the engines
    /// go back to the one before.
    pub(crate) fn detach(&self) {
        let before = self.process.latest();
        if self.process.detach(self.id) {
            ticker::stop();
            address_calls::leave();
        }
        match self.process.latest() {
            None => address_calls::cancel_all_of(&self.process),
            Some(latest) if before.is_some_and(|before| before.id == self.id) => {
                self.process.take_over(&latest);
            }
            Some(_) => {}
        }
        calls::fail_all_of(self);
    }
}

// === free functions ===

/// Returns `config` with its expressions made ready, of which dynamic modules have none.
fn compiled(mut config: Config, process: &Arc<Process>) -> Result<Config, Rejected> {
    config.compile(&NativeHost::detached(process))?;
    Ok(config)
}

/// Makes the metrics of `config` known to Envoy, which allows it only while the configuration is new: an
/// engine that does nothing else asks for them.
fn defined(
    process: &Arc<Process>,
    envoy: ConfigPtr,
    config: &Config,
    unknown: &[String],
) -> Result<MetricIds, Rejected> {
    let subject = AtHand::Configuration(envoy, MetricIds::new());
    let (bound, subject) = at_hand::with(subject, || {
        let host = NativeHost::detached(process);
        let mut worker = Worker::new(host, process.identity(), config);
        Binding::new(&mut worker, config, unknown, &InUse::default()).map(|_| ())
    });
    bound?;
    match subject {
        AtHand::Configuration(_, ids) => Ok(ids),
        _ => Ok(MetricIds::new()),
    }
}
