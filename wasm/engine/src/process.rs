//! The process as one worker of it sees it.

use core::fmt::Display;
use core::time::Duration;

use tollgate_core::units::Instant;

use crate::config::{EngineConfig, Identity};
use crate::host::{Host, Level};
use crate::roots::Switches;
use crate::rules::Rules;
use crate::shared_table::{SharedTable, TableError, or_later};
use crate::stats::Stats;
use crate::usual_limits::UsualExchange;

/// Minimum time between two logged failures of the host or of the shared table.
const FAILURE_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Settings, host, shared table and counters of one worker: what each part of an engine is given.
#[derive(Debug)]
pub(crate) struct Process<H> {
    pub(crate) host: H,
    pub(crate) identity: Identity,
    /// Settings of the latest configuration, as far as they are the process's.
    pub(crate) config: EngineConfig,
    pub(crate) switches: Switches,
    pub(crate) rules: Rules,
    pub(crate) table: SharedTable,
    pub(crate) stats: Stats,
    usual_exchange: UsualExchange,
    last_failure: Option<Instant>,
}

// === impl Process ===

impl<H: Host> Process<H> {
    /// Returns a process without rules whose shared table has not been opened.
    pub(crate) fn new(host: H, identity: Identity, config: EngineConfig) -> Self {
        Self {
            host,
            identity,
            config,
            switches: Switches::default(),
            rules: Rules::default(),
            table: SharedTable::default(),
            stats: Stats::default(),
            usual_exchange: UsualExchange::default(),
            last_failure: None,
        }
    }

    /// Opens the shared table; not before the first request or tick, because a configuration is also
    /// tried out in a VM that is thrown away.
    pub(crate) fn open(&mut self) -> Result<(), TableError> {
        if self.table.is_open() {
            return Ok(());
        }
        let slots = self.table.open(&self.host, &self.identity, &self.config)?;
        let wanted = self.config.max_scopes;
        if slots != wanted {
            let message =
                format!("tollgate: max_scopes is {slots} until the process restarts, not {wanted}");
            self.host.log(Level::Warn, &message);
        }
        or_later(self.exchange_usual_limits(self.host.now()))
    }

    /// Exchanges the usual limits of the rules with the other workers, now and then.
    pub(crate) fn exchange_usual_limits(&mut self, now: Instant) -> Result<(), TableError> {
        let Self {
            host, table, rules, ..
        } = self;
        self.usual_exchange.exchange(host, now, table, rules)
    }

    /// Counts a failure of the host or the shared table, and logs it now and then.
    #[cold]
    pub(crate) fn fail(&mut self, error: &dyn Display) {
        self.stats.host_failures.add_one();
        let now = self.host.now();
        let fresh = |last| now.saturating_since(last) >= FAILURE_LOG_INTERVAL;
        if self.last_failure.is_none_or(fresh) {
            self.last_failure = Some(now);
            self.host.log(Level::Error, &format!("tollgate: {error}"));
        }
    }
}
