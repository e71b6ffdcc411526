//! Configurations in use that define a rule differently.

use core::time::Duration;
use std::collections::BTreeSet;

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
    last_warning: String,
}

// === impl Conflicts ===

impl Conflicts {
    /// Adds a configuration that is in use from `now` on.
    pub(super) fn add(&mut self, user: &InUse, now: Instant, config: &Config) {
        self.configs.add(user, (now, config.clone()));
    }

    /// Returns a warning if two have been in use for longer than an update takes, and it is not the last one. Looks now
    /// and then.
    pub(super) fn warning(&mut self, now: Instant) -> Option<String> {
        if now.saturating_since(self.checked_at) < CHECK_INTERVAL {
            return None;
        }
        self.checked_at = now;
        let is_old = |at: Instant| now.saturating_since(at) >= UPDATE_MAX;
        let old = self.configs.iter().filter(|(at, _)| is_old(*at));
        let old: Vec<_> = old.map(|(_, config)| config).collect();
        let pairs = (1..).zip(&old);
        let pairs =
            pairs.flat_map(|(next, first)| old.iter().skip(next).map(move |other| (first, other)));
        let conflicts = pairs.flat_map(|(first, other)| first.conflicts(other));
        let conflicts = Vec::from_iter(BTreeSet::from_iter(conflicts)).join("; ");
        if conflicts.is_empty() || conflicts == self.last_warning {
            return None;
        }
        let warning = format!(
            "tollgate: configurations in use define a rule differently, and one counts for all: {conflicts}"
        );
        self.last_warning = conflicts;
        Some(warning)
    }
}
