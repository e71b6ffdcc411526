//! A configuration of the filter in Envoy.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use tollgate_filter::{Config, ConfigError, HostError, Kind, Level, Worker};

use crate::at_hand::{self, AtHand};
use crate::envoy::{self, ConfigPtr};
use crate::host::NativeHost;
use crate::metrics::MetricIds;
use crate::process::{Attached, Process};
use crate::settings::Settings;
use crate::{address_calls, cluster_calls, ticker};

/// A configuration that Envoy uses.
#[derive(Debug)]
pub(crate) struct Configuration {
    pub(crate) settings: Arc<Settings>,
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
    pub(crate) fn load(envoy: ConfigPtr, json: &[u8]) -> Option<Self> {
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

    fn try_load(envoy: ConfigPtr, json: &[u8]) -> Result<Self, Rejected> {
        let (configuration, metric_ids) = Self::prepare(envoy, json)?;
        if !envoy::only_validates() {
            let take_over = || configuration.process.take_over(&configuration.settings);
            configuration.attach(envoy, metric_ids, take_over)?;
        }
        Ok(configuration)
    }

    /// Returns the configuration in `json`, which no engine uses yet, and its metrics.
    pub(crate) fn prepare(envoy: ConfigPtr, json: &[u8]) -> Result<(Self, MetricIds), Rejected> {
        let (mut config, unknown) = Config::parse(json)?;
        config.check_properties(crate::property::is_known)?;
        let process = Process::of(config.coordinator());
        // Dynamic modules have no expressions, so this refuses them.
        config.compile(&NativeHost::detached(&process))?;
        let settings = Arc::new(Settings::new(config, unknown));
        let metric_ids = defined(&process, envoy, &settings)?;
        Ok((Self { settings, process }, metric_ids))
    }

    /// Makes the process know it, and its engines by `take_over`. After a panic it is unknown again: Envoy
    /// then destroys it.
    pub(crate) fn attach(
        &self,
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
            settings: Arc::clone(&self.settings),
        });
        if let Err(panic) = catch_unwind(AssertUnwindSafe(take_over)) {
            self.detach();
            resume_unwind(panic);
        }
        Ok(())
    }

    /// Leaves the process; Envoy has no more streams with this configuration. If it was the latest, the engines
    /// go back to the one before.
    pub(crate) fn detach(&self) {
        let (process, id) = (&self.process, self.settings.id);
        let before = process.latest();
        if process.detach(id) {
            ticker::stop();
            address_calls::leave();
        }
        match process.latest() {
            None => address_calls::cancel_all_of(process.number()),
            Some(latest) if before.is_some_and(|before| before.id == id) => {
                process.take_over(&latest);
            }
            Some(_) => {}
        }
        cluster_calls::fail_all_of(process, id);
    }
}

// === free functions ===

/// Makes the metrics of a configuration known to Envoy, which allows it only while the configuration is new:
/// an engine that does nothing else asks for them.
fn defined(
    process: &Arc<Process>,
    envoy: ConfigPtr,
    settings: &Settings,
) -> Result<MetricIds, Rejected> {
    let subject = AtHand::Configuration(envoy, MetricIds::new());
    let (bound, subject) = at_hand::with(subject, || {
        let host = NativeHost::detached(process);
        let mut worker = Worker::new(host, process.identity(), &settings.config);
        settings.bind(&mut worker).map(|_| ())
    });
    bound?;
    match subject {
        AtHand::Configuration(_, ids) => Ok(ids),
        _ => Ok(MetricIds::new()),
    }
}
