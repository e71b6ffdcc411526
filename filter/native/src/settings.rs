//! Settings of one configuration.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_engine::InUse;
use tollgate_filter::{Binding, Config, Host, HostError, Worker};

/// Settings of one configuration, which the engines of its process use.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Tells it apart from all others of this Envoy's life.
    pub(crate) id: u64,
    pub(crate) config: Config,
    /// Fields of it that this version does not know.
    pub(crate) unknown: Vec<String>,
    /// Keeps its rules in all engines.
    user: InUse,
}

// === impl Settings ===

impl Settings {
    /// Returns the settings `config`, which no engine uses yet.
    pub(crate) fn new(config: Config, unknown: Vec<String>) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            config,
            unknown,
            user: InUse::default(),
        }
    }

    /// Makes an engine take them over.
    pub(crate) fn bind(
        &self,
        worker: &mut Worker<impl Host + Clone>,
    ) -> Result<Binding, HostError> {
        Binding::new(worker, &self.config, &self.unknown, &self.user)
    }
}
