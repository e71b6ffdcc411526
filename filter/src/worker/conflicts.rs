//! Configurations in use that define a rule differently.

use core::time::Duration;

use tollgate_core::units::Instant;
use tollgate_engine::{InUse, Users};

use crate::config::Config;

/// Time in which one that an update has replaced is gone: Envoy drains listeners for ten minutes.
const UPDATE_MAX: Duration = Duration::from_mins(15);
const CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// Configurations of a worker, and whether it has warned of them.
#[derive(Debug, Default)]
pub(super) struct Conflicts {
    configs: Users<(Instant, Config)>,
    checked_at: Instant,
    has_warned: bool,
}

// === impl Conflicts ===

impl Conflicts {
    /// Adds a configuration that is in use from `now` on.
    pub(super) fn add(&mut self, user: &InUse, now: Instant, config: &Config) {
        self.configs.add(user, (now, config.clone()));
        self.has_warned = false;
    }

    /// Returns a warning if two have been in use for longer than an update takes, now and then and once.
    pub(super) fn warning(&mut self, now: Instant) -> Option<String> {
        if self.has_warned || now.saturating_since(self.checked_at) < CHECK_INTERVAL {
            return None;
        }
        self.checked_at = now;
        let is_old = |at: Instant| now.saturating_since(at) >= UPDATE_MAX;
        let old = self.configs.iter().filter(|(at, _)| is_old(*at));
        let old: Vec<_> = old.map(|(_, config)| config).collect();
        let (latest, others) = old.split_last()?;
        let conflicts = others.iter().flat_map(|first| first.conflicts(latest));
        let mut conflicts: Vec<_> = conflicts.collect();
        conflicts.dedup();
        if conflicts.is_empty() {
            return None;
        }
        self.has_warned = true;
        let conflicts = conflicts.join("; ");
        Some(format!(
            "tollgate: two configurations in use define a rule differently, of which the later counts for both: {conflicts}"
        ))
    }
}
